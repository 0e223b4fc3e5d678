"""The input pipeline on one CPU, neighbours on another, side by side in windows whose topology is known.

Before, after and every second, with everything stopped for a moment, a ping-pong says whether the two CPUs share a
memory domain; windows during which that changed, or in which the pipeline did not get its CPU, are marked, and count
for nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from host.kernels import MemoryKernel
from host.limits import Feed, Limit, prefer
from host.neighbour import counter
from shoal.core import Unavailable
from shoal.host.linux.fs import LINUX, family
from shoal.host.linux.native import load
from shoal.host.linux.topology import decided
from shoal.host.types import Missing
from shoal.ring import ENVIRONMENT, Reader, Unit

WINDOW_S = 0.5
SETTLE_S = 0.1
LEAST_CPU = 0.8
"""A window in which the pipeline got less of its CPU measures the machine's other work."""
INTERRUPTED_S = 0.0001
"""A step that waited longer than this for its CPU met with other work there, and with that work's cache lines."""
MOST_TAKEN = 0.15
"""A window in which other work or the hypervisor took more of the neighbours' CPU says nothing of what limits leave."""
LEAST_STEPS = 50
_READ_EVERY_S = 0.25
"""A ring of 1024 steps is overwritten after half a second at the earliest."""
_LOOK_EVERY_S = 1.0
"""A hypervisor may move CPUs there and back within seconds."""
_LOOK_ROUNDS = 300
"""Of a ping-pong: few enough to pass between two burns of a paced core."""
_LOOK_S = 0.05
_LOOKS = 12
"""How often it is tried at most: other work in one of the CPUs spoils about every fourth."""
_START_S = 60.0


def told_twice(look: Callable[[], bool | None]) -> bool | None:
    """The first of both answers that came twice: one that other work disturbed counts for nothing. None: neither."""
    answers = {True: 0, False: 0, None: 0}
    for _ in range(_LOOKS):
        answer = look()
        answers[answer] += 1
        if answer is not None and answers[answer] == 2:
            return answer
    return None


def _nothing() -> float:
    return 0.0


def unlimited(_: Mapping[str, int]) -> nullcontext[None]:
    """The limit that is none."""
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Phase:
    """These neighbours run (none: the pipeline is alone) for so long."""

    kernels: tuple[MemoryKernel, ...]
    seconds: float


ALONE = Phase((), WINDOW_S)


@dataclass(frozen=True, slots=True)
class Window:
    """What one phase showed, between two moments of the monotonic clock.

    `told` is what was said about the two CPUs sharing a domain: both, when one of them moved. `units` are
    the pipeline's steps, `moved` the bytes that each neighbour moved (rounds, of one that only spins), `limiting` the
    CPU seconds of whatever limited them, `taken` those of the neighbours' CPU that went to none of them.
    """

    told: frozenset[bool]
    began_s: float
    ended_s: float
    units: tuple[Unit, ...]
    moved: Mapping[MemoryKernel, int]
    limiting: float = 0.0
    taken: float = 0.0

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s

    @property
    def steps_s(self) -> NDArray[np.float64]:
        """(n,): the CPU time of each step that was not interrupted."""
        return np.array([unit.cpu_s for unit in self.units if unit.wall_s - unit.cpu_s < INTERRUPTED_S])

    @property
    def cpu(self) -> float:
        """What the pipeline got of its CPU."""
        wall = sum(unit.wall_s for unit in self.units)
        return sum(unit.cpu_s for unit in self.units) / wall if wall else 0.0

    def mean_s(self) -> float:
        return float(self.steps_s.mean())

    def percentile_s(self, percent: float) -> float:
        return float(np.percentile(self.steps_s, percent))

    def wall_percentile_s(self, percent: float) -> float:
        """Of all steps, waiting for the CPU included."""
        return float(np.percentile([unit.wall_s for unit in self.units], percent))

    def steps_per_s(self) -> float:
        """By the clock: waiting for the CPU counts."""
        return len(self.units) / self.seconds

    def per_s(self, kernel: MemoryKernel) -> float:
        return self.moved.get(kernel, 0) / self.seconds


