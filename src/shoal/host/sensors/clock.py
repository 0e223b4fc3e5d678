"""CPUs that a group keeps busy, by the clocks that the kernel keeps of processes: a system call each, no file."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from shoal.core import Capability
from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.linux.members import Found, Process
from shoal.host.sensors.base import FIRST, Key, Quantity, Readings, Scope
from shoal.host.types import Reading

SPAN_S = 0.3
"""What a mean is over: three periods of a CPU quota, which lets work run in one burst a period."""


@dataclass(slots=True)
class _Spent:
    """CPU seconds of a group since it was first seen, some moments back."""

    total_s: float = 0.0
    known: dict[Process, float] = field(default_factory=dict)
    moments: deque[tuple[float, float]] = field(default_factory=deque)


class CpuClocks:
    """A process that joined a group has done nothing in it before it was first seen there."""

    name = "cpu-clock"

    def __init__(self, *, kernel: Kernel = LINUX) -> None:
        self._kernel = kernel
        self._groups: dict[str, _Spent] = {}

    def capability(self) -> Capability:
        return Capability(self.name, True, "CPU time of each process")

    def read(self, now: float, found: Mapping[str, Found], since: float) -> Readings:  # noqa: ARG002
        for gone in self._groups.keys() - found.keys():
            del self._groups[gone]
        return {
            Key(Quantity.CPUS, Scope.GROUP, name): self._busy(self._groups.setdefault(name, _Spent()), members, now)
            for name, members in found.items()
        }

    def close(self) -> None:
        self._groups.clear()

    def _busy(self, group: _Spent, members: Found, now: float) -> Reading:
        before, group.known = group.known, {}
        for process in members.processes:
            try:
                group.known[process] = spent = self._kernel.cpu_s(process.pid)
            except OSError:  # it has ended
                continue
            group.total_s += spent - before.get(process, spent)
        moments = group.moments
        moments.append((now, group.total_s))
        while len(moments) > 2 and moments[1][0] <= now - SPAN_S:
            moments.popleft()
        at, total_s = moments[0]
        return Reading((group.total_s - total_s) / (now - at)) if now > at else FIRST
