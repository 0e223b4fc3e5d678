"""Sections of a report about latencies: one load, cold starts, interference, comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from shoal.base.report import (
    Axis,
    Categories,
    Cell,
    Dots,
    Figure,
    Log,
    Mark,
    Rule,
    Section,
    Table,
    chart_of,
    distribution,
    duration,
)
from shoal.measure.coldstart import ColdStarts
from shoal.measure.comparison import Comparison
from shoal.measure.interference import Interference
from shoal.measure.report.words import end, number, or_else, rate, share, time
from shoal.measure.simulated import LABEL
from shoal.measure.statistics import Estimate
from shoal.measure.types import QUANTILES, LoadResult


def latency(results: Sequence[LoadResult], *, slo_s: float | None = None) -> Section:
    """Latency from schedule to answer, as distributions with a stretched tail."""
    named = {_name(result): result.latencies_s() for result in results}
    rows = [
        [
            _name(result),
            f"{result.count()}",
            f"{result.completed_per_s():.4g}",
            *(time(result.quantile(p)) for p in QUANTILES),
            f"{result.failures()}",
            *([share(result.attainment(slo_s))] if slo_s is not None else []),
        ]
        for result in results
    ]
    columns = ["load", "requests", "answered/s", *(f"p{100 * p:g}" for p in QUANTILES), "failed"]
    columns += [f"within {duration(slo_s)}"] if slo_s is not None else []
    table = Table("Latency with 95% intervals", columns, rows)
    return Section(
        title="Latency",
        text=["Counted from the moment a request was scheduled, so that no queue hides in the generator."],
        figures=[distribution("Latency distribution", named, table, slo_s=slo_s)] if named else [],
        warnings=[warning.text for result in results if (warning := result.bottleneck()) is not None],
        simulated=any(result.tenant.startswith(LABEL) for result in results),
    )


def cold_starts(found: Mapping[str, ColdStarts]) -> Section:
    """From nothing to the first answer."""
    rows = [
        [name, f"{len(one.ready_s)}", *(duration(float(np.quantile(each, p))) for each in
         (one.ready_s, one.total_s(), one.warm_s) for p in (0.5, 0.95))]
        for name, one in found.items()
    ]  # fmt: skip
    columns = ["model", "starts", "ready p50", "p95", "first answer p50", "p95", "warm answer p50", "p95"]
    totals = {name: one.total_s() for name, one in found.items()}
    figure = distribution("Time to the first answer", totals, Table("Cold starts", columns, rows), tail=False)
    return Section(
        title="Cold starts",
        text=["From asking for the model to its first answer, beside the answer of a warm one."],
        figures=[figure],
    )


def interference(found: Interference, *, simulated: bool = False) -> Section:
    """The slowdown matrix as a heat map, and the isolation index."""
    names = found.tenants
    tables = []
    for p in sorted(next(iter(found.beside_all.values()))):
        rows: list[list[str | Cell]] = []
        for victim in names:
            cells = [Cell("-") if other == victim else _slowdown(found.slowdown[victim][other][p]) for other in names]
            rows.append([victim, *cells, _slowdown(found.beside_all[victim][p]), time(found.alone_s[victim][p])])
        caption = f"Slowdown of p{100 * p:g}: the row's tenant beside the column's (1.00 is no disturbance)"
        tables.append(Table(caption, ["tenant", *(f"beside {name}" for name in names), "beside all", "alone"], rows))
    rates = [[name, f"{found.rates_per_s[name]:.4g}/s", number(found.isolation_of[name])] for name in names]
    tables.append(Table("Isolation by tenant: p99 alone / p99 beside all", ["tenant", "rate", "isolation"], rates))
    victim, other = found.worst()
    text = [
        f"Isolation index {number(found.isolation)}: the geometric mean over tenants of p99 alone over p99 beside all "
        f"others. 1 is perfect.",
        f"{found.rounds} rounds; intervals are 95%. Most disturbed: {victim} by {other}, "
        f"{found.slowdown[victim][other][0.99].value:.2f} times as slow at p99.",
    ]
    return Section(
        "Interference", text, tables=tables,
        warnings=[warning.text for warning in found.warnings], simulated=simulated,
    )  # fmt: skip


def _slowdown(ratio: Estimate) -> Cell:
    """Twice as slow is half as hot as it gets, four times wholly."""
    heat = min(1.0, max(0.0, math.log2(ratio.value) / 2)) if 0 < ratio.value < math.inf else 1.0
    return Cell(f"{ratio.value:.2f} ({end(ratio.low)} to {end(ratio.high)})", heat)


def comparison(found: Comparison) -> Section:
    """Ratios to the baseline with their intervals, and the distributions."""
    figures = list(next(iter(found.figures.values())))
    others = [name for name in found.targets if name != found.baseline]
    rows: list[list[str | Cell]] = []
    for name in found.targets:
        for figure in figures:
            one = found.figures[name][figure]
            ratio = "1 (baseline)" if name == found.baseline else number(one.ratio)
            verdict = "-" if name == found.baseline else "yes" if one.differs else "not proven"
            rows.append([f"{name}: {_figure_name(figure)}", _figure_value(figure, one.mean), ratio, verdict])
    table = Table(
        f"Means over {found.rounds} rounds with 95% intervals, and ratios to {found.baseline}",
        ["target and figure", "value", "ratio", "differs"], rows,
    )  # fmt: skip
    labels = [f"{name}: {_figure_name(figure)}" for name in others for figure in figures]
    ratios = [found.figures[name][figure].ratio for name in others for figure in figures]
    drawn = [(ratio.value if math.isfinite(ratio.value) and ratio.value > 0 else 1.0) for ratio in ratios]
    ends = [
        (or_else(ratio.low, value / 8), or_else(ratio.high, value * 8))
        for ratio, value in zip(ratios, drawn, strict=True)
    ]
    low = min([0.8, *(max(end, value / 8) for (end, _), value in zip(ends, drawn, strict=True))])
    high = max([1.25, *(min(end, value * 8) for (_, end), value in zip(ends, drawn, strict=True))])
    marks: list[Mark] = [
        Dots("ratio with its 95% interval", [(value, float(at)) for at, value in enumerate(drawn)], whiskers_x=ends),
        Rule(f"as {found.baseline}", x=1.0),
    ]
    title = f"Ratios to {found.baseline}"
    axes = Axis("ratio (logarithmic)", Log(low / 1.05, high * 1.05, unit="×")), Axis("", Categories(labels))
    draw = partial(chart_of, title, "Each figure of each target over the baseline's.", *axes, marks, rows=len(labels))
    counts = [[name, f"{len(found.latencies_s[name])}", f"{found.failures[name]}"] for name in found.targets]
    spread = Table("Requests of all rounds", ["target", "requests", "failed"], counts)
    return Section(
        "Comparison",
        [
            f"The same arrivals to every target, {found.rounds} rounds in changing order. "
            "For latencies less is better, for rates more."
        ],
        [
            Figure(title, draw, table),
            distribution("Latency distribution", found.latencies_s, spread, slo_s=found.slo_s),
        ],
        warnings=[warning.text for warning in found.warnings],
    )


def _figure_name(figure: str) -> str:
    return {"mean_s": "mean", "answered_per_s": "answered/s", "goodput_per_s": "goodput"}.get(
        figure, figure.removesuffix("_s")
    )


def _figure_value(figure: str, value: Estimate) -> str:
    return time(value) if not figure.endswith("_per_s") else rate(value)


def _name(result: LoadResult) -> str:
    return f"{result.tenant}/{result.model}" if result.tenant else result.model
