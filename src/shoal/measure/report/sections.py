"""Sections of a report about latencies: interference and comparison."""

from __future__ import annotations

import math
from functools import partial

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
)
from shoal.measure.comparison import Comparison
from shoal.measure.interference import Interference
from shoal.measure.report.words import or_else, time
from shoal.measure.statistics import Estimate


def interference(found: Interference) -> Section:
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
    rates = [[name, f"{found.rates_per_s[name]:.4g}/s", f"{found.isolation_of[name]:.3f}"] for name in names]
    tables.append(Table("Isolation by tenant: p99 alone / p99 beside all", ["tenant", "rate", "isolation"], rates))
    victim, other = found.worst()
    text = [
        f"Isolation index {found.isolation:.3f}: the geometric mean over tenants of p99 alone over p99 beside all "
        f"others. 1 is perfect.",
        f"{found.rounds} rounds; intervals are 95%. Most disturbed: {victim} by {other}, "
        f"{found.slowdown[victim][other][0.99].value:.2f} times as slow at p99.",
    ]
    return Section("Interference", text, tables=tables, warnings=[warning.text for warning in found.warnings])


def _slowdown(ratio: Estimate) -> Cell:
    """Twice as slow is half as hot as it gets, four times wholly."""
    heat = min(1.0, max(0.0, math.log2(ratio.value) / 2)) if 0 < ratio.value < math.inf else 1.0
    return Cell(f"{ratio:.2f}", heat)


def comparison(found: Comparison) -> Section:
    """Ratios to the baseline with their intervals, and the distributions."""
    figures = list(next(iter(found.figures.values())))
    others = [name for name in found.targets if name != found.baseline]
    rows: list[list[str | Cell]] = []
    for name in found.targets:
        for figure in figures:
            one = found.figures[name][figure]
            ratio = "1 (baseline)" if name == found.baseline else f"{one.ratio:.3f}"
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
    return f"{value:.4g}" if figure.endswith("_per_s") else time(value)
