"""Every policy's program once more, straight from its paper, in cvxpy: an independent opinion on what is best.

Nothing here uses `shoal.schedule.solve`. Variables are per job (no classes, no prices), pairs are listed all, and the
saturated jobs of water filling are found by asking, for each job, how far it alone could still rise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np

from shoal.core import Money, Quota, Tenant
from shoal.schedule import Pool, Problem

KINDS = ("ResNet-18", "ResNet-50", "A3C", "LM", "Transformer")
ALONE = np.array([  # steps/s on K80, P100, V100; from Gavel's measurements (MIT), rounded
    [1.81, 11.7, 18.0],
    [0.619, 2.62, 4.39],
    [3.44, 5.68, 7.18],
    [17.1, 58.2, 64.7],
    [1.75, 5.09, 8.62],
])  # fmt: skip
BESIDE = {  # the first kind's rate beside the second's, then the second's beside the first's, on the three types
    (0, 0): ((0.950, 6.29, 14.1), (0.950, 6.29, 14.1)),
    (0, 1): ((0.879, 5.81, 11.4), (0.339, 1.51, 3.22)),
    (0, 2): ((0.861, 6.43, 18.0), (1.93, 3.39, 4.39)),
    (0, 3): ((1.23, 8.90, 18.0), (7.08, 21.1, 37.1)),
    (0, 4): ((1.02, 6.52, 18.0), (0.814, 2.64, 4.45)),
    (1, 1): ((0.0, 1.34, 2.19), (0.0, 1.34, 2.19)),
    (1, 2): ((0.309, 1.44, 2.95), (1.87, 3.05, 1.68)),
    (1, 3): ((0.415, 2.04, 3.02), (6.72, 19.0, 24.8)),
    (1, 4): ((0.348, 1.49, 2.55), (0.767, 2.40, 1.77)),
    (2, 2): ((1.62, 3.30, 3.66), (1.62, 3.30, 3.66)),
    (2, 3): ((1.96, 3.70, 3.60), (6.92, 24.9, 41.8)),
    (2, 4): ((2.09, 3.53, 6.20), (0.729, 2.62, 5.77)),
    (3, 3): ((8.44, 27.9, 42.3), (8.44, 27.9, 42.3)),
    (3, 4): ((7.77, 23.4, 52.4), (1.06, 3.45, 6.50)),
    (4, 4): ((0.904, 2.69, 6.42), (0.904, 2.69, 6.42)),
}
PRICES = (0.45, 1.46, 2.48)


def pair_rates() -> np.ndarray:
    rates = np.zeros((len(KINDS), len(KINDS), 3))
    for (one, other), (first, second) in BESIDE.items():
        rates[one, other], rates[other, one] = first, second
    return rates


def instance(seed: int, jobs: int, *, per_type: float = 0.15, distinct: bool = False) -> Problem:
    """A random problem on the table: gangs of one and two, weights, lengths, ages; `distinct` jitters every rate."""
    chance = np.random.default_rng(seed)
    kind = chance.integers(0, len(KINDS), jobs)
    rate = ALONE[kind]
    if distinct:
        rate = rate * np.exp(chance.normal(0.0, 0.2, rate.shape))
        rate[chance.random(rate.shape) < 0.1] = 0.0
        rate[:, 1] = np.maximum(rate[:, 1], 0.5)
    counts = np.maximum(2, (per_type * jobs * chance.uniform(0.7, 1.4, 3)).astype(int))
    pools = [
        Pool(name, int(count), Money.usd(price))
        for name, count, price in zip(("k80", "p100", "v100"), counts, PRICES, strict=True)
    ]
    left = ALONE[kind, 2] * 60 * 10 ** chance.uniform(1.0, 2.5, jobs)
    now = 1e5
    return Problem.columnar(
        pools, rate, now=now, ids=[f"job-{at}" for at in range(jobs)],
        gang=chance.choice([1, 2], jobs, p=[0.8, 0.2]), weight=chance.choice([1.0, 2.0, 5.0], jobs),
        work_left=left, arrived=now - chance.uniform(0, 5000, jobs), entity=np.arange(jobs) % 3,
        entities=("red", "green", "blue"), kind=kind, pair_rate=None if distinct else pair_rates(),
    )  # fmt: skip


def limited(seed: int, jobs: int) -> Problem:
    """As `instance`, with quotas in total and per type, two jobs that may not be moved yet, and a pool that is also
    offered unconsolidated, in nodes of two."""
    plain = instance(seed, jobs, per_type=0.3, distinct=True)
    chance = np.random.default_rng(seed + 1000)
    k80, p100, v100 = plain.pools
    pools = (k80, p100, replace(v100, count=6, per_node=2, unconsolidated="v100-spread"))
    tenants = (
        Tenant("free"), Tenant("total", quota=Quota(accelerators=3)),
        Tenant("typed", quota=Quota(by_type=(("k80", 1), ("v100", 2)))),
    )  # fmt: skip
    rate = np.column_stack([plain.rate, plain.rate[:, 2] * chance.uniform(0.5, 0.9, jobs)])
    placed, held = np.full(jobs, -1), np.zeros(jobs, bool)
    placed[:2], held[:2] = (1, 2), True
    rate[[0, 1], [1, 2]] = 2.0
    gang = np.where(held, 1, np.where(chance.random(jobs) < 0.15, 3, plain.gang))
    tenant = np.where(held, 2 * (np.arange(jobs) % 2), chance.integers(0, 3, jobs))
    return Problem.columnar(
        pools, rate, now=plain.now, ids=plain.ids, gang=gang, weight=plain.weight, work_left=plain.work_left,
        arrived=plain.arrived, placed=placed, held=held, tenant=tenant, tenants=tenants,
    )  # fmt: skip


def limits_of(problem: Problem) -> list[tuple[str, np.ndarray, np.ndarray, float]]:
    """Each limit's name, who counts (m,) and with how much, the columns that count (n,), and how much there is."""
    of_pool, gang = problem.pool_of, problem.gang.astype(float)
    found = [(pool.type, gang, of_pool == at, float(pool.count)) for at, pool in enumerate(problem.pools)]
    for at, column in enumerate(problem.columns):
        pool = problem.pools[column.pool]
        if pool.unconsolidated is not None and not column.spread:
            whole, rest = np.divmod(problem.gang, pool.per_node)
            nodes = whole + (rest > pool.per_node / 2)
            found.append((f"nodes of {pool.type}", nodes, np.arange(len(of_pool)) == at, pool.count / pool.per_node))
    for at, tenant in enumerate(problem.tenants):
        mine = np.where(problem.tenant == at, gang, 0.0)
        for kind, most in ((None, tenant.quota.accelerators), *tenant.quota.by_type):
            if most is not None:
                columns = np.array([kind in (None, problem.pools[pool].type) for pool in of_pool])
                found.append((f"quota of {tenant.name}", mine, columns, float(most)))
    return found


