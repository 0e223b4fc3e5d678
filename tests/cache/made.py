"""Problems made up for tests, and what other solvers say of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shoal.cache import Mode, Problem


def random_problem(
    mode: Mode, tenants: int, sets: int, seed: int, *, part: float = 0.4, loading: bool = False
) -> Problem:
    """A capacity of `part` of all data; about half of the benefits are 0."""
    chance = np.random.default_rng(seed)
    size = chance.lognormal(0, 1, sets)
    benefit = chance.lognormal(0, 1, (tenants, sets)) * size * (chance.random((tenants, sets)) < 0.5)
    held = (chance.random(sets) < 0.5).astype(float) if loading else None
    return Problem.of(
        mode, part * size.sum(), size, benefit, weight=chance.choice([1.0, 2.0, 4.0], tenants), held=held,
        loading=size * 0.3 if loading else None,
    )  # fmt: skip


def problems(mode: Mode, *, tenants: int = 5, sets: int = 8, loading: bool = False) -> st.SearchStrategy[Problem]:
    return st.builds(
        lambda count, width, seed, part: random_problem(mode, count, width, seed, part=part, loading=loading),
        st.integers(1, tenants), st.integers(1, sets), st.integers(0, 10**6), st.sampled_from([0.1, 0.4, 0.8]),
    )  # fmt: skip


def contents(problem: Problem) -> np.ndarray[Any, Any]:
    """Every content (number, M) of the cache that fits."""
    every = np.array(list(itertools.product((0.0, 1.0), repeat=len(problem.size))))
    return every[every @ problem.size <= problem.capacity * (1 + 1e-12)]


def worth(problem: Problem, content: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(number, N): what each tenant saves by each content, written down anew."""
    fresh = problem.benefit.copy()
    for j in range(len(problem.size)):
        total = problem.use[:, j].sum()
        for i in range(len(problem.tenants)):
            share = problem.use[i, j] / total if total else 0.0
            fresh[i, j] = max(fresh[i, j] - share * problem.loading[j], 0.0)
    value = np.where(problem.held > 0, problem.benefit, fresh)
    return content @ value.T


def best_lottery(utility: np.ndarray[Any, Any], weight: np.ndarray[Any, Any]) -> float:
    """The largest sum w_i log V_i of a lottery over contents (number, N), by an exponential-cone solver."""
    import cvxpy

    chances = cvxpy.Variable(len(utility), nonneg=True)
    goal = cvxpy.sum(cvxpy.multiply(weight, cvxpy.log(utility.T @ chances)))
    return float(cvxpy.Problem(cvxpy.Maximize(goal), [cvxpy.sum(chances) == 1]).solve(solver=cvxpy.CLARABEL))


def best_fractions(problem: Problem, rows: np.ndarray[Any, Any], weight: np.ndarray[Any, Any]) -> float:
    """The largest sum w_i log V_i of fractions, with utilities rows (A, M)."""
    import cvxpy

    parts = cvxpy.Variable(rows.shape[1], nonneg=True)
    goal = cvxpy.sum(cvxpy.multiply(weight, cvxpy.log(rows @ parts)))
    limits = [parts <= 1, problem.size @ parts <= problem.capacity]
    return float(cvxpy.Problem(cvxpy.Maximize(goal), limits).solve(solver=cvxpy.CLARABEL))
