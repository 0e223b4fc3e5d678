"""Speed as others report it: cumulative counts of work done and time spent, from a serving gateway, a training
script's report lines, or anything else that counts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.core import Capability
from shoal.host.linux.members import Found
from shoal.host.sensors.base import FIRST, Key, Quantity, Readings, Scope, missing
from shoal.host.types import Reading

_TAIL_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Work:
    """What a group did since it started: `units` of work in `busy_s` seconds, as known at `at` (monotonic seconds)."""

    units: float
    busy_s: float
    at: float


class ReportedWork:
    """`tell` says what each group that reports has done by now; it must not block. Time is the reporter's own,
    normally wall time of computing: waiting for a CPU counts, waiting in a queue does not."""

    name = "reports"

    def __init__(self, tell: Callable[[float], Mapping[str, Work]] | None) -> None:
        self._tell = tell
        self._last: dict[str, Work] = {}
        self._told: dict[str, tuple[Work, Work]] = {}

    def capability(self) -> Capability:
        if self._tell is None:
            return Capability(self.name, False, "no program reports", "speed is known of groups with a ring only")
        return Capability(self.name, True, "cumulative counts of work")

    def read(self, now: float, found: Mapping[str, Found], since: float) -> Readings:  # noqa: ARG002
        if self._tell is None:
            return {}
        readings: dict[Key, Reading] = {}
        told = self._tell(now)
        if not told and not self._last:
            return readings
        for gone in self._last.keys() - told.keys():
            del self._last[gone]
            self._told.pop(gone, None)
        for name, work in told.items():
            last = self._last.get(name)
            if last is None or work.units < last.units or work.busy_s < last.busy_s:
                self._last[name] = work
                self._told.pop(name, None)
            elif work.units > last.units:
                self._told[name] = (last, work)
                self._last[name] = work
            readings |= _readings(name, self._told.get(name), now, since)
        return readings

    def close(self) -> None:
        return


def _readings(name: str, told: tuple[Work, Work] | None, now: float, since: float) -> dict[Key, Reading]:
    step, rate = Key(Quantity.STEP, Scope.GROUP, name), Key(Quantity.RATE, Scope.GROUP, name)
    if told is None:
        return {step: FIRST, rate: FIRST}
    first, last = told
    if first.at < since:
        none = missing("no work was reported since other work was frozen or let go")
        return {step: none, rate: none}
    units, span = last.units - first.units, last.at - first.at
    age = max(0.0, now - last.at - span)
    return {
        step: Reading((last.busy_s - first.busy_s) / units, age),
        rate: Reading(units / span, age) if span > 0 else missing("its clock stands still"),
    }


_METRIC = re.compile(r"^shoal_serve_(executions|compute_seconds)_total\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def gateway_work(exposition: str, at: float) -> Mapping[tuple[str, str], Work]:
    """Batches and their computing time by (tenant, model), from the text of a serving gateway's `/metrics`."""
    sums: dict[tuple[str, str], dict[str, float]] = {}
    for what, labels, value in _METRIC.findall(exposition):
        named = dict(_LABEL.findall(labels))
        totals = sums.setdefault((named.get("tenant", ""), named.get("model", "")), {})
        totals[what] = totals.get(what, 0.0) + float(value)
    return {
        key: Work(totals["executions"], totals["compute_seconds"], at)
        for key, totals in sums.items()
        if len(totals) == 2
    }


class ReportLines:
    """A training script's steps, from the JSON lines that `shoal.train` writes. `spent` says how many CPU seconds the
    group has used by now, so that its time per step counts no waiting."""

    def __init__(self, path: Path, spent: Callable[[], float | None], *, wall: Callable[[], float]) -> None:
        self._path = path
        self._spent = spent
        self._wall = wall
        self._samples: list[tuple[float, float]] = []
        self._work: Work | None = None
        self._step = -1.0
        self._read: tuple[int, tuple[float, float] | None] = (-1, None)

    def work(self, now: float) -> Work | None:
        """At the last reported step; None before there are two samples of CPU time around one."""
        wall, spent = self._wall(), self._spent()
        if spent is None:
            return self._work
        self._samples = [*self._samples[-63:], (wall, spent)]
        last = self._last_line()
        if last is not None and last[1] != self._step:
            at, step = last
            for (t0, c0), (t1, c1) in zip(self._samples, self._samples[1:], strict=False):
                if t0 <= at <= t1 and t1 > t0:
                    self._step = step
                    self._work = Work(step, c0 + (c1 - c0) * (at - t0) / (t1 - t0), now - (wall - at))
        return self._work

    def _last_line(self) -> tuple[float, float] | None:
        try:
            if self._path.stat().st_size == self._read[0]:
                return self._read[1]
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - _TAIL_BYTES))
                lines = file.read().split(b"\n")[:-1]  # what follows the last line end is not written whole
        except OSError:
            return None
        self._read = (size, next((one for one in map(_step_of, reversed(lines)) if one is not None), None))
        return self._read[1]


def _step_of(line: bytes) -> tuple[float, float] | None:
    """When a line was reported, and of which step; None if it reports something else."""
    try:
        record = json.loads(line)
        return (float(record["at"]), float(record["step"])) if "metrics" in record else None
    except (ValueError, KeyError, TypeError):
        return None
