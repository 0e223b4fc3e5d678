"""Certificates on populations whose true loss is known: violations counted, power counted, the wrong way caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from shoal.cascade.certificate import (
    BETS,
    Aim,
    Expected,
    Outcome,
    Test,
    betting_p_value,
    boldest,
    choose_test,
    pass_chance,
    passes,
    planned_cost,
    rows_needed,
    upper_bound,
)
from shoal.cascade.models.base import Link, Output
from shoal.cascade.rules import IntervalRule, MarginRule

RESAMPLES = 200
MOST_VIOLATIONS = 17
"""Of 200 at 5 %: more happen by chance once in 100."""


class Population:
    """Rows with a margin, whether full and small pipeline are right: small margins disagree more."""

    def __init__(self, seed: int, size: int = 5000, rate: float = 0.15) -> None:
        draw = np.random.default_rng(seed)
        self.margin = draw.random(size)
        self.full = draw.random(size) < 0.86
        differs = draw.random(size) < rate * np.exp(-6 * self.margin)
        self.small = np.where(differs, ~self.full, self.full)
        self.draw = draw

    def loss(self, threshold: float) -> float:
        return float((self.full.mean()) - np.where(self.margin >= threshold, self.small, self.full).mean())

    def sample(self, rows: int) -> Any:
        return self.draw.integers(0, len(self.full), rows)

    def outcome(self, sample: Any, threshold: float) -> Outcome:
        taken = self.margin[sample] >= threshold
        given_ = np.where(taken, self.small[sample], self.full[sample])
        losses = self.full[sample].astype(float) - given_
        return Outcome(given_ != self.full[sample], losses, float(taken.mean()))


THRESHOLDS = np.linspace(1, 0, 60)


def certified(population: Population, rows: int, test: Test, aim: Aim) -> float:
    """The threshold that the product's own sequence accepts; above all margins where none is."""
    sample = population.sample(rows)
    found = boldest(lambda one: population.outcome(sample, THRESHOLDS[one]), len(THRESHOLDS), test, aim)
    return 2.0 if found is None else float(THRESHOLDS[found[0]])


def chosen_on_the_certify_rows(population: Population, rows: int, aim: Aim) -> float:
    """The wrong way: the boldest threshold that looks good on the rows that should certify."""
    sample = population.sample(rows)
    good = [t for t in THRESHOLDS if population.outcome(sample, t).losses.mean() <= aim.tolerance]  # type: ignore[union-attr]
    return float(min(good, default=2.0))


@pytest.mark.few
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
@pytest.mark.parametrize(("tolerance", "rows"), [(0.001, 3500), (0.005, 3500), (0.01, 1000)])
@pytest.mark.parametrize("test", list(Test))
def test_the_true_loss_is_above_the_tolerance_in_at_most_5_percent(
    seed: int, tolerance: float, rows: int, test: Test
) -> None:
    population, aim = Population(seed), Aim(tolerance)
    violated = sum(population.loss(certified(population, rows, test, aim)) > tolerance for _ in range(RESAMPLES))
    assert violated <= MOST_VIOLATIONS


@pytest.mark.few
@pytest.mark.parametrize("tolerance", [0.005, 0.01])
def test_choosing_on_the_certify_rows_is_caught(tolerance: float) -> None:
    population, aim = Population(1), Aim(tolerance)
    violated = sum(
        population.loss(chosen_on_the_certify_rows(population, 1000, aim)) > tolerance for _ in range(RESAMPLES)
    )
    assert violated > MOST_VIOLATIONS


@pytest.mark.few
@pytest.mark.parametrize(
    ("test", "tolerance"), [(Test.DISAGREEMENT, 0.001), (Test.DISAGREEMENT, 0.01), (Test.LOSS, 0.01)]
)
def test_it_has_power(test: Test, tolerance: float) -> None:
    population, aim = Population(1, rate=0.1), Aim(tolerance)
    approximated = [float((population.margin >= certified(population, 5000, test, aim)).mean()) for _ in range(50)]
    assert np.mean(approximated) > (0.1 if tolerance == 0.001 else 0.5)


def test_the_test_by_betting_is_what_its_definition_says() -> None:
    draw = np.random.default_rng(1)
    for _ in range(20):
        losses = draw.choice([-1.0, 0.0, 1.0], 300, p=[0.02, 0.97, 0.01])
        wealth = np.ones(len(BETS))
        highest = 1.0
        for loss in losses:
            wealth *= 1 + BETS / 1.05 * (0.05 - loss)
            highest = max(highest, float(wealth.mean()))
        assert betting_p_value(losses, 0.05) == pytest.approx(1 / highest)


def test_the_test_by_betting_rejects_a_loss_at_the_tolerance_in_at_most_5_percent() -> None:
    draw = np.random.default_rng(0)
    for tolerance in (0.005, 0.02):
        lost = draw.random((400, 2000)) < tolerance + 0.01
        gained = draw.random((400, 2000)) < 0.01
        rejected = sum(
            betting_p_value(one * 1.0 - other, tolerance) <= 0.05 for one, other in zip(lost, gained, strict=True)
        )
        assert rejected <= binom.ppf(0.99, 400, 0.05)


