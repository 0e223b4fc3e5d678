"""Gavel's rounds as published (OSDI'20, section 5, and its simulator), for whoever compares with them.

`Ranking.PRIORITY` is the mechanism; this is the mechanism with its habits, without which Gavel's tables do not come
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

from shoal.core import Invalid
from shoal.schedule.rounds.filling import Entries, Filling
from shoal.schedule.rounds.mechanism import Rounds
from shoal.schedule.rounds.round import Round
from shoal.schedule.rounds.settings import Ranking, Settings
from shoal.schedule.types import Allocation, Array, Index, Problem

SHUFFLES = 5
"""Added to the seed, as Gavel does."""


class Published(Rounds):
    """As `Rounds` by `PRIORITY`, but for the habits above."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings or Settings(ranking=Ranking.PRIORITY))
        if self.settings.ranking is not Ranking.PRIORITY:
            raise Invalid(f"Gavel does not rank by {self.settings.ranking}", where="ranking", hint=Ranking.PRIORITY)
        self._allotted: frozenset[str] = frozenset()
        self._shuffler = random.Random((self.settings.shuffle or 0) + SHUFFLES)  # noqa: S311

    def enter(self, problem: Problem, allocation: Allocation | None = None, *, now: float) -> None:
        super().enter(problem, allocation, now=now)
        if allocation is not None:
            self._share = allocation.share.copy()
            self._allotted = frozenset(problem.ids)

    def _entitled(self) -> tuple[Entries, Array]:
        if self.settings.shuffle is not None:
            columns = list(range(len(self._rank)))
            self._shuffler.shuffle(columns)
            self._rank = np.argsort(columns)
        return self._by_rank(self._rank)

    def _begin(
        self, now: float, filling: Filling, held: Index, entitled: Index, ranked: tuple[Entries, Array]
    ) -> Round:
        problem = self._problem
        assert problem is not None
        for job, name in enumerate(problem.ids):
            chosen = filling.column[job]
            if chosen >= 0 and name not in self._allotted and chosen != self._placed[job]:
                filling.column[job], filling.need[job] = -1, 0
        return super()._begin(now, filling, held, entitled, ranked)
