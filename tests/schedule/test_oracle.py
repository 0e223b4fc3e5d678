"""The throughput oracle through its public face: what it says, how sure it is, and what it came from. Beside it that
of pairs, which benchmarks use."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from colocation import PairEstimate, PairOracle, PairSource
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Estimate as Forecast
from shoal.core import Invalid
from shoal.schedule import Pool, decide, problem_of
from shoal.schedule.oracle import Estimate, Oracle, Sample, Source
from shoal.schedule.oracle.ratios import Ratios
from shoal.schedule.types import JobView

quick = settings(max_examples=25, deadline=None, derandomize=True)

TYPES = ("slow", "middle", "fast")


def sample(
    rate: float,
    at: float = 0.0,
    *,
    job: str = "j",
    kind: str = "a",
    column: str = "slow",
    seconds: float = 10.0,
    beside: str | None = None,
    restarted: bool = False,
) -> Sample:
    return Sample(job, kind, column, rate * seconds, seconds, at, beside, restarted)


def taught(*samples: Sample) -> PairOracle:
    oracle = PairOracle()
    oracle.observe(samples)
    return oracle


def told(oracle: PairOracle, kind: str, column: str, beside: str | None) -> Estimate | PairEstimate:
    return oracle.estimate(kind, column) if beside is None else oracle.beside(kind, column, beside)


class World:
    """Kinds whose rates follow a few hidden numbers, as real ones roughly do. `keeps` (kinds, types, kinds)."""

    def __init__(self, kinds: int, seed: int = 0, *, roomy: bool = True) -> None:
        chance = np.random.default_rng(seed)
        self.kinds = [f"k{at}" for at in range(kinds)]
        appetite, scale = chance.uniform(0, 1, kinds), np.exp(chance.normal(1, 1, kinds))
        gain = np.array([[0.0, 0.5, 1.0]]) * (0.5 + appetite[:, None])
        self.alone = scale[:, None] * np.exp(gain)
        strength = np.array([1.0, 0.7, 0.4])
        pressed, presses = chance.uniform(0.2, 1.2, kinds), chance.uniform(0.2, 1.2, kinds)
        self.keeps = 1.0 / (1.0 + strength[None, :, None] * pressed[:, None, None] * presses[None, None, :])
        if not roomy:
            size = chance.uniform(0.1, 0.7, kinds)
            self.keeps[
                np.broadcast_to((size[:, None, None] + size) > np.array([0.7, 0.9, 1.1])[:, None], self.keeps.shape)
            ] = 0

    def samples(self, kinds: Sequence[int]) -> Iterator[Sample]:
        for kind in kinds:
            for at, type_ in enumerate(TYPES):
                yield Sample("", self.kinds[kind], type_, self.alone[kind, at], 1.0, 0.0)

    def pair(self, first: int, at: int, second: int) -> Iterator[Sample]:
        for kind, other in ((first, second), (second, first)):
            rate = self.keeps[kind, at, other] * self.alone[kind, at]
            runs = rate > 0
            yield Sample("", self.kinds[kind], TYPES[at], rate, float(runs), 0.0, self.kinds[other], fits=bool(runs))

    def oracle(self, known: Sequence[int]) -> PairOracle:
        found = taught(*self.samples(range(len(self.kinds))))
        found.observe(each for one in known for two in known for at in range(3) for each in self.pair(one, at, two))
        return found

    def error(self, oracle: PairOracle, kind: int, others: Sequence[int]) -> float:
        rates = [
            [oracle.beside(self.kinds[kind], type_, self.kinds[other]).throughput.per_s for other in others]
            for type_ in TYPES
        ]
        return float(np.abs(np.array(rates) / self.alone[kind][:, None] - self.keeps[kind][:, others]).mean())


# what is measured


@given(rate=st.floats(1e-6, 1e6), count=st.integers(1, 30))
@quick
def test_what_was_measured_is_said_exactly_and_ever_more_surely(rate: float, count: int) -> None:
    oracle = Oracle()
    before = math.inf
    for at in range(count):
        oracle.observe([sample(rate, at)])
        found = oracle.estimate("a", "slow", job="j")
        assert found.source is Source.MEASURED
        assert found.throughput.per_s == pytest.approx(rate, rel=1e-12)
        assert 0 < found.throughput.std_per_s <= before * (1 + 1e-12)
        assert at >= 16 or found.throughput.std_per_s < before
        before = found.throughput.std_per_s


@given(st.lists(st.tuples(st.floats(0.5, 20), st.integers(0, 3), st.floats(1, 100)), min_size=2, max_size=20),
       st.randoms())  # fmt: skip
@quick
def test_the_order_in_which_samples_arrive_does_not_matter(reports: list[tuple[float, int, float]], chance) -> None:  # type: ignore[no-untyped-def]
    samples = [sample(rate, at, seconds=seconds) for rate, at, seconds in reports]
    shuffled = list(samples)
    chance.shuffle(shuffled)
    one, other = taught(*samples), Oracle()
    for each in shuffled:
        other.observe([each])
    assert one.estimate("a", "slow", job="j") == other.estimate("a", "slow", job="j")
    assert one.as_json() == other.as_json()


def test_a_rate_that_changed_is_followed_and_an_outlier_is_not() -> None:
    steady = [sample(10.0 + 0.1 * (at % 3), at) for at in range(12)]
    usual = taught(*steady).estimate("a", "slow", job="j").throughput
    for wild in (0.01, 1000.0):
        found = taught(*steady, sample(wild, 12)).estimate("a", "slow", job="j").throughput
        assert found.per_s == pytest.approx(usual.per_s, rel=0.01)
        hung = taught(*steady, sample(wild, 12, seconds=3600)).estimate("a", "slow", job="j").throughput
        assert hung.per_s == pytest.approx(usual.per_s, rel=0.01)
    changed = taught(*steady, *(sample(5.0, 12 + at) for at in range(8))).estimate("a", "slow", job="j").throughput
    assert changed.per_s == pytest.approx(5.0, rel=0.05)


def test_the_slow_first_report_after_a_restart_counts_only_while_there_is_no_other() -> None:
    first = sample(2.0, 0, restarted=True)
    assert taught(first).estimate("a", "slow", job="j").throughput.per_s == pytest.approx(2.0)
    both = taught(first, sample(10.0, 1), sample(1.0, 2, restarted=True)).estimate("a", "slow", job="j")
    assert both.throughput.per_s == pytest.approx(10.0)


def test_a_machine_whose_clock_is_off_does_no_harm() -> None:
    skewed = [sample(10.0, at) for at in range(6)] + [sample(10.2, 1e9), sample(10.1, -1e9)]
    assert taught(*skewed).estimate("a", "slow", job="j").throughput.per_s == pytest.approx(10, rel=0.02)


def test_a_job_is_judged_by_its_own_reports_and_others_by_their_kind() -> None:
    oracle = taught(*(sample(rate, at, job=f"j{rate}") for rate in (8.0, 10.0, 12.0) for at in range(5)))
    assert oracle.estimate("a", "slow", job="j8.0").throughput.per_s == pytest.approx(8.0)
    other = oracle.estimate("a", "slow", job="another")
    assert other.source is Source.KIND
    assert other.throughput.per_s == pytest.approx(10.0, rel=0.1)
    assert other.throughput.std_per_s > oracle.estimate("a", "slow", job="j8.0").throughput.std_per_s
    for job in ("j8.0", "j10.0", "j12.0"):
        oracle.forget(job)
    after = oracle.estimate("a", "slow", job="j8.0")
    assert after.source is Source.KIND
    assert after.throughput.per_s == pytest.approx(other.throughput.per_s)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"steps": 0.0}, "steps must be positive"),
        ({"steps": math.nan}, "steps must be positive"),
        ({"seconds": 0.0}, "seconds must be positive"),
        ({"seconds": -1.0}, "seconds must be positive"),
        ({"seconds": math.inf}, "seconds must be positive"),
        ({"steps": 1e300, "seconds": 1e-300}, "check the units"),
        ({"at": math.nan}, "must be finite"),
        ({"kind": ""}, "needs a kind"),
        ({"beside": ""}, "needs a kind"),
        ({"fits": False}, "makes no steps"),
    ],
)
def test_a_report_that_cannot_be_is_refused_by_name(bad: dict[str, object], told: str) -> None:
    sound: dict[str, object] = {"job": "j7", "kind": "a", "column": "fast", "steps": 5.0, "seconds": 2.0, "at": 0.0}
    with pytest.raises(Invalid, match=told) as caught:
        Sample(**{**sound, **bad})  # type: ignore[arg-type]
    assert "j7" in str(caught.value)


# other types


def test_a_kind_is_predicted_on_other_types_from_kinds_measured_on_both() -> None:
    one_off, two_off = [], []
    for seed in range(6):
        world = World(12, seed)
        oracle = taught(*world.samples(range(11)), sample(world.alone[11, 0], job="", kind="k11", column="slow"))
        one = oracle.estimate("k11", "fast")
        assert one.source is Source.COLUMNS
        assert one.reason.facts["from"] == ["slow"]
        oracle.observe([sample(world.alone[11, 1], job="", kind="k11", column="middle")])
        two = oracle.estimate("k11", "fast")
        assert two.reason.facts["from"] == ["middle", "slow"]
        assert two.throughput.std_per_s / two.throughput.per_s < one.throughput.std_per_s / one.throughput.per_s
        one_off.append(abs(math.log(one.throughput.per_s / world.alone[11, 2])))
        two_off.append(abs(math.log(two.throughput.per_s / world.alone[11, 2])))
    assert np.mean(one_off) < 0.35, "kinds gain between 0.5 and 1.5 from slow to fast"
    assert np.mean(two_off) < 0.5 * np.mean(one_off), "the middle tells how much this one gains"


@given(seed=st.integers(0, 50), scale=st.floats(1e-3, 1e3), own=st.floats(1e-3, 1e3))
@quick
def test_predictions_scale_with_what_was_measured(seed: int, scale: float, own: float) -> None:
    """All rates in another unit of time, and one kind's in another unit of work."""
    world = World(5, seed)
    pairs = [each for one in range(4) for two in range(4) for each in world.pair(one, 0, two)]
    known = [*world.samples(range(4)), sample(world.alone[4, 1], job="", kind="k4", column="middle"), *pairs,
             *world.pair(4, 1, 2)]  # fmt: skip

    def in_units(each: Sample) -> Sample:
        factor = scale * own if each.kind == "k4" else scale
        return Sample(each.job, each.kind, each.column, each.steps * factor, each.seconds, each.at, each.beside)

    one, other = taught(*known), taught(*map(in_units, known))
    for column in TYPES:
        for beside in (None, "k0", "k2", "k4"):
            first, second = (told(oracle, "k4", column, beside) for oracle in (one, other))
            assert first.source is second.source
            assert second.throughput.per_s == pytest.approx(first.throughput.per_s * scale * own, rel=1e-6)
            assert second.throughput.std_per_s == pytest.approx(first.throughput.std_per_s * scale * own, rel=1e-6)


