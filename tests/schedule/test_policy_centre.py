"""The central forms of policies: the same optimum, and the middle of what it leaves open, as an interior point method
finds it."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Invalid
from shoal.schedule import POLICIES, Pool, Problem, decide
from tests.schedule.oracle import instance, unit

CENTRAL = tuple(name for name, policy in POLICIES.items() if "central" in policy.settings)


def kept(problem: Problem, share: np.ndarray) -> None:
    assert share.min() >= 0.0
    assert share.sum(axis=1).max() <= 1.0 + 1e-6
    assert ((share * problem.gang[:, None]).sum(axis=0) <= problem.counts * (1.0 + 1e-6)).all()


def test_which_policies_have_one() -> None:
    assert sorted(CENTRAL) == ["finish-time", "makespan", "max-min"]


@pytest.mark.few(count=2)
@pytest.mark.parametrize("name", CENTRAL)
@pytest.mark.parametrize("agnostic", [False, True])
@given(seed=st.integers(0, 10_000), jobs=st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_it_fits_and_reaches_the_optimum(name: str, agnostic: bool, seed: int, jobs: int) -> None:
    problem = instance(seed, jobs, per_type=0.3, distinct=seed % 2 == 0)
    best = decide(name, problem, agnostic=agnostic).certificate
    found = decide(name, problem, agnostic=agnostic, central=True)
    kept(problem, found.share)
    assert best is not None
    assert found.certificate is not None
    if name == "makespan":  # a bisection that stops within a twentieth; agnostic promises are about other rates
        assert best.value * (1 - 1e-6) <= found.certificate.value <= best.value * 1.05
        if not agnostic:
            assert (problem.work_left / found.throughput).max() <= found.certificate.value * (1 + 1e-6)
    elif not agnostic:
        assert found.certificate.value == pytest.approx(best.value, rel=1e-5)
    if name == "max-min" and not agnostic:
        assert (found.throughput / (problem.weight * unit(problem))).min() == pytest.approx(best.value, rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_makespan_shares_are_near_the_analytic_centre(seed: int) -> None:
    """Of all that ends in time the method returns something like the point farthest from all limits: cvxpy says which
    that is, and filling up what is left (our own form) is farther from it."""
    problem = instance(seed, 15, per_type=0.5)
    found = decide("makespan", problem, central=True)
    assert found.certificate is not None
    rate, gang = problem.rate, problem.gang[:, None]
    x = cp.Variable(rate.shape)
    slack = [
        cp.vec(x, order="C"), 1 - cp.sum(x, axis=1), problem.counts - cp.sum(cp.multiply(gang, x), axis=0),
        cp.sum(cp.multiply(rate, x), axis=1) - problem.work_left / found.certificate.value,
    ]  # fmt: skip
    cp.Problem(cp.Maximize(sum(cp.sum(cp.log(each)) for each in slack))).solve(solver=cp.CLARABEL)
    ours = decide("makespan", problem)
    assert np.abs(found.share - x.value).mean() < 0.6 * np.abs(ours.share - x.value).mean()


def test_nothing_is_left_to_a_corner() -> None:
    """Two equal jobs and two equal pools: everybody has half of both."""
    problem = Problem.columnar((Pool("a", 1), Pool("b", 1)), np.ones((2, 2)), work_left=1000.0, isolated_s=0.0)
    for name in CENTRAL:
        share = decide(name, problem, central=True).share
        assert share[0] == pytest.approx(share[1], abs=1e-4)
        assert share[:, 0] == pytest.approx(share[:, 1], abs=1e-4)


@pytest.mark.parametrize("name", CENTRAL)
def test_there_may_be_nobody(name: str) -> None:
    problem = Problem.columnar((Pool("a", 1),), np.ones((0, 1)), work_left=np.empty(0))
    assert decide(name, problem, central=True).share.shape == (0, 1)


@pytest.mark.parametrize(
    ("name", "more"),
    [("max-min", {"space_sharing": True}), ("max-min", {"worth": {"v100": 2.0}}), ("makespan", {"space_sharing": True}),
     ("finish-time", {"space_sharing": True})],
)  # fmt: skip
def test_what_it_does_not_have_is_refused(name: str, more: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="central"):
        decide(name, instance(0, 4), central=True, **more)
