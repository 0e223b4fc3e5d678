"""Certificates of an approximation, and the tests that they rest on.

Two tests of "the cascade loses at most `tolerance` against the full pipeline", each valid for any distribution of
independent rows:

- *disagreement*, without labels: where the two give the same answer none is lost, so the loss is at most the share of
  rows on which they differ. Its upper bound is exact (Clopper and Pearson, 1934).
- *loss*, with labels of the rows on which they differ: the signed loss of a row is 1 where only the cascade is wrong,
  -1 where only the full pipeline is, else 0. A bet against "the mean loss is above the tolerance" is multiplied row by
  row; by Ville's inequality it reaches 1 / alpha with probability alpha at most (Waudby-Smith and Ramdas, 2024). The
  loss of a regression is the increase of an absolute error, clipped.

Candidates are tested from strict to bold, and the first that fails ends the sequence, so none pays for the others
(fixed sequence testing; Learn-then-Test, Angelopoulos et al., arXiv 2110.01052).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.cascade.steps.base import Floats

BETS = np.array([0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.5, 0.75])
"""Stakes that are mixed: the smallest wins with much data and a loss near the tolerance, the largest with few rows."""


class Test(StrEnum):
    DISAGREEMENT = "disagreement"
    LOSS = "loss"


@dataclass(frozen=True)
class Aim:
    """`tolerance`: the most that may be lost, as a share (0.005 is half a point); for regression in units of the
    target. `confidence`: 0.95 is 95 %. `clip`: for regression, the largest increase of an error that counts."""

    tolerance: float
    confidence: float = 0.95
    clip: float = 1.0

    @property
    def alpha(self) -> float:
        return 1.0 - self.confidence

    @property
    def relative(self) -> float:
        """The tolerance in units of the clip."""
        return self.tolerance / self.clip


@dataclass(frozen=True)
class Certificate:
    """What was shown, on which rows, by which test."""

    test: str
    tolerance: float
    confidence: float
    rows: int
    units: int
    """Independent ones: rows, or the groups of rows that the caller named."""
    disagreements: int
    approximated: float
    """The share of the rows that a stage before the last answered."""
    candidate: int
    candidates: int
    data: str
    """Digest of the rows that certified."""
    again: bool = False
    """The rows had been used before, so the confidence is not what it says."""
    clip: float | None = None
    measure: str = "accuracy"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Certificate:
        return cls(**{one.name: data[one.name] for one in fields(cls)})

    @property
    def statement(self) -> str:
        confidence = f"with {self.confidence * 100:g} % confidence"
        of = f"{self.units:,} groups of {self.rows:,} rows" if self.units != self.rows else f"{self.rows:,} rows"
        if self.measure == "accuracy":
            what = f"at most {self.tolerance * 100:g} points less accurate"
        else:
            what = f"a mean absolute error at most {self.tolerance:g} larger (increases clipped at {self.clip:g})"
        how = {
            Test.DISAGREEMENT.value: "exact bound on disagreement, no labels",
            Test.LOSS.value: "a test of the loss by betting, with labels",
        }.get(self.test, self.test)
        again = "; USED BEFORE: these rows had certified already, so the confidence does not hold" if self.again else ""
        return f"{what}, {confidence}, by {of} ({how}; {self.disagreements:,} differ){again}"


def upper_bound(events: int, trials: int, alpha: float) -> float:
    """The probability of an event is above this with probability `alpha` at most."""
    from scipy.stats import beta

    return 1.0 if events >= trials else float(beta.ppf(1.0 - alpha, events + 1, trials - events))


@functools.cache
def most_events(trials: int, alpha: float, rate: float) -> int:
    """The number of events with which the probability is still shown to be at most `rate`; -1: not even with none."""
    found = -1
    while found + 1 < trials and upper_bound(found + 1, trials, alpha) <= rate:
        found += 1
    return found


def rows_needed(tolerance: float, confidence: float) -> int:
    """Rows without a disagreement that certify."""
    return math.ceil(math.log(1.0 - confidence) / math.log1p(-tolerance))


def betting_p_value(losses: Floats, tolerance: float) -> float:
    """For "the mean loss is above the tolerance"; losses in -1 to 1, in the order in which the rows came."""
    stakes = BETS / (1.0 + tolerance)
    unchanged = np.log1p(stakes * tolerance)  # what a row without a loss adds: the wealth grows between the others
    at = np.flatnonzero(losses)
    steps = np.log1p(np.outer(tolerance - losses[at], stakes))
    after = np.cumsum(steps, axis=0) + np.outer(at - np.arange(len(at)), unchanged)
    end = steps.sum(axis=0) + (len(losses) - len(at)) * unchanged
    wealth = np.vstack([after - steps, after, end[None, :]])
    mixed = np.logaddexp.reduce(wealth, axis=1) - math.log(len(BETS))
    return float(np.exp(-max(0.0, float(mixed.max()))))


@dataclass(frozen=True)
class Outcome:
    """One candidate on the certify rows. `differs`: by row, whether its answer is another than the full pipeline's; for
    regression how far it is off, in units of the clip.
    `losses`: by row, in -1 to 1, or None without labels."""

    differs: NDArray[np.bool_] | Floats
    losses: Floats | None
    approximated: float


def by_unit(values: Floats | NDArray[np.bool_], units: NDArray[np.intp] | None) -> Floats:
    """The mean of each unit; `units` has the unit of each row, from 0 on."""
    numbers = np.asarray(values, np.float64)
    if units is None:
        return numbers
    return np.asarray(np.bincount(units, numbers) / np.bincount(units))


def passes(outcome: Outcome, test: Test, aim: Aim, units: NDArray[np.intp] | None = None) -> bool:
    """Whether the candidate keeps to the tolerance, with the confidence wanted. Of a unit with any disagreement all is
    taken for different."""
    if test is Test.DISAGREEMENT:
        if outcome.differs.dtype != np.bool_:  # distances: no count of events, but bounded all the same
            return betting_p_value(by_unit(outcome.differs, units), aim.relative) <= aim.alpha
        differing = by_unit(outcome.differs, units) > 0
        return upper_bound(int(differing.sum()), len(differing), aim.alpha) <= aim.relative
    if outcome.losses is None:
        raise ValueError("the test of the loss needs labels")
    return betting_p_value(by_unit(outcome.losses, units), aim.relative) <= aim.alpha


def boldest(
    outcome_of: Callable[[int], Outcome], candidates: int, test: Test, aim: Aim, units: NDArray[np.intp] | None = None
) -> tuple[int, Outcome] | None:
    """The last candidate, from strict to bold, before the first that fails; None where the strictest does."""
    found: tuple[int, Outcome] | None = None
    for candidate in range(candidates):
        outcome = outcome_of(candidate)
        if not passes(outcome, test, aim, units):
            break
        found = candidate, outcome
    return found


@dataclass(frozen=True)
class Expected:
    """One candidate as the select rows have it: its cost a row, the shares of rows on which it differs, and on which it
    then loses and gains; estimates, smoothed."""

    cost: float
    differs: float
    loses: float
    gains: float


def pass_chance(expected: Expected, test: Test, aim: Aim, units: int) -> float:
    """The chance that the test passes on `units` units, if the rates are as expected. For the test of the loss, whose
    wealth grows steadily, 1 or 0."""
    if test is Test.DISAGREEMENT:
        from scipy.stats import binom

        allowed = most_events(units, aim.alpha, aim.relative)
        return float(binom.cdf(allowed, units, min(expected.differs, 1.0))) if allowed >= 0 else 0.0
    stakes = BETS / (1.0 + aim.relative)
    growth = (
        expected.loses * np.log1p(stakes * (aim.relative - 1.0))
        + expected.gains * np.log1p(stakes * (aim.relative + 1.0))
        + (1.0 - expected.loses - expected.gains) * np.log1p(stakes * aim.relative)
    )
    wealth = float(np.logaddexp.reduce(units * growth)) - math.log(len(BETS))
    return float(wealth >= -math.log(aim.alpha))


def planned_cost(candidates: Sequence[Expected], test: Test, aim: Aim, units: int, full_cost: float) -> float:
    """The expected cost a row of what the sequence ends with: the full pipeline where the first candidate fails."""
    cost, reaches = 0.0, 1.0
    before = full_cost
    for one in candidates:
        passes_too = min(reaches, pass_chance(one, test, aim, units))
        cost += (reaches - passes_too) * before
        reaches, before = passes_too, one.cost
        if reaches == 0.0:
            return cost
    return cost + reaches * before


def choose_test(
    candidates: Sequence[Expected], aim: Aim, units: int, full_cost: float, *, labels: bool
) -> tuple[Test, float]:
    """The test with the better planned power, and its expected cost a row. Decided before the certify rows are opened,
    so that no choice between results is made. Without labels there is one test only."""
    costs = {
        test: planned_cost(candidates, test, aim, units, full_cost)
        for test in Test
        if labels or test is Test.DISAGREEMENT
    }
    best = min(costs, key=lambda test: costs[test])  # the test without labels, where they are level
    return best, costs[best]
