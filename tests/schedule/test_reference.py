"""Max-min fairness carried out beside, and what `blend` decides by it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Money, Quota, Tenant
from shoal.schedule import Pool, Problem, decide
from shoal.schedule.loop import Decided, decide_round
from shoal.schedule.policy.reference import Reference, advanced
from shoal.schedule.presets import ScheduleSettings
from shoal.schedule.rounds import State
from shoal.schedule.simulate import Run, Simulated, cluster_of, run_of, simulate
from tests.schedule.kit import throughputs, workload

HOUR = 3600.0
ONE = (Pool("a", 1),)


def queue(left_s: list[float], **more: Any) -> Problem:
    """Jobs on one accelerator."""
    return Problem.columnar(more.pop("pools", ONE), np.ones((len(left_s), 1)), work_left=left_s, **more)


def saved(kept: Reference) -> Reference:
    """As it comes back from a file."""
    return Reference.from_json(json.loads(json.dumps(kept.as_json())))


def equal_shares(arrived: list[float], needs_s: list[float]) -> list[float]:
    """When processor sharing ends each job, event by event."""
    left, now, ends = list(needs_s), 0.0, [0.0] * len(needs_s)
    while any(left):
        there = [at for at in range(len(left)) if left[at] > 0.0 and arrived[at] <= now]
        comes = min((each for each in arrived if each > now), default=float("inf"))
        if not there:
            now = comes
            continue
        step = min(comes - now, min(left[at] for at in there) * len(there))
        now += step
        for at in there:
            left[at] -= step / len(there)
            if left[at] <= 1e-9:
                left[at], ends[at] = 0.0, now
    return ends


@settings(max_examples=25, deadline=None)
@given(
    jobs=st.lists(st.tuples(st.integers(1, 150), st.integers(1, 100)), max_size=5), early=st.booleans(),
    restarts=st.booleans(),
)  # fmt: skip
def test_it_ends_jobs_when_equal_shares_would_whether_they_are_still_there_or_not(
    jobs: list[tuple[int, int]], early: bool, restarts: bool
) -> None:
    """Of equal jobs on one accelerator max-min fairness is processor sharing. All but the first go `early` for real;
    what is known may come from a file each time."""
    arrived = [0.0, *(float(at) for at, _ in sorted(jobs))]
    needs = [200.0, *(float(each) for _, each in sorted(jobs))]
    ends = equal_shares(arrived, needs)
    kept: Reference | None = None
    over: dict[int, float] = {}
    for now in np.arange(0.0, max(ends) + 20.0, 2.0).tolist():
        there = [at for at in range(len(needs)) if arrived[at] <= now and not (at and early and now > arrived[at] + 5)]
        problem = queue([needs[at] for at in there], ids=list(map(str, there)), now=now)
        kept = advanced(kept, problem, np.zeros(len(there)))
        kept = saved(kept) if restarts else kept
        for at, left_s in zip(there, kept.left_of().tolist(), strict=True):
            if not left_s:
                over.setdefault(at, now)
    said = [over[at] for at in ([0] if early else range(len(needs)))]
    assert said == pytest.approx(ends[: len(said)], abs=2.0 * (len(needs) + 1))


def test_what_is_believed_of_a_length_may_change_and_pools_and_tenants_may_go() -> None:
    first = queue([100.0, 50.0], ids=["x", "y"], tenant=[0, 1], tenants=(Tenant("p"), Tenant("q")))
    kept = advanced(None, first, np.zeros(2))
    assert kept.ends_s().tolist() == pytest.approx([200.0, 100.0])
    longer = queue([300.0, 30.0], ids=["x", "y"], now=20.0, tenant=[0, 1], tenants=first.tenants)
    kept = advanced(kept, longer, np.array([0.0, 20.0]))
    assert kept.left_of().tolist() == pytest.approx([290.0, 40.0])
    alone = queue([300.0], ids=["x"], now=40.0, tenants=(Tenant("p"),))
    kept = advanced(kept, alone, np.zeros(1))
    assert kept.ends_s().tolist() == pytest.approx([280.0]), "the other one's tenant is gone, and it with that"
    moved = Problem.columnar((Pool("b", 2),), [[2.0]], ids=["x"], now=50.0, work_left=600.0, tenants=(Tenant("p"),))
    kept = advanced(kept, moved, np.zeros(1))
    assert kept.fair.problem is not alone
    assert kept.ends_s().tolist() == pytest.approx([270.0])


def test_what_comes_back_from_a_file_decides_as_what_was_saved() -> None:
    tenants = (Tenant("p", 2.0, Quota(accelerators=3, by_type=(("a", 2),))), Tenant("q"))
    pools = (Pool("a", 2, Money.usd("2.5"), per_node=2, unconsolidated="a-spread"), Pool("b", 4))
    rate = [[4.0, 3.0, 1.0], [2.0, 2.0, 2.0], [1.0, 0.0, 0.5]]
    problem = Problem.columnar(
        pools,
        rate,
        ids=["x", "y", "z"],
        tenant=[0, 1, 1],
        tenants=tenants,
        work_left=[1e4, 2e4, np.nan],
        gang=[2, 1, 1],
    )
    kept = advanced(None, problem, np.zeros(3))
    later = problem.rows(np.array([0, 2]), ids=["x", "z"], now=100.0)
    found = [advanced(one, later, np.array([50.0, 20.0])) for one in (kept, saved(kept))]
    assert found[0].number == found[1].number
    assert found[0].pace.tolist() == pytest.approx(found[1].pace.tolist())
    assert found[0].ends_s().tolist() == pytest.approx(found[1].ends_s().tolist(), nan_ok=True)
    assert saved(kept).fair.problem.pools == pools
    assert saved(kept).fair.problem.tenants == tenants


def test_a_job_that_the_reference_has_ended_comes_first() -> None:
    begins = queue([10.0 * HOUR, 9.0 * HOUR], ids=["long", "short"], arrived=[0.0, 0.0])
    kept = advanced(None, begins, np.zeros(2))
    now = 19.0 * HOUR
    later = queue([2.0 * HOUR, 9.0 * HOUR], ids=["long", "short"], now=now, arrived=[0.0, 0.0], isolated_s=[9e5, 9e5],
                  ran_s=[9e5, 9e5])  # fmt: skip
    kept = advanced(kept, later, np.array([8.0 * HOUR, 0.0]))
    assert kept.left_of()[1] == 0.0
    assert decide("blend", later, whole=True, reference=kept).share[:, 0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(("behind_h", "first"), [(0.5, 1), (3.0, 0)])
def test_a_job_that_takes_much_longer_than_others_may_not_fall_behind(behind_h: float, first: int) -> None:
    problem = queue([100.0 * HOUR, HOUR], ids=["long", "short"], now=1.0, arrived=[0.0, 0.0])
    kept = advanced(None, problem, np.zeros(2))
    kept = replace(kept, left_s=np.array([(100.0 - behind_h) * HOUR, HOUR]))
    took_s = np.full(40, 10.0 * HOUR)
    found = decide("blend", problem, whole=True, reference=kept, took_s=took_s)
    assert found.share[first, 0] == 1.0


def test_where_jobs_ask_for_too_much_max_min_fairness_decides_until_they_no_longer_do() -> None:
    rules, state, previous = ScheduleSettings("blend", round_s=60.0, restart_cost_s=0.0), State(), None
    crowded = []
    for now, count in ((0.0, 2), (60.0, 3), (120.0, 3), (180.0, 2), (240.0, 1)):
        problem = queue([1e3 * (at + 1) for at in range(count)], now=now, arrived=np.zeros(count))
        decided = decide_round(rules, problem, state, now, previous=previous)
        if decided.allocation.facts.get("crowded"):
            assert decided.allocation.share == pytest.approx(decide("max-min", problem).share)
        crowded.append(bool(decided.allocation.facts.get("crowded")))
        previous, state = decided.allocation, decided.state
        assert decided.round.problem.ids == problem.ids
    # The third is gone for real, but not by the reference.
    assert crowded == [False, True, True, True, True]


def test_a_choice_of_whole_jobs_stands_until_jobs_come_go_or_end_by_the_reference() -> None:
    rules = ScheduleSettings("blend", round_s=60.0, restart_cost_s=0.0)

    def asked(now: float, left_s: list[float], previous: Decided | None) -> Decided:
        problem = queue(left_s, now=now, arrived=np.zeros(len(left_s)))
        known = State() if previous is None else previous.state
        before = None if previous is None else previous.allocation
        return decide_round(rules, problem, known, now, previous=before)

    first = asked(0.0, [4e4, 5e4], None)
    assert first.allocation.share[:, 0].tolist() == [1.0, 0.0]
    same = asked(60.0, [4e4, 5e4], first)
    assert same.allocation.facts is first.allocation.facts
    went = asked(120.0, [4e4], same)
    assert went.allocation.facts is not same.allocation.facts
    assert asked(7200.0, [4e4, 5e4], first).allocation.facts is not first.allocation.facts


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), jobs=st.integers(1, 12))
def test_the_last_digits_of_numbers_decide_nothing(seed: int, jobs: int) -> None:
    """Other processors and kernels round otherwise."""
    chance = np.random.default_rng(seed)
    pools = (Pool("a", 4), Pool("b", 6), Pool("c", 8))
    given: dict[str, Any] = {
        "gang": chance.choice([1, 2, 4], jobs), "now": 1e5, "arrived": chance.uniform(0.0, 1e5, jobs),
        "isolated_s": chance.uniform(0.0, 1e5, jobs), "ran_s": chance.uniform(0.0, 1e5, jobs),
        "placed": chance.integers(-1, 3, jobs),
    }  # fmt: skip
    rate, left = chance.uniform(0.5, 9.0, (jobs, 3)), np.exp(chance.uniform(4.0, 13.0, jobs))

    def noise(values: Any) -> Any:
        return values * (1.0 + chance.choice([-1.0, 0.0, 1.0], np.shape(values)) * 1e-14)

    problem = Problem.columnar(pools, rate, work_left=left, **given)
    kept = advanced(None, problem, np.zeros(jobs))
    other = Problem.columnar(pools, noise(rate), work_left=noise(left), **given)
    noisy = replace(kept, left_s=noise(kept.left_s), needs_s=noise(kept.needs_s))
    found = decide("blend", problem, whole=True, keep=0.2, restart_s=30.0, reference=kept)
    again = decide("blend", other, whole=True, keep=0.2, restart_s=30.0, reference=noisy)
    if not found.facts.get("crowded"):
        assert found.share.tolist() == again.share.tolist()
        assert found.facts["late"] == again.facts["late"]


def played(run: Run) -> Simulated:
    chance = np.random.default_rng(0)
    steps = np.exp(chance.uniform(9.0, 12.5, 40)).tolist()
    made = cluster_of(
        workload(steps, kind=chance.integers(0, 3, 40), gang=chance.choice([1, 2, 4], 40)),
        (Pool("fast", 4), Pool("slow", 6)), throughputs(),
    )  # fmt: skip
    return simulate(made, run)


def test_a_batch_ends_about_as_by_max_min_fairness() -> None:
    found, fair = played(run_of("blend")), played(run_of("max-min"))
    assert found.jct_s.mean() <= 1.02 * fair.jct_s.mean()
    assert np.quantile(found.jct_s, 0.99) <= 1.03 * np.quantile(fair.jct_s, 0.99)
