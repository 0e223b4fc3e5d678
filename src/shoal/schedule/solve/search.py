"""Shared parts of the searches for prices: the solution, its bounds, and which prices to try next."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shoal.schedule.errors import SolverFailed
from shoal.schedule.solve.market import Market
from shoal.schedule.solve.master import Master
from shoal.schedule.types import Array

GAP = 1e-9
"""Relative gap between the bounds at which an optimum counts as found."""

ROUGH = 1e-7
PATIENCE = 10
"""A search whose mixture has not gained for this number of rounds ends at the rougher gap, which it reports as it
is."""

ROUNDS = 1000
FLOOR = 1e-14
"""No price falls below this part of the average: columns that cost nothing are then told apart by what they use."""

SLACK = 1e-7
"""Relative part of a limit that may be left over where it counts as used up."""

TOWARDS_BEST = 0.5

MEMORY, SMALL = 32, 1024
"""Prices that are remembered from one search to the next, and rows up to which (those of all prices counted) it costs
next to nothing to ask a few more at once. Prices are good ones where some row is indifferent between two columns,
whatever the other rows, so that old ones become right again."""

PARTS = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.9])[:, None]
"""How far towards the best prices a search that may ask several at once looks."""


@dataclass(frozen=True)
class Solution:
    """An optimum: `value` reached and `bound` proven, `prices` (r,) of the limits, and each row's `shares` (n, m) and
    `rates` (m,).

    `slope` (m,) is what one more unit of each row's rate costs, in units of the objective, and no allocation has rates
    with (copies * slope) @ rates above `room` (a best value has neither). `reach` (m,) is the highest rate that each
    row can still have while no other row's falls. `rounds` counts the prices tried, and `tried` are those (r,) worth
    trying first in a program that differs a little. `method` names the solver.
    """

    value: float
    bound: float
    prices: Array
    shares: Array
    rates: Array
    slope: Array
    room: float
    rounds: int
    reach: Array = field(default_factory=lambda: np.zeros(0))
    tried: tuple[Array, ...] = ()
    method: str = "prices"


def floored(market: Market, prices: Array) -> Array:
    """Prices (r,) or (p, r) scaled so that the limits are worth one, none of them zero."""
    even = 1.0 / (market.limits * len(market.limits))
    worth = prices @ market.limits
    if prices.ndim == 1:
        return even if worth <= 0.0 else np.maximum(prices / worth, FLOOR * even)
    some = (worth > 0.0)[:, None]
    scaled: Array = np.where(some, np.maximum(prices / np.where(some, worth[:, None], 1.0), FLOOR * even), even)
    return scaled


def reach(market: Market, shares: Array, prices: Array, rates: Array) -> Array:
    """(m,) how high each row's rate can be while no other row's falls, for shares (n, m) that grant the rates (m,).

    Together the rows cost all that the used-up limits are worth, each at least what it costs now. So while none gets
    less, there is nothing left of what has a price, and a row can only rise in columns that are free for it.
    """
    used_up = market.usage_of(shares) >= market.limits * (1.0 - SLACK)
    prices = np.where(used_up, prices, 0.0)
    worth = prices @ market.limits
    prices = np.where(prices * market.limits > SLACK * worth, prices, 0.0)
    free = np.where(market.cost(prices) > 0.0, 0.0, market.rate)
    highest: Array = np.maximum(free.max(axis=0), rates)
    return highest


class Offered(NamedTuple):
    """Allocations with values (p,) and usage (p, r) that answer to prices (p, r); shares (n, m) of one of them are only
    worked out if it takes part in the end. One that answers to no prices was there from the start."""

    values: Array
    usage: Array
    shares: Callable[[int], Array]
    prices: Array | None


Part = tuple[Offered, int, float]
"""An allocation in a mixture: which of which offers, and how much of it."""


@dataclass
class Search:
    """The state of a search: the allocations found, the best bound, the prices that prove it. `idle` is the value of
    doing nothing."""

    market: Market
    idle: float
    bound: float
    lower: float
    scale: float
    best: Array | None = None
    rounds: int = 0
    stalls: int = 0
    offered: list[Offered] = field(default_factory=list)
    mixed: int = 0
    parts: list[Part] = field(default_factory=list)

    @cached_property
    def master(self) -> Master:
        """The master program; a search that ends with the first answers needs none."""
        return Master(self.market.limits, self.idle)

    def offer(self, value: float, usage: Array, shares: Callable[[], Array], prices: Array | None = None) -> None:
        """Take an allocation into the search."""
        asked = None if prices is None else prices[None, :]
        self.offer_each(np.array([value]), usage[None, :], lambda _: shares(), asked)

    def offer_each(self, values: Array, usage: Array, shares: Callable[[int], Array], prices: Array | None) -> None:
        """As `offer`, of allocations with values (p,) and usage (p, r) that answer to these prices (p, r)."""
        self.offered.append(Offered(values, usage, shares, prices))

    def alone(self, gap: float) -> bool:
        """Whether one of the latest offers keeps all limits and reaches the bound: it is an optimum as it is."""
        latest = self.offered[-1]
        value = np.where((latest.usage <= self.market.limits).all(axis=1), latest.values, -np.inf)
        at = int(value.argmax())
        if not math.isfinite(self.bound) or not self.bound - value[at] <= gap * max(abs(self.bound), self.scale):
            return False
        self.lower, self.parts = float(value[at]), [(latest, at, 1.0)]
        return True

    def mix(self) -> Array:
        """Solve the master program; returns its prices."""
        for each in self.offered[self.mixed :]:
            self.master.add(each.values, each.usage)
        before, self.mixed = self.lower, len(self.offered)
        self.lower, duals = self.master.solve()
        self.stalls = self.stalls + 1 if before == self.lower else 0
        return duals

    def between(self, duals: Array) -> Array:
        """Prices to try: half way to the best ones, or the master's own where the mixture did not gain last time,
        since those improve it but for rounding."""
        if self.best is None or self.stalls % 2 == 1:
            return duals
        return TOWARDS_BEST * self.best + (1.0 - TOWARDS_BEST) * duals

    def around(self, duals: Array) -> Array:
        """As `between`, and on a small market several on the way, (p, r)."""
        if self.best is None or len(PARTS) * self.market.rows > SMALL:
            return self.between(duals)[None, :]
        return PARTS * self.best + (1.0 - PARTS) * duals

    def _mixture(self) -> list[Part]:
        """The parts of the best mixture, once the search is over."""
        if self.parts:
            return self.parts
        for column, part in self.master.mixture():
            at = column - self.master.idle - 1
            for each in self.offered:
                if 0 <= at < len(each.values):
                    self.parts.append((each, at, part))
                at -= len(each.values)
        return self.parts

    def tried(self, known: Iterable[Array] = ()) -> tuple[Array, ...]:
        """The prices behind the mixture, and as many of the known ones as are worth remembering."""
        mixed = [each.prices[at] for each, at, _ in self._mixture() if each.prices is not None]
        every = {prices.tobytes(): prices for prices in (*mixed, *known)}
        return tuple(every.values())[: max(min(MEMORY, SMALL // self.market.rows), len(mixed))]

    def shares(self) -> Array:
        """The shares of the mixture."""
        total = np.zeros_like(self.market.rate)
        for each, at, part in self._mixture():
            total += part * each.shares(at)
        return self.market.fitted(total)

    def closed(self, gap: float) -> bool:
        """True when the bounds are as close as asked, or as close as rounding lets them come. Raises `SolverFailed`
        when they have passed each other: then one of them is wrong."""
        apart, size = self.bound - self.lower, self._size()
        if not math.isfinite(apart):
            return False
        if apart < -ROUGH * size:
            raise self.failed("mixture")
        return apart <= gap * size or (self.stalls > PATIENCE and apart <= ROUGH * size)

    def check(self, reached: float) -> None:
        """Raises `SolverFailed` when shares have `reached` less than the mixture that they were made of."""
        if not reached >= self.lower - ROUGH * self._size():
            raise SolverFailed("shares reach less than their mixture", reached=reached, lower=self.lower)

    def _size(self) -> float:
        return max(abs(self.bound), abs(self.lower), self.scale)

    def failed(self, what: str) -> SolverFailed:
        return SolverFailed(
            f"the bounds of the best {what} did not meet", lower=self.lower, upper=self.bound, rounds=self.rounds
        )
