"""Interference between tenants: every tenant alone, beside each other one, and beside all, at stated rates.

Definitions, for quantile q of the latency from schedule to answer (a failed request takes for ever):

- slowdown of i beside j: q of i with j's load on the server, over q of i alone. 1 is no disturbance.
- isolation index: the geometric mean over tenants of (p99 alone / p99 with all). 1 is perfect isolation; 0.5
  says that sharing doubles the tail of a typical tenant.

Each round runs all loads in a new random order, so that a machine that becomes slower disturbs all alike. Ratios
are taken within a round and averaged over rounds (`statistics.geometric_mean`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from shoal.core import Invalid, Reason
from shoal.measure.statistics import Estimate, geometric_mean, quantile_of
from shoal.measure.types import LoadResult, bottlenecks

TAIL = 0.99
"""The quantile of the isolation index."""

Run = Callable[[Mapping[str, float], int], Mapping[str, LoadResult]]
"""`run(rates_per_s, round)` loads these tenants at the same time; the same round means the same arrivals."""


@dataclass(frozen=True, slots=True)
class Interference:
    """`alone_s[i][q]` are latencies in seconds (geometric means over rounds), `slowdown[i][j][q]` those of i beside j,
    `beside_all[i][q]` beside all others, `isolation_of[i]` its part of the index. `warnings` say which figures rest
    on too few requests, or on a generator that was the bottleneck."""

    rates_per_s: Mapping[str, float]
    rounds: int
    alone_s: Mapping[str, Mapping[float, Estimate]]
    slowdown: Mapping[str, Mapping[str, Mapping[float, Estimate]]]
    beside_all: Mapping[str, Mapping[float, Estimate]]
    isolation: Estimate
    isolation_of: Mapping[str, Estimate]
    warnings: tuple[Reason, ...] = ()

    @property
    def tenants(self) -> tuple[str, ...]:
        return tuple(self.rates_per_s)

    def worst(self, p: float = TAIL) -> tuple[str, str]:
        """The tenant that is slowed down most by one other, and that other."""
        pairs = [(victim, other) for victim, row in self.slowdown.items() for other in row]
        return max(pairs, key=lambda pair: self.slowdown[pair[0]][pair[1]][p].value)

    def as_json(self) -> dict[str, Any]:
        return {
            "rates_per_s": dict(self.rates_per_s),
            "rounds": self.rounds,
            "alone_s": {name: _named(row) for name, row in self.alone_s.items()},
            "slowdown": {
                victim: {other: _named(cell) for other, cell in row.items()} for victim, row in self.slowdown.items()
            },
            "beside_all": {name: _named(row) for name, row in self.beside_all.items()},
            "isolation": self.isolation.as_json(),
            "isolation_of": {name: one.as_json() for name, one in self.isolation_of.items()},
            "warnings": [warning.as_json() for warning in self.warnings],
        }


def measure_interference(
    run: Run,
    rates_per_s: Mapping[str, float],
    *,
    quantiles: Sequence[float] = (0.5, TAIL),
    rounds: int = 5,
    seed: int = 0,
    on_run: Callable[[int, int], None] = lambda _done, _total: None,
) -> Interference:
    """Runs n + n(n-1)/2 loads a round, and one more for more than two tenants. `on_run(done, total)` counts them.

    Raises Invalid for less than two tenants or rounds, and what `run` raises.
    """
    names = list(rates_per_s)
    if len(names) < 2 or rounds < 2:
        raise Invalid(f"{len(names)} tenants in {rounds} rounds", where="interference", hint="give at least 2 of each")
    asked = sorted({*quantiles, TAIL})
    sets = [(name,) for name in names] + list(combinations(names, 2)) + ([tuple(names)] if len(names) > 2 else [])
    rng = np.random.default_rng(seed)
    found: dict[tuple[str, ...], list[Mapping[str, LoadResult]]] = {one: [] for one in sets}
    for number in range(rounds):
        for done, at in enumerate(rng.permutation(len(sets)).tolist()):
            found[sets[at]].append(run({name: rates_per_s[name] for name in sets[at]}, number))
            on_run(number * len(sets) + done + 1, rounds * len(sets))
    latency = {
        members: {
            name: {p: [quantile_of(one[name].latencies_or_inf_s(), p) for one in each] for p in asked}
            for name in members
        }
        for members, each in found.items()
    }
    return _judged(rates_per_s, rounds, asked, latency, _warnings(found, asked))


Latency = Mapping[tuple[str, ...], Mapping[str, Mapping[float, list[float]]]]
"""By who was on the server, of whom, which quantile: seconds in each round."""


def _judged(
    rates_per_s: Mapping[str, float],
    rounds: int,
    asked: Sequence[float],
    latency: Latency,
    warnings: tuple[Reason, ...],
) -> Interference:
    names = tuple(rates_per_s)

    def slowdown(victim: str, members: tuple[str, ...], p: float) -> list[float]:
        alone, beside = latency[(victim,)][victim][p], latency[members][victim][p]
        return [after / before for before, after in zip(alone, beside, strict=True)]

    tails = {name: [1 / ratio if ratio else math.inf for ratio in slowdown(name, names, TAIL)] for name in names}
    with np.errstate(divide="ignore"):  # nothing of a tenant was answered: its ratio, and the index, is 0
        index = np.exp(np.mean([np.log(tails[name]) for name in names], axis=0))
    return Interference(
        rates_per_s=dict(rates_per_s),
        rounds=rounds,
        alone_s={name: {p: geometric_mean(latency[(name,)][name][p]) for p in asked} for name in names},
        slowdown={
            victim: {
                other: {p: geometric_mean(slowdown(victim, _pair(names, victim, other), p)) for p in asked}
                for other in names
                if other != victim
            }
            for victim in names
        },
        beside_all={name: {p: geometric_mean(slowdown(name, names, p)) for p in asked} for name in names},
        isolation=geometric_mean(index),
        isolation_of={name: geometric_mean(tails[name]) for name in names},
        warnings=warnings,
    )


def _pair(names: Sequence[str], one: str, other: str) -> tuple[str, str]:
    first, second = sorted((one, other), key=names.index)
    return first, second


def _warnings(
    found: Mapping[tuple[str, ...], Sequence[Mapping[str, LoadResult]]], asked: Sequence[float]
) -> tuple[Reason, ...]:
    named = [one for results in found.values() for each in results for one in each.items()]
    highest = max(asked)
    needed = math.ceil(10 / (1 - highest))
    few: dict[str, Reason] = {}
    for name, result in named:
        if result.count() < needed:
            text = f"{name}: {result.count()} requests a round say little of p{100 * highest:g} (want {needed})"
            few.setdefault(name, Reason("few-requests", text, {"needed": needed}))
    return (*few.values(), *bottlenecks(named))


def _named(row: Mapping[float, Estimate]) -> dict[str, Any]:
    return {f"p{100 * p:g}": one.as_json() for p, one in row.items()}
