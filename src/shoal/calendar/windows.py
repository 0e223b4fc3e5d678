"""Reservations and maintenance as people plan them, and the windows of time that they mean. Pure.

A plan repeats on the wall clock of its zone: a course from 14 to 16 is that in summer and in winter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from shoal.base.validation import shown
from shoal.calendar.schedule import day_later, moment_of, zone_of
from shoal.core import ANY, Invalid

_LENGTH = re.compile(r"\+(\d{1,5})(m|h|d)")
_UNITS = {"m": 60.0, "h": 3600.0, "d": 86_400.0}
_HINT = "such as 2026-12-03T14:00, on the wall clock of the zone"


class Repeat(StrEnum):
    """How a plan repeats."""

    NEVER = "never"
    DAILY = "daily"
    WEEKLY = "weekly"

    @property
    def days(self) -> int:
        return {Repeat.NEVER: 0, Repeat.DAILY: 1, Repeat.WEEKLY: 7}[self]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a person plans: from `begin` to `end`, and so again until `last` (None: for ever), times in Unix seconds.

    `tenant` is for whom devices are kept; None: for nobody, as during maintenance. `nodes` are where (empty: on any
    node). `accelerators` of `kind` are how many of their devices; None: all of them, with all that the nodes have.
    """

    id: str
    name: str
    tenant: str | None
    begin: float
    end: float
    nodes: tuple[str, ...] = ()
    accelerators: int | None = None
    kind: str = ANY
    repeat: Repeat = Repeat.NEVER
    last: float | None = None
    zone: str = "UTC"
    because: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """One time of a plan."""

    plan: Plan
    begin: float
    end: float


def windows_of(plan: Plan, since: float, until: float) -> Iterator[Window]:
    """Its windows that have a moment from `since` on and begin before `until`, in order."""
    step = plan.repeat.days
    if not step:
        if plan.end > since and plan.begin < until:
            yield Window(plan, plan.begin, plan.end)
        return
    count = max(0, int((since - plan.end) / (step * 86_400.0)) - 1)  # a day has 23 to 25 hours: start one early
    while True:
        begin = day_later(plan.begin, plan.zone, count * step)
        end = day_later(plan.end, plan.zone, count * step)
        if begin >= until or (plan.last is not None and begin > plan.last):
            return
        if since < end > begin:
            yield Window(plan, begin, end)
        count += 1


def all_windows(plans: Iterable[Plan], since: float, until: float) -> list[Window]:
    """Of all plans, by when they begin."""
    found = [window for plan in plans for window in windows_of(plan, since, until)]
    return sorted(found, key=lambda window: (window.begin, window.plan.id))


def moment(text: str, zone: str, where: str, after: float | None = None) -> float:
    """A time on the wall clock of a zone, or one with an offset of its own; or `+2h` behind another time. Raises
    Invalid."""
    length = _LENGTH.fullmatch(text.strip())
    if length is not None and after is not None:
        return after + int(length[1]) * _UNITS[length[2]]
    try:
        wall = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Invalid(f"{shown(text)} is no time", where=where, hint=_HINT) from None
    if not 2000 < wall.year < 3000:
        raise Invalid(f"{shown(text)} is no time to plan for", where=where, hint=_HINT)
    return wall.timestamp() if wall.tzinfo is not None else moment_of(wall, zone_of(zone))


def check(plan: Plan, now: float, nodes: Iterable[str]) -> None:
    """Raises Invalid for a plan that cannot be meant."""
    if plan.end <= plan.begin:
        raise Invalid("it ends before it begins", where="until", hint="--until is after --from")
    if plan.repeat is Repeat.NEVER and plan.end <= now:
        raise Invalid("it is over already", where="until", hint="plan for a time to come")
    if plan.repeat.days and plan.end - plan.begin > timedelta(days=plan.repeat.days).total_seconds():
        raise Invalid(
            f"it is longer than the time after which it repeats ({plan.repeat})", where="repeat", hint="make it shorter"
        )
    if unknown := sorted(set(plan.nodes) - set(nodes)):
        raise Invalid(f"there is no node {shown(unknown[0])}", where="nodes", hint="`shoal nodes` lists them")
    if plan.tenant is not None and plan.accelerators is None and not plan.nodes:
        raise Invalid("it says neither how many accelerators nor on which nodes", where="accelerators",
                      hint="--accelerators 2, or --nodes n1,n2 for whole nodes")  # fmt: skip
