"""Whether a rate keeps its objective, told from as few requests as will do (after MLPerf LoadGen's early stopping).

Late requests come in clumps (all of one queue), so requests are not independent; a test that took them so would be
far too sure of itself. Counts are therefore divided by the design effect, measured on the trial itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from shoal.core import Invalid
from shoal.measure.statistics import Estimate, design_effect, lower_bound, proportion, quantile_of, upper_bound
from shoal.measure.types import Floats

_LOOK_GROWTH = 1.5
"""A trial is judged when its requests have grown by this factor since it was last judged."""
_FEWEST = 50
_FIRST_LOOK = 3.0
"""Late requests to be expected at the first look: before, one clump could pass for an overload."""
_BATCHES = (10, 20)
"""Design effects are measured with these numbers of batches, and the largest is believed."""
_TICK_S = 1e-9
"""What differs by less is rounding, which clumps: all requests of a simulated server may take equally long."""


class Verdict(StrEnum):
    KEPT = "kept"
    BROKEN = "broken"
    UNDECIDED = "undecided"
    """So close to the capacity that the requests allowed for a trial could not tell."""


@dataclass(frozen=True, slots=True)
class Goal:
    """At most a share 1 - `p` of the requests may take longer than `slo_s`; a failed request takes for ever."""

    slo_s: float
    p: float = 0.99

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slo_s) and self.slo_s > 0):
            raise Invalid(f"{self.slo_s:g} s is not a latency objective", where="slo", hint="give positive seconds")
        if not 0 < self.p < 1:
            raise Invalid(f"{self.p:g} is not a quantile", where="p", hint="give 0.99 for the 99th percentile")

    @property
    def misses_allowed(self) -> float:
        """As a share of all requests."""
        return 1 - self.p


@dataclass(frozen=True, slots=True)
class Effort:
    """How sure and how exact the answer shall be.

    Each end of the interval is right with `confidence`. The search ends when the interval's ends are a factor
    1 + `tolerance` apart. A trial takes `most_requests` at most.
    """

    tolerance: float = 0.03
    confidence: float = 0.95
    most_requests: int = 20_000
    most_trials: int = 40

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise Invalid(f"a tolerance of {self.tolerance:g} is not between 0 and 1", where="tolerance")
        if not 0.5 < self.confidence < 1:
            raise Invalid(f"a confidence of {self.confidence:g} is not between 0.5 and 1", where="confidence")
        if self.most_requests < 2 * _FEWEST:
            raise Invalid(f"{self.most_requests} requests decide nothing", where="most_requests")


@dataclass(frozen=True, slots=True)
class Trial:
    """One rate that was tried. `share` is that of late requests; as many requests as `effect` says told as much as one
    independent one would have."""

    rate_per_s: float
    verdict: Verdict
    requests: int
    misses: int
    share: Estimate
    effect: float

    @property
    def late(self) -> float:
        """The share as it was counted; nan without requests."""
        return self.share.value


class Judge:
    """Decides whether a rate keeps the goal from latencies that come in, in order of schedule.

    It looks when the number of requests has grown by half, and decides when the exact (Clopper-Pearson) bound on the
    share of late requests, of counts divided by the design effect, is clear of what is allowed. Each side is wrong
    with at most (1 - confidence) / 2: half of that is shared evenly among the looks on the way (Bonferroni: looking
    often costs no certainty), half is left for the last one.
    """

    def __init__(self, goal: Goal, effort: Effort) -> None:
        self._goal, self._effort = goal, effort
        self._chunks: list[Floats] = []
        self.requests = 0
        self.misses = 0
        self.verdict = Verdict.UNDECIDED
        self._first = max(_FEWEST, math.ceil(_FIRST_LOOK / goal.misses_allowed))
        looks = 1 + max(0.0, math.log(effort.most_requests / self._first) / math.log(_LOOK_GROWTH))
        self._error = (1 - effort.confidence) / 2
        self._look_error = self._error / 2 / math.ceil(looks)
        self._next_look = self._first
        self._over = False

    def __call__(self, latencies_s: Floats) -> bool:
        """Take more latencies (k,), infinity for failures; true when no more are needed."""
        self._chunks.append(latencies_s)
        self.requests += len(latencies_s)
        self.misses += int(np.count_nonzero(latencies_s > self._goal.slo_s))
        if self.requests >= self._effort.most_requests:
            self._last_look()
            return True
        if self.requests >= self._next_look:
            self._next_look = math.ceil(self.requests * _LOOK_GROWTH)
            self.verdict = self._look(self._look_error)
        return self.verdict is not Verdict.UNDECIDED

    @property
    def latencies_s(self) -> Floats:
        """All that came, (requests,)."""
        return np.concatenate(self._chunks) if self._chunks else np.empty(0)

    def finish(self, rate_per_s: float) -> Trial:
        """The trial at this rate: no more will come."""
        self._last_look()
        return Trial(rate_per_s, self.verdict, self.requests, self.misses, self._share(), self._effect())

    def _last_look(self) -> None:
        if self.verdict is Verdict.UNDECIDED and not self._over and self.requests:
            self.verdict = self._look(self._error / 2)
        self._over = True

    def _share(self) -> Estimate:
        """Of late requests, with its interval at the effort's confidence."""
        return proportion(self.misses, self.requests, confidence=self._effort.confidence, effect=self._effect())

    def _effect(self) -> float:
        """The design effect of the misses; of the slowest tenth as well, which clump alike and are there before the
        first miss is."""
        latencies = self.latencies_s
        if len(latencies) == 0:
            return 1.0
        slow = latencies > quantile_of(latencies, 0.9) + _TICK_S
        late = latencies > self._goal.slo_s
        return max(design_effect(series, batches=batches) for series in (slow, late) for batches in _BATCHES)

    def _look(self, error: float) -> Verdict:
        effect = self._effect()
        n, misses = self.requests / effect, self.misses / effect
        if upper_bound(misses, n, alpha=error) <= self._goal.misses_allowed:
            return Verdict.KEPT
        if lower_bound(misses, n, alpha=error) > self._goal.misses_allowed:
            return Verdict.BROKEN
        return Verdict.UNDECIDED