def test_rows_without_a_disagreement_that_are_needed() -> None:
    assert rows_needed(0.001, 0.95) == 2995
    assert upper_bound(0, 2995, 0.05) <= 0.001 < upper_bound(0, 2994, 0.05)
    assert [next(n for n in range(2900, 7000) if upper_bound(k, n, 0.05) <= 0.001) for k in (1, 2)] == [4742, 6294]


@given(st.integers(0, 40), st.integers(1, 400))
def test_the_upper_bound_is_exact(events: int, trials: int) -> None:
    events = min(events, trials)
    bound = upper_bound(events, trials, 0.05)
    if events < trials:
        assert binom.cdf(events, trials, bound) == pytest.approx(0.05)
    else:
        assert bound == 1.0


def outcome(differs: list[bool], losses: list[float] | None = None) -> Outcome:
    return Outcome(np.array(differs), None if losses is None else np.array(losses), 0.5)


def test_the_sequence_ends_at_the_first_that_fails() -> None:
    asked: list[int] = []

    def of(candidate: int) -> Outcome:
        asked.append(candidate)
        return outcome([candidate == 2] * 1000)  # the third fails, the fourth would pass

    found = boldest(of, 5, Test.DISAGREEMENT, Aim(0.01))
    assert found is not None
    assert found[0] == 1
    assert asked == [0, 1, 2]
    assert boldest(lambda _: outcome([True] * 100), 3, Test.DISAGREEMENT, Aim(0.01)) is None


@pytest.mark.parametrize("test", [Test.DISAGREEMENT, Test.LOSS])
def test_rows_that_all_disagree_certify_nothing(test: Test) -> None:
    everywhere = Outcome(np.ones(5000, bool), np.ones(5000), 1.0)
    assert boldest(lambda candidate: everywhere, 3, test, Aim(0.05)) is None


def test_groups_of_rows_are_the_units() -> None:
    differs = np.zeros(6000, bool)
    differs[:6] = True
    aim, units = Aim(0.005), np.repeat(np.arange(600), 10)
    assert passes(Outcome(differs, None, 1.0), Test.DISAGREEMENT, aim)
    assert not passes(Outcome(differs, None, 1.0), Test.DISAGREEMENT, aim, units)  # 1 of 600 groups
    assert passes(Outcome(np.zeros(6000, bool), None, 1.0), Test.DISAGREEMENT, aim, units)


def test_which_test_is_used_is_planned_from_the_expected_numbers() -> None:
    few = [Expected(1.0, 0.0001, 0.00005, 0.00005)]
    many = [Expected(1.0, 0.02, 0.010, 0.010)]
    assert choose_test(few, Aim(0.001), 3500, 9.0, labels=True)[0] is Test.DISAGREEMENT
    assert choose_test(many, Aim(0.01), 20_000, 9.0, labels=True) == (Test.LOSS, 1.0)
    test, cost = choose_test(many, Aim(0.01), 20_000, 9.0, labels=False)
    assert test is Test.DISAGREEMENT
    assert cost == pytest.approx(9.0)
    assert pass_chance(few[0], Test.LOSS, Aim(0.001), 3500) == 0
    assert pass_chance(few[0], Test.DISAGREEMENT, Aim(0.001), 3500) == pytest.approx(0.9999**3500)  # none may differ


def test_the_planned_cost_is_that_of_where_sequences_end() -> None:
    draw, aim = np.random.default_rng(0), Aim(0.01)
    rates, costs = [0.001, 0.004, 0.012], [6.0, 4.0, 1.0]
    expected = [Expected(cost, rate, 0, 0) for cost, rate in zip(costs, rates, strict=True)]
    ends = []
    for _ in range(3000):
        rows = draw.random(1000)
        found = boldest(lambda one, rows=rows: Outcome(rows < rates[one], None, 0.0), 3, Test.DISAGREEMENT, aim)
        ends.append(9.0 if found is None else costs[found[0]])
    assert planned_cost(expected, Test.DISAGREEMENT, aim, 1000, 9.0) == pytest.approx(np.mean(ends), abs=0.1)


def test_a_loss_needs_labels() -> None:
    with pytest.raises(ValueError, match="labels"):
        passes(outcome([False] * 10), Test.LOSS, Aim(0.1))


@given(st.lists(st.lists(st.floats(-3, 3).map(lambda x: round(x, 1)), min_size=3, max_size=3), min_size=1), st.data())
def test_a_rule_takes_a_row_alone_as_it_takes_it_among_others(rows: list[list[float]], data: Any) -> None:
    outputs = data.draw(st.sampled_from([1, 3]))
    scores = np.array(rows)[:, :outputs]
    output = Output(Link.SOFTMAX if outputs == 3 else Link.LOGISTIC, tuple(range(max(outputs, 2))), "<i8")
    edges = tuple(sorted(data.draw(st.sets(st.floats(-3, 3).map(lambda x: round(x, 1)), max_size=4))))
    allowed = tuple(data.draw(st.lists(st.booleans(), min_size=len(edges) + 1, max_size=len(edges) + 1)))
    thresholds = tuple(data.draw(st.lists(st.floats(0, 2).map(lambda x: round(x, 1)), min_size=3, max_size=3)))
    for rule in (MarginRule(thresholds), IntervalRule(edges, allowed)):
        assert [rule.sure_of(row, output) for row in scores.tolist()] == rule.sure(scores, output).tolist()
