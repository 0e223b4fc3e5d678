"""One setting against the pipeline alone: how much slower its steps are, what its neighbours still do, how soon the
promise holds again after contention began.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from host.kernels import MemoryKernel
from host.limits import Limit
from host.rig import LEAST_CPU, LEAST_STEPS, MOST_TAKEN, SETTLE_S, Phase, Rig, Window, unlimited

FLOODS = frozenset({MemoryKernel.NT_STORE, MemoryKernel.STORE, MemoryKernel.READ, MemoryKernel.TRIAD})
STEADY_S, NOW_S, LOOK_EVERY_S = 0.5, 0.1, 0.01
"""Contention is settled when the promise is kept for the first of these on the whole, beginning with the second; looked
at in steps of the third. The simulator judges alike."""
TOLERANCE = 0.1
"""Of the slowdown that is allowed: 1.055 for 1.05 is still within it, as no controller on noisy readings is exact."""
DRIFT = 0.05
"""By how much the pipeline alone may differ before and after: else the machine's speed changed, or other work came."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The pipeline under a setting against alone before and after it.

    `same` is whether both CPUs shared a memory domain all along (None: not, or not to be told). `flaw` is why the rest
    says nothing of the setting; empty if it does. `speed`, `p50`, `p95` and `p99` are ratios by CPU time; `wall_p99`
    and `rate` by the clock, so that waiting for the CPU counts. `bytes_per_s` is of the neighbours that flood memory,
    `done_per_s` of each by its kernel's name (bytes; rounds of one that spins), both by the time in which no other
    program had their CPU; `limiting` what the limits cost, in CPUs. `settled_s` is, for each time that flooding began,
    after how long the promise held, against the phase before it (None: not in that phase).
    """

    same: bool | None
    flaw: str
    speed: float
    p50: float
    p95: float
    p99: float
    wall_p99: float
    rate: float
    bytes_per_s: float
    done_per_s: Mapping[str, float]
    limiting: float
    steps: int
    seconds: float
    settled_s: tuple[float | None, ...] = ()


def against_alone(
    rig: Rig,
    phases: Sequence[Phase],
    *,
    limit: Limit = unlimited,
    settle_s: float = SETTLE_S,
    quiet_s: float = 0.0,
    max_slowdown: float = 1.05,
) -> Compared | None:
    """None if the pipeline did no work: then the machine is too busy for anything."""
    before = rig.window()
    found = rig.windows(phases, limit=limit, settle_s=settle_s, quiet_s=quiet_s)
    after = rig.window()
    return compare(phases, before, found, after, max_slowdown=max_slowdown)


def compare(
    phases: Sequence[Phase], before: Window, found: Sequence[Window], after: Window, *, max_slowdown: float
) -> Compared | None:
    everything = (before, *found, after)
    if not all(len(window.steps_s) for window in everything):
        return None
    told = frozenset[bool]().union(*(window.told for window in everything))
    same = next(iter(told)) if len(told) == 1 else None
    steps = np.concatenate([window.steps_s for window in found])
    wall = np.array([unit.wall_s for window in found for unit in window.units])
    first, last = before.mean_s(), after.mean_s()
    alone, seconds = (first + last) / 2, sum(window.seconds for window in found)
    had_s = seconds - sum(max(0.0, window.taken) for window in found)

    def tail(percent: float) -> float:
        usual = (before.percentile_s(percent) + after.percentile_s(percent)) / 2
        return float(np.percentile(steps, percent)) / usual

    def moved(kernels: Collection[MemoryKernel]) -> float:
        return sum(window.moved.get(kernel, 0) for window in found for kernel in kernels) / had_s

    return Compared(
        same=same,
        flaw=_flaw(told, everything, abs(first - last) / alone),
        speed=alone / float(steps.mean()),
        p50=tail(50),
        p95=tail(95),
        p99=tail(99),
        wall_p99=float(np.percentile(wall, 99)) * 2 / (before.wall_percentile_s(99) + after.wall_percentile_s(99)),
        rate=len(wall) / seconds * 2 / (before.steps_per_s() + after.steps_per_s()),
        bytes_per_s=moved(FLOODS),
        done_per_s={kernel.name: moved({kernel}) for kernel in {one for phase in phases for one in phase.kernels}},
        limiting=sum(window.limiting for window in found) / seconds,
        steps=len(steps),
        seconds=seconds,
        settled_s=tuple(
            settled_s(now, undisturbed.mean_s(), 1 + (max_slowdown - 1) * (1 + TOLERANCE))
            for (calm, storm), (undisturbed, now) in zip(pairwise(phases), pairwise(found), strict=True)
            if FLOODS.isdisjoint(calm.kernels) and not FLOODS.isdisjoint(storm.kernels)
        ),
    )


def _flaw(told: frozenset[bool], windows: Sequence[Window], drift: float) -> str:
    if not told:
        return "whether the CPUs share a memory domain could not be told"
    if len(told) > 1:
        return "a CPU moved to another memory domain"
    if (least := min(window.cpu for window in windows)) < LEAST_CPU:
        return f"the pipeline got {least:.0%} of its CPU"
    if (most := max((window.taken / window.seconds for window in windows if window.moved), default=0.0)) > MOST_TAKEN:
        return f"others took {most:.0%} of the neighbours' CPU"
    if min(len(window.steps_s) for window in windows) < LEAST_STEPS:
        return "most steps were interrupted"
    return f"alone it was {drift:.0%} faster or slower afterwards" if drift > DRIFT else ""


def settled_s(window: Window, alone_s: float, allowed: float) -> float | None:
    """From the window's beginning until steps take at most `allowed` times as long as alone and go on so; None if they
    never do."""
    units = [unit for unit in window.units if unit.end_s >= window.began_s]
    ends = np.array([unit.end_s for unit in units]) - window.began_s
    slow = np.array([unit.cpu_s / unit.units for unit in units]) / alone_s
    for at in np.arange(0.0, window.seconds - STEADY_S + 1e-9, LOOK_EVERY_S):
        now, steady = (slow[(ends > at) & (ends <= at + span)] for span in (NOW_S, STEADY_S))
        if len(now) and now.mean() <= allowed and steady.mean() <= allowed:
            return float(at)
    return None