def test_intervals_of_predictions_hold_about_as_often_as_they_say() -> None:
    inside = []
    for seed in range(12):
        world = World(14, seed)
        for kind in range(3):
            rest = [at for at in range(14) if at != kind]
            oracle = taught(*world.samples(rest), sample(world.alone[kind, 0], job="", kind=f"k{kind}"))
            for at, column in enumerate(TYPES[1:], 1):
                found = oracle.estimate(f"k{kind}", column).throughput
                inside.append(abs(found.per_s - world.alone[kind, at]) <= 1.645 * found.std_per_s)
    assert 0.8 <= np.mean(inside) <= 1.0


# pairs


def test_unseen_pairs_are_completed_from_a_few() -> None:
    errors, plain, covered = [], [], []
    for seed in range(4):
        world = World(14, seed)
        known, new = range(12), 12
        oracle = world.oracle(known)
        before = world.error(oracle, new, known)
        chance = np.random.default_rng(seed)
        tried = [(at, int(other)) for at in range(3) for other in chance.choice(12, 2, replace=False)]
        oracle.observe(each for at, other in tried for each in world.pair(new, at, other))
        errors.append(world.error(oracle, new, known))
        plain.append(before)
        for at, column in enumerate(TYPES):
            for other in known:
                found = oracle.beside("k12", column, f"k{other}")
                if (at, other) in tried:
                    assert found.source is Source.MEASURED
                    assert found.throughput.per_s == pytest.approx(world.keeps[new, at, other] * world.alone[new, at])
                    continue
                assert found.source is PairSource.PAIRS
                off = abs(found.throughput.per_s - world.keeps[new, at, other] * world.alone[new, at])
                covered.append(off <= 1.645 * found.throughput.std_per_s)
    assert np.mean(errors) <= 0.02
    assert np.mean(errors) < 0.4 * np.mean(plain), "six of 36 pairs say most of the rest"
    assert np.mean(covered) >= 0.85


