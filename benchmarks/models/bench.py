"""How long a call of each network takes here, and whether calling eight at once is cheaper than eight calls.

Single calls and batches alternate, so that what disturbs this machine disturbs both; the least of many runs is what
the network needs when nothing does. Eight different inputs are used, through the runtime and with the threads that a
replica uses.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path

from models.catalogue import Model
from models.inputs import samples, stack
from shoal.inference import open_warm

BATCH = 8


@dataclass(frozen=True, slots=True)
class Timing:
    """The least seconds of many runs; `batch_of_8_s` is for eight calls made at once, None for a network without
    batches. `load_s` is a single observation: reading, checking and preparing the model."""

    name: str
    load_s: float
    single_s: float
    batch_of_8_s: float | None
    runs: int

    @property
    def gain(self) -> float | None:
        """How many times more calls a second there are in batches of eight."""
        return None if self.batch_of_8_s is None else BATCH * self.single_s / self.batch_of_8_s


def measure(
    model: Model, path: Path, *, budget_s: float = 3.0, clock: Callable[[], float] = time.perf_counter
) -> Timing:
    """Time the model for about `budget_s`, and at least five rounds of eight single calls and one batch each."""
    calls = [one.inputs for one in samples(model.name, BATCH)]
    together = stack(calls) if model.takes_batches else None
    runtime, report = open_warm(model.spec(path), clock=clock)
    try:
        singles: list[float] = []
        batches: list[float] = []
        began = clock()
        while len(singles) < 5 * BATCH or clock() - began < budget_s:
            singles += [_timed(partial(runtime.run, call, ()), clock) for call in calls]
            if together is not None:
                batches.append(_timed(partial(runtime.run, together, ()), clock))
    finally:
        runtime.close()
    return Timing(model.name, report.load_s, min(singles), min(batches, default=None), len(singles))


def _timed(action: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    action()
    return clock() - began


def machine() -> str:
    """Where and with what the figures were measured, and how busy it was."""
    processor = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or "unknown processor",
    )
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {processor}, {len(os.sched_getaffinity(0))} cores, load "
        f"{os.getloadavg()[0]:.1f}, Python {platform.python_version()}, "
        f"onnxruntime {metadata.version('onnxruntime')}, 1 thread"
    )


def _lines(path: str) -> Iterable[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