class Rig:
    """A context in which the processes exist, stopped but for windows. Raises Unavailable where they cannot run."""

    def __init__(self, *, cpu: int = 0, neighbour_cpu: int = 1) -> None:
        native = load()
        if isinstance(native, Missing):
            raise Unavailable(native.reason)
        if not {cpu, neighbour_cpu} <= os.sched_getaffinity(0):
            raise Unavailable(
                f"CPUs {cpu} and {neighbour_cpu} are wanted, and these are ours: {os.sched_getaffinity(0)}"
            )
        self.cpu, self.neighbour_cpu = cpu, neighbour_cpu
        self._native = native
        self._stack = ExitStack()
        self._sames: set[bool | None] = set()
        self._neighbours: dict[MemoryKernel, tuple[subprocess.Popen[bytes], ctypes.c_uint64]] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-rig-", dir="/dev/shm")))
            ring = self._home / "steps.ring"
            self._pipeline = self._run(stack, "pipeline", "--cpu", str(self.cpu), environment={ENVIRONMENT: str(ring)})
            self.feed = Feed(self._pipeline.pid, ring)
            self._await(self._pipeline, ring.exists)
            self._steps = Reader(ring)
            self._await(self._pipeline, lambda: bool(self._steps.read()))
            self._pipeline.send_signal(signal.SIGSTOP)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def same_domain(self) -> bool | None:
        """At this moment, while everything is stopped; None when it cannot be told."""
        cpus = (self.cpu, self.neighbour_cpu)
        return told_twice(lambda: decided(self._native.ping_pong(*cpus, rounds=_LOOK_ROUNDS, limit_s=_LOOK_S)))

    def window(
        self,
        *kernels: MemoryKernel,
        limit: Limit = unlimited,
        seconds: float = WINDOW_S,
        settle_s: float = SETTLE_S,
        quiet_s: float = 0.0,
    ) -> Window:
        """The pipeline beside these neighbours under this limit."""
        return self.windows([Phase(kernels, seconds)], limit=limit, settle_s=settle_s, quiet_s=quiet_s)[0]

    def windows(
        self, phases: Sequence[Phase], *, limit: Limit = unlimited, settle_s: float = SETTLE_S, quiet_s: float = 0.0
    ) -> tuple[Window, ...]:
        """One phase after the other under one limit. The pipeline is alone for the first `quiet_s`, the first phase
        begins `settle_s` after its neighbours did."""
        everyone = {kernel: self._neighbour(kernel) for phase in phases for kernel in phase.kernels}
        self._sames = {self.same_domain()}
        try:
            with limit({kernel.name.lower(): process.pid for kernel, (process, _) in everyone.items()}) as cpu_s:
                self._continue(())
                self._wait(quiet_s)
                self._continue(phases[0].kernels)
                self._wait(settle_s)
                found = [self._window(phase, cpu_s or _nothing) for phase in phases]
        finally:
            self._stop()
        time.sleep(0.002)
        self._sames.add(self.same_domain())
        told = frozenset(one for one in self._sames if one is not None)
        return tuple(Window(told, *one) for one in found)

    @contextmanager
    def neighbours(self, *kernels: MemoryKernel, limit: Limit = unlimited) -> Iterator[None]:
        """These run inside the context under this limit, without the pipeline: beside whatever else there is."""
        everyone = {kernel: self._neighbour(kernel) for kernel in kernels}
        try:
            with limit({kernel.name.lower(): process.pid for kernel, (process, _) in everyone.items()}):
                self._continue(kernels)
                self._pipeline.send_signal(signal.SIGSTOP)
                yield
        finally:
            self._stop()

    def _window(
        self, phase: Phase, cpu_s: Callable[[], float]
    ) -> tuple[float, float, tuple[Unit, ...], dict[MemoryKernel, int], float, float]:
        counters = {kernel: self._neighbours[kernel][1] for kernel in phase.kernels}
        self._steps.read()
        spent, taken = cpu_s(), self._taken_s()
        first = {kernel: moved.value for kernel, moved in counters.items()}
        began = time.monotonic()
        units: list[Unit] = []
        while (left := phase.seconds - (time.monotonic() - began)) > 0:
            self._continue(phase.kernels)
            units += self._wait(min(left, _LOOK_EVERY_S))
            self._stop()
            self._sames.add(self.same_domain())
        ended = time.monotonic()
        moved = {kernel: count.value - first[kernel] for kernel, count in counters.items()}
        return began, ended, tuple(units), moved, cpu_s() - spent, self._taken_s() - taken

    def _taken_s(self) -> float:
        """CPU seconds of the neighbours' CPU so far that neither this process nor any that it started has used."""
        name = f"cpu{self.neighbour_cpu}"
        lines = map(str.split, LINUX.read("/proc/stat").splitlines())
        _, user, nice, system, _, _, irq, softirq, steal, *_ = next(line for line in lines if line[0] == name)
        busy = sum(map(int, (user, nice, system, irq, softirq, steal))) / os.sysconf("SC_CLK_TCK")
        return busy - sum(LINUX.cpu_s(pid) for pid in family(LINUX, os.getpid()) if pid != self._pipeline.pid)

    def _wait(self, seconds: float) -> list[Unit]:
        """The pipeline's steps meanwhile."""
        found: list[Unit] = []
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(_READ_EVERY_S, left))
            found += self._steps.read()
        return found

    def _continue(self, kernels: Sequence[MemoryKernel]) -> None:
        """The pipeline and these neighbours run from now on, and no others."""
        for kernel, (process, _) in self._neighbours.items():
            process.send_signal(signal.SIGCONT if kernel in kernels else signal.SIGSTOP)
        self._pipeline.send_signal(signal.SIGCONT)

    def _stop(self) -> None:
        for process in (self._pipeline, *(process for process, _ in self._neighbours.values())):
            process.send_signal(signal.SIGSTOP)

    def _neighbour(self, kernel: MemoryKernel) -> tuple[subprocess.Popen[bytes], ctypes.c_uint64]:
        if kernel not in self._neighbours:
            page = self._home / f"{kernel.name}.page"
            name = kernel.name.lower().replace("_", "-")
            arguments = ("--kernel", name, "--cpu", str(self.neighbour_cpu), "--page", str(page))
            process = self._run(self._stack, "neighbour", *arguments)
            self._await(process, lambda: page.exists() and page.stat().st_size > 0 and counter(page).value > 0)
            process.send_signal(signal.SIGSTOP)
            self._neighbours[kernel] = process, counter(page)
        return self._neighbours[kernel]

    def _run(
        self, stack: ExitStack, module: str, *arguments: str, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", f"host.{module}", *arguments],
            cwd=Path(__file__).parents[1],
            env=os.environ | (environment or {}),
            start_new_session=True,  # a scheduling group of its own, which can be put before the machine's other work
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        prefer(process.pid)
        return process

    @staticmethod
    def _await(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
        until = time.monotonic() + _START_S
        while not ready():
            if process.poll() is not None or time.monotonic() > until:
                raise Unavailable(f"{process.args!r} does not start")
            time.sleep(0.02)
