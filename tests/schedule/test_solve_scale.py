"""Large problems: solved by classes, by the general solver, and in parts, with the answers of the plain program."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from shoal.core import Quota, Tenant
from shoal.schedule import Pool, Problem, decide
from shoal.schedule.solve.answers import answers, offers
from shoal.schedule.solve.market import Constraint, Market
from shoal.schedule.solve.response import Frontier, respond
from tests.schedule.kit import taken


def kinds(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    rate = chance.uniform(0.5, 5.0, (count, 1)) * chance.uniform(0.2, 4.0, (count, 4))
    return rate, chance.choice([1, 2, 4, 8], count), chance.choice([1.0, 2.0, 3.0], count)


def of_kinds(jobs: int, count: int, seed: int, *, per_type: float) -> Problem:
    rate, gang, weight = kinds(count, seed)
    of = np.arange(jobs) % count
    pools = [Pool(f"t{at}", int(per_type * jobs)) for at in range(4)]
    return Problem.columnar(pools, rate[of], gang=gang[of], weight=weight[of])


def plain_level(problem: Problem) -> float:
    """Max-min's level with a variable for each job and type."""
    jobs, width = problem.rate.shape
    every = np.arange(jobs * width)
    job, column = every // width, every % width
    unit = problem.weight * (problem.rate @ problem.counts) / problem.counts.sum() / problem.gang
    used = sparse.csr_matrix((problem.gang[job].astype(float), (column, every)))
    time = sparse.csr_matrix((np.ones(len(every)), (job, every)))
    rates = sparse.csr_matrix((-problem.rate.ravel() / unit[job], (job, every)))
    level = sparse.csr_matrix(np.r_[np.zeros(width + jobs), np.ones(jobs)][:, None])
    found = linprog(
        np.r_[np.zeros(len(every)), -1.0], A_ub=sparse.hstack([sparse.vstack([used, time, rates]), level]),
        b_ub=np.r_[problem.counts, np.ones(jobs), np.zeros(jobs)], method="highs",
    )  # fmt: skip
    return -float(found.fun)


@pytest.mark.parametrize("per_type", [0.05, 0.3])
def test_classes_have_the_plain_programs_optimum(per_type: float) -> None:
    problem = of_kinds(600, 20, 1, per_type=per_type)
    found = decide("max-min", problem)
    assert found.facts["classes"] == 20
    assert found.certificate is not None
    assert found.certificate.value == pytest.approx(plain_level(problem), rel=1e-6)


@pytest.mark.slow
def test_a_million_jobs_of_a_thousand_kinds_get_what_each_would_in_a_thousandth_of_the_cluster() -> None:
    many = decide("max-min", of_kinds(1_000_000, 1000, 2, per_type=0.1))
    few = decide("max-min", of_kinds(1000, 1000, 2, per_type=0.1))
    assert many.facts["classes"] == 1000
    assert many.certificate is not None
    assert many.certificate.gap <= 1e-6
    np.testing.assert_allclose(many.throughput[:1000], few.throughput, rtol=1e-6)
    np.testing.assert_array_equal(many.share[:1000], many.share[-1000:])


def test_quotas_of_many_tenants_take_the_general_solver_to_the_same_answer() -> None:
    jobs = 80
    chance = np.random.default_rng(3)
    tenants = tuple(Tenant(f"t{at}", quota=Quota(accelerators=1)) for at in range(40))
    rate, gang, _ = kinds(jobs, 3)
    problem = Problem.columnar(
        [Pool(f"t{at}", 20) for at in range(4)], rate, gang=np.minimum(gang, 1),
        tenant=np.arange(jobs) % 40, tenants=tenants, weight=chance.choice([1.0, 2.0], jobs),
    )  # fmt: skip
    found = decide("max-min", problem)
    assert found.facts["method"] == "general solver"
    assert found.certificate is not None
    assert found.certificate.gap <= 1e-6
    held = np.bincount(problem.tenant, found.time)
    assert held.max() <= 1.0 + 1e-6
    # Two jobs of a quota of one, with as many accelerators as tenants: only the quotas bind, so each pair of jobs
    # fares as it would in a cluster of its own.
    for tenant in range(3):
        alone = decide("max-min", taken(problem, problem.tenant == tenant))
        np.testing.assert_allclose(found.throughput[problem.tenant == tenant], alone.throughput, rtol=1e-5)


def test_a_chain_of_decisions_with_remembered_prices_stays_exact() -> None:
    chance = np.random.default_rng(5)
    rate, _, _ = kinds(26, 5)
    pools = [Pool(f"t{at}", 9) for at in range(4)]
    of = chance.integers(0, 26, 60)
    previous = None
    for _ in range(30):
        of = np.append(of[chance.random(len(of)) > 0.05], chance.integers(0, 26, 3))
        problem = Problem.columnar(pools, rate[of])
        previous = decide("max-min", problem, previous=previous)
        assert previous.certificate is not None
        assert previous.certificate.gap <= 1e-6
        np.testing.assert_allclose(previous.throughput, decide("max-min", problem).throughput, rtol=1e-6)


