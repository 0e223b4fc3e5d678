"""A decision may begin with what the one before it found. That must change how soon an answer comes, and nothing else:
every problem that is solved without it is solved with it, to an equal value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from shoal.core import Money
from shoal.schedule import POLICIES, Allocation, Pool, Problem, decide
from shoal.schedule.errors import SolverFailed
from shoal.schedule.policy.solving import first_filled
from shoal.schedule.solve import lp
from shoal.schedule.solve.market import Constraint, Market
from shoal.schedule.solve.master import Master
from shoal.schedule.solve.search import Search
from shoal.schedule.workloads import Durations, example_throughputs, heavy_tailed_jobs
from tests.schedule.kit import taken

TYPES = ("v100", "p100", "k80")
TABLE = example_throughputs()
NEEDS = {
    "elastic": "configurations, which a rigid trace has none of", "allox": "single accelerators",
}  # fmt: skip
"""Policies that these traces are not for."""


def pools_of(counts: tuple[int, ...]) -> list[Pool]:
    dollars = (2.48, 1.46, 0.45)
    return [Pool(name, count, Money.usd(each)) for name, count, each in zip(TYPES, counts, dollars, strict=True)]


def of_kinds(jobs: list[tuple[str, int]], counts: tuple[int, ...]) -> Problem:
    """Jobs of the example table, by kind and gang."""
    rate = TABLE.rate[[TABLE.keys[job] for job in jobs]][:, TABLE.at(TYPES)]
    return Problem.columnar(pools_of(counts), rate, gang=[gang for _, gang in jobs])


def snapshots(seed: int, *, counts: tuple[int, ...], jobs: int, **drawn: Any) -> Iterator[Problem]:
    """What a policy is shown at each arrival of a heavy-tailed trace on a busy cluster: every job is there from when it
    came until three times its length is over, and does its work evenly in this time."""
    work = heavy_tailed_jobs(TABLE, count=jobs, accelerators=0.6 * sum(counts), seed=seed, **drawn)
    rate, _ = TABLE.of(work, TYPES)
    ends = work.arrived + 3.0 * work.steps / rate.max(axis=1)
    whole = Problem.columnar(pools_of(counts), rate, ids=work.ids, gang=work.gang, arrived=work.arrived)
    for now in np.unique(work.arrived):
        there = np.flatnonzero((work.arrived <= now) & (now < ends))
        left = (work.steps * (ends - now) / (ends - work.arrived))[there]
        alone = 0.4 * (now - work.arrived[there])
        yield replace(taken(whole, there), now=float(now), work_left=left, isolated_s=alone)


def alike(warm: Allocation, cold: Allocation) -> None:
    """Both are proven optima of one problem, so their values are equal; of max-min so is every job's rate."""
    assert warm.certificate is not None
    assert cold.certificate is not None
    assert warm.certificate.value == pytest.approx(cold.certificate.value, rel=1e-6)
    assert warm.certificate.gap <= 1e-6
    if warm.policy == "max-min":
        np.testing.assert_allclose(warm.throughput, cold.throughput, rtol=1e-5, atol=1e-9)


@pytest.mark.few
@pytest.mark.parametrize("name", ["blend", "elastic", "max-min"])
@pytest.mark.parametrize("durations", list(Durations))
def test_a_chain_of_decisions_on_a_heavy_tailed_trace_is_solved_warm_as_it_is_cold(
    name: str, durations: Durations
) -> None:
    for seed, counts in enumerate([(17, 11, 9), (8, 16, 24), (3, 0, 5), (12, 12, 12)]):
        before = None
        fits = {size: part for size, part in {1: 0.7, 2: 0.2, 4: 0.1}.items() if size <= max(counts)}
        drawn: dict[str, Any] = {"load": 1.0 + seed, "durations": durations, "burst": 2.0, "gangs": fits}
        for problem in snapshots(seed, counts=counts, jobs=60, **drawn):
            cold = decide(name, problem)
            before = decide(name, problem, previous=before)
            alike(before, cold)


@pytest.mark.few
@pytest.mark.parametrize("name", sorted(set(POLICIES) - set(NEEDS)))
def test_every_policy_decides_all_along_a_heavy_tailed_trace(name: str) -> None:
    before = None
    for problem in snapshots(7, counts=(6, 8, 10), jobs=50, load=2.0, tail=2.5, burst=3.0):
        given: dict[str, Any] = {"previous": before} if "previous" in POLICIES[name].settings else {}
        before = decide(name, problem, **given)
        assert (before.usage <= problem.counts * (1 + 1e-9)).all()
        assert (before.time <= 1 + 1e-9).all()


JOBS = [
    *[("ResNet-18 (batch size 32)", 1)] * 2, *[("LM (batch size 80)", 1)] * 3, *[("LM (batch size 5)", 2)] * 5,
    *[("Transformer (batch size 16)", 1)] * 3, ("ResNet-18 (batch size 256)", 1), *[("LM (batch size 5)", 1)] * 5,
    *[("Transformer (batch size 256)", 4)] * 10,
]  # fmt: skip
BEFORE = ((np.array([0.059, 3e-16, 3.7e-16]), np.array([0.02, 0.03, 0.037])),)
"""A cluster that was simulated, and what its decision before had found."""


def test_prices_of_the_decision_before_that_make_bases_nearly_singular_do_not_stop_the_next_one() -> None:
    problem = of_kinds(JOBS, (17, 11, 9))
    cold = decide("max-min", problem)
    alike(decide("max-min", problem, previous=replace(cold, tried=BEFORE)), cold)


