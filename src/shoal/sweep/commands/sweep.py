"""`shoal sweep`: one manifest with many values of its parameters."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from shoal.base.console.command import CommandContext, TenantOption, command
from shoal.base.console.files import read_input
from shoal.base.console.panels import JOBS
from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.sweep.models import SweepView, TrialView
    from shoal.sweep.trials import Sweep


class RunsByItself(TyperGroup):
    """`shoal sweep FILE` means `shoal sweep run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args.insert(0, "run")
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    sweep = typer.Typer(
        cls=RunsByItself, help="Run a job with many values of its parameters, and compare them.", no_args_is_help=True
    )
    sweep.callback()(lambda: None)
    command(sweep, "run")(run)
    command(sweep, "show")(show)
    app.add_typer(sweep, name="sweep", rich_help_panel=JOBS)


def run(
    context: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The job's manifest; - reads stdin.", allow_dash=True)],
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUES", help="lr=0.1,0.01; with --random also 1e-5..0.1:log, 1..8:int."),
    ] = None,
    random: Annotated[int | None, typer.Option(metavar="N", min=1, help="The number of random draws.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Other draws with another seed.")] = None,
    rows: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A CSV file with a row for each trial.", dir_okay=False)
    ] = None,
    metric: Annotated[str | None, typer.Option(help="What trials report and are compared by.")] = None,
    goal: Annotated[str | None, typer.Option(metavar="min|max", help="Which value is best.")] = None,
    stop: Annotated[
        str | None,
        typer.Option(metavar="ETA|median", help="End trials early: one of ETA at a rung goes on, or the better half."),
    ] = None,
    first: Annotated[int | None, typer.Option(metavar="STEP", min=1, help="The step of the first rung.")] = None,
    at_once: Annotated[int | None, typer.Option(metavar="N", min=1, help="The most trials at a time.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the trials and submit nothing.")] = False,
    tenant: TenantOption = None,
) -> None:  # fmt: skip
    """Submit a job array, each task of which has other values of some parameters.

    `${sweep.NAME}` in the manifest's command and env stands for a trial's value. What the manifest says itself, in
    `extensions: {sweep: ...}`, is where the options begin.
    """
    from shoal.contract.manifest import parse_manifest

    text, source = read_input(file)
    manifest = parse_manifest(text, source=source)
    asked: dict[str, Any] = json.loads(json.dumps(manifest.extensions.get("sweep", {})))
    if parameters or rows is not None:
        asked = {key: value for key, value in asked.items() if key not in ("parameters", "rows", "random")}
    if parameters:
        asked["parameters"] = dict(_parameter(one) for one in parameters)
    if rows is not None:
        asked["rows"] = read_rows(rows)
    given = {"random": random, "seed": seed, "metric": metric, "goal": goal}
    asked |= {key: value for key, value in given.items() if value is not None}
    if stop is not None or first is not None:
        asked["stop"] = {
            **asked.get("stop", {}),
            **({"rule": "median"} if stop == "median" else {"eta": _eta(stop)} if stop else {}),
            **({"first": first} if first else {}),
        }
    sweep = _checked(asked, [*manifest.argv(), *manifest.env.values()])
    limit = f"%{at_once}" if at_once is not None else ""
    array = f"0-{sweep.count - 1}{limit}"
    values = {**manifest.values(), "array": array, "extensions": {**manifest.extensions, "sweep": asked}}
    if dry_run:
        _show_trials(context, sweep)
        return
    base = None if str(file) == "-" else file.absolute().parent
    with context.client() as client:
        made = client.submit(json.dumps(values, default=list), tenant=tenant, base=base)
    context.show(made, lambda: print(f"{made.array.id}  {made.array.name}: {sweep.count} trials ({made.tenant})"))


def _parameter(text: str) -> tuple[str, Any]:
    """`lr=0.1,0.01` or `lr=1e-5..0.1:log`. Raises Invalid."""
    name, sign, values = text.partition("=")
    if not sign or not values:
        raise Invalid(f"{text!r} names no values", where="--set", hint="such as lr=0.1,0.01")
    low, dots, rest = values.partition("..")
    high, *kinds = rest.split(":")
    ends = [value_of(one) for one in (low, high)]
    if not dots or any(isinstance(one, str | bool) for one in ends):
        return name, [value_of(one) for one in values.split(",")]
    if unknown := set(kinds) - {"log", "int"}:
        raise Invalid(f"{min(unknown)!r} is no kind of range", where="--set", hint="such as 1e-5..0.1:log, or 1..8:int")
    return name, {"min": ends[0], "max": ends[1], "log": "log" in kinds, "integer": "int" in kinds}


def value_of(text: str) -> bool | int | float | str:
    """As people write it: a number, true or false, or else text."""
    plain = text.strip()
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(plain.lower(), plain)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file with a head. Raises Invalid."""
    text, source = read_input(path)
    reader = csv.DictReader(text.splitlines())
    found = []
    for row in reader:
        if None in row or None in row.values():
            raise Invalid("it has not as many fields as the head", where=f"{source}:{reader.line_num}")
        found.append({name.strip(): value_of(value) for name, value in row.items()})
    if not found:
        raise Invalid("it has no rows", where=source, hint="names in the first line, then a line for each trial")
    return found


def _eta(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise Invalid(f"{text!r} is no rule", where="--stop", hint="a number from 2 on, or median")
    return int(text)


def _checked(asked: dict[str, Any], texts: list[str]) -> Sweep:
    """Raises Invalid for what is no sweep, or for a text that names what is not swept over."""
    from pydantic import ValidationError

    from shoal.base.validation import problems
    from shoal.sweep.trials import Sweep, substitute

    if not asked:
        raise Invalid("there is nothing to sweep over", where="--set", hint="such as --set lr=0.1,0.01")
    try:
        sweep = Sweep.model_validate(asked)
    except ValidationError as error:
        wrong = problems(error)[0]
        where = f"extensions.sweep.{wrong.where}" if wrong.where else "extensions.sweep"
        raise Invalid(wrong.what, where=where, hint="`shoal sweep run --help` has examples") from None
    first = sweep.trial(0)
    used = [text for text in texts if substitute(text, first) != text]
    if not used:
        raise Invalid(
            "neither the command nor env names a parameter of the sweep", where="command",
            hint=f"write ${{sweep.{min(sweep.names)}}} where its value belongs",
        )  # fmt: skip
    return sweep


def _show_trials(context: CommandContext, sweep: Sweep) -> None:
    from shoal.sweep.trials import every_trial, title

    found = [{"index": at, "values": dict(values)} for at, values in enumerate(every_trial(sweep))]
    context.show(found, lambda: print("\n".join(f"{at}  {title(one)}" for at, one in enumerate(every_trial(sweep)))))


def show(
    context: CommandContext,
    ref: Annotated[str, typer.Argument(metavar="NAME", help="The sweep's name, or the id of its array.")],
    metric: Annotated[str | None, typer.Option(help="By this in place of its own metric.")] = None,
    tenant: TenantOption = None,
) -> None:
    """The trials of a sweep, the best first."""
    with context.client() as client:
        found: SweepView = client.sweeps.get(ref, tenant=tenant, metric=metric)
    context.show(found, lambda: _table(found))


def _table(found: SweepView) -> None:
    from shoal.base.console import output

    by = f", {'lowest' if found.goal == 'min' else 'highest'} {found.metric} first" if found.metric else ""
    print(f"{found.name} ({found.array}): {len(found.trials)} trials{by}")
    columns = ["trial", *([f"best {found.metric}", "last"] if found.metric else []), "step", "state", "job"]
    rows = [
        [one.title, *([_number(one.best), _number(one.last)] if found.metric else []), _step(one), _state(one), one.job]
        for one in found.trials
    ]
    output.put(output.table(columns, rows, last_gives_way=False))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _step(trial: TrialView) -> str:
    return "-" if trial.step is None else str(trial.step)


def _state(trial: TrialView) -> str:
    return "ended early" if trial.stopped_early else trial.state.value