def test_remembered_prices_that_leave_open_who_is_stuck_freeze_nobody() -> None:
    rate = [
        [1, 0.5, 1, 0], [1, 1, 3.7, 0.5], [0.5, 0, 1, 0.5], [0.5, 1, 2, 0], [1, 3.7, 40, 2], [40, 1, 1, 1],
        [0, 1, 40, 0.5],
    ]  # fmt: skip
    problem = Problem.columnar(
        [Pool(f"t{at}", count) for at, count in enumerate((0, 0, 1, 3))], rate,
        gang=[4, 2, 2, 2, 4, 4, 1], weight=[1, 1, 3, 1, 3, 1, 1],
    )  # fmt: skip
    alone = decide("max-min", problem).throughput
    for left_out in range(7):
        before = decide("max-min", taken(problem, np.arange(7) != left_out))
        found = decide("max-min", problem, previous=before)
        np.testing.assert_allclose(found.throughput, alone, rtol=1e-6, atol=1e-9)
        again = decide("max-min", problem, previous=found)
        np.testing.assert_allclose(again.throughput, alone, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_several_prices_asked_at_once_are_answered_as_one_by_one(count: int) -> None:
    chance = np.random.default_rng(count)
    rate, gang, _ = kinds(40, 2)
    half = np.where(np.arange(40) < 20, gang, 0.0)
    market = Market(
        np.ascontiguousarray(rate.T), chance.integers(1, 4, 40).astype(float),
        (
            Constraint(("a", "b", "c", "d"), gang.astype(float), np.eye(4), np.full(4, 50.0)),
            Constraint(("quota",), half, np.ones((1, 4)), np.array([30.0])),
        ),
    )  # fmt: skip
    prices = chance.uniform(0.01, 1.0, (count, 5))
    demand = market.fastest * chance.uniform(0.0, 1.0, 40)
    value = chance.uniform(0.0, 3.0, (4, 40))
    floor = np.where(np.arange(40) % 3 == 0, demand, 0.0)
    together = answers(market, prices, demand)
    offered = offers(market, prices, value, floor)
    for at in range(count):
        one, alone = prices[at : at + 1], prices[at]
        found = answers(market, one, demand)
        np.testing.assert_allclose(together.usage[at], found.usage[0])
        np.testing.assert_allclose(together.paid[at], found.paid[0])
        np.testing.assert_allclose(market.rates_of(together.shares(at)), demand)
        np.testing.assert_allclose(market.usage_of(together.shares(at)), together.usage[at])
        np.testing.assert_allclose(offered.worth[at], offers(market, one, value, floor).worth[0])
        spread = respond(market, market.cost(alone), demand)
        np.testing.assert_allclose(market.usage(spread), together.usage[at])


def test_a_hull_that_is_asked_again_answers_as_a_new_one() -> None:
    chance = np.random.default_rng(4)
    rate, gang, _ = kinds(60, 3)
    rate = np.where(chance.uniform(size=rate.shape) < 0.2, 0.0, rate)
    pools = Constraint(("a", "b", "c", "d"), gang.astype(float), np.eye(4), np.full(4, 50.0))
    market = Market(np.ascontiguousarray(rate.T), np.ones(60), (pools,))
    cost = market.cost(chance.uniform(0.01, 1.0, 4))
    frontier = Frontier(market, cost)
    for part in (1.0, 0.2, 2.0, 0.0, 0.7):
        demand = part * market.fastest
        for mine, other in zip(
            vars(frontier.respond(demand)).values(), vars(respond(market, cost, demand)).values(), strict=True
        ):
            np.testing.assert_array_equal(mine, other)


def test_prices_asked_about_one_demand_after_another_are_answered_anew() -> None:
    rate, gang, _ = kinds(30, 5)
    pools = Constraint(("a", "b", "c", "d"), gang.astype(float), np.eye(4), np.full(4, 20.0))
    prices = np.random.default_rng(6).uniform(0.01, 1.0, (3, 4))
    asked = Market(np.ascontiguousarray(rate.T), np.ones(30), (pools,))
    for part in (1.0, 0.5, 0.5, 0.9):
        demand = part * asked.fastest
        new = answers(Market(asked.rate, asked.copies, asked.constraints), prices, demand)
        for found in (answers(asked, prices, demand, again=True), answers(asked, prices, demand)):
            np.testing.assert_array_equal(found.usage, new.usage)
            np.testing.assert_array_equal(found.paid, new.paid)
            np.testing.assert_array_equal(found.shares(1), new.shares(1))
    np.testing.assert_array_equal(
        answers(asked, prices[::-1], demand).usage, answers(asked, prices, demand).usage[::-1]
    )


@pytest.mark.filterwarnings("error")
def test_what_is_free_is_nothing_to_a_row_that_cannot_run_there() -> None:
    pools = Constraint(("a", "b"), np.ones(2), np.eye(2), np.full(2, 4.0))
    market = Market(np.array([[0.0, 4.0], [2.0, 2.0]]), np.ones(2), (pools,))
    spread = respond(market, market.cost(np.array([0.0, 1.0])), np.array([1.0, 1.0]))
    np.testing.assert_array_equal(spread.second, [1, 0])
    np.testing.assert_array_equal(spread.share, [0.5, 0.25])
    np.testing.assert_array_equal(spread.slope, [0.5, 0.0])


def test_freezes_are_counted_and_are_no_more_than_the_limits() -> None:
    """Two pools, and jobs of which each can use one: each pool freezes its own, the fuller one first."""
    rate = [[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 3 + [[1.0, 0.0]] * 2
    found = decide("max-min", Problem.columnar([Pool("a", 2), Pool("b", 2)], rate))
    assert found.facts["freezes"] == 2
    np.testing.assert_allclose(found.throughput, [1 / 3] * 4 + [2 / 3] * 3 + [1 / 3] * 2)
    assert found.facts["rounds"] >= 2
    free = decide("max-min", Problem.columnar([Pool("a", 9), Pool("b", 3)], rate))
    assert free.facts["freezes"] == 1, "all that there is to have is had at once"
