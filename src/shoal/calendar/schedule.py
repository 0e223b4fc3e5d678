"""Due times of a cron job: its expression on the wall clock of its zone, and the rule for missed times. Pure.

A time of the wall clock happens once a day, whatever the clock does. One that is skipped in spring means the moment of
the change; one that comes twice in autumn means the first of both. Expressions that run in every hour (`*` or `*/N` for
the hour) go by elapsed time instead, as in Debian's cron: no hour is left out, and none is longer than the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

from shoal.base.validation import shown
from shoal.core import Invalid

MOST_TEXT = 200
MOST_COUNTED = 1000
"""The maximum number of missed times that are counted one by one."""

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_HINT = "minute, hour, day of the month, month, day of the week: `0 3 * * 1-5`; or @hourly, @daily, @weekly, @monthly"
_LOOKED_BACK_S = (3600.0, 86_400.0, 32 * 86_400.0, 366 * 86_400.0, 8 * 366 * 86_400.0)


class Overlap(StrEnum):
    """What becomes of a time at which the job of the time before is not over: it is left out, or its job waits for the
    end of that one, or its job takes the place of that one, which is cancelled."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class Missed(StrEnum):
    """What becomes of times at which no server ran, or the cron job was suspended by the server's own absence: one job
    for all of them, or none."""

    RUN_ONCE = "run-once"
    SKIP = "skip"


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo:
    """Raises Invalid for a zone that this machine does not know."""
    with suppress(ValueError, OSError, KeyError):
        return ZoneInfo(name)
    raise Invalid(f"there is no time zone {shown(name)}", where="zone", hint="such as Europe/Berlin, or UTC")


@dataclass(frozen=True, slots=True)
class Schedule:
    """An expression of five fields, on the wall clock of a zone. Raises Invalid; see `check`."""

    expression: str
    zone: str = "UTC"

    @property
    def fields(self) -> tuple[str, ...]:
        text = self.expression.strip()
        return tuple(_NAMED.get(text.lower(), text).split())

    def check(self, now: float) -> float:
        """The first time after `now`. Raises Invalid for an expression that means none, or a zone that is not known."""
        from cronsim import CronSimError

        zone_of(self.zone)
        try:
            if len(self.expression) > MOST_TEXT or len(self.fields) != 5:
                raise CronSimError("it has not five fields")
            return next(self.times(now))
        except CronSimError as error:
            what = f"{shown(self.expression)} is no cron expression: {str(error)[:1].lower()}{str(error)[1:]}"
            raise Invalid(what, where="at", hint=_HINT) from None
        except StopIteration:
            raise Invalid(f"{shown(self.expression)} never comes", where="at", hint=_HINT) from None

    def times(self, after: float) -> Iterator[float]:
        """All times after that one, in Unix seconds, rising."""
        from cronsim import CronSim  # of the server: commands know its times from it

        zone = zone_of(self.zone)
        text = " ".join(self.fields)
        began = datetime.fromtimestamp(after, zone)
        if self.fields[1].startswith("*"):
            # With a zone, and a star for the minute or not, cronsim counts elapsed time: but only a star for both or
            # one of them tells it so, and here the hour has one.
            for moment in CronSim(text, began):
                yield moment.timestamp()
            return
        last = after
        for moment in CronSim(text, began.replace(tzinfo=None)):
            at = moment_of(moment, zone)
            if at > last:
                yield at
                last = at

    def latest(self, after: float, until: float) -> float | None:
        """The last time after the one and not after the other; None if there is none."""
        for back_s in (*_LOOKED_BACK_S, until - after):
            found = None
            for at in self.times(max(after, until - back_s)):
                if at > until:
                    break
                found = at
            if found is not None or until - back_s <= after:
                return found
        return None


def moment_of(wall: datetime, zone: ZoneInfo) -> float:
    """When a wall clock shows that first; for a time that it skips, when it does so."""
    at = wall.replace(tzinfo=zone).timestamp()  # of two, the first; of one that is skipped, by the offset before
    back = datetime.fromtimestamp(at, zone).replace(tzinfo=None)
    if back == wall:
        return at
    low, high = at - (back - wall).total_seconds() - 1, at  # the change lies between: the offset grew there
    before = datetime.fromtimestamp(low, zone).utcoffset()
    while high - low > 0.5:
        middle = (low + high) / 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return float(round(high))


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done about a cron job now: its job of the time `at`, if any, and the times `missed`, which get none
    (at least this number). `position` is the last time that this settles; `next_at` the one after it."""

    at: float | None
    missed: int
    position: float
    next_at: float | None


def due(schedule: Schedule, position: float, now: float, missed: Missed, late_s: float) -> Due:
    """Everything from the time after `position` to `now` is settled: at most one job for it. A time counts as missed if
    it is more than `late_s` ago. A clock that was set back makes nothing due twice: `position` is in the future then.
    """
    last = schedule.latest(position, now) if now > position else None
    if last is None:
        return Due(None, 0, position, next(schedule.times(position), None))
    passed = _count(schedule, position, last)
    runs = missed is Missed.RUN_ONCE or now - last <= late_s
    return Due(last if runs else None, passed - runs, last, next(schedule.times(last), None))


def _count(schedule: Schedule, after: float, until: float) -> int:
    found = 0
    for at in schedule.times(after):
        if at > until or found >= MOST_COUNTED:
            break
        found += 1
    return found


def shown_at(at: float, zone: str) -> str:
    """A time on the wall clock of a zone, for people."""
    moment = datetime.fromtimestamp(at, zone_of(zone))
    return f"{moment:%Y-%m-%d %H:%M %Z}"


def day_later(at: float, zone: str, days: int) -> float:
    """The same time on the wall clock, this number of days later."""
    wall = datetime.fromtimestamp(at, zone_of(zone)).replace(tzinfo=None)
    return moment_of(wall + timedelta(days=days), zone_of(zone))
