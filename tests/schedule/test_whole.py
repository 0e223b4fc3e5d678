"""Blend in whole jobs: feasible, close to the best there is, and fair to the old."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from shoal.core import Invalid, Quota, Tenant
from shoal.schedule import Pool, Problem, decide
from shoal.schedule.policy.blend import lateness
from shoal.schedule.policy.subproblem import subproblem_of
from shoal.schedule.policy.whole import whole_jobs


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
    worth = 1.0 / (problem.work_left[:, None] / problem.rate + 120.0)
    column = whole_jobs(subproblem_of(problem), worth.T.copy())
    runs = np.flatnonzero(column >= 0)
    assert (np.bincount(column[runs], problem.gang[runs], minlength=3) <= problem.counts).all()
    assert worth[runs, column[runs]].sum() >= 0.9 * best(problem, worth)


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


@pytest.mark.parametrize("wrong", [{"keep": -1.0}, {"restart_s": -1.0}, {"space_sharing": True}])
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(Invalid):
        decide("blend", crowded(0, 4), whole=True, **wrong)


HOUR = 3600.0
LONG = {"work_left": [5 * HOUR, 40 * HOUR], "arrived": [0.0, -60 * HOUR], "now": 0.0}
"""A newcomer, and one eight times as long that has waited for sixty hours, on one accelerator: alone in a half of it,
the second would end after eighty hours, and even now it cannot end before a hundred."""


def told(problem: Problem, **settings: Any) -> list[float]:
    return decide("blend", problem, whole=True, keep=0.0, **settings).share[:, 0].tolist()


class TestLateJobs:
    def of(self, isolated_s: list[float], **given: Any) -> Problem:
        return Problem.columnar([Pool("a", 1)], [[1.0]] * len(isolated_s), isolated_s=isolated_s, **given)

    def test_one_that_would_end_later_than_in_its_own_share_comes_first(self) -> None:
        problem = self.of([0.0, 0.0], **LONG)
        assert told(problem) == [0.0, 1.0]

    def test_lateness_is_the_soonest_end_over_the_end_in_a_share_of_its_own(self) -> None:
        problem = Problem.columnar(
            [Pool("fast", 2), Pool("slow", 6)], [[4.0, 1.0], [0.0, 2.0]], gang=[2, 1], now=100 * HOUR,
            work_left=[8 * HOUR, 8 * HOUR], arrived=[90 * HOUR, 0.0], isolated_s=[2 * HOUR, 90 * HOUR],
            ran_s=[5 * HOUR, 99 * HOUR],
        )  # fmt: skip
        # Halves of both pools: one accelerator and three, for the gang of two 0.5 + 1.5 of the time, lowered to one.
        alone = [0.25 * 4.0 + 0.75 * 1.0, 2.0]
        by_hand = [
            (10 * HOUR + 8 * HOUR / 4.0 + 120.0) / (2 * HOUR + 8 * HOUR / alone[0] + 120.0),
            (100 * HOUR + 8 * HOUR / 2.0 + 120.0) / (90 * HOUR + 8 * HOUR / alone[1] + 120.0),
        ]
        np.testing.assert_allclose(lateness(subproblem_of(problem)), by_hand)

    def test_who_never_ran_has_done_nothing_though_its_age_is_given_for_it(self) -> None:
        waited = {**LONG, "ran_s": [0.0, 0.0]}
        assert told(self.of([0.0, 60 * HOUR], **waited)) == [0.0, 1.0]
        served = {**LONG, "ran_s": [0.0, 60 * HOUR]}
        assert told(self.of([0.0, 60 * HOUR], **served)) == [1.0, 0.0]

    def test_the_latest_comes_first(self) -> None:
        ages = [-60 * HOUR, -90 * HOUR]
        assert told(self.of([0.0, 0.0], work_left=[20 * HOUR, 20.5 * HOUR], arrived=ages)) == [0.0, 1.0]
        assert told(self.of([0.0, 0.0], work_left=[20.5 * HOUR, 20 * HOUR], arrived=ages[::-1])) == [1.0, 0.0]

    def test_a_late_gang_is_not_kept_out_by_single_jobs(self) -> None:
        given: dict[str, Any] = {
            "gang": [4, *[1] * 5], "work_left": [HOUR, *[0.1 * HOUR] * 5], "arrived": [-99 * HOUR, *[-60.0] * 5],
        }  # fmt: skip
        problem = Problem.columnar([Pool("a", 4)], [[1.0]] * 6, isolated_s=0.0, **given)
        assert told(problem)[0] == 1.0

    def test_a_late_gang_comes_before_single_jobs_that_are_less_late(self) -> None:
        given: dict[str, Any] = {
            "gang": [4, *[1] * 5], "work_left": [4 * HOUR, *[4 * HOUR] * 5],
            "arrived": [-24 * HOUR, *[-12 * HOUR] * 5],
        }  # fmt: skip
        problem = Problem.columnar([Pool("a", 4)], [[1.0]] * 6, isolated_s=0.0, **given)
        ratio = lateness(subproblem_of(problem))
        assert 1.0 < ratio[1] < ratio[0] < 2.0**0.5 * ratio[1], "so little later that four of the others weigh more"
        assert told(problem)[0] == 1.0

    def test_a_job_that_is_twice_as_late_comes_before_a_gang_of_three(self) -> None:
        given: dict[str, Any] = {"gang": [1, 3], "work_left": [4 * HOUR, 4 * HOUR], "isolated_s": 0.0}
        problem = Problem.columnar([Pool("a", 3)], [[1.0]] * 2, arrived=[-16 * HOUR, -8 * HOUR], **given)
        ratio = lateness(subproblem_of(problem))
        assert 2.0 <= ratio[0] / ratio[1] <= 3.0
        assert told(problem) == [1.0, 0.0]

    def test_a_late_job_comes_first_though_its_restart_costs_more_than_its_work(self) -> None:
        problem = self.of([0.0, 0.0], placed=[0, -1], **LONG)
        assert told(problem, restart_s=800 * HOUR) == [0.0, 1.0]

    def test_a_job_without_work_is_not_late(self) -> None:
        problem = self.of([0.0, 0.0], work_left=[5 * HOUR, 0.0], arrived=[0.0, -60 * HOUR], now=0.0)
        assert told(problem) == [1.0, 0.0]


@pytest.mark.parametrize(("hours", "moves"), [(20.0, False), (40.0, True)])
def test_a_job_leaves_a_slower_type_where_that_saves_more_than_an_hour(hours: float, moves: bool) -> None:
    """`keep` alone would leave it there for however long it takes: 0.96 of the speed is near enough."""
    problem = Problem.columnar(
        (Pool("fast", 1), Pool("slow", 1)), [[1.0, 0.96]], work_left=[hours * HOUR], placed=[1], now=1.0, arrived=[0.0]
    )
    assert decide("blend", problem, whole=True, keep=0.2, restart_s=30.0).share[0].tolist() == [moves, not moves]


def test_jobs_that_fit_where_they_are_worth_most_are_put_there_without_a_search() -> None:
    problem = Problem.columnar(
        (Pool("a", 1), Pool("b", 2)), [[2.0, 1.0], [1.0, 2.0], [1.0, 2.0], [1.0, 1.0]],
        work_left=[HOUR, HOUR, HOUR, 0.0],
    )  # fmt: skip
    found = decide("blend", problem, whole=True)
    assert found.share.tolist() == [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]]
    full = Problem.columnar((Pool("a", 1),), [[2.0], [2.0]], work_left=[HOUR, 2 * HOUR])
    assert decide("blend", full, whole=True).share[:, 0].tolist() == [1.0, 0.0]
