"""`shoal forecast start-up`: how long a rented server takes until it is up; and what that is fitted to."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.base.console.command import CommandContext
from shoal.core import NotFound
from shoal.forecast.commands import plots
from shoal.forecast.commands.inputs import Line, positive, read_model, rows_of
from shoal.forecast.commands.plots import PlotOption

LAUNCHES = ("offer", "region", "kind", "seconds")


def fit_start_up(path: Path) -> dict[str, Any]:
    from shoal.forecast.startup import Place, StartUp

    measured: dict[Place, list[float]] = defaultdict(list)
    for number, row in rows_of(path, *LAUNCHES):
        with Line(path, number):
            measured[Place(row["offer"], row["region"], row["kind"])].append(positive(row["seconds"]))
    return StartUp.fit(measured).as_json()


def start_up(
    context: CommandContext,
    model: Annotated[Path, typer.Option("--model", "-m", help="What `shoal forecast fit start-up` wrote.")],
    kind: Annotated[str, typer.Option("--kind", "-k", help="The kind of accelerator, as in the measurements.")],
    region: Annotated[str, typer.Option("--region", "-r", help="The region; one never seen is inferred from others.")],
    offer: Annotated[str, typer.Option("--offer", help="How the server is offered, as in the measurements.")],
    plot: PlotOption = None,
) -> None:  # fmt: skip
    """Seconds from the request of a server until it is up."""
    from shoal.forecast.startup import Place, StartUp

    fitted = read_model(model, StartUp.from_json)
    found = fitted.predict(Place(offer, region, kind))
    if found is None:
        offers = sorted({place.offer for place in fitted.logs})
        raise NotFound(f"no {offer!r} server was measured", hint=f"known: {', '.join(offers)}")
    if plot is not None:
        plots.intervals(plot, "Start-up", "seconds", {f"{offer} {kind} in {region}": found})
    context.show(
        found.as_json(),
        lambda: print(
            f"{found.median:.3g} s ({found.low:.3g} to {found.high:.3g} in {found.level:.0%} of all cases), "
            f"{found.source}"
        ),
    )
