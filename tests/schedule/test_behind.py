"""How far jobs fall behind max-min fairness: by `blend` those that end among the last, by `elastic` any."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule import Allocation, Pool, Problem, decide
from shoal.schedule.loop import Decided, decide_round
from shoal.schedule.metrics import metrics_of
from shoal.schedule.policy.fair import at_least
from shoal.schedule.presets import resize_s, time_slice_s
from shoal.schedule.rounds import Settings, State, next_round, settled
from shoal.schedule.simulate import cluster_of, run_of, simulate
from shoal.schedule.types import Configurations
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


def test_what_is_a_long_time_is_learnt_from_jobs_that_are_no_longer_there() -> None:
    begins, rounds = two([-1, -1], now=500.0, arrived=[100.0, 200.0], ids=["x", "y"]), Settings(100.0)
    _, state = next_round(State(), begins, shares(begins, [[1, 0], [0, 1]]), 500.0, rounds)
    assert state.took_s.tolist() == []
    left = Problem.columnar(begins.pools, [[4.0, 2.0]], ids=["y"], placed=[1], arrived=[200.0], work_left=1.0)
    later = settled(State.from_json(json.loads(json.dumps(state.as_json()))), left, 600.0, rounds)
    assert later.took_s.tolist() == [500.0]
    last = settled(later, Problem.columnar(begins.pools, np.ones((0, 2)), ids=[]), 700.0, rounds)
    assert last.took_s.tolist() == [500.0, 500.0]


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
