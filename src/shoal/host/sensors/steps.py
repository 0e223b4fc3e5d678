"""The workload's own step time, from ring files that it writes (`shoal.ring`): the truth about any objective."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import compress
from operator import sub, truediv
from pathlib import Path

from shoal.engine.protocol import Capability
from shoal.host.members import Found
from shoal.host.sensors.base import Key, Quantity, Readings, Scope, missing
from shoal.host.types import Reading
from shoal.ring import Columns, Reader

TAIL_UNITS = 512
"""Units of work that the tail is taken over: fewer would have no 99th percentile."""
TAIL_EVERY_S = 1.0
"""Nothing is decided by the tail, and to sort so many costs more than all else here."""
_LOOK_EVERY_S = 1.0
_OF_FRESH = (Quantity.STEP, Quantity.STEP_WALL, Quantity.RATE)


@dataclass(frozen=True, slots=True)
class _Fresh:
    """Units of work that were read together: when the first began and the last ended, and their means."""

    began_s: float
    ended_s: float
    last_wall_s: float
    step_s: float
    wall_s: float
    units: int


@dataclass(slots=True)
class _Group:
    path: Path
    looked_at: float = float("-inf")
    readers: dict[Path, Reader] = field(default_factory=dict)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=TAIL_UNITS))
    """Nanoseconds of CPU time by unit."""
    due_s: float = 0.0
    """When the next unit should have ended, by the last one."""
    fresh: _Fresh | None = None
    tail: Reading | None = None
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
            new = _new_units(group)
            if new.units:
                _take(group, new, since)
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
        for path in present | set(group.readers):
            known = group.readers.get(path)
            try:
                inode = path.stat().st_ino
                if known is not None and known.inode != inode:
                    group.readers.pop(path).close()
                if path not in group.readers:
                    group.readers[path] = Reader(path)
            except FileNotFoundError:
                if known is not None:
                    group.readers.pop(path).close()
            except (OSError, ValueError) as problem:
                group.problem = f"{path}: {problem}"


def _close(group: _Group) -> None:
    for reader in group.readers.values():
        reader.close()
    group.readers.clear()


def _new_units(group: _Group) -> Columns:
    found: list[Columns] = []
    for path, reader in list(group.readers.items()):
        try:
            found.append(reader.read_columns())
        except (OSError, ValueError) as problem:
            group.problem = f"{path}: {problem}"
            group.readers.pop(path).close()
    if len(found) == 1:
        return found[0]
    units = sorted(unit for columns in found for unit in zip(*columns, strict=True))
    return Columns(*zip(*units, strict=True)) if units else Columns()


def _take(group: _Group, new: Columns, since: float) -> None:
    ends, walls, cpus, counts = new
    group.recent.extend(map(truediv, cpus, counts))
    group.due_s = (ends[-1] + walls[-1]) / 1e9
    begins = tuple(map(sub, ends, walls))
    if min(begins) < since * 1e9:
        valid = [begin >= since * 1e9 for begin in begins]
        if not any(valid):
            return
        begins, ends, walls, cpus, counts = (tuple(compress(one, valid)) for one in (begins, ends, walls, cpus, counts))
    units = sum(counts)
    group.fresh = _Fresh(
        begins[0] / 1e9, ends[-1] / 1e9, walls[-1] / 1e9, sum(cpus) / units / 1e9, sum(walls) / units / 1e9, units
    )


def _readings(group: _Group, now: float, since: float) -> dict[Quantity, Reading]:
    if not group.recent:
        return dict.fromkeys((*_OF_FRESH, Quantity.TAIL), missing(group.problem))
    fresh = group.fresh
    if fresh is None or fresh.began_s < since:
        none = missing("no unit of work has begun and ended since other work was frozen or let go")
        return dict.fromkeys(_OF_FRESH, none) | {Quantity.TAIL: _tail(group, now)}
    # A unit that is under way is no silence: the age counts from when the next one should have ended.
    age = max(0.0, now - fresh.ended_s - fresh.last_wall_s)
    span = fresh.ended_s - fresh.began_s
    return {
        Quantity.STEP: Reading(fresh.step_s, age),
        Quantity.STEP_WALL: Reading(fresh.wall_s, age),
        Quantity.RATE: Reading(fresh.units / span, age) if span > 0 else missing("its clock stands still"),
        Quantity.TAIL: _tail(group, now),
    }


def _tail(group: _Group, now: float) -> Reading:
    if group.tail is None or now - group.tail_at >= TAIL_EVERY_S:
        times = sorted(group.recent)
        age = max(0.0, now - group.due_s)
        group.tail, group.tail_at = Reading(times[math.ceil(0.99 * len(times)) - 1] / 1e9, age), now
    return Reading(group.tail.value, group.tail.age_s + now - group.tail_at)
