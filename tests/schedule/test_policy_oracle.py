"""Each policy against its program in cvxpy: the same optimum, and what is certified is true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoal.core import Quota, Tenant, Throughput
from shoal.schedule import Allocation, Configuration, JobView, Pool, Problem, decide, problem_of
from shoal.schedule.policy.hierarchical import Entity
from tests.schedule import oracle
from tests.schedule.kit import taken
from tests.schedule.oracle import instance, limited, unit

SEEDS = (0, 1, 2)
WIDTHS = [(12, False), (25, True)]


def check(found: Allocation, optimum: float, *, within: float = 1e-6) -> None:
    """The certificate holds the optimum, as exactly as the oracle's solver is, and the allocation keeps the rules."""
    certificate = found.certificate
    assert certificate is not None
    low, high = sorted((certificate.value, certificate.bound))
    slack = within * abs(optimum) + 1e-9
    assert low - slack <= optimum <= high + slack
    assert certificate.value == pytest.approx(optimum, rel=1e-4)
    assert certificate.gap <= 1e-6
    feasible(found)


def feasible(found: Allocation) -> None:
    problem = found.problem
    assert found.share.min(initial=0.0) >= 0.0
    assert found.pairs.share.min(initial=0.0) >= 0.0
    assert found.time.max(initial=0.0) <= 1.0 + 1e-7
    assert (found.usage <= problem.counts * (1.0 + 1e-7)).all()
    assert (found.share[~problem.possible & ~problem.held[:, None]] == 0.0).all()
    assert (found.pairs.first != found.pairs.second).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("jobs", "distinct"), WIDTHS)
class TestAlone:
    def test_max_min(self, seed: int, jobs: int, distinct: bool) -> None:
        problem = instance(seed, jobs, distinct=distinct)
        found = decide("max-min", problem)
        check(found, oracle.max_min(problem))
        reached = (found.throughput / (problem.weight * unit(problem))).min()
        assert reached == pytest.approx(found.certificate.value, rel=1e-6)  # type: ignore[union-attr]

    def test_max_min_agnostic(self, seed: int, jobs: int, distinct: bool) -> None:
        problem = instance(seed, jobs, distinct=distinct)
        ones = (problem.rate > 0.0) * 1.0
        check(decide("max-min", problem, agnostic=True), oracle.max_min(problem, rate=ones))

    def test_max_min_by_worth(self, seed: int, jobs: int, distinct: bool) -> None:
        problem = instance(seed, jobs, distinct=distinct)
        worth = (problem.rate > 0.0) * np.array([1.0, 3.0, 7.0])
        found = decide("max-min", problem, worth={"p100": 3.0, "v100": 7.0})
        check(found, oracle.max_min(problem, rate=worth))

    def test_makespan(self, seed: int, jobs: int, distinct: bool) -> None:
        problem = instance(seed, jobs, distinct=distinct)
        found = decide("makespan", problem)
        check(found, oracle.makespan(problem))
        assert (problem.work_left / found.throughput).max() == pytest.approx(found.certificate.value, rel=1e-6)  # type: ignore[union-attr]

    def test_makespan_agnostic(self, seed: int, jobs: int, distinct: bool) -> None:
        problem = instance(seed, jobs)
        rate = np.repeat(problem.rate[:, 2:], 3, axis=1)
        check(decide("makespan", problem, agnostic=True), oracle.makespan(problem, rate=rate))

    def test_finish_time(self, seed: int, jobs: int, distinct: bool) -> None:
        problem = instance(seed, jobs, distinct=distinct)
        check(decide("finish-time", problem), oracle.finish_time(problem), within=1e-4)

    def test_finish_time_agnostic(self, seed: int, jobs: int, distinct: bool) -> None:
        problem = instance(seed, jobs)
        rate = np.repeat(problem.rate[:, 2:], 3, axis=1)
        found = decide("finish-time", problem, agnostic=True)
        check(found, oracle.finish_time(problem, rate=rate), within=1e-4)

    @pytest.mark.few(count=6)
    @pytest.mark.parametrize("floor", [0.0, 0.5, 1.0])
    def test_blend(self, seed: int, jobs: int, distinct: bool, floor: float) -> None:
        problem = instance(seed, jobs, distinct=distinct)
        owed = floor * oracle.max_min(problem) * problem.weight * unit(problem) * (1 - 1e-7)
        worth = np.broadcast_to((problem.weight / problem.work_left)[:, None], problem.rate.shape)
        check(decide("blend", problem, floor=floor), oracle.most(problem, worth, floor=owed))

    def test_max_throughput(self, seed: int, jobs: int, distinct: bool) -> None:
        problem = instance(seed, jobs, distinct=distinct)
        check(decide("max-throughput", problem), oracle.most(problem, np.ones(problem.rate.shape)))

    def test_max_throughput_with_deadlines(self, seed: int, jobs: int, distinct: bool) -> None:
        problem = with_deadlines(instance(seed, jobs, distinct=distinct), seed)
        owed = needed(problem)
        found = decide("max-throughput", problem, deadlines=True)
        check(found, oracle.most(problem, np.ones(problem.rate.shape), floor=owed * (1 - 1e-7)))
        assert (found.throughput >= owed * (1 - 1e-6)).all()

    def test_min_cost_per_dollar(self, seed: int, jobs: int, distinct: bool) -> None:
        problem = with_deadlines(instance(seed, jobs, distinct=distinct), seed)
        worth = 1.0 / (problem.gang[:, None] * problem.usd_per_hour)
        check(decide("min-cost", problem), oracle.most(problem, worth, floor=needed(problem) * (1 - 1e-7)))

    @pytest.mark.few(count=2)
    def test_min_cost_spend(self, seed: int, jobs: int, distinct: bool) -> None:
        problem = with_deadlines(instance(seed, jobs, distinct=distinct), seed)
        owed = np.maximum(needed(problem), 0.2 * oracle.max_min(problem) * problem.weight * unit(problem))
        optimum = oracle.most(problem, np.zeros(problem.rate.shape), floor=owed * (1 - 1e-7), cost=1.0)
        check(decide("min-cost", problem, aim="spend", floor=0.2), -optimum)


