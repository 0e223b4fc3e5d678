"""A batch in whole jobs ends about when it could, whatever is short in it."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.schedule import Pool, Problem, decide
from shoal.schedule.policy import ending
from shoal.schedule.policy.ending import whole_until
from shoal.schedule.policy.subproblem import subproblem_of
from shoal.schedule.simulate import cluster_of, run_of, simulate
from tests.schedule.kit import taken, throughputs, workload
from tests.schedule.test_whole import crowded


def batch(seed: int, jobs: int) -> Problem:
    chance = np.random.default_rng(seed)
    rate = chance.uniform(0.5, 20.0, (jobs, 1)) * np.array([1.0, 0.6, 0.2]) * chance.uniform(0.5, 1.5, (jobs, 3))
    return Problem.columnar(
        (Pool("a", 6), Pool("b", 9), Pool("c", 8)), rate, gang=chance.choice([1, 2, 4], jobs, p=[0.5, 0.3, 0.2]),
        work_left=np.exp(chance.uniform(6, 12, jobs)),
    )  # fmt: skip


def soonest(problem: Problem) -> float:
    found = decide("makespan", problem).certificate
    assert found is not None
    return found.bound


@pytest.mark.parametrize("seed", range(6))
def test_what_is_chosen_fits_and_hardly_delays_the_end(seed: int) -> None:
    problem = batch(seed, 25)
    found = decide("blend", problem, whole=True, timely=True)
    assert set(np.unique(found.share)) <= {0.0, 1.0}
    assert (found.usage <= problem.counts).all()
    done = problem.work_left - 360.0 * found.throughput
    going = np.flatnonzero(done > 0.0)
    after = taken(problem, going)
    later = Problem.columnar(problem.pools, after.rate, gang=after.gang, work_left=done[going])
    assert 360.0 + soonest(later) <= soonest(problem) * 1.01 + 20.0
    hasty = decide("blend", problem, whole=True)
    value = {name: each.certificate.value for name, each in (("now", found), ("hasty", hasty)) if each.certificate}
    assert value["now"] > 0.25 * value["hasty"], "short jobs still count"


def test_short_jobs_come_first_where_the_end_does_not_wait_for_others() -> None:
    problem = Problem.columnar((Pool("a", 2),), [[1.0]] * 4, work_left=[1000.0, 4000.0, 4000.0, 4000.0])
    assert decide("blend", problem, whole=True, timely=True).share[0, 0] == 1.0


def test_a_batch_that_is_too_large_is_chosen_for_by_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = batch(0, ending.PAIRS // 3 + 1)
    sub = subproblem_of(problem)
    assert whole_until(sub, np.ones_like(sub.market.rate)) is None
    found = decide("blend", problem, whole=True, timely=True)
    assert (found.usage <= problem.counts).all()
    assert found.share.sum() > 0


def test_jobs_without_work_do_not_matter() -> None:
    problem = Problem.columnar((Pool("a", 1),), [[1.0], [1.0]], work_left=[0.0, 50.0])
    assert decide("blend", problem, whole=True, timely=True).share[:, 0].tolist() == [0.0, 1.0]


def test_quotas_hold_in_a_batch() -> None:
    problem = crowded(1, 24, quota=5)
    at_once = Problem.columnar(
        problem.pools, problem.rate, gang=problem.gang, work_left=problem.work_left, tenant=problem.tenant,
        tenants=problem.tenants,
    )  # fmt: skip
    found = decide("blend", at_once, whole=True, timely=True)
    assert (found.share.sum(axis=1) * problem.gang)[problem.tenant == 0].sum() <= 5


def test_who_can_all_run_at_once_does() -> None:
    problem = Problem.columnar((Pool("a", 3), Pool("b", 2)), [[2.0, 1.0]] * 3, work_left=[100.0, 2000.0, 10.0])
    assert decide("blend", problem, whole=True, timely=True).share[:, 0].tolist() == [1.0, 1.0, 1.0]


def test_rounds_give_a_batch_what_max_min_fairness_does() -> None:
    """The end of a batch is for `makespan`: shortest first made its long jobs late beside jobs that came with them."""
    chance = np.random.default_rng(0)
    steps = np.exp(chance.uniform(9.0, 12.5, 40)).tolist()
    made = cluster_of(
        workload(steps, kind=chance.integers(0, 3, 40), gang=chance.choice([1, 2, 4], 40)),
        (Pool("fast", 8), Pool("slow", 12)), throughputs(),
    )  # fmt: skip
    found, fair = simulate(made, run_of("blend")), simulate(made, run_of("max-min"))
    assert found.jct_s.tolist() == fair.jct_s.tolist()
