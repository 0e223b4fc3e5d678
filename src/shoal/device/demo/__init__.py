"""Two plain OpenCL programs on one device: an inference server, guaranteed, and a training, best-effort.

`show` runs them beside each other, the training's kernels first whole and then in slices, and tells as it goes what
the page counts. Where the device is a CPU, PoCL's threads run it, and the operating system preempts these: counts and
orders are those of any device, times are not.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from shoal.core import Unavailable
from shoal.device import opencl
from shoal.device.native import Slot
from shoal.device.page import Page
from shoal.device.policy import Rules

PROGRAMS = Path(__file__).parent / "programs"
ROUNDS = 4000
"""Of the training: kernels of some 40 ms on two cores."""
SLICE_BLOCKS = 8
"""Groups of a slice, of the training's 512. Told, not chosen by the profile: that is misled where the operating system
interrupts slices."""
RATE = 25.0
RULES = Rules(bound_ns=2_000_000, grace_ns=1_000_000, grace_most_ns=4_000_000, idle_bound_ns=4_000_000)
"""A launch on PoCL takes a tenth of a millisecond, a hundred times what it takes on a GPU: so do bound and grace."""
_START_S = 60.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one phase so far. Latencies are from arrival to answer."""

    phase: str
    """`whole` or `sliced`: the training's kernels."""
    elapsed_s: float
    requests: int
    p50_ms: float
    worst_ms: float
    steps: int
    """Kernels of the training that have ended."""
    pieces: int
    """Launches that they took."""
    waited_s: float
    """For the inference server."""


class Program:
    """One of the two, with what it has printed since `take`. As a context: ended on leaving."""

    def __init__(self, name: str, argument: float, environment: Mapping[str, str]) -> None:
        self._lines: list[str] = []
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115
        self._lock = threading.Lock()
        self._heard = threading.Event()
        self._ready = False
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(PROGRAMS / f"{name}.py"), f"{argument:g}"],
            env={**os.environ, "PYOPENCL_CTX": "0", **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()
        self._heard.wait(_START_S)
        if not self._ready:
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["it said nothing"])[-1]
            self.close()
            raise Unavailable(f"the {name} program did not start on the OpenCL device: {last}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def take(self) -> list[str]:
        with self._lock:
            taken, self._lines = self._lines, []
        return taken

    def close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "ready":
                self._ready = True
                self._heard.set()
                continue
            with self._lock:
                self._lines.append(line.strip())
        self._heard.set()  # it ended


def environment(page: Page, cls: str, *, ways: str = "slice", slice_blocks: int = 0) -> dict[str, str]:
    """`slice_blocks` 0: as the profile says."""
    folder = page.path.parent
    return opencl.environment() | {
        "SHOAL_DEVICE_SLICE_BLOCKS": str(slice_blocks),
        "SHOAL_DEVICE_PAGE": str(page.path),
        "SHOAL_DEVICE_CLASS": cls,
        "SHOAL_DEVICE_WAYS": ways,
        "SHOAL_DEVICE_PROFILE": str(folder / "profiles"),
        "SHOAL_DEVICE_LOG": str(folder / "log"),
    }


def slot_of(page: Page, program: Program) -> Slot:
    """Raises Unavailable: the program is not at the gate."""
    for one in page.occupants():
        if one.pid == program.pid:
            slot: Slot = page.struct.slot[one.slot]
            return slot
    raise Unavailable("the program has not come to the device's gate")


def show(seconds: float = 8.0, *, every_s: float = 0.5) -> Iterator[Figures]:
    """Both phases, `seconds` in all. Raises Unavailable, before anything is yielded, where there is no OpenCL device,
    no layer or no pyopencl."""
    said = opencl.capability()
    if not said.available:
        raise Unavailable(said.detail)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-device-")))
        page = stack.enter_context(Page.create(folder / "page", device="demo", rules=RULES))
        inference = stack.enter_context(Program("inference", RATE, environment(page, "guaranteed")))
        batch = {
            "whole": environment(page, "best-effort", ways="whole"),
            "sliced": environment(page, "best-effort", slice_blocks=SLICE_BLOCKS),
        }
        for phase, settings in batch.items():
            with Program("training", ROUNDS, settings) as training:
                yield from _phase(phase, page, inference, training, seconds / 2, every_s)


def _phase(
    phase: str, page: Page, inference: Program, training: Program, seconds: float, every_s: float
) -> Iterator[Figures]:
    slot = slot_of(page, training)
    inference.take()
    training.take()
    pieces, waited, began = slot.pieces, sum(slot.waited_ns[:2]), time.monotonic()
    latencies: list[float] = []
    steps = 0
    while (elapsed := time.monotonic() - began) < seconds:
        time.sleep(min(every_s, seconds - elapsed))
        latencies += map(float, inference.take())
        steps += len(training.take())
        yield Figures(
            phase=phase,
            elapsed_s=time.monotonic() - began,
            requests=len(latencies),
            p50_ms=statistics.median(latencies) if latencies else 0.0,
            worst_ms=max(latencies, default=0.0),
            steps=steps,
            pieces=slot.pieces - pieces,
            waited_s=(sum(slot.waited_ns[:2]) - waited) / 1e9,
        )
