"""What is learned about execution times: the fit over batch sizes, the tail, drift, outliers."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.serve.scheduling.batching import batch_room
from shoal.serve.scheduling.profile import ExecutionProfile, Profiles

RNN = (0.00008, 0.00003)
CNN = (0.0, 0.019)
GPU = (0.005, 0.0005)


def feed(profile: ExecutionProfile, true: tuple[float, float], sizes: list[int], spread: float, seed: int = 1) -> None:
    random = Random(seed)
    for samples in sizes:
        profile.observe(samples, (true[0] + true[1] * samples) * random.lognormvariate(0.0, spread))


@pytest.mark.parametrize("true", [RNN, CNN, GPU], ids=["rnn", "cnn", "gpu"])
@pytest.mark.parametrize("spread", [0.0, 0.05, 0.2])
def test_finds_the_fit_and_interpolates(true: tuple[float, float], spread: float) -> None:
    profile = ExecutionProfile()
    feed(profile, true, [1, 8, 1, 2, 16] * 60, spread)
    for samples in (1, 3, 8, 12, 16):
        expected = true[0] + true[1] * samples
        assert profile.expected_s(samples) == pytest.approx(expected, rel=0.02 + spread / 2)


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.5])
def test_one_execution_in_a_hundred_takes_longer_than_the_cautious_time(spread: float) -> None:
    profile, random = ExecutionProfile(), Random(3)
    longer = 0
    for at in range(6000):
        samples = random.choice([1, 1, 2, 8])
        took_s = (GPU[0] + GPU[1] * samples) * random.lognormvariate(0.0, spread)
        if at >= 200:
            longer += took_s > profile.cautious_s(samples)
        profile.observe(samples, took_s)
    assert 0.002 < longer / 5800 < 0.03


def test_factors_are_quantiles_of_what_deviates() -> None:
    profile = ExecutionProfile()
    feed(profile, GPU, [1, 4] * 100, 0.3)
    factors = [profile.factor(quantile) for quantile in (0.01, 0.25, 0.5, 0.9, 0.99, 1.0)]
    assert factors == sorted(factors)
    assert profile.factor(0.5) == pytest.approx(1.0, rel=0.15)
    assert profile.factor(0.9) == pytest.approx(1.47, rel=0.2)
    assert profile.factor(0.99) == profile.factor(1.0) == profile.tail


def test_before_much_is_known_the_tail_is_a_guess_for_those_who_must_be_sure() -> None:
    profile = ExecutionProfile()
    assert (profile.factor(0.5), profile.factor(0.6)) == (1.0, 2.0)
    feed(profile, GPU, [1] * 19, 0.3)
    assert (profile.factor(0.5), profile.factor(0.6)) == (1.0, profile.tail)


def feed_sizes(profile: ExecutionProfile, power: float, spread: float, count: int = 300, seed: int = 5) -> None:
    random = Random(seed)
    for _ in range(count):
        size = random.lognormvariate(6.0, 0.8)
        profile.observe(1, 0.002 * (size / 400) ** power * random.lognormvariate(0.0, spread), size=size)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_the_size_of_inputs_explains_times_where_it_does(power: float, spread: float) -> None:
    profile = ExecutionProfile()
    feed_sizes(profile, power, spread)
    for size in (50.0, 400.0, 3000.0):
        expected = 0.002 * (size / 400) ** power
        assert profile.expected_s(1) * profile.scale(size) == pytest.approx(expected, rel=0.1 + 1.5 * spread)
    assert profile.tail < 1.3 + 4 * spread
    assert profile.scale(0.0) == 1.0


def test_a_size_that_explains_nothing_or_less_than_nothing_counts_for_nothing() -> None:
    for power, spread, count in ((0.0, 0.5, 300), (-1.0, 0.1, 300), (1.0, 0.0, 19), (1.0, 3.0, 300)):
        profile = ExecutionProfile()
        feed_sizes(profile, power, spread, count)
        assert profile.scale(10.0) == profile.scale(10_000.0) == 1.0, (power, spread, count)


def test_outliers_hardly_bend_what_the_size_explains() -> None:
    profile, random = ExecutionProfile(), Random(1)
    feed_sizes(profile, 1.0, 0.05)
    for _ in range(10):
        profile.observe(1, 30.0, size=random.lognormvariate(6.0, 0.8))
    assert profile.scale(4000.0) / profile.scale(400.0) == pytest.approx(10, rel=0.25)


def test_deviations_are_forgotten_after_a_minute_as_well() -> None:
    profile = ExecutionProfile()
    for at in range(30):
        profile.observe(1, 0.001, now=float(at))
    profile.observe(1, 1.0, now=30.0)
    profile.observe(1, 1.0, now=30.0)
    assert profile.tail > 500
    profile.forget_before(90.0)
    assert profile.tail > 500
    profile.forget_before(90.1)
    assert profile.tail == 2.0  # nothing is known of now
    for at in range(20):
        profile.observe(1, 0.001, now=91.0 + at)
    assert 1.0 <= profile.tail < 1.1


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.2])
def test_batches_are_tried_and_kept_up_only_where_they_bring_something(spread: float) -> None:
    random = Random(2)
    batched = {}
    for true in (CNN, RNN, GPU):
        profile = ExecutionProfile()
        assert profile.pays(8)
        assert not profile.pays(1)
        sizes = []
        for _ in range(600):
            sizes.append(random.choice([1, 1, 2, 3]) if profile.pays(8) else 1)
            feed(profile, true, sizes[-1:], spread, seed=random.randrange(10**6))
        batched[true] = sum(size > 1 for size in sizes[100:])
    assert batched[CNN] <= 5
    assert batched[RNN] > 200
    assert batched[GPU] > 200


def test_batches_get_another_chance_after_a_bad_moment() -> None:
    profile = ExecutionProfile()
    for _ in range(10):
        profile.observe(1, sum(RNN))
        profile.observe(8, 8 * 4 * sum(RNN))  # the machine paused in each of them
    assert not profile.pays(8)
    sizes = []
    while not profile.pays(8) and len(sizes) < 10_000:
        sizes.append(batch_room(profile, 8, head=1, max_batch=8))
        feed(profile, RNN, sizes[-1:], 0.0)
    assert profile.pays(8)
    assert sizes.count(8) == len(sizes) - sizes.count(1) <= len(sizes) / 1900


def test_pauses_of_the_machine_do_not_speak_against_batches() -> None:
    """One execution in five takes three to eight times as long, among them some of the few that the warm-up makes."""
    for seed in range(100):
        random = Random(seed)

        def took(samples: int, random: Random = random) -> float:
            pause = random.uniform(3, 8) if random.random() < 0.2 else random.uniform(1, 1.2)
            return 0.001 * (0.85 + 0.15 * samples) * pause

        profiles = Profiles()
        profiles.prime("m", [(samples, min(took(samples) for _ in range(5))) for samples in (1, 8)])
        profile = profiles.of("m")
        for _ in range(48):
            profile.observe(1, took(1))
        for _ in range(20):
            assert profile.worth_trying(8), seed
            profile.observe(8, took(8))


def test_gain_compares_samples_per_second() -> None:
    profile = ExecutionProfile()
    feed(profile, RNN, [1, 32] * 30, 0.0)
    assert profile.gain(1) == pytest.approx(1.0)
    assert profile.gain(32) == pytest.approx(32 * sum(RNN) / (RNN[0] + 32 * RNN[1]), rel=0.05)


@pytest.mark.parametrize("factor", [0.4, 1.5, 3.0])
def test_follows_drift_without_forgetting_the_shape(factor: float) -> None:
    profile = ExecutionProfile()
    feed(profile, GPU, [1, 8] * 50, 0.05)
    slower = (GPU[0] * factor, GPU[1] * factor)
    feed(profile, slower, [1] * 200, 0.05)
    assert profile.expected_s(1) == pytest.approx(slower[0] + slower[1], rel=0.1)
    assert profile.expected_s(8) == pytest.approx(slower[0] + 8 * slower[1], rel=0.15)
    assert profile.tail < 1.3


def test_a_pause_of_the_machine_moves_little() -> None:
    profile = ExecutionProfile()
    feed(profile, GPU, [1, 8] * 50, 0.05)
    before, tail = profile.expected_s(4), profile.tail
    profile.observe(4, 5.0)
    assert profile.expected_s(4) < 1.3 * before
    assert profile.tail < 1.1 * tail
    feed(profile, GPU, [1, 8] * 20, 0.05)
    assert profile.expected_s(4) == pytest.approx(before, rel=0.05)


def test_the_slow_first_executions_of_a_fresh_replica_are_seen_through() -> None:
    profile = ExecutionProfile()
    profile.observe(1, 0.5)
    profile.observe(1, 0.1)
    feed(profile, GPU, [1] * 6, 0.02)
    assert profile.known
    assert profile.expected_s(1) == pytest.approx(sum(GPU), rel=0.1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0, 100)), max_size=60))
def test_stays_sane_whatever_is_measured(measured: list[tuple[int, float]]) -> None:
    profile = ExecutionProfile()
    for samples, seconds in measured:
        profile.observe(samples, seconds)
    times = [profile.expected_s(samples) for samples in range(1, 65)]
    assert min(times) > 0
    assert times == sorted(times)
    assert all(profile.cautious_s(samples) >= profile.expected_s(samples) for samples in (1, 8, 64))
    for budget_s in (0.0, 0.001, 0.1, 10.0):
        fits = profile.fitting(64, budget_s)
        assert fits == 0 or profile.cautious_s(fits) <= budget_s * (1 + 1e-9)
        assert fits == 64 or profile.cautious_s(fits + 1) > budget_s * (1 - 1e-9)


@pytest.mark.parametrize(("samples", "seconds"), [(0, 1.0), (1, -1.0), (1, float("nan")), (1, float("inf"))])
def test_refuses_what_cannot_have_been_measured(samples: int, seconds: float) -> None:
    with pytest.raises(ValueError, match="no execution can have had"):
        ExecutionProfile().observe(samples, seconds)


def test_a_warm_up_primes_it() -> None:
    profiles = Profiles()
    assert profiles.of("a/m").expected_s(1) == pytest.approx(0.01)
    profiles.prime("a/m", [(1, sum(RNN)), (16, RNN[0] + 16 * RNN[1])] * 4)
    assert profiles.of("a/m").expected_s(4) == pytest.approx(RNN[0] + 4 * RNN[1], rel=0.05)
