"""Figures that several kinds of section draw: distributions and bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from shoal.base.report.charts import Axis, Bars, Line, Mark, Rule, chart
from shoal.base.report.document import Figure, Table
from shoal.base.report.scales import Categories, Linear, Log, Nines, duration

Floats = NDArray[np.float64]
_ROW = 34.0
"""Height of a row of bars or whiskers."""


def distribution(
    title: str,
    series: Mapping[str, Floats],
    table: Table,
    *,
    axis: str = "time (logarithmic)",
    unit: str = "",
    slo_s: float | None = None,
    tail: bool = True,
) -> Figure:
    """Empirical distributions, in seconds without a `unit`; with a stretched tail as far as the samples reach."""
    known = {name: np.asarray(values[np.isfinite(values)]) for name, values in series.items()}
    every = np.concatenate([np.empty(0), *known.values()])
    every = every[every > 0]
    low, high = (float(every.min()), float(every.max())) if every.size else (1e-3, 1.0)
    high = max(high, (slo_s or 0.0) * 1.1, low * 1.5)
    most = max((len(values) for values in known.values()), default=1)
    nines = min(4, max(1, round(math.log10(max(most, 10)))))
    marks: list[Mark] = [Line(name, _steps(values), at, steps=True) for at, (name, values) in enumerate(known.items())]
    if slo_s is not None:
        marks.append(Rule(f"objective {duration(slo_s)}", x=slo_s))
    y = Axis("share at or below", Nines(nines) if tail else Linear(0.0, 1.0, percent=True))
    x = Axis(axis, Log(low / 1.1, high * 1.1, seconds=not unit, unit=unit))
    words = "; ".join(
        f"{name}: half within {f'{np.median(values):.3g}{unit}' if unit else duration(float(np.median(values)))}"
        for name, values in known.items()
        if len(values)
    )
    return Figure(title, partial(chart_of, title, f"Cumulative distributions. {words}.", x, y, marks), table)


def _steps(values: Floats, points: int = 250) -> list[tuple[float, float]]:
    """Steps of the distribution: evenly thinned, and every one of the last where a tail is stretched."""
    count = len(values)
    if not count:
        return []
    ordered = np.sort(values)
    even, last = np.linspace(0, count - 1, points), count - np.geomspace(1, count, points)
    ranks = np.unique(np.concatenate([even, last]).round().astype(np.int64))
    shares = np.searchsorted(ordered, ordered[ranks], side="right") / count
    return list(zip(ordered[ranks].tolist(), shares.tolist(), strict=True))


def bars(title: str, description: str, axis: str, series: Mapping[str, Mapping[str, float]], table: Table) -> Figure:
    """Horizontal bars by row, stacked by series: `series[name][row]` is a length."""
    names = list(dict.fromkeys(row for lengths in series.values() for row in lengths))
    ends = dict.fromkeys(names, 0.0)
    marks: list[Mark] = []
    for number, (name, lengths) in enumerate(series.items()):
        placed = []
        for row, length in lengths.items():
            placed.append((float(names.index(row)), ends[row], ends[row] + length))
            ends[row] += length
        tips = [f"{row}, {name}: {length:.4g}" for row, length in lengths.items()]
        marks.append(Bars(name if len(series) > 1 else "", placed, number, tips))
    most = max(ends.values(), default=1.0) or 1.0
    x, y = Axis(axis, Linear(0, most * 1.05)), Axis("", Categories(names))
    return Figure(title, partial(chart_of, title, description, x, y, marks, rows=len(names)), table)


def chart_of(
    title: str, description: str, x: Axis, y: Axis, marks: Sequence[Mark], number: int, rows: int | None = None
) -> str:
    height = {} if rows is None else {"height": 80 + _ROW * max(1, rows)}
    return chart(title, description, x, y, marks, number=number, **height)
