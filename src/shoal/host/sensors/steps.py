"""The workload's own step time, from ring files that it writes (`shoal.ring`): the truth about any objective."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import compress
from operator import sub
from pathlib import Path

from shoal.core import Capability
from shoal.host.linux.members import Found
from shoal.host.sensors.base import Key, Quantity, Readings, Scope, missing
from shoal.host.types import Reading
from shoal.ring import Columns, Reader, Totals

TAIL_UNITS = 512
"""Units of work that the tail is taken over: fewer would have no 99th percentile."""
TAIL_EVERY_S = 1.0
"""No decision uses the tail, and to look at `TAIL_UNITS` units one by one costs more than all else here."""
_LOOK_EVERY_S = 1.0
_OF_FRESH = (Quantity.STEP, Quantity.RATE)


@dataclass(frozen=True, slots=True)
class _Fresh:
    """Units of work that were read together: when the first began and the last ended, and sums of their times."""

    began_s: float
    ended_s: float
    wall_s: float
    cpu_s: float
    units: int

    @property
    def due_s(self) -> float:
        """When the next unit should have ended."""
        return self.ended_s + self.wall_s / self.units


@dataclass(slots=True)
class _Ring:
    reader: Reader
    last: Totals | None = None
    heard: bool = False

    def fresh(self, since_s: float) -> _Fresh | None:
        """What ended since the last call, of what began after `since_s`. By the sums that the program keeps, unless
        some of it may have begun before: then unit by unit."""
        before, self.last = self.last, self.reader.totals()
        if before is not None and before == self.last:
            return None
        if before is not None and self.last is not None:
            new = self.last.since(before)
            if new.units and new.wall_ns >= 0 and before.end_ns - new.wall_ns / new.units >= since_s * 1e9:
                self.reader.skip(self.last.slots)
                return _Fresh(before.end_ns / 1e9, new.end_ns / 1e9, new.wall_ns / 1e9, new.cpu_ns / 1e9, new.units)
        columns = self.reader.read_columns()
        self.heard = self.heard or bool(columns.units)
        return _one_by_one(columns, since_s)


@dataclass(slots=True)
class _Group:
    path: Path
    looked_at: float = float("-inf")
    rings: dict[Path, _Ring] = field(default_factory=dict)
    fresh: _Fresh | None = None
    tail: Reading = field(default_factory=lambda: missing(""))
    tail_at: float = float("-inf")
    problem: str = "no program has written steps there yet"


class StepTimes:
    """`paths` names each group's ring file, or a directory of `*.ring` files, one per process, in it or one below."""

    name = "steps"

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._groups = {name: _Group(path) for name, path in paths.items()}

    def exchange(self, paths: Mapping[str, Path]) -> None:
        """Read these from now on. What was read of groups that stay is kept."""
        for name in [name for name, group in self._groups.items() if paths.get(name) != group.path]:
            _close(self._groups.pop(name))
        for name, path in paths.items():
            self._groups.setdefault(name, _Group(path))

    def capability(self) -> Capability:
        if self._groups:
            return Capability(self.name, True, f"rings of {', '.join(sorted(self._groups))}")
        return Capability(
            self.name,
            False,
            "no group says where its ring is",
            "how fast guaranteed work runs is guessed from memory latency",
        )

    def read(self, now: float, found: Mapping[str, Found], since: float) -> Readings:  # noqa: ARG002
        readings: dict[Key, Reading] = {}
        for name, group in self._groups.items():
            self._look(group, now)
            group.fresh = _new_units(group, since) or group.fresh
            readings |= {Key(q, Scope.GROUP, name): reading for q, reading in _readings(group, now, since).items()}
        return readings

    def close(self) -> None:
        for group in self._groups.values():
            _close(group)

    def _look(self, group: _Group, now: float) -> None:
        """Open rings that are new, again those that were replaced, and close those that are gone."""
        if now - group.looked_at < _LOOK_EVERY_S:
            return
        group.looked_at = now
        below = group.path.is_dir()
        present = {*group.path.glob("*.ring"), *group.path.glob("*/*.ring")} if below else {group.path}
        for path in present | set(group.rings):
            known = group.rings.get(path)
            try:
                inode = path.stat().st_ino
                if known is not None and known.reader.inode != inode:
                    group.rings.pop(path).reader.close()
                if path not in group.rings:
                    group.rings[path] = _Ring(Reader(path))
            except FileNotFoundError:
                if known is not None:
                    group.rings.pop(path).reader.close()
            except (OSError, ValueError) as problem:
                group.problem = f"{path}: {problem}"