def test_two_unknown_kinds_are_paired_by_what_others_say_of_each() -> None:
    world = World(14, 1)
    oracle = world.oracle(range(12))
    for new in (12, 13):
        oracle.observe(each for at in range(3) for other in (0, 3, 6, 9) for each in world.pair(new, at, other))
    found = oracle.beside("k12", "slow", "k13")
    assert found.source is PairSource.PAIRS
    assert found.throughput.per_s == pytest.approx(world.keeps[12, 0, 13] * world.alone[12, 0], rel=0.2)


def test_a_kind_that_behaves_like_a_known_one_is_taken_for_it() -> None:
    world = World(12, 2)
    oracle = world.oracle(range(12))
    twin = Sample("", "again", "slow", 3 * world.alone[5, 0], 1.0, 0.0)
    oracle.observe([twin, *(Sample("", "again", column, world.alone[5, at], 1.0, 0.0)
                            for at, column in enumerate(TYPES[1:], 1))])  # fmt: skip
    for other in (0, 1, 2, 3):
        rate = world.keeps[5, 0, other] * 3 * world.alone[5, 0] * 1.01
        oracle.observe([Sample("", "again", "slow", rate, 1.0, 0.0, f"k{other}")])
    found = oracle.beside("again", "fast", "k9")
    assert found.reason.facts["like"] == "k5"
    assert found.throughput.per_s == pytest.approx(world.keeps[5, 2, 9] * world.alone[5, 2], rel=1e-6)


