"""The capacity search in virtual time, against queues whose answer is known on paper, and against a plain ramp."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ramps import in_chunks, ramp
from scipy.optimize import brentq
from scipy.stats import binomtest

from shoal.core import Invalid
from shoal.measure.search.capacity import find_capacity
from shoal.measure.search.judge import Effort, Goal, Judge, Trial, Verdict
from shoal.measure.types import Floats
from tests.measure.servers import queue_probe

WARMUP = 200


def mmc_tail(rate: float, service_s: float, workers: int, t: float) -> float:
    """P(latency > t) of an M/M/c queue (Kleinrock 1975, section 3.5, and the sum of wait and service)."""
    mu = 1 / service_s
    load = rate / mu
    last = load**workers / math.factorial(workers) / (1 - load / workers)
    waits = last / (sum(load**k / math.factorial(k) for k in range(workers)) + last)
    spare = workers * mu - rate
    if abs(spare - mu) < 1e-9:
        return math.exp(-mu * t) * (1 + waits * mu * t)
    both = (spare * math.exp(-mu * t) - mu * math.exp(-spare * t)) / (spare - mu)
    return math.exp(-mu * t) * (1 - waits) + waits * both


def md1_tail(rate: float, service_s: float, t: float) -> float:
    """P(latency > t) of an M/D/1 queue (Erlang 1909); its terms cancel, so they are summed in many digits."""
    with localcontext() as context:
        context.prec = 60
        total = Decimal(0)
        for k in range(int((t - service_s) // service_s) + 1):
            x = Decimal(rate) * (Decimal(t) - Decimal(service_s) * (k + 1))
            total += (-x) ** k / math.factorial(k) * x.exp()
        return 1 - float(Decimal(1 - rate * service_s) * total)


QUEUES: dict[str, tuple[Callable[[int], Callable[[float, int], Floats]], float, Callable[[float], float], float]] = {
    # How to sample it by seed, the objective, its tail by rate, and where it saturates.
    "M/D/1": (lambda seed: queue_probe(0.002, seed=seed), 0.02, lambda rate: md1_tail(rate, 0.002, 0.02), 500.0),
    "M/D/1 with patience": (
        lambda seed: queue_probe(0.0008, seed=seed), 0.05, lambda rate: md1_tail(rate, 0.0008, 0.05), 1250.0,
    ),
    "M/M/1": (
        lambda seed: queue_probe(0.002, exponential=True, seed=seed), 0.04,
        lambda rate: mmc_tail(rate, 0.002, 1, 0.04), 500.0,
    ),
    "M/M/4": (
        lambda seed: queue_probe(0.008, workers=4, exponential=True, seed=seed), 0.06,
        lambda rate: mmc_tail(rate, 0.008, 4, 0.06), 500.0,
    ),
}  # fmt: skip


def truth(name: str) -> float:
    """The rate at which just one request in a hundred is late."""
    _, _, tail, saturated = QUEUES[name]
    return float(brentq(lambda rate: tail(rate) - 0.01, 1.0, saturated - 0.01))


@pytest.mark.parametrize("name", ["M/D/1", "M/M/1", "M/M/4"])
def test_the_simulated_queues_are_those_of_the_books(name: str) -> None:
    sample, slo_s, tail, _ = QUEUES[name]
    draw = sample(5)
    draw(300.0, 1000)
    assert np.mean(draw(300.0, 200_000) > slo_s / 4) == pytest.approx(
        md1_tail(300.0, 0.002, slo_s / 4) if name == "M/D/1" else mmc_tail(300.0, 0.002, 1, slo_s / 4)
        if name == "M/M/1" else mmc_tail(300.0, 0.008, 4, slo_s / 4), rel=0.1,
    )  # fmt: skip
    assert tail(truth(name)) == pytest.approx(0.01)


@pytest.mark.few(count=2)
@pytest.mark.parametrize("name", QUEUES)
def test_the_search_finds_the_analytic_capacity(name: str) -> None:
    sample, slo_s, _, _ = QUEUES[name]
    found = [
        find_capacity(in_chunks(sample(seed), warmup=WARMUP), Goal(slo_s), start_per_s=350.0).rate_per_s.value
        for seed in range(5)
    ]
    assert np.median(found) == pytest.approx(truth(name), rel=0.03)
    assert found == pytest.approx([truth(name)] * 5, rel=0.12)


def test_the_search_needs_a_fifth_of_a_ramps_requests_at_most_for_the_same_answer() -> None:
    sample, slo_s, _, _ = QUEUES["M/D/1"]
    found = [find_capacity(in_chunks(sample(one), warmup=WARMUP), Goal(slo_s), start_per_s=350.0) for one in range(3)]
    answer = np.median([one.rate_per_s.value for one in found])
    ramped, spent = ramp(sample(100), Goal(slo_s), start_per_s=50.0, step=0.02, requests=20_000)
    assert answer == pytest.approx(ramped, rel=0.03)
    assert answer == pytest.approx(truth("M/D/1"), rel=0.03)
    assert 5 * max(one.requests for one in found) <= spent


@pytest.mark.slow
def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    effort = Effort(most_requests=3000)
    wrong_low = wrong_high = total = 0
    for name in QUEUES:
        sample, slo_s, _, _ = QUEUES[name]
        for seed in range(12):
            found = find_capacity(
                in_chunks(sample(seed), warmup=WARMUP), Goal(slo_s), start_per_s=350.0, effort=effort
            ).rate_per_s
            wrong_low += found.low > truth(name)
            wrong_high += found.high < truth(name)
            total += 1
            assert found.low <= found.value <= found.high
    assert binomtest(wrong_low, total, 0.05, alternative="greater").pvalue > 0.01
    assert binomtest(wrong_high, total, 0.05, alternative="greater").pvalue > 0.01


@settings(max_examples=50, deadline=None)
@given(capacity=st.floats(0.01, 1e5), guess=st.floats(0.05, 20.0), tolerance=st.floats(0.01, 0.3))
def test_a_server_with_a_sharp_edge_is_found_to_the_tolerance(capacity: float, guess: float, tolerance: float) -> None:
    def sample(rate_per_s: float, n: int) -> Floats:
        return np.full(n, 0.5 if rate_per_s <= capacity else math.inf)

    found = find_capacity(in_chunks(sample), Goal(1.0), start_per_s=capacity * guess, effort=Effort(tolerance))
    assert found.reason.code == "exact"
    assert found.warnings == ()
    assert found.rate_per_s.low <= capacity <= found.rate_per_s.high
    assert found.rate_per_s.high <= found.rate_per_s.low * (1 + tolerance)
    assert all(trial.verdict is not Verdict.UNDECIDED for trial in found.trials)


def test_a_server_that_never_keeps_its_objective_and_one_that_never_breaks_it() -> None:
    never = find_capacity(in_chunks(lambda _, n: np.full(n, 2.0)), Goal(1.0), start_per_s=100.0)
    assert never.reason.code == "never-kept"
    assert (never.rate_per_s.value, never.rate_per_s.low) == (0.0, 0.0)
    always = find_capacity(in_chunks(lambda _, n: np.full(n, 0.5)), Goal(1.0), start_per_s=100.0)
    assert always.reason.code == "never-broken"
    assert always.rate_per_s.high == math.inf
    assert always.rate_per_s.low > 100_000.0
    json.dumps(always.as_json(), allow_nan=False)


def test_a_search_ends_when_its_trials_or_its_time_are_spent() -> None:
    sample, slo_s, _, _ = QUEUES["M/M/1"]
    told: list[Trial] = []
    found = find_capacity(
        in_chunks(sample(1)), Goal(slo_s), start_per_s=1.0, effort=Effort(most_trials=4), on_trial=told.append
    )
    assert found.reason.code == "spent"
    assert tuple(told) == found.trials
    assert len(told) == 4
    hurried = find_capacity(in_chunks(sample(1)), Goal(slo_s), start_per_s=1.0, go_on=lambda: False)
    assert (hurried.reason.code, hurried.reason.text) == ("time", "the time was up after 1 trials")
    assert len(hurried.trials) == 1
    assert (hurried.rate_per_s.low, hurried.rate_per_s.high) == (hurried.reason.facts["low"], math.inf)


def test_trials_that_contradict_each_other_are_told() -> None:
    rng = np.random.default_rng(1)

    def sample(rate_per_s: float, n: int) -> Floats:
        """Nearly too much at the first rate; then the machine gets busy with something else until 100 a second."""
        if rate_per_s == 700.0:
            return np.where(rng.random(n) < 0.0095, 2.0, 0.5)
        return np.full(n, 2.0 if rate_per_s > 100.0 else 0.5)

    found = find_capacity(in_chunks(sample), Goal(1.0), start_per_s=700.0)
    (warning,) = found.warnings
    assert warning.code == "unsteady"
    assert "not steady" in warning.text
    assert found.rate_per_s.low <= 100.0 <= found.rate_per_s.high
    assert found.rate_per_s.low <= found.rate_per_s.value <= found.rate_per_s.high


def test_far_from_the_capacity_few_requests_are_enough() -> None:
    sample, slo_s, _, _ = QUEUES["M/D/1"]

    def judged(factor: float) -> tuple[float, set[Verdict]]:
        judges = []
        for seed in range(5):
            judge = Judge(Goal(slo_s), Effort())
            in_chunks(sample(seed), warmup=WARMUP)(factor * truth("M/D/1"), judge)
            judges.append(judge)
        return float(np.median([judge.requests for judge in judges])), {judge.verdict for judge in judges}

    below, at, above = judged(0.3), judged(1.0), judged(3.0)
    assert (below[1], above[1]) == ({Verdict.KEPT}, {Verdict.BROKEN})
    assert 5 * below[0] < at[0]
    assert 50 * above[0] < at[0]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), clump=st.sampled_from([1, 20]), share=st.sampled_from([0.001, 0.1]))
def test_a_judge_is_right_about_what_is_clear_however_it_clumps(seed: int, clump: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    judge = Judge(Goal(1.0), Effort(confidence=0.999, most_requests=40_000))
    in_chunks(lambda _, n: np.repeat(rng.random(n) + (rng.random(n) < share), clump))(1.0, judge)
    assert judge.verdict in (Verdict.KEPT if share < 0.01 else Verdict.BROKEN, Verdict.UNDECIDED)


def test_clumps_make_a_judge_wait_for_more() -> None:
    def requests(clump: int) -> int:
        rng = np.random.default_rng(3)
        judge = Judge(Goal(1.0), Effort(most_requests=200_000))
        in_chunks(lambda _, n: np.repeat(rng.random(n) + (rng.random(n) < 0.001), clump))(1.0, judge)
        assert judge.verdict is Verdict.KEPT
        return judge.requests

    assert requests(20) > 5 * requests(1)


def test_a_failed_request_is_a_late_one() -> None:
    judge = Judge(Goal(1.0), Effort())
    assert judge(np.full(300, math.inf))
    assert judge.verdict is Verdict.BROKEN
    trial = judge.finish(7.0)
    assert (trial.rate_per_s, trial.misses, trial.late) == (7.0, 300, 1.0)


def test_a_judge_that_hears_nothing_decides_nothing() -> None:
    judge = Judge(Goal(1.0), Effort())
    assert not judge(np.empty(0))
    trial = judge.finish(1.0)
    assert trial.verdict is Verdict.UNDECIDED
    assert math.isnan(trial.late)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Goal(0.0), "slo: 0 s is not a latency objective"),
        (lambda: Goal(math.nan), "not a latency objective"),
        (lambda: Goal(1.0, 99.0), "99 is not a quantile"),
        (lambda: Effort(tolerance=0.0), "tolerance of 0"),
        (lambda: Effort(confidence=0.3), "confidence of 0.3"),
        (lambda: Effort(most_requests=5), "5 requests decide nothing"),
        (lambda: find_capacity(in_chunks(lambda _, n: np.ones(n)), Goal(1.0), start_per_s=0.0), "not a rate"),
        (lambda: ramp(lambda _, n: np.ones(n), Goal(1.0), start_per_s=1.0, step=0.0, requests=1), "a ramp needs"),
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        call()
