"""The offline optimum: the least that a job could have cost, had everything been known, with its certificate.

Dynamic programming over (tick, work left, what runs). Work lies on a grid. Rounded against the job, the answer is
what a real schedule costs at most; rounded in its favour, no schedule costs less. The grid is refined until both meet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.market.history import Floats
from shoal.market.ticks import Ticks


@dataclass(frozen=True, slots=True)
class Optimum:
    """The true optimum lies between `lower` and `upper` dollars; both are infinite where no schedule ends in time."""

    lower: float
    upper: float
    grid: float

    @property
    def gap(self) -> float:
        return 0.0 if math.isinf(self.lower) or self.upper == self.lower else (self.upper - self.lower) / self.upper


def optimum(market: Ticks, *, tolerance: float = 0.005, finest: int = 256) -> Optimum:
    """Refined until the bounds are within `tolerance`, or the grid is 1/`finest` of a tick; `gap` says which."""
    parts, lower, upper = 1, 0.0, math.inf
    while True:
        lower = max(lower, _solve(market, parts, favour=True))
        upper = min(upper, _solve(market, parts, favour=False))
        found = Optimum(lower, upper, 1 / parts)
        if math.isinf(lower) or found.gap <= tolerance or parts >= finest:
            return found
        parts *= 2


def _solve(market: Ticks, parts: int, *, favour: bool) -> float:
    def rounded(value: float, up: bool) -> int:
        return math.ceil(value * parts - 1e-9) if up else math.floor(value * parts + 1e-9)

    size = rounded(market.work, up=not favour)
    steps = [rounded(float(speed), up=favour) for speed in market.speed]
    lost = rounded(market.lost, up=not favour)
    left = np.arange(size + 1)
    again = np.minimum(left + lost, size)
    again[0] = 0
    shifted = [np.maximum(left - step, 0) for step in steps]
    parted = [np.minimum(1.0, left / step) if step else np.ones(size + 1) for step in steps]
    stages, count = max(market.launch, 1), len(steps)
    idle: Floats = np.full(size + 1, np.inf)
    idle[0] = 0.0
    # held[k, j]: offer j is held, with k ticks of its launch to come.
    held: Floats = np.tile(idle, (stages, count, 1))
    for t in range(market.deadline - 1, -1, -1):
        stay = np.full_like(held, np.inf)
        free = idle.copy()
        for j in np.flatnonzero(market.up[t]):
            price = market.usd[t, j]
            stay[0, j] = price * parted[j] + held[0, j][shifted[j]]
            stay[1:, j] = price + held[:-1, j]
            begun = price + held[market.launch - 1, j] if market.launch else stay[0, j]
            if market.begins(t, int(j)):
                free = np.minimum(free, market.launch_usd[j] + begun)
        free[0] = 0.0
        held = np.minimum(stay, free)
        for j in np.flatnonzero(~market.up[t]):
            held[:, j] = free
            held[0, j] = free[again]
        held[:, :, 0] = 0.0
        idle = free
    return float(idle[size])
