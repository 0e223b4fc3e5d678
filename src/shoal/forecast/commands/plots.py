"""Predictions as one HTML page with a figure and its table, for `--plot FILE`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.core import Estimate

if TYPE_CHECKING:
    from shoal.base.report import Figure, Table

PlotOption = Annotated[Path | None, typer.Option("--plot", help="Write a page with a figure here, as HTML.")]
Rows = Mapping[str, Estimate]


def intervals(path: Path, title: str, unit: str, rows: Rows) -> None:
    """One row for each name: its median with its interval."""
    from shoal.base.report import Axis, Categories, Dots, Figure, Linear, Mark, chart_of

    marks: list[Mark] = [
        Dots("", [(one.median, row)], tips=[_told(one, unit)], whiskers_x=[(one.low, one.high)])
        for row, one in enumerate(rows.values())
    ]
    x = Axis(unit, Linear(0.0, 1.05 * max(one.high for one in rows.values())))
    y = Axis("", Categories(list(rows)))
    draw = partial(chart_of, title, "Medians with their intervals.", x, y, marks, rows=len(rows))
    _write(path, Figure(title, draw, _table(title, "", unit, rows)))


def choices(path: Path, title: str, axis: str, unit: str, rows: Mapping[float, Estimate]) -> None:
    """Medians with their intervals over something that may be chosen."""
    from shoal.base.report import Axis, Dots, Figure, Line, Linear, Log, Mark, chart_of

    points = [(at, one.median) for at, one in rows.items()]
    tips = [_told(one, unit) for one in rows.values()]
    whiskers = [(one.low, one.high) for one in rows.values()]
    marks: list[Mark] = [Line("median", points), Dots("interval", points, 0, tips, whiskers_y=whiskers)]
    x = Axis(axis, Log(min(rows) / 1.3, max(rows) * 1.3, seconds=True))
    y = Axis(unit, Linear(0.0, 1.05 * max(one.high for one in rows.values())))
    draw = partial(chart_of, title, "Medians with their intervals.", x, y, marks)
    _write(path, Figure(title, draw, _table(title, axis, unit, {f"{at:.0f}": one for at, one in rows.items()})))


def survival(path: Path, title: str, points: Sequence[tuple[float, float]]) -> None:
    """The part that is still there, by hours from now."""
    from shoal.base.report import Axis, Figure, Line, Linear, Table, chart_of

    x = Axis("hours from now", Linear(0.0, points[-1][0], " h"))
    y = Axis("part that is still there", Linear(0.0, 1.0, percent=True))
    table = Table(title, ["hours from now", "still there"], [[f"{at:g}", f"{part:.1%}"] for at, part in points])
    _write(path, Figure(title, partial(chart_of, title, "Falls from one.", x, y, [Line("", points)]), table))


def _told(one: Estimate, unit: str) -> str:
    return f"{one.median:.3g} ({one.low:.3g} to {one.high:.3g}) {unit}"


def _table(title: str, first: str, unit: str, rows: Rows) -> Table:
    from shoal.base.report import Table

    told = [[name, *(f"{value:.4g}" for value in (one.median, one.low, one.high)), one.source]
            for name, one in rows.items()]  # fmt: skip
    return Table(title, [first, f"median, {unit}", "low", "high", "source"], told)


def _write(path: Path, figure: Figure) -> None:
    from shoal.base.report import Report, Section, write_html

    write_html(Report.of("Forecast", [Section(figure.title, [], [figure])]), path)
