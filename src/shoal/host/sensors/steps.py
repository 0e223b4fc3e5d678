"""The workload's own step time, from ring files that it writes (`shoal.ring`): the truth about any objective."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shoal.engine.protocol import Capability
from shoal.host.members import Found
from shoal.host.sensors.base import Key, Quantity, Readings, Scope, missing
from shoal.host.types import Reading
from shoal.ring import Reader, Unit

TAIL_UNITS = 512
"""Units of work that the tail is taken over: fewer would have no 99th percentile."""
TAIL_EVERY_S = 1.0
"""Nothing is decided by the tail, and to sort so many costs more than all else here."""
_LOOK_EVERY_S = 1.0


@dataclass(slots=True)
class _Group:
    path: Path
    looked_at: float = float("-inf")
    readers: dict[Path, Reader] = field(default_factory=dict)
    recent: deque[Unit] = field(default_factory=lambda: deque(maxlen=TAIL_UNITS))
    fresh: tuple[Unit, ...] = ()
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
            if len(group.readers) > 1:
                new.sort()
            valid = tuple(unit for unit in new if unit.end_s - unit.wall_s >= since)
            if valid:
                group.fresh = valid
            group.recent.extend(new)
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


def _new_units(group: _Group) -> list[Unit]:
    units: list[Unit] = []
    for path, reader in list(group.readers.items()):
        try:
            units += reader.read()
        except (OSError, ValueError) as problem:
            group.problem = f"{path}: {problem}"
            group.readers.pop(path).close()
    return units


def _readings(group: _Group, now: float, since: float) -> dict[Quantity, Reading]:
    quantities = (Quantity.STEP, Quantity.STEP_WALL, Quantity.RATE, Quantity.TAIL)
    if not group.recent:
        return dict.fromkeys(quantities, missing(group.problem))
    if not group.fresh or group.fresh[0].end_s - group.fresh[0].wall_s < since:
        none = missing("no unit of work has begun and ended since other work was frozen or let go")
        return dict.fromkeys(quantities[:3], none) | {Quantity.TAIL: _tail(group, now)}
    _, walls, spent, counts = zip(*group.fresh, strict=True)
    units, last = sum(counts), group.fresh[-1]
    # A unit that is under way is no silence: the age counts from when the next one should have ended.
    age = max(0.0, now - last.end_s - last.wall_s)
    span = last.end_s - group.fresh[0].end_s + group.fresh[0].wall_s
    return {
        Quantity.STEP: Reading(sum(spent) / units, age),
        Quantity.STEP_WALL: Reading(sum(walls) / units, age),
        Quantity.RATE: Reading(units / span, age) if span > 0 else missing("its clock stands still"),
        Quantity.TAIL: _tail(group, now),
    }


def _tail(group: _Group, now: float) -> Reading:
    if group.tail is None or now - group.tail_at >= TAIL_EVERY_S:
        times = sorted([unit.cpu_s / unit.units for unit in group.recent])
        last = group.recent[-1]
        age = max(0.0, now - last.end_s - last.wall_s)
        group.tail, group.tail_at = Reading(times[math.ceil(0.99 * len(times)) - 1], age), now
    return Reading(group.tail.value, group.tail.age_s + now - group.tail_at)