def able(problem: Problem) -> np.ndarray:
    """(m, n) who can run where, alone in the cluster but for the jobs that are held."""
    found = problem.rate > 0
    held = np.flatnonzero(problem.held)
    for _, weight, columns, most in limits_of(problem):
        left = most - weight[held][columns[problem.placed[held]]].sum()
        found &= ~(columns & (weight[:, None] > left))
    for at, column in enumerate(problem.columns):
        found[:, at] &= ~(column.spread & (problem.gang == 1))
    found[held] = np.arange(len(problem.columns)) == problem.placed[held, None]
    return found


def free(problem: Problem) -> np.ndarray:
    """(m,) the jobs that a policy decides about."""
    return able(problem).any(axis=1) & ~problem.held


@dataclass
class Program:
    """Variables and constraints of a problem: `rates` (m,) are expressions; `spent` is dollars/h."""

    rates: Any
    constraints: list[Any]
    spent: Any
    weighted: Callable[[np.ndarray], Any]


def program(problem: Problem, *, rate: np.ndarray | None = None, pairs: bool = False) -> Program:
    """Gavel's base constraints; with pairs, a variable for every two jobs of one gang size."""
    rate = problem.rate if rate is None else rate
    fits = able(problem)
    jobs, width = rate.shape
    groups = [(at,) for at in range(jobs)]
    if pairs:
        groups += [(i, k) for i in range(jobs) for k in range(i + 1, jobs) if problem.gang[i] == problem.gang[k]]
    x = cp.Variable((len(groups), width), nonneg=True)
    coefficient = np.zeros((jobs, len(groups), width))
    member, gang, allowed = np.zeros((jobs, len(groups))), np.zeros(len(groups)), np.zeros((len(groups), width))
    for at, group in enumerate(groups):
        gang[at] = problem.gang[group[0]]
        member[list(group), at] = 1.0
        if len(group) == 1:
            coefficient[group[0], at] = rate[group[0]]
            allowed[at] = fits[group[0]]
        else:
            one, other = group
            first, second = (
                problem.pair_rate[problem.kind[a], problem.kind[b]] for a, b in ((one, other), (other, one))
            )
            allowed[at] = fits[one] & fits[other] & (first > 0) & (second > 0)
            coefficient[one, at], coefficient[other, at] = first, second
    constraints = [member @ cp.sum(x, axis=1) <= 1, x <= allowed]
    constraints += [x[at, problem.placed[at]] == 1 for at in np.flatnonzero(problem.held)]
    for _, weight, columns, most in limits_of(problem):
        each = (weight @ member) / member.sum(axis=0)  # the two jobs of a pair answer for half of a gang each
        constraints.append(cp.sum(each @ x[:, np.flatnonzero(columns)]) <= most)

    def weighted(worth: np.ndarray) -> Any:
        """Sum over jobs and columns of worth (m, n) times the rate there."""
        return cp.sum(cp.multiply(np.einsum("mgn,mn->gn", coefficient, worth), x))

    rates = cp.hstack([cp.sum(cp.multiply(coefficient[at], x)) for at in range(jobs)])
    spent = cp.sum(cp.multiply(gang[:, None] * problem.usd_per_hour, x))
    return Program(rates, constraints, spent, weighted)