def test_kinds_that_do_not_fit_together_are_told_by_their_sizes() -> None:
    world = World(16, 3, roomy=False)
    assert 0.1 < (world.keeps == 0).mean() < 0.6
    right = []
    for new in (14, 15):
        oracle = world.oracle(range(14))
        oracle.observe(each for at in range(3) for other in (1, 4, 7, 10, 13) for each in world.pair(new, at, other))
        for at, column in enumerate(TYPES):
            for other in range(14):
                found = oracle.beside(f"k{new}", column, f"k{other}")
                right.append((found.source is Source.UNFIT) == (world.keeps[new, at, other] == 0))
                assert (found.throughput.per_s == 0) == (found.source is Source.UNFIT)
    assert np.mean(right) >= 0.9


def test_a_pair_that_ran_out_of_memory_is_not_packed_until_it_runs() -> None:
    oracle = taught(sample(10, kind="a"), sample(5, kind="b"), sample(6, at=1, kind="a", beside="b"),
                    sample(3, at=1, kind="b", beside="a"))  # fmt: skip
    assert oracle.pair_rates(["a", "b"], ["slow"])[0, 1, 0] == pytest.approx(6)
    oracle.observe([Sample("j", "a", "slow", 0, 0, 2.0, beside="b", fits=False)])
    assert oracle.beside("a", "slow", "b", job="j").source is Source.UNFIT
    assert not oracle.pair_rates(["a", "b"], ["slow"])[0, 1].any()
    assert not oracle.pair_rates(["a", "b"], ["slow"])[1, 0].any(), "both or neither"
    oracle.observe([sample(6, at=3, kind="a", beside="b")])
    assert oracle.beside("a", "slow", "b").throughput.per_s == pytest.approx(6, rel=0.1)


