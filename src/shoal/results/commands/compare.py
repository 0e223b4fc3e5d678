"""`shoal compare`: jobs side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.results.compare import Reported, differences, reported

if TYPE_CHECKING:
    from shoal.base.report import Figure
    from shoal.contract.models import JobDetail

_MOST = 100_000


def register(app: typer.Typer) -> None:
    command(app, "compare", rich_help_panel=JOBS, short_help="Jobs side by side: how they differ, what they reported")(
        compare
    )


def compare(
    context: CommandContext,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids, unique beginnings of ids, or names.")],
    metric: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this one; may be repeated.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with their curves.")] = None,
    tenant: TenantOption = None,
) -> None:
    """What jobs reported, side by side, and the fields in which their manifests differ.

    Of each metric the last value is shown, and the range of all. An attempt that goes on from a checkpoint replaces
    what the one before reported from there on.
    """
    with context.client() as client:
        details = [client.job(one, tenant=tenant) for one in jobs]
        told = [reported(client.metrics(one.id, tenant=tenant, limit=_MOST)) for one in details]
    if metric:
        told = [{name: one for name, one in each.items() if name in metric} for each in told]
    differ = differences([one.manifest for one in details])
    if html is not None:
        _write(html, details, told)
    context.show(_plain(details, told, differ), lambda: _show(details, told, differ))
    if html is not None:
        context.note(f"written: {html}")


def _plain(
    details: Sequence[JobDetail], told: Sequence[Mapping[str, Reported]], differ: Mapping[str, Any]
) -> dict[str, Any]:
    jobs = [
        {
            "id": detail.id, "name": detail.name, "state": detail.state.value, "ran_s": detail.ran_until(time.time()),
            "metrics": {
                name: {"last": one.last, "step": one.step, "least": one.least, "greatest": one.greatest}
                for name, one in metrics.items()
            },
        }
        for detail, metrics in zip(details, told, strict=True)
    ]  # fmt: skip
    return {"jobs": jobs, "differences": dict(differ)}


def _show(details: Sequence[JobDetail], told: Sequence[Mapping[str, Reported]], differ: Mapping[str, Any]) -> None:
    from shoal.base.console import output

    rows: list[list[Any]] = [
        ["job", *(one.id for one in details)],
        ["state", *(one.state.value for one in details)],
        ["ran", *(output.duration(one.ran_until(time.time())) for one in details)],
    ]
    rows += [[path, *("-" if one is None else str(one) for one in values)] for path, values in differ.items()]
    for name in dict.fromkeys(name for one in told for name in one):
        rows.append([name, *(_last(one.get(name)) for one in told)])
    output.put(output.table(["", *(one.name for one in details)], rows))


def _last(one: Reported | None) -> str:
    if one is None:
        return "-"
    return f"{one.last:.6g} at {one.step} ({one.least:.4g} to {one.greatest:.4g})"


def _write(path: Path, details: Sequence[JobDetail], told: Sequence[Mapping[str, Reported]]) -> None:
    from shoal.base.report import Report, Section, write_html

    figures = []
    for name in dict.fromkeys(name for one in told for name in one):
        curves = [(f"{detail.name} {detail.id}", one[name]) for detail, one in zip(details, told, strict=True)
                  if name in one]  # fmt: skip
        figures.append(_figure(name, curves))
    section = Section("What they reported", [] if figures else ["They reported nothing."], figures)
    write_html(Report.of("Jobs compared", [section]), path)


def _figure(name: str, curves: Sequence[tuple[str, Reported]]) -> Figure:
    from shoal.base.report import Axis, Figure, Line, Linear, Table, chart_of

    steps = [step for _, one in curves for step in one.curve]
    least, greatest = min(one.least for _, one in curves), max(one.greatest for _, one in curves)
    x = Axis("step", Linear(float(min(steps)), float(max(max(steps), min(steps) + 1))))
    y = Axis(name, Linear(least, greatest if greatest > least else least + 1.0))
    lines = [Line(job, [(float(step), value) for step, value in sorted(one.curve.items())], number)
             for number, (job, one) in enumerate(curves)]  # fmt: skip
    rows = [[job, f"{one.last:.6g}", f"{one.least:.6g}", f"{one.greatest:.6g}"] for job, one in curves]
    table = Table(name, ["job", "last", "least", "greatest"], rows)
    return Figure(name, partial(chart_of, name, f"{name} by step", x, y, lines), table)
