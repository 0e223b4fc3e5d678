"""Intervals and tests against scipy's, and against what they promise: their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shoal.measure import statistics
from shoal.measure.types import Failure, LoadResult

COUNTS = st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
LEVELS = st.sampled_from([0.5, 0.8, 0.95, 0.99])


@settings(max_examples=50, deadline=None)
@given(COUNTS, LEVELS)
def test_proportions_are_clopper_and_pearsons(count: tuple[int, int], confidence: float) -> None:
    k, n = count
    found = statistics.proportion(k, n, confidence=confidence)
    oracle = stats.binomtest(k, n).proportion_ci(confidence, method="exact")
    assert (found.value, found.confidence) == (k / n, confidence)
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high), abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.sampled_from([0.01, 0.5, 0.95, 0.99]), LEVELS)
def test_quantiles_are_scipys(values: list[float], p: float, confidence: float) -> None:
    found = statistics.quantile(values, p, confidence=confidence)
    assert found.value == np.quantile(values, p, method="inverted_cdf")
    oracle = stats.quantile_test(values, p=p).confidence_interval(confidence)
    # scipy's ends are order statistics as well; where it has none it says nan.
    assert found.low == (oracle.low if not math.isnan(oracle.low) else -math.inf)
    assert found.high == (oracle.high if not math.isnan(oracle.high) else math.inf)


@pytest.mark.parametrize("n", range(1, 9))
def test_a_rank_that_is_just_sure_enough_counts(n: int) -> None:
    """Of a median the distribution of ranks is known exactly, and so are confidences that it meets to the last bit."""
    for k in range((n + 1) // 2):
        tail = sum(math.comb(n, at) for at in range(k + 1)) / 2**n
        found = statistics.quantile(np.arange(1, n + 1), 0.5, confidence=1 - 2 * tail)
        if 0 < tail < 0.5:
            assert (found.low, found.high) == (k if k else -math.inf, n - k)


def test_quantile_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(4)
    truth = stats.expon.ppf(0.95)
    hits = 0
    for _ in range(600):
        found = statistics.quantile(rng.exponential(size=200), 0.95, confidence=0.9)
        hits += found.low <= truth <= found.high
    assert stats.binomtest(600 - hits, 600, 0.1, alternative="greater").pvalue > 0.001


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_independent_samples_have_a_design_effect_near_one(seed: int) -> None:
    assert 1.0 <= statistics.design_effect(np.random.default_rng(seed).random(4000) < 0.05) < 3.0


def test_clumps_of_ten_have_a_design_effect_near_ten() -> None:
    rng = np.random.default_rng(7)
    found = [statistics.design_effect(np.repeat(rng.random(2000) < 0.05, 10)) for _ in range(30)]
    assert np.mean(found) == pytest.approx(10.0, rel=0.15)


def test_a_series_too_short_or_without_variety_has_none() -> None:
    assert statistics.design_effect([1.0, 2.0, 3.0]) == 1.0
    assert statistics.design_effect(np.ones(1000)) == 1.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=500), st.integers(2, 50))
def test_the_ecdf_is_scipys_at_its_points(values: list[float], points: int) -> None:
    positions, shares = statistics.ecdf(values, points=points)
    assert len(positions) <= points
    assert (positions[0], positions[-1], shares[-1]) == (min(values), max(values), 1.0)
    assert shares == pytest.approx(stats.ecdf(values).cdf.evaluate(positions))


def test_clumps_widen_the_intervals_by_the_root_of_their_design_effect() -> None:
    values = np.arange(1000.0)
    plain, clumped = (statistics.quantile(values, 0.5, effect=effect) for effect in (1.0, 16.0))
    assert plain.value == clumped.value
    assert clumped.high - clumped.low == pytest.approx(4 * (plain.high - plain.low), rel=0.15)
    plain, clumped = (statistics.proportion(500, 1000, effect=effect) for effect in (1.0, 16.0))
    assert clumped.high - clumped.low == pytest.approx(4 * (plain.high - plain.low), rel=0.15)


def test_nothing_measured_is_nothing_known() -> None:
    assert math.isnan(statistics.quantile([], 0.5).value)
    assert statistics.proportion(0, 0).as_json()["value"] is None
    assert statistics.ecdf([])[0].size == 0
    with pytest.raises(ValueError, match="between 0 and 1"):
        statistics.quantile([1.0], 1.0)
    with pytest.raises(ValueError, match="3 successes in 2 trials"):
        statistics.proportion(3, 2)


def test_the_smallest_and_the_largest_may_be_the_ends_of_an_interval() -> None:
    # Six tosses show nothing but heads, or nothing but tails, in 1.6 % of all cases: less than the 2.5 % of one tail.
    assert statistics.quantile(range(1, 7), 0.5) == statistics.Estimate(3.0, 1.0, 6.0, 0.95)
    assert statistics.quantile(range(1, 6), 0.5) == statistics.Estimate(3.0, -math.inf, math.inf, 0.95)


def test_an_estimate_says_how_sure_it_is_also_when_it_knows_nothing() -> None:
    for found in (statistics.quantile([], 0.5, confidence=0.8), statistics.quantile([1.0], 0.5, confidence=0.8)):
        assert found.confidence == 0.8
    nothing = statistics.quantile([], 0.5)
    assert math.isnan(nothing.low)
    assert math.isnan(nothing.high)
    nothing = statistics.proportion(0, 0, confidence=0.8)
    assert (nothing.low, nothing.high, nothing.confidence) == (0.0, 1.0, 0.8)
    assert statistics.Estimate(1.0, -math.inf, 2.0, 0.8).as_json() == {
        "value": 1.0, "low": None, "high": 2.0, "confidence": 0.8,
    }  # fmt: skip
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"^p must lie between 0 and 1"):
            statistics.quantile([1.0], share)


def test_the_design_effect_is_that_of_twenty_batches() -> None:
    pairs = np.repeat(np.arange(20.0), 2)
    assert statistics.design_effect(pairs) == pytest.approx(2 * 20 / 19)
    assert statistics.design_effect(pairs[1:]) == 1.0  # too short for twenty batches of two
    assert statistics.design_effect(np.tile([0.0, 1.0], 20)) == 1.0  # batches more equal than chance makes them


def test_the_ecdf_has_two_hundred_steps_unless_told_otherwise() -> None:
    positions, shares = statistics.ecdf(np.arange(1000.0))
    assert len(positions) == len(shares) == 200
    assert statistics.ecdf([])[1].size == 0


def result() -> LoadResult:
    """Ten requests a second apart: the first two in the warm-up, one 503, one late answer, one lost."""
    scheduled = np.arange(10.0)
    sent, done, status = scheduled + 0.001, scheduled + 0.1, np.full(10, 200)
    done[4], status[4] = 4.01, 503
    sent[6], done[6] = 8.0, 8.1
    status[8] = Failure.LOST
    return LoadResult("ann", "m", scheduled, sent, done, status, duration_s=8.0, warmup_s=2.0)


def test_latency_counts_from_the_schedule_and_warm_up_does_not_count() -> None:
    found = result()
    assert found.count() == 8
    assert found.offered_per_s() == 1.0
    assert sorted(found.latencies_s()) == pytest.approx([0.1] * 5 + [2.1])
    assert np.isinf(found.latencies_or_inf_s()).sum() == 2
    assert found.quantile(0.99).value == pytest.approx(2.1)


def test_a_failure_is_a_miss_however_quick() -> None:
    found = result()
    assert found.attainment(0.5).value == pytest.approx(5 / 8)
    assert found.goodput(0.5).value == pytest.approx(5 / 8)
    assert found.errors() == {"http 503": 1, "connection lost": 1}
    assert found.failures() == 2


def test_json_holds_no_nan() -> None:
    import json

    document = json.loads(json.dumps(result().as_json(slo_s=0.5), allow_nan=False))
    assert document["latency_s"]["p99.9"]["high"] is None
    assert document["errors"] == {"http 503": 1, "connection lost": 1}
    none = np.empty(0)
    empty = LoadResult("", "m", none, none, none, none, duration_s=1.0)
    assert json.loads(json.dumps(empty.as_json(slo_s=1.0), allow_nan=False))["latency_s"]["p50"]["value"] is None


def test_an_estimate_is_written_with_its_interval() -> None:
    assert f"{statistics.Estimate(0.5, -np.inf, 0.75):.1%}" == "50.0% (? to 75.0%)"
    assert f"{statistics.Estimate(2.0, 1.5, np.inf):.3g}" == "2 (1.5 to ?)"