def best(objective: Any, constraints: list[Any], solver: str = "HIGHS") -> float | None:
    """The optimum, or None if there is none."""
    problem = cp.Problem(objective, constraints)
    problem.solve(solver=solver)
    return None if problem.status == "infeasible" else float(problem.value)


def unit(problem: Problem, rate: np.ndarray | None = None) -> np.ndarray:
    """Throughput per unit of Gavel's normalised one: proportional throughput over gang."""
    rate = problem.rate if rate is None else rate
    part = np.array([problem.counts[each.pool] * (not each.spread) for each in problem.columns])
    return (np.where(able(problem), rate, 0.0) @ part) / part.sum() / problem.gang


def max_min(problem: Problem, *, rate: np.ndarray | None = None, pairs: bool = False) -> float:
    p, jobs = program(problem, rate=rate, pairs=pairs), np.flatnonzero(free(problem))
    share = cp.multiply(p.rates[jobs], 1.0 / (problem.weight * unit(problem, rate))[jobs])
    return best(cp.Maximize(cp.min(share)), p.constraints)


def water_filling(problem: Problem, speeds: Callable[[np.ndarray], np.ndarray], *, pairs: bool = False) -> np.ndarray:
    """Normalised throughputs (m,) when all jobs rise at speeds(live), which frozen ones change (Gavel, section 4.3)."""
    live, reached = free(problem), np.zeros(problem.jobs)
    norm = np.where(live, unit(problem), 1.0)
    while live.any():
        p, step = program(problem, pairs=pairs), cp.Variable()
        speed = np.where(live, speeds(live), 0.0)
        rises = cp.multiply(p.rates, 1.0 / norm) >= reached * (1 - 1e-9) + step * speed
        rise = best(cp.Maximize(step), [*p.constraints, rises, step >= 0])
        reached = reached + max(rise, 0.0) * speed
        for job in np.flatnonzero(live & (speed > 0)):
            p = program(problem, pairs=pairs)
            normal = cp.multiply(p.rates, 1.0 / norm)
            most = best(cp.Maximize(normal[job]), [*p.constraints, normal >= reached * (1 - 1e-7)])
            if most <= reached[job] + 1e-5 * (1 + reached[job]):
                live[job] = False
    return reached


