"""How far jobs fall behind max-min fairness: by `blend` those that end among the last, by `elastic` any."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule import Allocation, Pool, Problem, decide
from shoal.schedule.loop import Decided, decide_round
from shoal.schedule.metrics import metrics_of
from shoal.schedule.policy.fair import at_least
from shoal.schedule.presets import ScheduleSettings, resize_s, time_slice_s
from shoal.schedule.rounds import Settings, State, next_round, settled
from shoal.schedule.simulate import cluster_of, run_of, simulate
from shoal.schedule.types import Array, Configurations
from shoal.schedule.workloads import Durations, example_throughputs, heavy_tailed_jobs
from tests.schedule.kit import overloaded

ROUND = Settings(100.0, keep_s=0.0, time_slice_s=100.0, restart_s=30.0)
HOUR = 3600.0


def two(placed: list[int], **given: Any) -> Problem:
    """Two jobs on an accelerator of each of two types, the second of which is half as fast."""
    given.setdefault("work_left", [1e6, 1e6])
    return Problem.columnar((Pool("a", 1), Pool("b", 1)), [[4.0, 2.0], [4.0, 2.0]], placed=placed, **given)


def shares(problem: Problem, share: list[list[float]]) -> Allocation:
    return Allocation(problem, "given", np.array(share, np.float64), np.zeros(2))


def test_work_done_is_counted_in_seconds_of_running_where_the_job_is_fastest() -> None:
    begins = two([-1, -1])
    found, state = next_round(State(), begins, shares(begins, [[1, 0], [0, 1]]), 0.0, ROUND)
    assert found.column.tolist() == [0, 1]
    now = two([0, 1])
    known = settled(state, now, 100.0, ROUND, np.zeros(2))
    assert known.worked_s.tolist() == pytest.approx([100.0, 50.0])
    again = settled(State.from_json(json.loads(json.dumps(known.as_json()))), now, 100.0, ROUND, np.zeros(2))
    assert again.worked_s.tolist() == known.worked_s.tolist(), "time is counted once, also over a restart"
    assert known.behind_s.tolist() == [0.0, 0.0], "nobody asked what would have been fair"


def test_a_restart_is_no_work_and_waiting_is_none_either() -> None:
    problem = two([-1, -1], restarts=[1, 1])
    _, state = next_round(
        State(), problem, shares(problem, [[1, 0], [0, 0]]), 0.0, Settings(100.0, restart_s=30.0, spare=False)
    )
    known = settled(state, two([0, -1], restarts=[1, 1]), 100.0, ROUND, np.array([0.0, 100.0]))
    assert known.worked_s.tolist() == pytest.approx([70.0, 0.0])
    known = settled(known, two([0, -1], restarts=[1, 1]), 200.0, ROUND, np.array([0.0, 100.0]))
    assert known.worked_s.tolist() == pytest.approx([170.0, 0.0]), "it restarted only once"


def test_behind_is_what_rounds_of_max_min_would_have_done_more() -> None:
    """A long and a short job on one accelerator: max-min would let them take turns."""
    pools, rules = (Pool("a", 1),), ScheduleSettings("blend", round_s=100.0, restart_cost_s=0.0)
    placed, state, now, previous = [-1, -1], State(), 0.0, None
    for _ in range(20):
        problem = Problem.columnar(
            pools, [[1.0], [1.0]], ids=["long", "short"], placed=placed, now=now, arrived=[0.0, 1.0],
            work_left=[1e6, 1e4], isolated_s=[now / 2, now],
        )  # fmt: skip
        decided = decide_round(rules, problem, state, now, previous=previous)
        previous, state, placed, now = decided.allocation, decided.state, decided.round.column.tolist(), now + 100.0
    assert state.fair is not None
    last = settled(state, replace(problem, placed=np.array(placed), now=now), now, Settings(100.0))
    waits, runs = last.worked_s.argmin(), last.worked_s.argmax()
    assert last.worked_s[[waits, runs]].tolist() == [0.0, 2000.0]
    assert state.fair.worked_s.tolist() == pytest.approx([950.0, 950.0], abs=50.0)
    assert state.behind_s[waits] > 800.0 > 0.0 > state.behind_s[runs]
    read = State.from_json(json.loads(json.dumps(state.as_json())))
    assert read.behind_s.tolist() == state.behind_s.tolist()
    other = Problem.columnar((Pool("b", 1),), [[1.0]], ids=["short"], now=now, arrived=[1.0], work_left=1e4)
    assert decide_round(rules, other, state, now).state.behind_s.shape == (1,), "the long one went, and the pool"


def first(behind_h: list[float], left_h: list[float], took_h: list[float]) -> list[float]:
    """Which of the jobs has the one accelerator, when earlier ones took so long."""
    count = len(left_h)
    problem = Problem.columnar(
        (Pool("a", 1),), [[1.0]] * count, now=count, arrived=np.arange(count), work_left=np.array(left_h) * HOUR,
    )  # fmt: skip
    found = decide("blend", problem, whole=True, behind_s=np.array(behind_h) * HOUR, took_s=np.array(took_h) * HOUR)
    assert found.fair is not None
    return found.share[:, 0].tolist()


@pytest.mark.parametrize(
    ("behind_h", "left_h", "runs"),
    [
        ([0.9, 0.0], [100.0, 1.0], 1),  # less than a hundredth of its time
        ([1.1, 0.0], [100.0, 1.0], 0),
        ([0.0, 9.0, 0.0], [100.0, 40.0, 1.0], 2),  # it ends long before the last, and may wait for shorter ones
        ([0.0, 11.0, 0.0], [100.0, 40.0, 1.0], 1),  # until it would end among the last
        ([2.0, 12.0, 0.0], [100.0, 40.0, 1.0], 1),  # of two that are late the one that is later comes first
        ([-5.0, -5.0], [100.0, 1.0], 1),
    ],
)
def test_only_what_ends_among_the_last_must_not_fall_behind(
    behind_h: list[float], left_h: list[float], runs: int
) -> None:
    earlier = [50.0] * 20  # of 22 or 23 jobs 95 % end within 50 hours
    assert first(behind_h, left_h, earlier) == [float(at == runs) for at in range(len(left_h))]


def test_what_is_a_long_time_is_learnt_from_jobs_that_are_no_longer_there() -> None:
    """A long job that is alone with a longer one may wait until others have shown how long most take."""
    assert first([11.0, 0.0, 0.0], [40.0, 1.0, 100.0], []) == [0.0, 1.0, 0.0]
    assert first([11.0, 0.0, 0.0], [40.0, 1.0, 100.0], [1.0] * 40) == [1.0, 0.0, 0.0]
    begins, rounds = two([-1, -1], now=500.0, arrived=[100.0, 200.0], ids=["x", "y"]), Settings(100.0)
    _, state = next_round(State(), begins, shares(begins, [[1, 0], [0, 1]]), 500.0, rounds)
    assert state.took_s.tolist() == []
    left = Problem.columnar(begins.pools, [[4.0, 2.0]], ids=["y"], placed=[1], arrived=[200.0], work_left=1.0)
    later = settled(State.from_json(json.loads(json.dumps(state.as_json()))), left, 600.0, rounds)
    assert later.took_s.tolist() == [500.0]
    last = settled(later, Problem.columnar(begins.pools, np.ones((0, 2)), ids=[]), 700.0, rounds)
    assert last.took_s.tolist() == [500.0, 500.0]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), jobs=st.integers(2, 8))
def test_what_is_fair_is_what_max_min_says_of_these_jobs_and_is_asked_anew_only_for_others(
    seed: int, jobs: int
) -> None:
    chance = np.random.default_rng(seed)
    pools = (Pool("a", 2), Pool("b", 3))
    rate: Array = chance.uniform(1.0, 9.0, (jobs, 2))
    given = {"work_left": chance.uniform(10.0, 1e5, jobs), "arrived": np.arange(jobs), "now": 100.0}
    problem = Problem.columnar(pools, rate, **given)
    rounds = ScheduleSettings("blend", round_s=60.0, restart_cost_s=5.0)
    one = decide_round(rounds, problem, State(), 100.0)
    assert one.allocation.fair is not None
    assert one.allocation.fair.throughput == pytest.approx(decide("max-min", problem).throughput, rel=1e-6)
    same = decide_round(rounds, problem, one.state, 160.0, previous=one.allocation)
    assert same.allocation.fair is one.allocation.fair
    other = Problem.columnar(pools, rate * 2.0, **given)
    assert (
        decide_round(rounds, other, one.state, 160.0, previous=one.allocation).allocation.fair
        is not one.allocation.fair
    )


@pytest.mark.slow
def test_the_last_jobs_of_a_load_end_about_as_early_as_by_max_min() -> None:
    """The 99th percentile was 1.035 times as late: two long jobs ran on slower types for the sake of gangs."""
    table, pools = example_throughputs(), [Pool("v100", 8), Pool("p100", 16), Pool("k80", 24)]
    work = heavy_tailed_jobs(
        table, count=150, accelerators=21.68, load=0.8, seed=4, durations=Durations.LOGNORMAL, tail=1.5,
        median_s=3600.0, burst=2.0,
    )  # fmt: skip
    cluster = cluster_of(work, pools, table)
    p99 = {name: metrics_of(simulate(cluster, run_of(name, restart_s=30.0))).p99_jct_h for name in ("blend", "max-min")}
    assert p99["blend"] <= 1.02 * p99["max-min"]


def resizable(sizes: dict[int, float], **given: Any) -> Problem:
    """Two jobs that can have any of these sizes on one type, at these speeds, and a gang of two."""
    ways = [(job, size, speed) for job in (0, 1) for size, speed in sizes.items()]
    job, size, speed = (np.array(each) for each in zip(*ways, strict=True))
    configurations = Configurations(job, np.zeros(len(job), np.intp), size, speed.astype(np.float64))
    return Problem.columnar(
        (Pool("a", 4),), [[1.0], [1.0], [2.0]], gang=[1, 1, 2], ids=["x", "y", "gang"], configurations=configurations,
        **given,
    )  # fmt: skip


def test_what_is_fair_to_jobs_of_no_fixed_size_is_asked_at_their_least() -> None:
    problem = resizable({2: 3.0, 4: 4.0}, placed=[0, -1, -1], held=[True, False, False])
    least = at_least(problem)
    assert (least.gang.tolist(), least.rate[:, 0].tolist(), least.held.any()) == ([2, 2, 2], [3.0, 3.0, 2.0], False)
    assert least.configurations is None
    other = at_least(
        replace(problem, pools=(*problem.pools, Pool("b", 1)), rate=np.ones((3, 2)), rate_std=np.zeros((3, 2)))
    )
    assert other.rate.tolist() == [[3.0, 0.0], [3.0, 0.0], [1.0, 1.0]], "on b they have no size"
    found = decide("elastic", problem, behind_s=np.zeros(3), allowed_s=100.0)
    assert found.fair is not None
    assert found.fair.throughput == pytest.approx(decide("max-min", least).throughput)
    again = decide("elastic", problem, behind_s=np.zeros(3), allowed_s=100.0, previous=found)
    assert again.fair is found.fair


def test_work_done_at_a_larger_size_is_counted_in_seconds_at_the_least() -> None:
    begins = resizable({1: 1.0, 4: 3.0})
    _, state = next_round(State(), begins, shares(begins, [[0], [0], [0]]), 0.0, Settings(100.0, spare=False))
    now = replace(begins, placed=np.array([0, -1, -1]), gang=np.array([4, 1, 2]), rate=np.array([[3.0], [1.0], [2.0]]))
    assert settled(state, now, 100.0, ROUND, np.zeros(3)).worked_s.tolist() == pytest.approx([300.0, 0.0, 0.0])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), jobs=st.integers(2, 7))
def test_a_job_that_is_too_far_behind_waits_for_none_that_is_not(seed: int, jobs: int) -> None:
    chance = np.random.default_rng(seed)
    pools = (Pool("a", int(chance.integers(1, 5))), Pool("b", int(chance.integers(0, 4))))
    problem = Problem.columnar(
        pools, chance.uniform(0.1, 9.0, (jobs, 2)), gang=chance.choice([1, 2, 4], jobs), now=1e4,
        arrived=chance.uniform(0.0, 1e4, jobs),
    )  # fmt: skip
    behind_s = chance.choice([0.0, 99.0, 101.0, 500.0], jobs)
    late = behind_s > 100.0
    found = decide("elastic", problem, behind_s=behind_s, allowed_s=100.0)
    used = np.array([problem.gang @ (found.share[:, at] * late) for at in (0, 1)])
    waits = late & (found.share.sum(axis=1) == 0.0)
    for job in np.flatnonzero(waits):
        room = problem.counts - used
        assert not (problem.possible[job] & (problem.gang[job] <= room)).any(), "others run where it could"


@pytest.mark.few
@pytest.mark.parametrize(("elastic", "seed"), [(False, 5), (False, 17), (True, 15)])
def test_under_overload_no_job_falls_far_behind_max_min(elastic: bool, seed: int) -> None:
    """Seconds behind at any round, in time slices; sizes are kept for five of them."""
    run = run_of("elastic", round_s=600.0, restart_s=30.0)
    worst = 0.0

    def watched(*given: Any, **more: Any) -> Decided:
        nonlocal worst
        decided = decide_round(*given, **more)
        worst = max(worst, float(decided.state.behind_s.max(initial=0.0)))
        return decided

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal.schedule.simulate.engine.decide_round", watched)
        simulate(overloaded(seed, elastic=elastic), run)
    assert worst <= 2.0 * time_slice_s(run.settings) + (resize_s(run.settings) if elastic else 0.0)


def test_a_choice_of_whole_jobs_stands_until_jobs_come_or_become_late() -> None:
    pools, given = (Pool("a", 1),), {"work_left": [4e4, 5e4], "arrived": [0.0, 1.0]}
    ask = partial(decide, "blend", whole=True, bounded=True)
    first = ask(Problem.columnar(pools, [[1.0], [1.0]], now=10.0, **given))
    assert first.share[:, 0].tolist() == [1.0, 0.0]
    given["work_left"] = [4.5e4, 4e4]  # the second is now the shorter one, and none is late
    later = Problem.columnar(pools, [[1.0], [1.0]], now=20.0, **given)
    assert ask(later, previous=first).share.tolist() == first.share.tolist()
    assert ask(later, previous=first).problem is later
    assert ask(later).share[:, 0].tolist() == [0.0, 1.0]
    late = Problem.columnar(pools, [[1.0], [1.0]], now=9e5, isolated_s=[0.0, 0.0], ran_s=[0.0, 0.0], **given)
    assert len(ask(late, previous=first).facts["late"]) == 2


def test_most_jobs_that_came_at_once_are_shared_out_by_max_min() -> None:
    rate, given = [[1.0], [1.0], [1.0]], {"work_left": [1e3, 1e5, 1e5], "now": 50.0}
    batch = Problem.columnar((Pool("a", 1),), rate, arrived=[5.0, 5.0, 9.0], **given)
    found = decide("blend", batch, whole=True, bounded=True)
    assert found.share == pytest.approx(decide("max-min", batch).share)
    assert found.fair is not None
    assert found.problem is batch
    apart = Problem.columnar((Pool("a", 1),), rate, arrived=[5.0, 7.0, 9.0], **given)
    assert decide("blend", apart, whole=True, bounded=True).share[:, 0].tolist() == [1.0, 0.0, 0.0]
