"""`shoal market`: what is offered, what was asked and could be had, and what strategies would have paid."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.base.console.command import CommandContext, command
from shoal.base.console.panels import TOOLS
from shoal.core import Invalid
from shoal.market.commands import decide, rented
from shoal.market.commands.output import (
    AcceleratorOption,
    HistoryArgument,
    RegionOption,
    moment,
    read_history,
    read_steps,
    table,
)

market_app = typer.Typer(help="Decide what to rent, where, spot or not, on histories of prices.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    for name, function in (("offers", offers), ("history", history_of), ("tariffs", tariffs), ("published", published)):
        command(market_app, name)(function)
    decide.register(market_app)
    rented.register(market_app)
    app.add_typer(
        market_app, name="market", rich_help_panel=TOOLS, short_help="Decide what to rent, where, spot or not"
    )


def offers(
    context: CommandContext, history: HistoryArgument, accelerator: AcceleratorOption = None,
    region: RegionOption = None,
) -> None:  # fmt: skip
    """The last known price of each offer, the cheapest accelerator first."""
    found = read_history(context, history, accelerator, region)
    rows = []
    for offer, track in found.tracks.items():
        if track.prices is not None and len(track.prices.usd):
            usd = float(track.prices.usd[-1])
            rows.append({**offer.as_json(), "usd_per_hour": usd, "usd_per_accelerator_hour": usd / offer.accelerators,
                         "since": moment(track.prices.at_s[-1]) if track.prices.at_s[-1] else None})  # fmt: skip
    if not rows:
        raise Invalid("the history has no prices", hint="traces of availability alone are for `shoal market compare`")
    rows.sort(key=lambda row: (row["usd_per_accelerator_hour"], row["offer"]))
    context.show(rows, lambda: table(rows, {
        "offer": "OFFER", "accelerator": "KIND", "accelerators": "NUMBER", "usd_per_hour": "$/HOUR",
        "usd_per_accelerator_hour": "$/HOUR EACH", "since": "SINCE",
    }))  # fmt: skip


def history_of(
    context: CommandContext, history: HistoryArgument, accelerator: AcceleratorOption = None,
    region: RegionOption = None,
) -> None:  # fmt: skip
    """What the files hold: changes of price and availability by offer, and what was left out."""
    found = read_history(context, history, accelerator, region)
    rows = []
    for offer, track in sorted(found.tracks.items()):
        prices, had = track.prices, track.availability
        rows.append({
            "offer": offer.name,
            "changes": 0 if prices is None else len(prices.usd),
            "low": None if prices is None else float(prices.usd.min()),
            "high": None if prices is None else float(prices.usd.max()),
            "available": None if had is None else float((had.counts > 0).mean()),
            "first": moment(prices.at_s[0] if prices is not None else had.start_s if had else 0.0),
        })  # fmt: skip
    context.show({"offers": rows, "notes": list(found.notes)}, lambda: table(rows, {
        "offer": "OFFER", "changes": "CHANGES", "low": "LOW $/H", "high": "HIGH $/H", "available": "AVAILABLE",
        "first": "FIRST",
    }))  # fmt: skip


def tariffs(context: CommandContext) -> None:
    """What moving and keeping data costs, with date and source, and which figures could not be verified."""
    from dataclasses import asdict

    from shoal.market.tables import TARIFFS

    rows = [{**asdict(one), "checked": one.checked or None} for one in TARIFFS]
    shown = [{**row, "checked": row["checked"] or "not verified"} for row in rows]
    context.show(rows, lambda: table(shown, {
        "provider": "PROVIDER", "what": "TO OR FOR", "usd": "$/GB (STORAGE: A MONTH)", "date": "DATE",
        "source": "SOURCE", "checked": "CHECKED AGAINST",
    }))  # fmt: skip


def published(
    context: CommandContext,
    history: HistoryArgument,
    speeds: Annotated[Path, typer.Option("--speeds", help="Steps per second: JSON {accelerator: {model: number}}.")],
    days: Annotated[float, typer.Option("--days", min=0.1, help="Days of one V100 that the job is worth.")] = 4.0,
    whole_azure: Annotated[
        bool, typer.Option("--rank-azure-whole/--rank-azure-by-accelerator", help="Keep the defect in its ranking.")
    ] = True,
    past_the_end: Annotated[
        bool, typer.Option("--past-the-end/--within-data", help="Keep the defect of charging beyond the data.")
    ] = True,
) -> None:
    """The strategies of the DISPA'20 paper to the letter: mean dollars and how often cheaper than one V100."""
    from shoal.market.baselines.dime import Defects
    from shoal.market.baselines.dime import table as published_table
    from shoal.market.feeds import read_all

    told = read_steps(speeds)
    costs = published_table(read_all(history), told, sorted(told["v100"]), days, Defects(whole_azure, past_the_end))
    rows: list[dict[str, Any]] = [
        {"strategy": strategy, "model": model, "usd": usd, "ratio": costs["baseline"][model] / usd}
        for strategy, by_model in costs.items()
        for model, usd in by_model.items()
    ]
    context.show(rows, lambda: table(rows, {
        "strategy": "STRATEGY", "model": "MODEL", "usd": "MEAN $", "ratio": "CHEAPER BY",
    }))  # fmt: skip
