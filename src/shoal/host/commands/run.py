"""`shoal guard run` and `doctor`: the commands that touch this machine."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import FAILED, CommandContext, command
from shoal.base.home import default_home
from shoal.core import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.host.guard.config import GuardConfig
    from shoal.host.guard.daemon import GuardDaemon
    from shoal.host.guard.live import LiveHost
    from shoal.host.guard.loop import Tick

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML or TOML (HOME/guard.yaml).", dir_okay=False)
]
_PRIVATE = 0o700


def register(app: typer.Typer) -> None:
    command(app, "run", ("json", "home"))(run)
    command(app, "doctor", ("json", "home"))(doctor)


def run(
    context: CommandContext,
    config: ConfigOption = None,
    policy: Annotated[str | None, typer.Option("--policy", "-p", help="Instead of the configuration's.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print every plan, and apply nothing.")] = False,
    ticks: Annotated[int | None, typer.Option("--ticks", min=1, help="Stop after this number of ticks.")] = None,
) -> None:
    """Guard this host until Ctrl-C, then leave it as it was found.

    A guard that dies, however it does, leaves no limit behind: a small process beside it takes them back. Groups follow
    the configuration: it may be replaced while the guard runs.
    """
    from shoal.host.commands import view
    from shoal.host.guard.daemon import guard_here, spare_the_collector
    from shoal.host.guard.follow import FollowedFile

    spare_the_collector()
    file = _file(config, context.home)
    told = _config(file, policy)
    folder = _folder(context.home)
    journal = told.journal.path or (None if dry_run else folder / "journal.jsonl")

    def started(guard: GuardDaemon, machine: LiveHost) -> None:
        _announce(context, told, guard, journal, machine)
        for name, what in machine.unmatched(time.monotonic()).items():
            context.note(f"warning: {view.unmatched(name, what)}; it is guarded once there is one")

    guard_here(
        told, FollowedFile(file), folder, journal, note=context.note, dry_run=dry_run,
        on_tick=_shower(context) if dry_run else None, ticks=ticks, started=started,
    )  # fmt: skip


def doctor(context: CommandContext, config: ConfigOption = None) -> None:
    """What a guard could sense and do on this machine, and what is missing; nothing is changed. Exit code 1 if it could
    not guard at all."""
    import tempfile
    from dataclasses import asdict

    from shoal.host.commands import view
    from shoal.host.guard.config import parse_config
    from shoal.host.guard.live import LiveHost

    every = {"groups": [{"name": "any", "class": "best-effort", "pids": [os.getpid()]}]}
    told = parse_config(every) if config is None else _config(config, None)
    with tempfile.TemporaryDirectory(prefix="shoal-guard-") as folder:
        machine = LiveHost(told, Path(folder), look_only=True)
        try:
            found, places = machine.capabilities(), machine.topology
            unmatched = machine.unmatched(time.monotonic())
        finally:
            machine.close()
    document = {
        "domains": [{"id": one.id, "cpus": sorted(one.cpus), "nodes": sorted(one.nodes),
                     "accelerators": list(one.accelerators)} for one in places.domains],
        "source": places.source, "disagreements": list(places.disagreements), "unmatched": unmatched,
        **{name: [asdict(one) for one in some] for name, some in found.items()},
    }  # fmt: skip
    context.show(document, lambda: view.doctor(places, found, unmatched))
    if not any(one.available for one in found["actuators"]):
        raise typer.Exit(FAILED)


def home_of(home: Path | None) -> Path:
    return home or default_home(os.environ)


def _file(path: Path | None, home: Path | None) -> Path:
    return path or home_of(home) / "guard.yaml"


def _config(path: Path, policy: str | None) -> GuardConfig:
    from shoal.host.guard.config import PolicyConfig, parse_config, read_config

    if not path.exists():
        hint = "say which groups there are: shoal guard run -c guard.yaml; see docs/how-to/guard-neighbours.md"
        raise Invalid("there is no configuration", where=str(path), hint=hint)
    told = read_config(path)
    if policy is None:
        return told
    parse_config({"groups": [{"name": "x", "class": "best-effort", "pids": [1]}], "policy": policy}, where="--policy")
    return told.model_copy(update={"policy": PolicyConfig(name=policy)})


def _folder(home: Path | None) -> Path:
    folder = home_of(home) / "guard"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
    except OSError as error:
        raise Invalid(f"it cannot be used: {error.strerror}", where=str(folder), hint="give another --home") from None
    return folder


def _announce(
    context: CommandContext, told: GuardConfig, guard: GuardDaemon, journal: Path | None, machine: LiveHost
) -> None:
    working = [one.name for one in machine.capabilities()["actuators"] if one.available]
    names = [one.name for one in told.groups]
    facts = {
        "policy": told.policy.name, "groups": names, "actuators": working,
        "journal": str(journal) if journal else None, "metrics_port": guard.metrics_port,
    }  # fmt: skip

    def human() -> None:
        print(f"guarding {', '.join(names)} by {told.policy.name}")
        print(f"works here: {', '.join(working) or 'nothing'}")
        if journal:
            print(f"journal: {journal}")
        if guard.metrics_port:
            print(f"metrics: http://127.0.0.1:{guard.metrics_port}/metrics")
        print("Ctrl-C ends it and lifts all limits", flush=True)

    context.line(facts, human)


def _shower(context: CommandContext) -> Callable[[Tick], None]:
    from shoal.host.commands import view

    def show(tick: Tick) -> None:
        context.line(view.tick_json(tick), lambda: view.plan_line(tick))

    return show
