"""Token buckets in compute-seconds, against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.serve.scheduling import CostBucket

GRID = st.integers(0, 2000).map(lambda n: Fraction(n, 1000))


class ExactBucket:
    def __init__(self, rate: Fraction, burst: Fraction) -> None:
        self.rate, self.burst, self.level, self.at = rate, burst, burst, Fraction(0)

    def advance(self, now: Fraction) -> None:
        self.level = min(self.burst, self.level + (now - self.at) * self.rate)
        self.at = now

    def take(self, cost: Fraction, now: Fraction) -> Fraction:
        self.advance(now)
        missing = min(cost, self.burst) - self.level
        if missing <= 0:
            self.level -= cost
            return Fraction(0)
        return missing / self.rate

    def settle(self, expected: Fraction, actual: Fraction, now: Fraction) -> None:
        self.advance(now)
        self.level = min(self.burst, self.level + expected - actual)


@settings(max_examples=150, deadline=None)
@given(
    rate=st.integers(1, 3000).map(lambda n: Fraction(n, 1000)),
    burst=st.integers(1, 3000).map(lambda n: Fraction(n, 1000)),
    steps=st.lists(st.tuples(GRID, GRID, st.one_of(st.none(), GRID)), max_size=40),
)
def test_like_exact_arithmetic(rate: Fraction, burst: Fraction, steps: list) -> None:  # type: ignore[type-arg]
    bucket, exact = CostBucket(float(rate), float(burst)), ExactBucket(rate, burst)
    now = Fraction(0)
    for gap, cost, actual in steps:
        now += gap
        if actual is None:
            assert bucket.take(float(cost), float(now)) == pytest.approx(float(exact.take(cost, now)), abs=1e-7)
        else:
            bucket.settle(float(cost), float(actual), float(now))
            exact.settle(cost, actual, now)
        assert bucket.level_s(float(now)) == pytest.approx(float(exact.level), abs=1e-7)


@given(
    rate=st.floats(0.01, 10),
    burst=st.floats(0.01, 10),
    costs=st.lists(st.floats(0.0001, 20), min_size=1, max_size=30),
)
def test_whoever_waits_as_told_is_admitted(rate: float, burst: float, costs: list[float]) -> None:
    bucket, now = CostBucket(rate, burst), 0.0
    for cost in costs:
        retry_after_s = bucket.take(cost, now)
        if retry_after_s:
            assert bucket.take(cost, now + retry_after_s * 0.99) > 0 or retry_after_s < 1e-6
            now += retry_after_s
            assert bucket.take(cost, now) == 0.0


def test_in_the_long_run_the_rate_is_kept() -> None:
    bucket, spent = CostBucket(0.25, 1.0), 0.0
    for at in range(100_000):
        if bucket.take(0.005, at * 0.001) == 0.0:
            spent += 0.005
    assert spent == pytest.approx(1.0 + 0.25 * 100, rel=0.001)


def test_what_was_dearer_than_expected_is_paid_back_later() -> None:
    bucket = CostBucket(1.0, 1.0)
    assert bucket.take(0.1, 0.0) == 0.0
    bucket.settle(0.1, 3.0, 0.0)
    assert bucket.level_s(0.0) == pytest.approx(-2.0)
    assert bucket.take(0.1, 0.0) == pytest.approx(2.1)
    assert bucket.take(0.1, 2.2) == 0.0


def test_a_cost_beyond_the_burst_waits_for_a_full_bucket() -> None:
    bucket = CostBucket(1.0, 1.0)
    assert bucket.take(5.0, 0.0) == 0.0
    assert bucket.take(5.0, 0.0) == pytest.approx(5.0)


def test_a_clock_that_stands_still_or_goes_back_fills_nothing() -> None:
    bucket = CostBucket(1.0, 1.0, now=10.0)
    bucket.take(1.0, 10.0)
    assert bucket.level_s(9.0) == bucket.level_s(10.0) == 0.0
