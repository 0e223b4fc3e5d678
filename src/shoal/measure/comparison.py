"""The same requests at the same moments to several servers, in turn: which is faster, by how much, how sure that is.

In each round every target gets the same arrivals; which one is first changes from round to round, forwards and
backwards, so that neither the order nor a machine that warms up favours any. Figures are compared within a round, and
their ratios averaged over rounds (`statistics.geometric_mean`): what disturbs a whole round cancels out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core import Invalid, Reason
from shoal.measure.statistics import Estimate, geometric_mean, quantile_of
from shoal.measure.types import Floats, LoadResult, bottlenecks

Play = Callable[[str, int], LoadResult]
"""`play(target, round)` sends that round's arrivals to the target; the same round means the same arrivals."""

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one target: `values` by round, their geometric mean, and that of the ratio to the baseline's."""

    values: tuple[float, ...]
    mean: Estimate
    ratio: Estimate

    @property
    def differs(self) -> bool:
        """The ratio's interval leaves out 1."""
        return not self.ratio.low <= 1 <= self.ratio.high

    def as_json(self) -> dict[str, Any]:
        return {
            "values": [value if math.isfinite(value) else None for value in self.values],
            "mean": self.mean.as_json(),
            "ratio": self.ratio.as_json(),
            "differs": self.differs,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """`figures[target][figure]`; latencies in seconds (`p50_s`, ..., a failed request takes for ever), rates per
    second. `latencies_s` are those of all rounds together, `order` is the order in which each round was run."""

    baseline: str
    figures: Mapping[str, Mapping[str, Figure]]
    order: tuple[tuple[str, ...], ...]
    latencies_s: Mapping[str, Floats]
    failures: Mapping[str, int]
    slo_s: float | None = None
    warnings: tuple[Reason, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(self.figures)

    @property
    def rounds(self) -> int:
        return len(self.order)

    def as_json(self) -> dict[str, Any]:
        return {
            "baseline": self.baseline,
            "rounds": self.rounds,
            "order": [list(one) for one in self.order],
            "slo_s": self.slo_s,
            "targets": {
                name: {
                    "requests": len(self.latencies_s[name]),
                    "failures": self.failures[name],
                    "figures": {figure: one.as_json() for figure, one in row.items()},
                }
                for name, row in self.figures.items()
            },
            "warnings": [warning.as_json() for warning in self.warnings],
        }


def compare(
    play: Play,
    targets: Sequence[str],
    *,
    rounds: int = 5,
    slo_s: float | None = None,
    on_run: Callable[[int, int], None] = lambda _done, _total: None,
) -> Comparison:
    """The first target is the baseline. `slo_s` adds goodput. Raises Invalid for less than two targets or rounds, or a
    target that is named twice, and what `play` raises."""
    if len(targets) < 2 or rounds < 2:
        raise Invalid(f"{len(targets)} targets in {rounds} rounds", where="compare", hint="give at least 2 of each")
    if len(set(targets)) < len(targets):
        raise Invalid("a target is named twice", where="compare", hint=", ".join(targets))
    order = tuple(_order(targets, number) for number in range(rounds))
    found: dict[str, list[LoadResult]] = {name: [] for name in targets}
    for number, names in enumerate(order):
        for name in names:
            found[name].append(play(name, number))
            on_run(sum(len(each) for each in found.values()), rounds * len(targets))
    values = {name: _figures(results, slo_s) for name, results in found.items()}
    first = values[targets[0]]
    return Comparison(
        baseline=targets[0],
        figures={
            name: {
                figure: Figure(tuple(each), geometric_mean(each), geometric_mean(_ratios(each, first[figure])))
                for figure, each in row.items()
            }
            for name, row in values.items()
        },
        order=order,
        latencies_s={name: np.concatenate([one.latencies_or_inf_s() for one in each]) for name, each in found.items()},
        failures={name: sum(one.failures() for one in each) for name, each in found.items()},
        slo_s=slo_s,
        warnings=bottlenecks((name, result) for name, results in found.items() for result in results),
    )


def _order(targets: Sequence[str], number: int) -> tuple[str, ...]:
    """Two rounds by two, forwards and backwards, each pair beginning with the next target."""
    first = number // 2 % len(targets)
    turned = (*targets[first:], *targets[:first])
    return turned[::-1] if number % 2 else turned


def _figures(results: Sequence[LoadResult], slo_s: float | None) -> dict[str, list[float]]:
    figures = {f"p{100 * p:g}_s": [quantile_of(one.latencies_or_inf_s(), p) for one in results] for p in QUANTILES}
    figures["mean_s"] = [float(np.mean(one.latencies_or_inf_s())) if one.count() else math.nan for one in results]
    figures["answered_per_s"] = [one.completed_per_s() for one in results]
    if slo_s is not None:
        figures["goodput_per_s"] = [one.goodput(slo_s).value for one in results]
    return figures


def _ratios(values: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """nan where both failed wholly: such a round tells nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return [float(one) for one in np.asarray(values) / np.asarray(baseline)]
