"""CPU time that groups get and wait for, by the scheduler's own books: it separates waiting for a CPU from waiting for
memory. And what a quota or the hypervisor takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.core import Capability
from shoal.host.linux.fs import LINUX, Kernel, threads
from shoal.host.linux.hierarchies import Hierarchy, serving, unified
from shoal.host.linux.members import Found, Process
from shoal.host.sensors.base import FIRST, Key, Quantity, Rates, Readings, Scope, missing
from shoal.host.types import Reading

STEAL_EVERY_S = 0.5
"""To read /proc/stat the kernel adds up every interrupt of every CPU."""


class SchedulerStatistics:
    """Thread by thread from /proc/PID/task/TID/schedstat, so that ended threads take nothing with them."""

    name = "schedstat"

    def __init__(self, *, kernel: Kernel = LINUX) -> None:
        self._kernel = kernel
        self._rates = Rates()
        self._last: dict[str, tuple[float, Found, dict[int, tuple[int, int]]]] = {}
        self._cpu = serving(kernel, "cpu") or unified(kernel)
        self._stolen, self._stolen_at = FIRST, float("-inf")

    def capability(self) -> Capability:
        if self._kernel.exists("/proc/self/schedstat"):
            return Capability(self.name, True, "/proc/PID/task/TID/schedstat, /proc/stat")
        lost = "idle best-effort work is not told from busy, nor waiting for a CPU from waiting for memory"
        return Capability(self.name, False, "this kernel keeps no schedstat (CONFIG_SCHED_INFO)", lost)

    def read(self, now: float, found: Mapping[str, Found], since: float) -> Readings:  # noqa: ARG002
        readings: dict[Key, Reading] = {Key(Quantity.STEAL, Scope.HOST): self._steal(now)}
        for name in set(self._last) - set(found):
            del self._last[name]
        for name, members in found.items():
            cpus, wait = self._used(name, members, now)
            readings[Key(Quantity.CPUS, Scope.GROUP, name)] = cpus
            readings[Key(Quantity.WAIT, Scope.GROUP, name)] = wait
            readings[Key(Quantity.THROTTLED, Scope.GROUP, name)] = self._throttled(name, members, now)
        return readings

    def close(self) -> None:
        self._last.clear()

    def _books(self, processes: Iterable[Process]) -> dict[int, tuple[int, int]]:
        """Nanoseconds run and waited, by thread."""
        books = {}
        for process in processes:
            for tid in threads(self._kernel, process.pid):
                try:
                    run, wait, _ = self._kernel.read(f"/proc/{process.pid}/task/{tid}/schedstat").split()
                except (OSError, ValueError):
                    continue
                books[tid] = (int(run), int(wait))
        return books

    def _used(self, name: str, members: Found, now: float) -> tuple[Reading, Reading]:
        books, last = self._books(members.processes), self._last.get(name)
        self._last[name] = (now, members, books)
        if last is None or now <= last[0]:
            return FIRST, FIRST
        at, then, before = last
        # A thread that was born since has done all of its work since; one whose process joined since has not.
        joined = {tid for process in members.processes - then.processes for tid in threads(self._kernel, process.pid)}
        run = wait = 0
        for tid, (ran, waited) in books.items():
            start = before.get(tid, (ran, waited) if tid in joined else (0, 0))
            if ran >= start[0] and waited >= start[1]:
                run, wait = run + ran - start[0], wait + waited - start[1]
        return Reading(run / 1e9 / (now - at)), Reading(wait / run) if run else missing("it did not run")

    def _throttled(self, name: str, members: Found, now: float) -> Reading:
        directory = _common(self._kernel, self._cpu, members)
        if directory is None:
            return missing("its processes share their cgroup with others")
        try:
            words = self._kernel.read(f"{directory}/cpu.stat").split()
        except OSError as problem:
            return missing(f"{directory}/cpu.stat: {problem.strerror}")
        stat = dict(zip(words[::2], words[1::2], strict=False))
        if "nr_throttled" not in stat:
            return missing("it has no CPU quota")
        periods = self._rates.rate((name, directory, "periods"), int(stat["nr_periods"]), now)
        throttled = self._rates.rate((name, directory, "throttled"), int(stat["nr_throttled"]), now)
        if periods is None or throttled is None:
            return FIRST
        return Reading(min(1.0, throttled / periods) if periods else 0.0)

    def _steal(self, now: float) -> Reading:
        if now - self._stolen_at >= STEAL_EVERY_S:
            self._stolen, self._stolen_at = self._read_steal(now), now
        return Reading(self._stolen.value, now - self._stolen_at)

    def _read_steal(self, now: float) -> Reading:
        fields = [int(field) for field in self._kernel.read("/proc/stat").partition("\n")[0].split()[1:9]]
        total = self._rates.rate("total", sum(fields), now)
        steal = self._rates.rate("steal", fields[7], now)
        if total is None or steal is None:
            return FIRST
        return Reading(steal / total) if total else missing("no tick of the clock has passed")


def _common(kernel: Kernel, hierarchy: Hierarchy | None, members: Found) -> str | None:
    """The directory of one of its processes, unless that is the root: good enough to see whether it is throttled."""
    if hierarchy is None or not members.processes:
        return None
    directory = hierarchy.directory(kernel, min(members.processes).pid)
    return None if directory == hierarchy.top else directory
