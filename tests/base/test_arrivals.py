"""Arrival processes: reproducible, in order, at the rate asked for, and as bursty as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shoal.base import arrivals
from shoal.core import Invalid


def dispersion(times_s: np.ndarray, window_s: float) -> float:
    """Variance over mean of the arrivals per window: 1 for Poisson, 0 for a clock, more for bursts."""
    counts = np.bincount((times_s / window_s).astype(np.int64))[: int(times_s[-1] / window_s)]
    return float(counts.var(ddof=1) / counts.mean())


RATES = st.floats(1.0, 500.0)
DURATIONS = st.floats(1.0, 100.0)
SEEDS = st.integers(0, 2**31)
PROCESSES = {
    "poisson": arrivals.poisson,
    "bursty": arrivals.bursty,
    "clustered": lambda rate, duration, seed: arrivals.clustered(rate, duration, seed=seed, size=2.0),
    "diurnal": lambda rate, duration, seed: arrivals.diurnal(rate, duration, seed=seed, period_s=duration / 2),
}


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
@settings(max_examples=50, deadline=None)
@given(rate=RATES, duration=DURATIONS, seed=SEEDS)
def test_arrivals_ascend_inside_the_duration_and_repeat(
    process: object, rate: float, duration: float, seed: int
) -> None:
    times = process(rate, duration, seed=seed)  # type: ignore[operator]
    assert times.dtype == np.float64
    assert (np.diff(times) >= 0).all()
    assert ((times >= 0) & (times < duration)).all()
    assert np.array_equal(times, process(rate, duration, seed=seed))  # type: ignore[operator]


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_the_mean_rate_is_the_one_asked_for(process: object) -> None:
    counts = [len(process(50.0, 400.0, seed=seed)) for seed in range(40)]  # type: ignore[operator]
    standard_error = np.std(counts, ddof=1) / math.sqrt(len(counts))
    assert abs(np.mean(counts) - 20_000) < 4 * standard_error


@settings(max_examples=50, deadline=None)
@given(rate=RATES, duration=DURATIONS)
def test_constant_arrivals_are_as_many_as_fit(rate: float, duration: float) -> None:
    times = arrivals.constant(rate, duration)
    assert len(times) == pytest.approx(rate * duration, abs=1)
    assert times[-1] < duration
    assert np.diff(times) == pytest.approx(1 / rate)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(arrivals.poisson(100.0, 100.0, seed=3))
    assert stats.kstest(gaps, "expon", args=(0, 0.01)).pvalue > 0.01


def test_dispersion_tells_clock_from_poisson_from_bursts() -> None:
    clock = dispersion(arrivals.constant(100.0, 300.0), 1.0)
    poisson = dispersion(arrivals.poisson(100.0, 300.0, seed=1), 1.0)
    bursts = dispersion(arrivals.bursty(100.0, 300.0, seed=1), 1.0)
    assert clock < 0.1
    assert poisson == pytest.approx(1.0, abs=0.3)
    assert bursts > 3 * poisson


def test_bursts_are_as_dispersed_as_theory_says() -> None:
    rate, factor, share, burst_s = 50.0, 6.0, 0.2, 0.5
    times = arrivals.bursty(rate, 40_000.0, seed=5, factor=factor, share=share, burst_s=burst_s)
    calm = rate / (1 - share + share * factor)
    switches = 1 / burst_s + share / (burst_s * (1 - share))
    # The limit for long windows of a two-state process (Fischer and Meier-Hellstern 1993, eq. 10).
    expected = 1 + 2 * (calm * factor - calm) ** 2 * share * (1 - share) / (switches * rate)
    assert dispersion(times, 200.0) == pytest.approx(expected, rel=0.2)


def test_bursts_with_nothing_between_them_keep_the_mean_rate() -> None:
    times = arrivals.bursty(50.0, 4_000.0, seed=1, factor=math.inf, share=0.2, burst_s=0.5)
    assert len(times) / 4_000 == pytest.approx(50.0, rel=0.1)
    counts = np.bincount((times / 0.1).astype(np.int64), minlength=40_000)
    assert np.mean(counts == 0) == pytest.approx(0.8 * math.exp(-0.1 / 2.0), abs=0.03)  # wholly in a pause
    assert counts.max() > 3 * counts.mean()


def test_clusters_are_as_large_and_as_dispersed_as_they_say() -> None:
    times = arrivals.clustered(60.0, 10_000.0, seed=2, size=3.0)
    assert len(times) / 10_000 == pytest.approx(60.0, rel=0.02)
    assert len(times) / len(np.unique(times)) == pytest.approx(3.0, rel=0.02)
    assert dispersion(times, 5.0) == pytest.approx(5.0, rel=0.15)
    assert np.array_equal(arrivals.clustered(60.0, 10.0, seed=2, size=1), arrivals.poisson(60.0, 10.0, seed=2))


def test_a_seed_may_have_several_parts() -> None:
    first, again, other = (arrivals.clustered(9.0, 50.0, seed=seed, size=2.0) for seed in ([1, 2], [1, 2], [1, 3]))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_day_has_its_peak_where_it_was_put() -> None:
    times = arrivals.diurnal(100.0, 1000.0, seed=2, period_s=100.0, swing=0.9, peak_at=0.25)
    in_day = times % 100.0
    peak, trough = ((in_day > 15) & (in_day < 35)).sum(), ((in_day > 65) & (in_day < 85)).sum()
    assert peak > 8 * trough


def test_a_rate_that_leaves_its_range_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="left the range"):
        arrivals.modulated(lambda at: at, 1.0, 100.0, seed=1)


def test_recorded_arrivals_begin_at_zero_and_are_cut() -> None:
    assert arrivals.recorded([7.0, 5.0, 6.5], duration_s=2.0).tolist() == [0.0, 1.5]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: arrivals.poisson(0.0, 1.0, seed=1), "rate: 0 requests per second is not a rate"),
        (lambda: arrivals.constant(math.inf, 1.0), "not a rate"),
        (lambda: arrivals.constant(1.0, math.nan), "not a duration"),
        (lambda: arrivals.poisson(1e9, 1e9, seed=1), "more than one load can hold"),
        (lambda: arrivals.bursty(1.0, 1.0, seed=1, factor=0.5), "bursts of factor 0.5"),
        (lambda: arrivals.clustered(1.0, 1.0, seed=1, size=0.5), "clusters of 0.5"),
        (lambda: arrivals.clustered(1.0, 1.0, seed=1, size=math.inf), "clusters of inf"),
        (lambda: arrivals.diurnal(1.0, 1.0, seed=1, swing=1.5), "swing of 1.5"),
        (lambda: arrivals.recorded([]), "no arrivals"),
        (lambda: arrivals.recorded([1.0, math.nan]), "not numbers"),
    ],
)
def test_what_cannot_be_is_refused(call: object, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        call()  # type: ignore[operator]
