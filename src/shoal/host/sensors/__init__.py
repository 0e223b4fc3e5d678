"""Sensors of a host: one sensor a file, each probed, each value a number or `Missing` with its reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.sensors.base import Key, Quantity, Readings, Scope, Sensor, Thrifty
from shoal.host.sensors.clock import CpuClocks
from shoal.host.sensors.latency import MemoryLatency, pinned
from shoal.host.sensors.reports import ReportedWork, Work
from shoal.host.sensors.resctrl import ResctrlMonitor
from shoal.host.sensors.schedstat import SchedulerStatistics
from shoal.host.sensors.steps import StepTimes
from shoal.host.sensors.uncore import UncoreCounters
from shoal.host.types import Domain
from shoal.host.undo.write_ahead_log import WriteAheadLog

__all__ = [
    "CpuClocks", "Key", "MemoryLatency", "Quantity", "Readings", "ReportedWork",
    "ResctrlMonitor", "SchedulerStatistics", "Scope", "Sensor", "StepTimes", "Thrifty", "UncoreCounters", "Work",
    "pinned", "standard",
]  # fmt: skip


def standard(
    domains: Sequence[Domain],
    *,
    steps: StepTimes | None = None,
    reports: Callable[[float], Mapping[str, Work]] | None = None,
    shoot: Callable[[int], float] | None = None,
    probing: Callable[[], bool] = lambda: True,
    wal: WriteAheadLog | None = None,
    kernel: Kernel = LINUX,
    cost: Callable[[], float] = time.thread_time,
) -> tuple[Sensor, ...]:
    """All of them, strongest first. What costs by the process, CPU or counter is read as seldom as it must be to stay
    cheap, by this clock of the thread's CPU seconds. `probing` says whether any group is judged by memory latency."""
    thrifty = partial(Thrifty, cost=cost)
    return (
        steps or StepTimes({}),
        ReportedWork(reports),
        thrifty(UncoreCounters(kernel=kernel)),
        thrifty(ResctrlMonitor(domains, kernel=kernel, wal=wal)),
        MemoryLatency(domains, shoot, wanted=probing),
        thrifty(CpuClocks(kernel=kernel)),
        thrifty(SchedulerStatistics(kernel=kernel), share=0.0001),
    )