@pytest.mark.parametrize("seed", SEEDS)
class TestLimits:
    """Quotas in total and per type, jobs in their minimum run time, consolidated and unconsolidated columns."""

    def test_max_min(self, seed: int) -> None:
        problem = limited(seed, 14)
        check(decide("max-min", problem), oracle.max_min(problem))

    def test_max_min_agnostic(self, seed: int) -> None:
        problem = limited(seed, 14)
        found = decide("max-min", problem, agnostic=True)
        check(found, oracle.max_min(problem, rate=(problem.rate > 0.0) * 1.0))

    @pytest.mark.few(count=2)
    def test_water_filling(self, seed: int) -> None:
        problem = limited(seed, 9)
        jobs = oracle.free(problem)
        optimum = oracle.water_filling(problem, lambda live: problem.weight)
        found = decide("max-min", problem).throughput[jobs] / unit(problem)[jobs]
        np.testing.assert_allclose(found, optimum[jobs], rtol=5e-4)

    def test_makespan(self, seed: int) -> None:
        problem = limited(seed, 14)
        check(decide("makespan", problem), oracle.makespan(problem))

    def test_max_throughput_normalised(self, seed: int) -> None:
        problem = limited(seed, 14)
        jobs = oracle.free(problem)
        share = np.where(jobs, problem.weight / np.where(jobs, unit(problem), 1.0), 0.0)
        worth = np.broadcast_to(share[:, None], problem.rate.shape)
        check(decide("max-throughput", problem, normalised=True), oracle.most(problem, worth))

    def test_min_cost(self, seed: int) -> None:
        problem = limited(seed, 14)
        jobs = oracle.free(problem)
        owed = np.where(jobs, 0.3 * oracle.max_min(problem) * problem.weight * unit(problem) * (1 - 1e-7), 0.0)
        held = problem.usd_per_hour[problem.placed[problem.held]].sum()
        optimum = oracle.most(problem, np.zeros(problem.rate.shape), floor=owed, cost=1.0)
        assert optimum is not None
        check(decide("min-cost", problem, aim="spend", floor=0.3), -optimum - held)


