"""`shoal guard`: keep guaranteed work at its speed beside best-effort work on this host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import FAILED, CommandContext, command
from shoal.base.console.panels import TOOLS
from shoal.core import Invalid
from shoal.host.commands import run
from shoal.host.commands.places import journal_of

if TYPE_CHECKING:
    from shoal.host.simulate import Scenario

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


@command(guard_app, "bench", ("json",))
def bench(
    context: CommandContext,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", "-p", help="Compare these (repeat it); else all of them.")
    ] = None,
    scenario: Annotated[
        list[str] | None, typer.Option("--scenario", "-s", help="Only these workloads (repeat it).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the simulated noise.")] = 1,
    live: Annotated[
        bool, typer.Option("--live", help="Measure on this machine instead: an input pipeline beside a memory flood.")
    ] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="With --live, for each policy.")] = 5.0,
) -> None:
    """Compare policies on a set of workloads, in simulation; or here, with --live.

    In simulation nothing is started and nothing on this machine is touched: contention is a model that was fitted to
    one machine.
    """
    if live:
        _live(context, policy, scenario, seconds)
        return
    from shoal.host.commands import view
    from shoal.host.policy import POLICIES
    from shoal.host.simulate import ORACLE, compare

    found = compare(policy or (*POLICIES, ORACLE), _scenarios(scenario, seed))
    context.show(found.as_json(), lambda: view.comparison(found))


def _live(context: CommandContext, policies: list[str] | None, scenario: list[str] | None, seconds: float) -> None:
    from shoal.host.commands import view
    from shoal.host.guard.livebench import measure
    from shoal.host.policy import make_policy

    if scenario:
        raise Invalid("there is one workload to measure", where="--scenario", hint="leave it out with --live")
    names = list(dict.fromkeys(policies or ("none", "core-throttle", "kelp", "model")))
    for name in names:
        make_policy(name)
    found = []
    for one in measure(names, seconds=seconds):
        context.note(f"measured {one.policy}")
        found.append(one)
    context.show([one.as_json() for one in found], lambda: view.measured(found))


def _scenarios(names: list[str] | None, seed: int) -> list[Scenario]:
    from dataclasses import replace

    from shoal.host.simulate import workload_set

    known = {one.name: replace(one, seed=seed) for one in workload_set()}
    if unknown := [name for name in names or () if name not in known]:
        hint = f"one of {', '.join(known)}"
        raise Invalid(f"there is no workload {unknown[0]!r}", where="--scenario", hint=hint)
    return [known[name] for name in names] if names else list(known.values())


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
