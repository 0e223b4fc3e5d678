"""`shoal guard`: keep guaranteed work at its speed beside best-effort work on this host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.base.console.command import FAILED, CommandContext, command
from shoal.base.console.panels import TOOLS
from shoal.core import NotFound
from shoal.host.commands import run

guard_app = typer.Typer(
    help="Keep guaranteed work at its speed while best-effort work uses what is left of memory bandwidth and caches.",
    no_args_is_help=True,
)

JournalOption = Annotated[
    Path | None, typer.Option("--journal", help="A guard's journal; else the one of the home.", dir_okay=False)
]
GroupArgument = Annotated[str | None, typer.Argument(metavar="GROUP", help="One group; else all.")]


def register(app: typer.Typer) -> None:
    run.register(guard_app)
    app.add_typer(
        guard_app, name="guard", rich_help_panel=TOOLS, short_help="Keep guaranteed work fast beside best-effort work"
    )


def journal_of(home: Path | None, journal: Path | None) -> Path:
    """Raises NotFound if there is none."""
    path = journal or run.home_of(home) / "guard" / "journal.jsonl"
    if not path.is_file():
        raise NotFound("no guard has kept a journal there", where=str(path), hint="shoal guard run --config guard.yaml")
    return path


@command(guard_app, "replay", ("json",))
def replay(
    context: CommandContext,
    journal: Annotated[Path, typer.Argument(metavar="JOURNAL", help="One file of it.", dir_okay=False)],
    policy: Annotated[
        str | None, typer.Option("--policy", "-p", help="What would this one have decided on what was seen?")
    ] = None,
) -> None:
    """Decide a journal's ticks again. The same policy must come to the same plans: exit code 1 if it does not."""
    from shoal.host.commands import view
    from shoal.host.guard.replay import replay as decide
    from shoal.host.policy import make_policy

    found = list(decide(journal, make_policy(policy) if policy else None))
    context.show(view.replayed_json(found, policy), lambda: view.replayed(found, policy))
    if policy is None and any(one.differs for one in found):
        raise typer.Exit(FAILED)


@command(guard_app, "explain", ("json", "home"))
def explain(
    context: CommandContext,
    group: GroupArgument = None,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="The number of changes of limits to show.")] = 20,
    journal: JournalOption = None,
) -> None:
    """Why limits are what they are: the last changes, each with its reason; and what no limit shows now."""
    from shoal.host.commands import view
    from shoal.host.guard.history import changes, faults, present

    path = journal_of(context.home, journal)
    found = changes(path, group=group, last=last)
    wrong = faults(path, group=group, last=last)

    def human() -> None:
        view.changes(found, group)
        view.warnings(present(path).record.snapshot, group)
        view.faults(wrong)

    entries = [one.as_json() for one in found] + [one.as_json() for one in wrong]
    context.show(sorted(entries, key=lambda one: float(one["at"])), human)


@command(guard_app, "status", ("json", "home"))
def status(context: CommandContext, journal: JournalOption = None) -> None:
    """What the guard saw and decided last, and whether it runs. Exit code 1 if it does not."""
    from shoal.host.commands import view
    from shoal.host.guard.history import present

    found = present(journal_of(context.home, journal))
    context.show(found.as_json(), lambda: view.status(found))
    if not found.running:
        raise typer.Exit(FAILED)
