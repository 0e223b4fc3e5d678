"""Due times of news: quiet hours and digests by the clock of a place.

Pure functions of Unix seconds. Wall clocks skip and repeat hours: a time that is skipped means the moment
of the jump.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from shoal.core import Invalid

LONGEST_DELAY_S = 3 * 86_400.0
"""No news are held back for longer: a digest waits a day at most, quiet hours another, and a date may be skipped."""

_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_QUIET = re.compile(r"(\d\d:\d\d)-(\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class Schedule:
    """`quiet` is from one time of the day to another, perhaps over midnight. A digest is either of every `every_s`
    seconds or of each day at `daily`; 0 and None: everything is sent at once."""

    zone: str = "UTC"
    quiet: tuple[time, time] | None = None
    every_s: float = 0.0
    daily: time | None = None

    @property
    def digests(self) -> bool:
        return self.every_s > 0 or self.daily is not None


def read_clock(text: str, where: str) -> time:
    """`07:30`. Raises Invalid."""
    if not (found := _CLOCK.fullmatch(text)):
        raise Invalid(f"{text!r} is no time of the day", where=where, hint="such as 07:30")
    return time(int(found[1]), int(found[2]))


def read_quiet(text: str, where: str) -> tuple[time, time]:
    """`22:00-07:00`. Raises Invalid."""
    if not (found := _QUIET.fullmatch(text)):
        raise Invalid(f"{text!r} are no quiet hours", where=where, hint="such as 22:00-07:00")
    start, end = read_clock(found[1], where), read_clock(found[2], where)
    if start == end:
        raise Invalid("quiet hours that begin when they end say nothing", where=where, hint="such as 22:00-07:00")
    return start, end


def read_zone(name: str, where: str) -> str:
    """Raises Invalid for a time zone that this machine does not know. Only names of the list are looked up as files."""
    if name != "UTC" and name not in available_timezones():
        raise Invalid(f"there is no time zone {name!r}", where=where, hint="such as Europe/Berlin, or UTC")
    return name


def due_at(at: float, schedule: Schedule) -> float:
    """When news of this moment may be sent: then, or later."""
    zone = _zone(schedule.zone)
    due = at
    if schedule.every_s > 0:
        due = max(at, math.ceil(at / schedule.every_s) * schedule.every_s)
    elif schedule.daily is not None:
        due = _next(at, schedule.daily, zone)
    return due if schedule.quiet is None else _after_quiet(due, schedule.quiet, zone)


def is_due(due: float, now: float, longest_s: float = LONGEST_DELAY_S) -> bool:
    """Whether a time that was set has come. One further ahead than any is set was set by a clock that went wrong."""
    return due <= now or due > now + longest_s


def is_quiet(at: float, quiet: tuple[time, time], zone: tzinfo) -> bool:
    start, end = quiet
    now = _local(at, zone).time()
    return start <= now < end if start < end else now >= start or now < end


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def _local(at: float, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(at, zone)


def _after_quiet(at: float, quiet: tuple[time, time], zone: tzinfo) -> float:
    """The first moment from `at` on that is not in the quiet hours: they may go on where a date is skipped."""
    while is_quiet(at, quiet, zone):
        at = _next(at, quiet[1], zone)
    return at


def _next(at: float, clock: time, zone: tzinfo) -> float:
    """The first moment after `at` when the wall clock shows this time, or jumps over it."""
    day = _local(at, zone).date()
    days = (datetime.combine(day + timedelta(days=days), clock) for days in (-1, 0, 1, 2))
    return min(moment for wall in days for moment in _moments(wall, zone) if moment > at)


def _moments(wall: datetime, zone: tzinfo) -> list[float]:
    """When the wall clock shows this: once, twice, or never; then the moment at which it jumps over it."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    if first <= second:  # equal, or the hour is repeated
        return [first, second]
    before, after = second, first  # of a time that is skipped, PEP 495 gives moments on either side of the jump
    offset = _local(before, zone).utcoffset()
    while after - before > 0.5:
        middle = (before + after) / 2
        if _local(middle, zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return [float(round(after))]
