"""Gavel's rounds as published (OSDI'20, section 5, and its simulator), to compare with them.

`GavelRounds` is the mechanism; this is the mechanism with its habits, without which Gavel's tables do not come
out:

- Every share counts, however small. An interior point solver (`policy/centre.py`) leaves a little of every type to
  every job, and what is left over in a round goes by these.
- A job that came after the allocation is chosen for what is left over, but not started: its place stays empty until it
  is part of an allocation.
- Columns are shuffled by Python's generator, seeded as Gavel seeds it, for policies that take all types for equal.
"""

from __future__ import annotations

import random

import numpy as np

from shoal.schedule.baselines.gavel.mechanism import GavelRounds, GavelSettings
from shoal.schedule.rounds.filling import Entries, Filling
from shoal.schedule.rounds.round import Round
from shoal.schedule.types import Allocation, Index, Problem

SHUFFLES = 5
"""Added to the seed, as Gavel does."""


class Published(GavelRounds):
    """As `GavelRounds`, but for the habits above."""

    def __init__(self, settings: GavelSettings | None = None) -> None:
        super().__init__(settings)
        self._allotted: frozenset[str] = frozenset()
        self._shuffler = random.Random((self.settings.shuffle or 0) + SHUFFLES)  # noqa: S311

    def enter(self, problem: Problem, allocation: Allocation | None = None, *, now: float) -> None:
        super().enter(problem, allocation, now=now)
        if allocation is not None:
            self._share = allocation.share.copy()
            self._allotted = frozenset(problem.ids)

    def _entitled(self) -> Entries:
        if self.settings.shuffle is not None:
            columns = list(range(len(self._rank)))
            self._shuffler.shuffle(columns)
            self._rank = np.argsort(columns)
        return self._by_rank(self._rank)

    def _begin(self, now: float, filling: Filling, entitled: Index) -> Round:
        problem = self._problem
        assert problem is not None
        for job, name in enumerate(problem.ids):
            chosen = filling.column[job]
            if chosen >= 0 and name not in self._allotted and chosen != self._placed[job]:
                filling.column[job], filling.need[job] = -1, 0
        return super()._begin(now, filling, entitled)