GUESSES = st.lists(
    st.lists(st.sampled_from([0.0, 1e-16, 1e-3, 0.0588, 0.0588 * (1 + 1e-12), 1.0, 1e6]), min_size=3, max_size=3),
    min_size=1, max_size=6,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    rises=st.lists(GUESSES, max_size=3),
    jobs=st.lists(st.sampled_from(sorted(set(JOBS))), min_size=1, max_size=30),
    counts=st.tuples(st.integers(4, 20), st.integers(0, 12), st.integers(1, 9)),
    name=st.sampled_from(["max-min", "blend"]),
)
def test_no_guess_at_prices_changes_a_decision(
    rises: list[list[list[float]]], jobs: list[tuple[str, int]], counts: tuple[int, int, int], name: str
) -> None:
    problem = replace(of_kinds(jobs, counts), work_left=np.linspace(1e4, 1e7, len(jobs)))
    cold = decide(name, problem)
    tried = tuple(tuple(np.array(each) for each in guess) for guess in rises)
    limits = len(cold.limited)
    if limits != 3:
        tried = tuple(tuple(each[:limits] for each in guess) for guess in tried)
    alike(decide(name, problem, previous=replace(cold, tried=tried)), cold)


@pytest.mark.parametrize("prices", [[np.nan] * 3, [np.nan, 1.0, 1.0], [np.inf, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0] * 3])
@pytest.mark.parametrize("name", ["max-min", "blend"])
def test_prices_that_are_none_are_passed_over(name: str, prices: list[float]) -> None:
    problem = replace(of_kinds(JOBS, (17, 11, 9)), work_left=1e6 * np.arange(1.0, len(JOBS) + 1))
    cold = decide(name, problem)
    with np.errstate(all="ignore"):
        alike(decide(name, problem, previous=replace(cold, tried=((np.array(prices), BEFORE[0][1]),))), cold)


@pytest.mark.parametrize("failing", [0, 1, 2, 3])
def test_filling_begins_with_what_is_known_then_with_nothing_then_by_the_general_solver(failing: int) -> None:
    """Of its three ways the first `failing` give up."""
    asked: list[tuple[Any, bool]] = []
    market = Market(np.array([[2.0, 1.0]]), np.ones(2), (Constraint(("a",), np.ones(2), np.ones((1, 1)), np.ones(1)),))

    def filled_by(solve: Any, known: Any) -> Any:
        found = solve(np.zeros(2), np.ones(2), guess=known[0] if known else ())
        asked.append((found.method, bool(known)))
        assert found.value == pytest.approx(2 / 3)
        if len(asked) <= failing:
            raise SolverFailed("given up")
        return "filled"

    ways = [("prices", True), ("prices", False), (lp.METHOD, False)]
    if failing == len(ways):
        with pytest.raises(SolverFailed, match="given up"):
            first_filled(filled_by, market, ((np.array([0.1]),),))
    else:
        assert first_filled(filled_by, market, ((np.array([0.1]),),)) == "filled"
    assert asked == ways[: failing + 1]


@pytest.mark.few(count=6)
@pytest.mark.parametrize("seed", range(20))
def test_the_master_program_keeps_its_optimum_among_columns_that_are_nearly_equal(seed: int) -> None:
    """What price searches near their end offer: columns that differ by rounding, of equal worth."""
    chance = np.random.default_rng(seed)
    limits = chance.uniform(1.0, 30.0, 3)
    base = chance.uniform(0.3, 2.0, (4, 3)) * limits
    usage, value = [], []
    master = Master(limits, 0.0)
    for _ in range(12):
        near = base[chance.integers(4)] * (1.0 + chance.choice([0.0, 1e-14, 1e-11, 1e-7, 1e-2]) * chance.normal(size=3))
        usage.append(near)
        value.append(1.0 + chance.choice([0.0, 0.0, 1e-13, 1e-9]))
        master.add(np.array(value[-1:]), near[None, :])
        found, duals = master.solve()
        true = linprog(
            -np.array(value), A_ub=np.vstack([np.array(usage).T, np.ones(len(value))]), b_ub=np.append(limits, 1.0),
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}, method="highs",
        )  # fmt: skip
        assert found == pytest.approx(-true.fun, abs=1e-8)
        parts = master.mixture()
        mixed = sum(part * usage[at - master.idle - 1] for at, part in parts if at > master.idle)
        assert (mixed <= limits * (1 + 1e-9)).all()
        assert (duals >= 0.0).all()


def test_a_master_program_whose_basis_rounding_has_made_infeasible_is_an_error() -> None:
    master = Master(np.array([1.0]), 0.0)
    first = master.add(np.array([2.0, 3.0]), np.array([[2.0], [3.0]]))
    second = first + 1
    assert master.solve()[0] == pytest.approx(1.0)
    master._basis[:] = first, second  # parts of 2 and -1 fill the limit, and no column would raise the value
    master._inverse[:] = np.linalg.inv([[2.0, 3.0], [1.0, 1.0]])
    with pytest.raises(SolverFailed, match="without a mixture"):
        master.solve()


def test_bounds_that_have_passed_each_other_are_an_error_and_no_answer() -> None:
    market = Market(np.ones((1, 1)), np.ones(1), (Constraint(("a",), np.ones(1), np.ones((1, 1)), np.ones(1)),))
    search = Search(market, 0.0, bound=1.0, lower=1.0001, scale=0.0)
    with pytest.raises(SolverFailed, match="did not meet"):
        search.closed(1e-9)
    search.lower = 1.0 + 1e-12
    assert search.closed(1e-9)
    search.bound = np.inf
    assert not search.closed(1e-9)
    search.bound, search.lower = 1.0, 1.0
    search.check(1.0 - 1e-9)
    with pytest.raises(SolverFailed, match="less than their mixture"):
        search.check(1.0 - 1e-5)
