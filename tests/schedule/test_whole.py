"""Blend in whole jobs: feasible, close to the best there is, and fair to the old."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from shoal.core import Invalid, Quota, Tenant
from shoal.schedule import Pool, Problem, decide


def crowded(seed: int, jobs: int, *, quota: int | None = None) -> Problem:
    chance = np.random.default_rng(seed)
    rate = chance.uniform(0.5, 20.0, (jobs, 1)) * np.array([1.0, 0.6, 0.2]) * chance.uniform(0.5, 1.5, (jobs, 3))
    return Problem.columnar(
        (Pool("a", 6), Pool("b", 9), Pool("c", 8)), rate, now=9000.0, arrived=chance.uniform(0, 9000.0, jobs),
        gang=chance.choice([1, 2, 4], jobs, p=[0.5, 0.3, 0.2]), work_left=np.exp(chance.uniform(4, 12, jobs)),
        tenant=np.arange(jobs) % 2, tenants=(Tenant("x", quota=Quota(accelerators=quota)), Tenant("y")),
    )  # fmt: skip


def best(problem: Problem, worth: np.ndarray) -> float:
    """What HiGHS finds."""
    jobs, columns = worth.shape
    once = np.kron(np.eye(jobs), np.ones((1, columns)))
    pools = np.kron(problem.gang[None, :].astype(float), np.eye(columns))
    limits = [LinearConstraint(once, -np.inf, np.ones(jobs)), LinearConstraint(pools, -np.inf, problem.counts)]
    found = milp(-worth.ravel() / worth.max(), constraints=limits, integrality=np.ones(worth.size), bounds=Bounds(0, 1))
    return float(-found.fun * worth.max())


@pytest.mark.parametrize("seed", range(6))
def test_whole_jobs_that_fit_and_are_worth_nearly_all_there_is(seed: int) -> None:
    problem = crowded(seed, 24)
    found = decide("blend", problem, whole=True, keep=0.0)
    assert set(np.unique(found.share)) <= {0.0, 1.0}
    assert (found.share.sum(axis=1) <= 1).all()
    assert (found.usage <= problem.counts).all()
    worth = 1.0 / (problem.work_left[:, None] / problem.rate + 120.0)
    value = float((worth * found.share).sum())
    optimum = best(problem, worth)
    assert value >= 0.95 * optimum
    assert found.certificate is not None
    assert found.certificate.value == pytest.approx(value)
    assert found.certificate.bound >= optimum * (1 - 1e-6)


def test_quotas_hold() -> None:
    problem = crowded(1, 24, quota=5)
    found = decide("blend", problem, whole=True)
    assert (found.share.sum(axis=1) * problem.gang)[problem.tenant == 0].sum() <= 5


def test_who_is_placed_stays_unless_another_is_worth_much_more() -> None:
    def placed(left: float, restart_s: float = 0.0) -> list[float]:
        problem = Problem.columnar((Pool("a", 1),), [[1.0], [1.0]], work_left=[1000.0, left], placed=[0, -1])
        return decide("blend", problem, whole=True, keep=0.1, restart_s=restart_s).share[:, 0].tolist()

    assert placed(990.0) == [1.0, 0.0]
    assert placed(500.0) == [0.0, 1.0]
    assert placed(500.0, restart_s=600.0) == [1.0, 0.0]


def test_with_aging_the_old_come_before_the_short() -> None:
    problem = Problem.columnar(
        (Pool("a", 1),), [[1.0], [1.0]], now=90_000.0, arrived=[0.0, 90_000.0], work_left=[9000.0, 3000.0]
    )
    assert decide("blend", problem, whole=True).share[:, 0].tolist() == [0.0, 1.0]
    assert decide("blend", problem, whole=True, aging=1.0).share[:, 0].tolist() == [1.0, 0.0]


def test_a_batch_ends_together_with_its_longest_job() -> None:
    """Short jobs come first, but not before the one that the end waits for."""
    problem = Problem.columnar((Pool("a", 2),), [[1.0]] * 4, work_left=[10_000.0, 3000.0, 3000.0, 3000.0])
    hasty = decide("blend", problem, whole=True)
    timely = decide("blend", problem, whole=True, drift=0.0)
    assert hasty.share[0, 0] == 0.0
    assert timely.share[0, 0] == 1.0
    assert timely.share.sum() == 2.0
    later = Problem.columnar(
        (Pool("a", 2),), [[1.0]] * 4, now=100.0, arrived=[0, 0, 0, 100.0], work_left=problem.work_left
    )
    assert decide("blend", later, whole=True, drift=0.0).share[0, 0] == 0.0, "no batch: others come and go"


@pytest.mark.parametrize("wrong", [{"keep": -1.0}, {"aging": -0.5}, {"drift": -0.1}, {"space_sharing": True}])
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(Invalid):
        decide("blend", crowded(0, 4), whole=True, **wrong)
