"""Shared parts of the commands: reading histories and showing tables."""

from __future__ import annotations

import json
import math
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
    from shoal.market.feeds import text_of

    try:
        found = {str(kind).lower(): float(speed) for kind, speed in json.loads(text_of(path)).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Invalid("a JSON object of numbers by accelerator is meant", where=str(path)) from error
    wrong = [kind for kind, speed in found.items() if not 0 < speed < math.inf]
    if wrong:
        text = f"the speed of {wrong[0]} is {found[wrong[0]]:g}: a positive number is meant"
        raise Invalid(text, where=str(path), hint="speed 1 is that of the accelerator by which --work is counted")
    return found


def read_steps(path: Path) -> dict[str, dict[str, float]]:
    """Steps per second by accelerator and model, with those of `v100`. Of a model that is measured beside others, as in
    Gavel's tables, the speed alone counts (`null`). Raises Invalid for other contents."""
    from shoal.market.feeds import text_of

    hint = '{"v100": {"MODEL": STEPS_PER_S, ...}, "p100": {...}, "k80": {...}} with the same models'
    try:
        told = json.loads(text_of(path))
        found = {kind: {model: _alone(one) for model, one in told[kind].items()} for kind in ("v100", "p100", "k80")}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Invalid("is no JSON of steps per second by accelerator and model", where=str(path), hint=hint) from None
    models = found["v100"].keys()
    if not models or any(one.keys() != models for one in found.values()):
        raise Invalid("has not the same models for each accelerator", where=str(path), hint=hint)
    if not all(0 < speed < math.inf for one in found.values() for speed in one.values()):
        raise Invalid("has a speed that is no positive number", where=str(path), hint=hint)
    return found


def _alone(steps_per_s: Any) -> float:
    return float(steps_per_s["null"] if isinstance(steps_per_s, dict) else steps_per_s)


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
