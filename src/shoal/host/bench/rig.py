"""The input pipeline on one CPU, a neighbour on another, side by side in windows whose topology is known.

Before and after each window, with everything stopped, a ping-pong says whether the two CPUs share a memory domain; a
window during which that changed, or in which the pipeline did not get its CPU, is marked and counts for nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shoal.core import Unavailable
from shoal.host.bench.neighbour import counter
from shoal.host.native import Kernel, load
from shoal.host.ring import ENVIRONMENT, Reader
from shoal.host.topology import decided
from shoal.host.types import Missing

WINDOW_S = 0.5
SETTLE_S = 0.1
LEAST_CPU = 0.8
"""A window in which the pipeline got less of its CPU measures the machine's other work."""
INTERRUPTED_S = 0.0001
"""A step that waited longer than this for its CPU met with other work there, and with that work's cache lines."""
_START_S = 60.0

Limit = Callable[[int], AbstractContextManager[object]]
"""What limits the neighbour while a window lasts; called with its pid."""


@dataclass(frozen=True, slots=True)
class Window:
    """`same` is whether the two CPUs shared a domain all along; None when that changed or could not be told. `steps_s`
    (n,) is the CPU time of each of the pipeline's steps that were not interrupted, `cpu` what it got of its CPU,
    `bytes_per_s` what the neighbour moved."""

    same: bool | None
    steps_s: NDArray[np.float64]
    cpu: float
    bytes_per_s: float

    @property
    def valid(self) -> bool:
        return self.same is not None and self.cpu >= LEAST_CPU and len(self.steps_s) >= 50

    def mean_s(self) -> float:
        return float(self.steps_s.mean())

    def percentile_s(self, percent: float) -> float:
        return float(np.percentile(self.steps_s, percent))


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
        self._neighbours: dict[Kernel, tuple[subprocess.Popen[bytes], Path]] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-rig-", dir="/dev/shm")))
            ring = self._home / "steps.ring"
            self._pipeline = self._run(stack, "pipeline", "--cpu", str(self.cpu), environment={ENVIRONMENT: str(ring)})
            self._await(self._pipeline, ring.exists)
            self._steps = Reader(ring)
            self._await(self._pipeline, lambda: bool(self._steps.read()))
            self._pipeline.send_signal(signal.SIGSTOP)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def same_domain(self) -> bool | None:
        """At this moment; None when it cannot be told."""
        return decided(self._native.ping_pong(self.cpu, self.neighbour_cpu))

    def window(self, kernel: Kernel, limit: Limit = nullcontext, *, seconds: float = WINDOW_S) -> Window:
        """The pipeline beside this neighbour under this limit."""
        neighbour, page = self._neighbour(kernel)
        moved = counter(page)
        before = self.same_domain()
        neighbour.send_signal(signal.SIGCONT)
        self._pipeline.send_signal(signal.SIGCONT)
        try:
            with limit(neighbour.pid):
                time.sleep(SETTLE_S)
                self._steps.read()
                first, began = moved.value, time.monotonic()
                time.sleep(seconds)
                units = self._steps.read()
                rate = (moved.value - first) / (time.monotonic() - began)
        finally:
            self._pipeline.send_signal(signal.SIGSTOP)
            neighbour.send_signal(signal.SIGSTOP)
        time.sleep(0.002)
        after = self.same_domain()
        steps = np.array([unit.cpu_s for unit in units if unit.wall_s - unit.cpu_s < INTERRUPTED_S])
        had, wall = sum(unit.cpu_s for unit in units), sum(unit.wall_s for unit in units)
        return Window(before if before == after else None, steps, had / wall if wall else 0.0, rate)

    def _neighbour(self, kernel: Kernel) -> tuple[subprocess.Popen[bytes], Path]:
        if kernel not in self._neighbours:
            page = self._home / f"{kernel.name}.page"
            name = kernel.name.lower().replace("_", "-")
            arguments = ("--kernel", name, "--cpu", str(self.neighbour_cpu), "--page", str(page))
            process = self._run(self._stack, "neighbour", *arguments)
            self._await(process, lambda: page.exists() and page.stat().st_size > 0 and counter(page).value > 0)
            process.send_signal(signal.SIGSTOP)
            self._neighbours[kernel] = (process, page)
        return self._neighbours[kernel]

    def _run(
        self, stack: ExitStack, module: str, *arguments: str, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", f"shoal.host.bench.{module}", *arguments],
            env=os.environ | (environment or {}),
            start_new_session=True,  # a scheduling group of its own, which can be put before the machine's other work
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        with suppress(OSError):  # not configured, or no right to: then other work takes more of the CPUs
            Path(f"/proc/{process.pid}/autogroup").write_text("-20")
        return process

    @staticmethod
    def _await(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
        until = time.monotonic() + _START_S
        while not ready():
            if process.poll() is not None or time.monotonic() > until:
                raise Unavailable(f"{process.args!r} does not start")
            time.sleep(0.02)