def _close(group: _Group) -> None:
    for ring in group.rings.values():
        ring.reader.close()
    group.rings.clear()


def _new_units(group: _Group, since: float) -> _Fresh | None:
    found: list[_Fresh] = []
    for path, ring in list(group.rings.items()):
        try:
            fresh = ring.fresh(since)
        except (OSError, ValueError) as problem:
            group.problem = f"{path}: {problem}"
            group.rings.pop(path).reader.close()
        else:
            found += [fresh] if fresh is not None else []
    if len(found) <= 1:
        return found[0] if found else None
    return _Fresh(
        min(one.began_s for one in found), max(one.ended_s for one in found), sum(one.wall_s for one in found),
        sum(one.cpu_s for one in found), sum(one.units for one in found),
    )  # fmt: skip


def _one_by_one(columns: Columns, since_s: float) -> _Fresh | None:
    ends, walls, cpus, counts = columns
    begins = tuple(map(sub, ends, walls))
    if begins and min(begins) < since_s * 1e9:
        valid = [begin >= since_s * 1e9 for begin in begins]
        begins, ends, walls, cpus, counts = (tuple(compress(one, valid)) for one in (begins, ends, walls, cpus, counts))
    if not begins:
        return None
    return _Fresh(begins[0] / 1e9, ends[-1] / 1e9, sum(walls) / 1e9, sum(cpus) / 1e9, sum(counts))


def _readings(group: _Group, now: float, since: float) -> dict[Quantity, Reading]:
    fresh = group.fresh
    if fresh is None and not any(ring.heard for ring in group.rings.values()):
        return dict.fromkeys((*_OF_FRESH, Quantity.TAIL), missing(group.problem))
    if fresh is None or fresh.began_s < since:
        none = missing("no unit of work has begun and ended since other work was frozen or let go")
        return dict.fromkeys(_OF_FRESH, none) | {Quantity.TAIL: _tail(group, now)}
    # A unit that is under way is no silence: the age counts from when the next one should have ended.
    age = max(0.0, now - fresh.due_s)
    span = fresh.ended_s - fresh.began_s
    return {
        Quantity.STEP: Reading(fresh.cpu_s / fresh.units, age),
        Quantity.RATE: Reading(fresh.units / span, age) if span > 0 else missing("its clock stands still"),
        Quantity.TAIL: _tail(group, now),
    }


def _tail(group: _Group, now: float) -> Reading:
    if now - group.tail_at >= TAIL_EVERY_S:
        group.tail, group.tail_at = _read_tail(group, now), now
        return group.tail
    return Reading(group.tail.value, group.tail.age_s + now - group.tail_at)


def _read_tail(group: _Group, now: float) -> Reading:
    times: list[float] = []
    for path, ring in group.rings.items():
        try:
            times += ring.reader.newest(TAIL_UNITS)
        except (OSError, ValueError) as problem:
            group.problem = f"{path}: {problem}"
    if not times:
        return missing(group.problem)
    slowest = nlargest(len(times) - math.ceil(0.99 * len(times)) + 1, times)
    return Reading(slowest[-1] / 1e9, 0.0 if group.fresh is None else max(0.0, now - group.fresh.due_s))