@pytest.mark.parametrize("seed", SEEDS)
class TestWaterFilling:
    @pytest.mark.few(count=2)
    @pytest.mark.parametrize("per_type", [0.1, 0.3])
    def test_max_min_is_lexicographic(self, seed: int, per_type: float) -> None:
        problem = instance(seed, 9, per_type=per_type, distinct=True)
        found = decide("max-min", problem)
        optimum = oracle.water_filling(problem, lambda live: problem.weight)
        np.testing.assert_allclose(found.throughput / unit(problem), optimum, rtol=2e-4)

    @pytest.mark.few(count=2)
    @pytest.mark.parametrize("per_type", [0.1, 0.3])
    def test_hierarchical_fair(self, seed: int, per_type: float) -> None:
        problem = instance(seed, 9, per_type=per_type, distinct=True)
        weights = np.array([1.0, 2.0, 3.0])

        def speeds(live: np.ndarray) -> np.ndarray:
            parts = np.where(live, problem.weight, 0.0)
            total = np.bincount(problem.entity, parts, minlength=3)
            return weights[problem.entity] * parts / np.maximum(total[problem.entity], 1e-9)

        entities = {"red": Entity(1.0), "green": Entity(2.0), "blue": Entity(3.0)}
        found = decide("hierarchical", problem, entities=entities)
        np.testing.assert_allclose(found.throughput / unit(problem), oracle.water_filling(problem, speeds), rtol=2e-4)
        feasible(found)

    def test_hierarchical_first_come(self, seed: int) -> None:
        problem = instance(seed, 9, distinct=True)

        def speeds(live: np.ndarray) -> np.ndarray:
            speed = np.zeros(problem.jobs)
            for entity in range(3):
                mine = np.flatnonzero(live & (problem.entity == entity))
                if len(mine):
                    speed[mine[problem.arrived[mine].argmin()]] = 1.0
            return speed

        entities = {name: Entity(first_come=True) for name in problem.entities}
        found = decide("hierarchical", problem, entities=entities)
        optimum = oracle.water_filling(problem, speeds)
        np.testing.assert_allclose(found.throughput / unit(problem), optimum, rtol=5e-4, atol=1e-4)
        feasible(found)

    def test_in_pairs(self, seed: int) -> None:
        problem = instance(seed, 6)
        found = decide("max-min", problem, space_sharing=True)
        optimum = oracle.water_filling(problem, lambda live: problem.weight, pairs=True)
        np.testing.assert_allclose(found.throughput / unit(problem), optimum, rtol=5e-4)
        feasible(found)


@pytest.mark.parametrize("seed", SEEDS)
class TestInPairs:
    def test_max_min(self, seed: int) -> None:
        problem = instance(seed, 12)
        check(decide("max-min", problem, space_sharing=True), oracle.max_min(problem, pairs=True))

    def test_max_min_with_quotas(self, seed: int) -> None:
        tenants = (Tenant("free"), Tenant("bound", quota=Quota(accelerators=2, by_type=(("v100", 1),))))
        problem = replace(instance(seed, 12), tenants=tenants, tenant=np.arange(12) % 2)
        found = decide("max-min", problem, space_sharing=True)
        jobs = oracle.free(problem)
        assert jobs.sum() >= 6
        check(found, oracle.max_min(problem, pairs=True))

    def test_hierarchical_lowest(self, seed: int) -> None:
        problem = replace(instance(seed, 12), entity=np.zeros(12, np.intp))
        found = decide("hierarchical", problem, space_sharing=True)
        lowest = oracle.max_min(problem, pairs=True) * problem.weight.sum()
        assert found.certificate.value == pytest.approx(lowest, rel=1e-5)  # type: ignore[union-attr]
        feasible(found)

    def test_makespan(self, seed: int) -> None:
        problem = instance(seed, 12)
        found = decide("makespan", problem, space_sharing=True)
        check(found, oracle.makespan(problem, pairs=True))
        assert (problem.work_left / found.throughput).max() == pytest.approx(found.certificate.value, rel=1e-6)  # type: ignore[union-attr]

    def test_finish_time(self, seed: int) -> None:
        problem = instance(seed, 10)
        found = decide("finish-time", problem, space_sharing=True)
        check(found, oracle.finish_time(problem, pairs=True), within=1e-4)

    def test_blend(self, seed: int) -> None:
        problem = instance(seed, 12)
        owed = 0.5 * oracle.max_min(problem, pairs=True) * problem.weight * unit(problem) * (1 - 1e-7)
        worth = np.broadcast_to((problem.weight / problem.work_left)[:, None], problem.rate.shape)
        optimum = oracle.most(problem, worth, floor=owed, pairs=True)
        check(decide("blend", problem, floor=0.5, space_sharing=True), optimum)

    def test_max_throughput(self, seed: int) -> None:
        problem = instance(seed, 12)
        optimum = oracle.most(problem, np.ones(problem.rate.shape), pairs=True)
        check(decide("max-throughput", problem, space_sharing=True), optimum)

    def test_min_cost(self, seed: int) -> None:
        problem = with_deadlines(instance(seed, 12), seed)
        optimum = oracle.most(
            problem, np.zeros(problem.rate.shape), floor=needed(problem) * (1 - 1e-7), cost=1.0, pairs=True
        )
        check(decide("min-cost", problem, aim="spend", space_sharing=True), -optimum)