def test_a_kind_too_large_for_a_type_is_not_offered_there() -> None:
    oracle = taught(sample(10, column="fast"), Sample("j", "a", "slow", 0, 0, 0.0, fits=False), sample(4, kind="b"))
    assert set(oracle.throughputs("a", ["slow", "fast"])) == {"fast"}
    assert oracle.beside("a", "slow", "b").source is Source.UNFIT


# what is not known


def test_an_unknown_kind_is_a_guess_that_says_so() -> None:
    world = World(8)
    oracle = world.oracle(range(8))
    found = oracle.estimate("never seen", "fast")
    assert found.source is Source.GUESS
    assert found.reason.code == "guess"
    assert "profile it" in found.reason.text
    assert found.throughput.std_per_s == found.throughput.per_s > 0
    typical = np.exp(np.log(world.alone[:, 2] / world.alone[:, 0]).mean())
    ratio = found.throughput.per_s / oracle.estimate("never seen", "slow").throughput.per_s
    assert ratio == pytest.approx(typical, rel=0.05), "types in their average ratio"
    assert oracle.beside("never seen", "fast", "k0").throughput.per_s == 0, "nobody is packed on a guess"
    assert not oracle.pair_rates(["never seen", "k0"], ["fast"])[0].any()


def test_a_type_that_nobody_ran_on_is_a_guess_too() -> None:
    oracle = World(8).oracle(range(8))
    assert oracle.estimate("k1", "brand new").source is Source.GUESS
    assert oracle.beside("k1", "brand new", "k2").throughput.per_s == 0


def test_an_empty_oracle_treats_all_types_alike() -> None:
    rate, std = Oracle().rates([("j", "a"), ("i", "b")], TYPES)
    assert (rate == 1).all()
    assert (std == 1).all()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(TYPES), st.sampled_from([None, "a", "b", "c"]),
                          st.floats(1e-9, 1e9), st.floats(1e-3, 1e5), st.booleans()), max_size=40))  # fmt: skip
@quick
def test_estimates_are_positive_and_finite_whatever_was_reported(
    reports: list[tuple[str, str, str | None, float, float, bool]],
) -> None:
    oracle = PairOracle()
    with np.errstate(all="raise"):
        for at, (kind, column, beside, rate, seconds, fits) in enumerate(reports):
            amount = (rate * seconds, seconds) if fits else (0.0, 0.0)
            oracle.observe([Sample(kind, kind, column, *amount, at, beside, fits=fits)])
        for kind in "abcd":
            for column in TYPES:
                for beside in (None, "a", "b", "d"):
                    found = told(oracle, kind, column, beside)
                    throughput = found.throughput
                    assert math.isfinite(throughput.per_s)
                    assert math.isfinite(throughput.std_per_s)
                    nothing = found.source is Source.UNFIT or (beside is not None and found.source is Source.GUESS)
                    assert (throughput.per_s == 0) == nothing
                    assert found.reason.text.startswith(f"{kind} on {column}")
        profiles = oracle.worth_profiling("abcd", TYPES)
    assert all(math.isfinite(each.gain) and each.gain >= 0 for each in profiles)


# what to profile


def test_what_nothing_tells_is_profiled_first_and_nothing_once_all_is_known() -> None:
    world = World(6)
    oracle = world.oracle(range(6))
    assert oracle.worth_profiling(world.kinds, TYPES) == []
    oracle.observe([sample(3, job="", kind="half known", column="slow")])
    asked = oracle.worth_profiling([*world.kinds, "half known", "unknown"], TYPES)
    assert (asked[0].kind, asked[0].beside) == ("unknown", None)
    assert asked[0].reason.code == "profile-alone"
    assert {each.kind for each in asked if each.beside is None} == {"unknown", "half known"}
    assert not any("unknown" in (each.kind, each.beside) for each in asked if each.beside), "alone before in pairs"


