"""What every policy keeps on whatever problem: feasibility, independence of order and units, efficiency, fairness."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.core import Money, Quota, Tenant
from shoal.schedule import POLICIES, Allocation, Pool, Problem, decide
from tests.schedule import oracle
from tests.schedule.kit import taken
from tests.schedule.oracle import instance, pair_rates, program
from tests.schedule.test_policy_oracle import feasible

PROGRAMS = ("max-min", "hierarchical", "makespan", "finish-time", "blend", "max-throughput", "min-cost")
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def problems(draw: st.DrawFn, *, gangs: tuple[int, ...] = (1, 2, 4), paired: bool = False) -> Problem:
    """Few jobs on few pools, with everything that is awkward: types that a job cannot use, jobs that fit nowhere, held
    jobs, equal jobs, empty pools, quotas, lengths of zero."""
    jobs, width = draw(st.integers(1, 9)), 3 if paired else draw(st.integers(1, 4))
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    counts = [draw(st.integers(0, 6)) for _ in range(width)]
    if not any(counts):
        counts[0] = 2
    kind = chance.integers(0, 5, jobs)
    rate = oracle.ALONE[kind] if paired else chance.choice([0.0, 0.5, 1.0, 2.0, 3.7, 40.0], (jobs, width))
    if jobs > 2 and draw(st.booleans()):
        rate[1] = rate[0]
    gang = chance.choice(gangs, jobs)
    placed = np.where(chance.random(jobs) < 0.2, chance.integers(0, width, jobs), -1)
    held = (placed >= 0) & (np.cumsum(gang) <= min(counts)) & draw(st.booleans())
    quota = Quota(accelerators=draw(st.integers(0, 5))) if draw(st.booleans()) else Quota(by_type=(("t0", 1),))
    tenants = (Tenant("free"), Tenant("bound", quota=quota if draw(st.booleans()) else Quota()))
    tenant = np.where(held, 0, chance.integers(0, 2, jobs))
    return Problem.columnar(
        [Pool(f"t{at}", count, Money.usd(1 + at)) for at, count in enumerate(counts)], rate, now=1000.0, gang=gang,
        weight=chance.choice([1.0, 3.0], jobs), work_left=chance.choice([0.0, 10.0, 500.0, 1e6], jobs),
        arrived=chance.uniform(0, 1000, jobs), placed=placed, held=held, tenant=tenant, tenants=tenants,
        entity=chance.integers(0, 2, jobs), entities=("a", "b"), kind=kind, pair_rate=pair_rates() if paired else None,
    )  # fmt: skip


@pytest.mark.few(count=6)
@pytest.mark.parametrize("name", POLICIES)
@given(problem=problems(), agnostic=st.booleans())
@quick
def test_every_allocation_is_feasible(name: str, problem: Problem, agnostic: bool) -> None:
    if name == "allox":
        problem = replace(problem, gang=np.ones(problem.jobs, np.intp))
    found = decide(name, problem, **({"agnostic": True} if agnostic and "agnostic" in POLICIES[name].settings else {}))
    feasible(found)
    keeps_quotas(found)
    held = np.flatnonzero(problem.held)
    assert (found.share[held, problem.placed[held]] == 1.0).all()
    if found.certificate is not None:
        value, bound = found.certificate.value, found.certificate.bound
        higher, lower = (bound, value) if found.certificate.sense == "max" else (value, bound)
        assert higher >= lower - 1e-6 * abs(lower)
        assert found.certificate.gap <= 1e-3 if name == "elastic" else found.certificate.gap <= 1e-6


@pytest.mark.parametrize(("name", "given_"), [("max-min", {}), ("max-min", {"agnostic": True}), ("blend", {})])
@given(problem=problems(), chance=st.randoms(use_true_random=False))
@quick
def test_what_was_decided_before_changes_nothing_but_the_way(
    name: str, given_: dict[str, Any], problem: Problem, chance: Any
) -> None:
    some = np.array([chance.random() < 0.8 for _ in range(problem.jobs)])
    some[chance.randrange(problem.jobs)] = True
    previous = decide(name, taken(problem, some), **given_)
    alone, after = decide(name, problem, **given_), decide(name, problem, previous=previous, **given_)
    feasible(after)
    if alone.certificate is None or after.certificate is None:
        assert alone.certificate is after.certificate
        return
    assert after.certificate.gap <= 1e-6
    assert after.certificate.value == pytest.approx(alone.certificate.value, rel=1e-6)
    if name == "max-min" and not given_:
        np.testing.assert_allclose(after.throughput, alone.throughput, rtol=1e-5, atol=1e-9)


@pytest.mark.few(count=4)
@pytest.mark.parametrize("name", [name for name, policy in POLICIES.items() if "space_sharing" in policy.settings])
@given(problem=problems(paired=True))
@quick
def test_every_allocation_of_pairs_is_feasible(name: str, problem: Problem) -> None:
    feasible(decide(name, problem, space_sharing=True))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_of_jobs_does_not_matter(name: str, seed: int) -> None:
    problem = instance(seed, 30)
    order = np.random.default_rng(seed).permutation(problem.jobs)
    np.testing.assert_allclose(
        decide(name, taken(problem, order)).throughput, decide(name, problem).throughput[order], rtol=1e-9
    )


@pytest.mark.parametrize("name", ["max-min", "hierarchical", "makespan", "finish-time", "blend"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_unit_of_a_jobs_work_does_not_matter(name: str, seed: int) -> None:
    problem = instance(seed, 15, distinct=True)
    units = np.random.default_rng(seed).choice([1e-3, 1.0, 64.0], problem.jobs)
    other = replace(problem, rate=problem.rate * units[:, None], work_left=problem.work_left * units)
    np.testing.assert_allclose(decide(name, other).throughput / units, decide(name, problem).throughput, rtol=1e-5)


@pytest.mark.parametrize("name", ["max-min", "hierarchical", "makespan", "finish-time", "blend"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nobody_can_have_more_for_nothing(name: str, seed: int) -> None:
    problem = instance(seed, 12, per_type=0.3, distinct=True)
    found = decide(name, problem)
    p = program(problem)
    more = cp.sum(cp.multiply(p.rates, 1.0 / np.maximum(found.throughput, 1e-3)))
    kept = [*p.constraints, p.rates >= found.throughput * (1 - 1e-7)]
    assert oracle.best(cp.Maximize(more), kept) <= problem.jobs * (1 + 1e-5)


@given(seed=st.integers(0, 10**6), jobs=st.integers(8, 30))
@quick
def test_sharing_beats_a_cluster_cut_into_pieces(seed: int, jobs: int) -> None:
    problem = replace(instance(seed, jobs, per_type=0.1), gang=np.ones(jobs, np.intp), weight=np.ones(jobs))
    if problem.counts.sum() > jobs:  # then an isolated share would be more than all of a job's time
        return
    found, alone = decide("max-min", problem), decide("isolated", problem)
    assert (found.throughput >= alone.throughput * (1 - 1e-6)).all()


@given(problem=problems(gangs=(1,)), seed=st.integers(0, 100))
@quick
def test_weights_and_copies_agree(problem: Problem, seed: int) -> None:
    """A job twice in the problem gets in sum what two such jobs get: classes change nothing."""
    of = np.random.default_rng(seed).permutation(np.repeat(np.arange(problem.jobs), 2))
    twice = Problem.columnar(problem.pools, problem.rate[of], weight=problem.weight[of])
    apart = replace(twice, rate=twice.rate * (1 + 1e-9 * np.arange(twice.jobs))[:, None])
    np.testing.assert_allclose(decide("max-min", twice).throughput, decide("max-min", apart).throughput, rtol=1e-5)


@given(problem=problems(), liar=st.integers(0, 8), lies=st.lists(st.sampled_from([0.25, 1.0, 4.0]), min_size=4))
@quick
def test_nobody_gains_by_lying_to_the_strategy_proof_policy(problem: Problem, liar: int, lies: list[float]) -> None:
    liar %= problem.jobs
    told = problem.rate.copy()
    told[liar] *= lies[: told.shape[1]]
    honest = decide("strategy-proof", problem).throughput[liar]
    found = decide("strategy-proof", replace(problem, rate=told))
    assert found.share[liar] @ problem.rate[liar] <= honest * (1 + 1e-5) + 1e-9


@pytest.mark.parametrize("name", ["makespan", "max-throughput"])
@given(problem=problems(), pool=st.integers(0, 3))
@quick
def test_one_more_accelerator_never_makes_the_objective_worse(name: str, problem: Problem, pool: int) -> None:
    runs = problem.possible.any(axis=1)
    problem = taken(problem, runs & ~problem.held) if runs.any() else problem
    pools = tuple(replace(each, count=each.count + (at == pool)) for at, each in enumerate(problem.pools))
    before, after = decide(name, problem).certificate, decide(name, replace(problem, pools=pools)).certificate
    if before is not None and after is not None and problem.possible.any():
        assert (after.value - before.value) * (1 if before.sense == "max" else -1) >= -1e-6 * abs(before.value)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_price_bounds_what_one_more_accelerator_adds(seed: int) -> None:
    problem = instance(seed, 20, distinct=True)
    found = decide("max-throughput", problem)
    for at, pool in enumerate(problem.pools):
        pools = tuple(replace(each, count=each.count + (each is pool)) for each in problem.pools)
        more = decide("max-throughput", replace(problem, pools=pools))
        added = more.certificate.value - found.certificate.value  # type: ignore[union-attr]
        assert -1e-6 <= added <= found.prices[at] * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_to_decide(name: str) -> None:
    pools = [Pool("v100", 4, Money.usd(2))]
    for problem in (
        Problem.columnar(pools, np.zeros((0, 1))),
        Problem.columnar(pools, [[0.0]], work_left=1.0),
        Problem.columnar(pools, [[3.0]], work_left=1.0, placed=0, held=True, gang=4),
    ):
        found = decide(name, problem)
        feasible(found)
        assert found.time.sum() == problem.held.sum()


def keeps_quotas(found: Allocation) -> None:
    problem: Any = found.problem
    for at, tenant in enumerate(problem.tenants):
        mine = problem.tenant == at
        used = problem.gang[mine] @ found.share[mine]
        if tenant.quota.accelerators is not None:
            assert used.sum() <= tenant.quota.accelerators * (1 + 1e-7) + 1e-9
        for kind, limit in tenant.quota.by_type:
            of = [column for column, each in enumerate(problem.columns) if each.key == kind]
            assert used[of].sum() <= limit * (1 + 1e-7) + 1e-9


def test_a_level_that_comes_out_a_hair_below_zero_is_a_level_all_the_same() -> None:
    pools = (Pool("v100", 8), Pool("p100", 16), Pool("k80", 24))
    problem = Problem.columnar(pools, [[1.0, 1.0, 1.0]] * 18, gang=[4] * 12 + [2] + [4] * 5)
    found = decide("max-min", problem, agnostic=True)
    assert found.time.min() > 0
    assert (found.usage <= problem.counts + 1e-9).all()


def test_a_corner_that_old_prices_lead_to_is_left_by_starting_anew() -> None:
    rates = [
        [0.5, 0.5, 40.0, 1.0], [0.5, 0.5, 40.0, 1.0], [2.0, 2.0, 0.0, 0.0], [40.0, 3.7, 40.0, 2.0],
        [3.7, 0.5, 1.0, 3.7], [0.0, 0.5, 0.0, 1.0], [40.0, 0.0, 1.0, 1.0], [40.0, 0.5, 2.0, 0.5],
    ]  # fmt: skip
    pools = tuple(Pool(f"t{at}", count) for at, count in enumerate((5, 6, 1, 2)))
    weight = [1.0, 3.0, 3.0, 3.0, 1.0, 3.0, 3.0, 1.0]
    found = decide("strategy-proof", Problem.columnar(pools, rates, weight=weight, gang=[1, 4, 1, 1, 2, 2, 1, 4]))
    assert found.throughput.min() > 0
    assert (found.usage <= found.problem.counts + 1e-9).all()
