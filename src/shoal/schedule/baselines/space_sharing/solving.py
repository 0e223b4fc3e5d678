"""The programs of `policy/solving.py` over pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shoal.schedule.baselines.space_sharing.columns import NOTHING, Known, LinearAim, best_in_pairs
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.solve.search import Solution
from shoal.schedule.types import Array, Pairs, no_pairs

LOOSE = 1.0 - 1e-7
"""The part of granted rates that is kept from one solve over pairs to the next; the general solver is that exact."""


class PairSolver:
    """The highest level over pairs, for filling like water; keeps the pairs of the last solution."""

    def __init__(self, sub: Subproblem) -> None:
        self._sub = sub
        self.known: Known = NOTHING
        self.pairs = no_pairs()

    def __call__(
        self,
        floor: Array,
        per_level: Array,
        **_: Any,  # pairs start from nothing, and are always exact
    ) -> Solution:
        assert self._sub.beside is not None
        none = np.zeros_like(self._sub.market.rate)
        aim = LinearAim(floor * LOOSE, per_level, none, none)
        solution, self.pairs, self.known = best_in_pairs(self._sub.market, self._sub.beside, aim, self.known)
        return solution


def best_level(sub: Subproblem, floor: Array, per_level: Array, known: object) -> tuple[Solution, Pairs, Known]:
    """As `best_level` of `policy/solving.py`, with what is then known of pairs."""
    none = np.zeros_like(sub.market.rate)
    return _best(sub, LinearAim(floor, per_level, none, none), known)


def best_value(sub: Subproblem, gain: Array, cost: Array, floor: Array, known: object) -> tuple[Solution, Pairs, Known]:
    """As `best_value` of `policy/solving.py`, with what is then known of pairs."""
    return _best(sub, LinearAim(floor, None, gain, cost), known)


def _best(sub: Subproblem, aim: LinearAim, known: object) -> tuple[Solution, Pairs, Known]:
    """The best over pairs, beginning with those that are known, which make the floors possible."""
    assert sub.beside is not None
    loose = replace(aim, floor=aim.floor * LOOSE)
    return best_in_pairs(sub.market, sub.beside, loose, known if isinstance(known, Known) else NOTHING)