def test_chosen_pairs_leave_less_doubt_than_drawn_ones() -> None:
    def doubt(oracle: PairOracle) -> float:
        found = [oracle.beside("k11", type_, f"k{at}").throughput for type_ in TYPES for at in range(11)]
        return sum((each.std_per_s / each.per_s) ** 2 for each in found)

    drawn, chosen = [], []
    for seed in range(3):
        world = World(12, seed)
        known, new = range(11), 11
        chance = np.random.default_rng(seed)
        oracle = world.oracle(known)
        for place in chance.choice(33, 2, replace=False):
            oracle.observe(world.pair(new, int(place) // 11, int(place) % 11))
        drawn.append(doubt(oracle))
        oracle = world.oracle(known)
        for _ in range(2):
            best = next(each for each in oracle.worth_profiling(world.kinds, TYPES) if each.kind != each.beside)
            assert "k11" in (best.kind, best.beside)
            other = int((best.kind if best.beside == "k11" else str(best.beside))[1:])
            oracle.observe(world.pair(new, TYPES.index(best.column), other))
        chosen.append(doubt(oracle))
    assert np.mean(chosen) < np.mean(drawn)


# keeping and using it


def test_its_state_survives_json_exactly() -> None:
    world = World(6, 4, roomy=False)
    oracle = world.oracle(range(5))
    oracle.observe([sample(1 + at / 7, at, job="x", kind="k5", column="fast") for at in range(20)])
    oracle.observe([sample(3.3, 5, job="y", kind="k5", column="slow", restarted=True)])
    oracle.forget("x")
    again = PairOracle.from_json(json.loads(json.dumps(oracle.as_json())))
    assert again.as_json() == oracle.as_json()
    for kind, other in permutations(world.kinds, 2):
        for column in TYPES:
            assert again.estimate(kind, column) == oracle.estimate(kind, column)
            assert again.beside(kind, column, other) == oracle.beside(kind, column, other)
    again.observe([sample(3.4, 6, job="y", kind="k5", column="slow")])
    oracle.observe([sample(3.4, 6, job="y", kind="k5", column="slow")])
    assert again.estimate("k5", "slow", job="y") == oracle.estimate("k5", "slow", job="y")


@pytest.mark.parametrize(
    "state",
    [
        {}, {"version": 99}, {"version": 1, "live": [], "ended": []},
        {"version": 1, "live": 3, "ended": [], "unfit": []},
        {"version": 1, "live": [["j", "a", "slow", "", [[0, -1, 1, False]]]], "ended": [], "unfit": []},
        {"version": 1, "live": [["j", "a", "slow", "", []]], "ended": [], "unfit": []},
        {"version": 1, "live": [["j", "a", "slow", "", [[0, math.nan, 1, False]]]], "ended": [], "unfit": []},
        {"version": 1, "live": [], "ended": [[1, "slow", "", [[0, 1, 1, False]]]], "unfit": []},
        {"version": 1, "live": [], "ended": [], "unfit": [["a", "slow", "", math.nan]]},
    ],
)  # fmt: skip
def test_a_damaged_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        Oracle.from_json(state)


def test_kinds_without_a_job_are_not_remembered_for_ever() -> None:
    oracle = Oracle()
    for at in range(600):
        oracle.observe([sample(1 + at, at, job=f"j{at}", kind=f"own-{at}")])
        oracle.forget(f"j{at}")
    assert oracle.estimate("own-599", "slow").source is Source.KIND
    assert oracle.estimate("own-0", "slow").source is Source.GUESS
    assert len(json.dumps(oracle.as_json())) < 30_000


def test_it_fills_a_problem_that_policies_decide_on() -> None:
    world = World(6, 5)
    oracle = world.oracle(range(5))
    pools = [Pool("slow", 2), Pool("fast", 1)]
    columns = ["slow", "fast"]
    kinds = [*world.kinds, "unknown"]
    jobs = [
        JobView(f"job-{at}", "t", oracle.throughputs(kind, columns, job=f"job-{at}"), kind=kind)
        for at, kind in enumerate(kinds)
    ]
    pair_rate = oracle.pair_rates(kinds, columns)
    problem = replace(problem_of(jobs, pools), kind=np.arange(len(kinds)), pair_rate=pair_rate)
    rate, std = oracle.rates([(f"job-{at}", kind) for at, kind in enumerate(kinds)], columns)
    assert (problem.rate == rate).all()
    assert (problem.rate_std == std).all()
    found = decide("max-min", problem, space_sharing=True)
    assert found.certificate is not None
    assert (found.time > 0).all()
    assert not {6} & {*found.pairs.first.tolist(), *found.pairs.second.tolist()}, "the unknown one runs alone"


# a prior


class Forecasts:
    """`shoal.core.Speeds` that are right but for a factor, with an interval of 90 %."""

    def __init__(self, rates: dict[str, float], factor: float = 1.0, width: float = 1.1) -> None:
        self.rates, self.factor, self.width = rates, factor, width
        self.asked: list[tuple[str, str]] = []

    def steps_per_s(self, job: str, kind: str, workers: int = 1) -> Forecast | None:
        self.asked.append((job, kind))
        if kind not in self.rates:
            return None
        rate = self.rates[kind] * self.factor
        return Forecast(rate, rate / self.width, rate * self.width, 0.9, "a test")


def test_a_prior_tells_of_kinds_that_were_measured_nowhere_and_of_no_others() -> None:
    prior = Forecasts({"slow": 4.0, "middle": 8.0})
    oracle = Oracle(prior)
    oracle.observe([sample(3.0, job="", kind="known", column="slow")])
    found = oracle.estimate("new", "middle")
    assert found.source is Source.FORECAST
    assert found.throughput.per_s == pytest.approx(8.0)
    assert found.throughput.std_per_s == pytest.approx(8.0 * math.log(1.1) / 1.645, rel=0.02)
    assert found.reason.text == "new on middle: forecast, 8 ± 0.46 steps/s"
    guess = oracle.estimate("new", "fast")
    assert guess.source is Source.GUESS
    assert 4.0 <= guess.throughput.per_s <= 8.0, "of the size of what is forecast"
    assert oracle.estimate("known", "middle").source is Source.GUESS
    assert {job for job, _ in prior.asked} == {"new"}


def test_an_unsure_prior_counts_for_less_than_what_kinds_have_shown() -> None:
    world = World(12, 1)
    usual = taught(*world.samples(range(12)))
    typical = math.log(usual.estimate("new", "fast").throughput.per_s / usual.estimate("new", "slow").throughput.per_s)
    ratios = []
    for width in (1.01, 2.0, 1e6):
        oracle = Oracle(Forecasts({"slow": 1.0, "middle": 1.0, "fast": 1.0}, width=width))
        oracle.observe(world.samples(range(12)))
        found = [oracle.estimate("new", column).throughput.per_s for column in ("slow", "fast")]
        ratios.append(math.log(found[1] / found[0]))
    assert ratios[0] == pytest.approx(0.0, abs=0.02)
    assert ratios[0] < ratios[1] < ratios[2]
    assert ratios[2] == pytest.approx(typical, rel=0.01)


def test_a_prior_is_weighed_as_normal_beliefs_are() -> None:
    draw = np.random.default_rng(0)
    root = draw.normal(size=(3, 3))
    covariance, mean, told, doubt = root @ root.T + np.eye(3), draw.normal(size=3), draw.normal(size=3), draw.random(3)
    found, variance = Ratios(mean, covariance, np.zeros(3, np.intp)).weighed(told, doubt)
    wide = covariance + 1e4  # the kind's scale is nearly unknown
    gain = wide @ np.linalg.inv(wide + np.diag(doubt))
    assert found == pytest.approx(mean + gain @ (told - mean), abs=1e-3)
    assert variance == pytest.approx(np.diag(wide - gain @ wide), abs=1e-3)