@pytest.mark.parametrize("seed", SEEDS)
def test_strategy_proof_keeps_what_each_leaves_to_the_others(seed: int) -> None:
    problem = instance(seed, 5)
    found = decide("strategy-proof", problem)
    value, rates = oracle.welfare(problem)
    check(found, np.exp(value / problem.weight.sum()))
    for job in range(problem.jobs):
        others = np.arange(problem.jobs) != job
        without, _ = oracle.welfare(taken(problem, others))
        kept = np.exp((value - problem.weight[job] * np.log(rates[job]) - without) / problem.weight[job])
        assert found.throughput[job] == pytest.approx(kept * rates[job], rel=2e-3)
    feasible(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_elastic(seed: int) -> None:
    chance = np.random.default_rng(seed)
    pools = [Pool("t4", 12), Pool("a100", 8)]
    jobs = [
        JobView(
            f"job-{at}", "t", {},
            elastic=tuple(
                Configuration(name, count, Throughput(speed * count**scaling))
                for scaling in (chance.uniform(0.5, 1.0),)
                for name, speed in (("t4", 1.0), ("a100", chance.uniform(2.0, 5.0)))
                for count in (1, 2, 4, 8)
            ),
        )
        for at in range(9)
    ]  # fmt: skip
    problem = problem_of(jobs, pools)
    found = decide("elastic", problem, gap=1e-6)
    ways = problem.configurations
    assert ways is not None
    least = np.array([ways.goodput[ways.job == job].min() for job in range(9)])
    worth = 1.1 - (ways.goodput / least[ways.job]) ** -0.5
    optimum = oracle.elastic(problem, worth)
    assert found.certificate is not None
    assert found.certificate.value == pytest.approx(optimum, rel=1e-5)
    assert found.certificate.bound >= optimum - 1e-9
    assert found.configuration is not None
    chosen = found.configuration[found.configuration >= 0]
    assert worth[chosen].sum() == pytest.approx(optimum, rel=1e-5)
    feasible(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_elastic_with_quotas_and_weights(seed: int) -> None:
    chance = np.random.default_rng(seed)
    pools = [Pool("t4", 8), Pool("a100", 6)]
    tenants = [Tenant("free"), Tenant("bound", quota=Quota(accelerators=5, by_type=(("a100", 2),)))]
    jobs = [
        JobView(
            f"job-{at}", tenants[at % 2].name, {}, weight=float(chance.choice([1.0, 4.0])),
            elastic=tuple(
                Configuration(name, count, Throughput(speed * count ** chance.uniform(0.5, 1.0)))
                for name, speed in (("t4", 1.0), ("a100", 3.0))
                for count in (1, 2, 4)
            ),
        )
        for at in range(8)
    ]  # fmt: skip
    problem = problem_of(jobs, pools, tenants=tenants)
    ways = problem.configurations
    assert ways is not None
    least = np.array([ways.goodput[ways.job == job].min() for job in range(8)])
    worth = problem.weight[ways.job] * (1.1 - (ways.goodput / least[ways.job]) ** -0.5)
    bound = problem.tenant[ways.job] == 1
    optimum = oracle.elastic(problem, worth, [(bound, 5), (bound & (ways.column == 1), 2)])
    found = decide("elastic", problem, gap=1e-6)
    assert found.certificate is not None
    assert found.certificate.value == pytest.approx(optimum, rel=1e-5)
    feasible(found)


def with_deadlines(problem: Problem, seed: int) -> Problem:
    """A third of the jobs have a deadline that an equal share would keep."""
    chance = np.random.default_rng(seed + 100)
    slow = problem.work_left / (0.3 * oracle.max_min(problem) * problem.weight * unit(problem))
    due = chance.random(problem.jobs) < 0.33
    return replace(problem, deadline=np.where(due, problem.now + slow, np.inf))


def needed(problem: Problem) -> Any:
    return np.where(np.isfinite(problem.deadline), problem.work_left / (problem.deadline - problem.now), 0.0)
