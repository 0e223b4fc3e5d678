"""The page of a component, in words and tables for the console, and as a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from shlex import join
from typing import TYPE_CHECKING, Any

from shoal.base.console import output
from shoal.contract.pages import Figure, Mood, Page, Series, Span, Table, Timeline, Unit, Value

if TYPE_CHECKING:
    from shoal.base import report

_COLOURS = {Mood.GOOD: "green", Mood.WARNING: "yellow", Mood.BAD: "red"}
_NUMBERS: dict[Unit, Callable[[float], str]] = {
    Unit.BYTES: lambda value: output.size(round(value)),
    Unit.DOLLARS: lambda value: f"${value:,.2f}",
    Unit.SECONDS: output.duration,
    Unit.SHARE: lambda value: f"{value:.0%}",
    Unit.TIME: output.moment,
}
_NEWEST = 20
"""The number of spans of a timeline that the console shows, the newest."""


def words(value: Value, unit: Unit = Unit.NONE) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if unit in _NUMBERS:
        return _NUMBERS[unit](value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def figures(found: Sequence[Figure]) -> Any:
    """One line: `round 12, policy max-min`."""
    text = output.styled("", None)
    for at, one in enumerate(one for one in found if one.value is not None):
        text.append(", " if at else "")
        text.append(f"{one.name} ", style="dim")
        text.append(words(one.value, one.unit), style=_COLOURS.get(one.mood, ""))
    return text


def show(page: Page) -> None:
    """On the console."""
    output.facts({one.name: output.styled(words(one.value, one.unit), _COLOURS.get(one.mood)) for one in page.figures
                  if one.value is not None})  # fmt: skip
    for part in page.parts:
        print(f"\n{part.title}")
        heads, rows = _rows(part)
        if rows:
            output.put(output.table(heads, rows, last_gives_way=False))
        else:
            print(part.empty if isinstance(part, Table) else "none")
    if page.actions:
        print()
        output.facts({one.name: join(one.command) for one in page.actions})


def _rows(part: Table | Series | Timeline) -> tuple[list[str], list[list[str]]]:
    if isinstance(part, Table):
        units = [column.unit for column in part.columns]
        rows = [[words(value, unit) for value, unit in zip(row, units, strict=True)] for row in part.rows]
        return [column.name for column in part.columns], rows
    if isinstance(part, Series):
        return ["", "now", "least", "most", "since"], [
            [one.name, *(words(value, part.unit) for value in _range(one.points)), words(one.points[0][0], Unit.TIME)]
            for one in part.lines
            if one.points
        ]
    newest = sorted(part.spans, key=lambda one: one.start)[-_NEWEST:]
    return ["", "name", "from", "to"], [[one.lane, one.name, *_when(one)] for one in reversed(newest)]


def _range(points: Sequence[tuple[float, float]]) -> Iterator[float]:
    values = [value for _, value in points]
    yield from (values[-1], min(values), max(values))


def _when(span: Span) -> tuple[str, str]:
    return words(span.start, Unit.TIME), "now" if span.end is None else words(span.end, Unit.TIME)


def report_of(name: str, page: Page) -> report.Report:
    """The page as a report. Values over time and timelines are drawn, with the same in a table below."""
    from shoal.base import report

    now = time.time()
    tables, drawn = [], []
    for part in page.parts:
        heads, rows = _rows(part)
        table = report.Table(part.title, heads, rows)
        if isinstance(part, Table):
            tables.append(table)
        elif isinstance(part, Series) and any(one.points for one in part.lines):
            drawn.append(report.Figure(part.title, partial(_curves, part, now), table))
        elif isinstance(part, Timeline) and part.spans:
            drawn.append(report.Figure(part.title, partial(_lanes, part, now), table))
    facts = {one.name: words(one.value, one.unit) for one in page.figures}
    return report.Report.of(
        page.title, [report.Section(name, (), drawn, tables)], facts={"component": name, **facts}
    )  # fmt: skip


def _curves(part: Series, now: float, number: int) -> str:
    from shoal.base import report

    lines = [
        report.Line(one.name, [((at - now) / 3600, value) for at, value in one.points], series, steps=True)
        for series, one in enumerate(part.lines)
    ]
    xs, ys = zip(*(point for line in lines for point in line.points), strict=True)
    x = report.Axis("hours from now", report.Linear(min(xs), 0.0))
    y = report.Axis(part.unit.value, report.Linear(min(0.0, *ys), max(*ys, 0.0) * 1.05))
    told = "; ".join(f"{one.name}: {words(one.points[-1][1], part.unit)} now" for one in part.lines if one.points)
    return report.chart_of(part.title, told, x, y, lines, number)


def _lanes(part: Timeline, now: float, number: int) -> str:
    from shoal.base import report

    lanes = list(dict.fromkeys(one.lane for one in part.spans))
    placed = [
        (float(lanes.index(one.lane)), (one.start - now) / 3600, ((one.end or now) - now) / 3600) for one in part.spans
    ]
    tips = [f"{one.name}: {' to '.join(_when(one))}" for one in part.spans]
    x = report.Axis("hours from now", report.Linear(min(start for _, start, _ in placed), 0.0))
    y = report.Axis("", report.Categories(lanes))
    told = f"{len(part.spans)} in {len(lanes)} lanes"
    return report.chart_of(part.title, told, x, y, [report.Bars("", placed, 0, tips)], number, rows=len(lanes))
