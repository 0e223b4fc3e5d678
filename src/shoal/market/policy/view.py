"""A policy's view and its answer; and the safety net that holds for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from shoal.core import Reason
from shoal.market.history import Floats
from shoal.market.ticks import Bools, Ticks


@dataclass(frozen=True)
class View:
    """The job at the beginning of a tick. `usd` and `up` are of now; `seen[i]` is `up` of tick i of the job, the last
    row that of now. `running` has `launching` ticks of its launch to come and was rented `age` ticks ago. Of the
    market only what does not change with time is for policies."""

    market: Ticks
    tick: int
    work: float
    running: int | None
    launching: int
    age: int
    usd: Floats
    up: Bools
    seen: Bools

    @property
    def left(self) -> int:
        """Ticks until the deadline."""
        return self.market.deadline - self.tick

    @property
    def done(self) -> float:
        return self.market.work - self.work

    def cheapest(self, among: Bools) -> int | None:
        """By work for a dollar; of equals the one that runs, then the first."""
        rank = np.where(among & self.up, self.usd / self.market.speed, np.inf)
        best = float(rank.min(initial=np.inf))
        if not np.isfinite(best):
            return None
        if self.running is not None and rank[self.running] <= best * (1 + 1e-9):
            return self.running
        return int(rank.argmin())

    def cheapest_spot(self) -> int | None:
        return self.cheapest(self.market.spot)


@dataclass(frozen=True, slots=True)
class Decision:
    """`offer` is the number of the offer to hold during this tick; None is to hold nothing."""

    offer: int | None
    reason: Reason


class Policy(Protocol):
    def decide(self, view: View) -> Decision: ...


def worst_after(view: View, chosen: int | None) -> float:
    """The most work that can be left after this tick: the launch fails, or the instance is gone after the tick and its
    work since the last checkpoint is lost."""
    market = view.market
    if chosen is None:
        return view.work
    launching, after = view.launching if chosen == view.running else market.launch, view.work
    if launching == 0:
        after = max(0.0, view.work - float(market.speed[chosen]))
    if market.spot[chosen] and after > 0:
        after = min(market.work, after + market.lost)
    return after if chosen == view.running else max(after, view.work)


def certain(view: View) -> bool:
    """Whether the fallback, from now on, is sure to end in time."""
    return view.market.needed(view.work, view.running, view.launching) <= view.left


def safe(view: View, wanted: Decision) -> Decision:
    """The decision, or the fallback on demand where only that is sure to end in time.

    If the fallback still ends in time after the worst that can happen in this tick, the decision stands. Starting from
    a state in which the fallback ends in time, this keeps it so at every tick, and at the end the work is done: by
    induction over ticks.
    """
    market, chosen = view.market, wanted.offer
    if chosen is not None and not view.up[chosen]:
        chosen = None  # it cannot be had: nothing runs
    if chosen == market.fallback:
        return wanted
    after = worst_after(view, chosen)
    if after == 0 or market.needed(after, None, 0) <= view.left - 1:
        return wanted
    spare = view.left - market.needed(view.work, view.running, view.launching)
    return Decision(
        market.fallback,
        Reason(
            "safety-net", f"on demand from now on: with {spare} ticks to spare nothing else is sure to end in time",
            {"spare_ticks": spare, "wanted": None if wanted.offer is None else market.offers[wanted.offer].name},
        ),
    )  # fmt: skip


def dearer(view: View, factor: float) -> View:
    """The same moment with what runs (or the cheapest spot offer) at another price."""
    target = view.running if view.running is not None else view.cheapest_spot()
    if target is None:
        return view
    usd = view.usd.copy()
    usd[target] *= factor
    return replace(view, usd=usd)