def makespan(problem: Problem, *, rate: np.ndarray | None = None, pairs: bool = False) -> float:
    p, speed, jobs = program(problem, rate=rate, pairs=pairs), cp.Variable(), np.flatnonzero(free(problem))
    scale = problem.work_left.mean()  # HiGHS' tolerances are absolute
    return scale / best(cp.Maximize(speed), [*p.constraints, p.rates[jobs] >= problem.work_left[jobs] / scale * speed])


def finish_time(problem: Problem, *, rate: np.ndarray | None = None, pairs: bool = False) -> float:
    """Themis' ratio as Gavel writes it: convex through 1 / throughput."""
    chosen = problem.rate if rate is None else rate
    able = (problem.rate > 0) & (problem.gang[:, None] <= problem.counts)
    part = problem.counts * (problem.weight / problem.weight.sum() / problem.gang)[:, None] * able
    part /= np.maximum(part.sum(axis=1), 1.0)[:, None]
    alone = (part * chosen).sum(axis=1)
    age = problem.now - problem.arrived
    p = program(problem, rate=rate, pairs=pairs)
    ratio = (age + cp.multiply(problem.work_left, cp.inv_pos(p.rates))) / (
        problem.isolated_s + problem.work_left / alone
    )
    return best(cp.Minimize(cp.max(ratio)), p.constraints, "CLARABEL")


def most(
    problem: Problem, worth: np.ndarray, *, floor: np.ndarray | None = None, cost: float = 0.0, pairs: bool = False
) -> float | None:
    """The most of worth * rates less cost * dollars, with rates of at least the floor."""
    p = program(problem, pairs=pairs)
    floors = [] if floor is None else [p.rates >= floor]
    scale = max(worth.max(), cost)  # HiGHS' tolerances are absolute
    found = best(cp.Maximize(p.weighted(worth / scale) - cost / scale * p.spent), [*p.constraints, *floors])
    return None if found is None else found * scale


def welfare(problem: Problem) -> tuple[float, np.ndarray]:
    p = program(problem)
    value = best(cp.Maximize(problem.weight @ cp.log(p.rates)), p.constraints, "CLARABEL")
    return value, np.asarray(p.rates.value)


def elastic(problem: Problem, worth: np.ndarray, quotas: Sequence[tuple[np.ndarray, int]] = ()) -> float:
    """At most one configuration of each job, within the pools and quotas (who counts (k,), and how many accelerators
    there are); `worth` (k,) of each."""
    ways = problem.configurations
    x = cp.Variable(len(worth), boolean=True)
    one = [cp.sum(x[np.flatnonzero(ways.job == job)]) <= 1 for job in np.unique(ways.job)]
    fits = [
        cp.sum(cp.multiply(x[at], ways.accelerators[at])) <= count
        for pool, count in enumerate(problem.counts)
        if len(at := np.flatnonzero(problem.pool_of[ways.column] == pool))
    ]
    fits += [cp.sum(cp.multiply(x, ways.accelerators * who)) <= most for who, most in quotas]
    return best(cp.Maximize(worth @ x), one + fits)
