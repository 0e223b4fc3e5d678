"""What the commands share: reading histories and showing tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext
from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.market.history import History

HistoryArgument = Annotated[
    list[Path], typer.Argument(metavar="HISTORY", help="Files or folders of prices and availability.")
]
AcceleratorOption = Annotated[str | None, typer.Option("--accelerator", "-a", help="Only offers of this accelerator.")]
RegionOption = Annotated[str | None, typer.Option("--region", help="Only zones or regions that begin like this.")]


def read_history(context: CommandContext, paths: list[Path], accelerator: str | None, region: str | None) -> History:
    from shoal.market.feeds import read_all

    found = read_all(paths).only(accelerator, region)
    if not context.json:
        for note in found.notes:
            context.note(f"note: {note}")
    return found


def read_speeds(path: Path) -> dict[str, float]:
    """Speed by accelerator, relative to the one on which hours of work are counted."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return {str(kind).lower(): float(speed) for kind, speed in told.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise Invalid("a JSON object of numbers by accelerator is meant", where=str(path)) from error


def moment(at_s: float) -> str:
    return datetime.fromtimestamp(float(at_s), UTC).isoformat(timespec="minutes").replace("+00:00", "Z")


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(*columns.values(), box=None, pad_edge=False)
    for row in rows:
        shown.add_row(*(_cell(row[name]) for name in columns))
    Console(soft_wrap=True).print(shown)


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
