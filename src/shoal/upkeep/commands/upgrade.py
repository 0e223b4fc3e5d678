"""`shoal upgrade check`."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal import __version__
from shoal.base.console.command import FAILED, CommandContext, command
from shoal.base.console.panels import SERVER

if TYPE_CHECKING:
    from shoal.control.settings import Settings
    from shoal.upkeep.plan import Disk, Step

_SHOWN = 20


def register(app: typer.Typer) -> None:
    upgrade = typer.Typer(help="Before a newer Shoal takes over a home.", no_args_is_help=True)
    command(upgrade, "check", short_help="What this Shoal would do to a home, before it does")(check)
    app.add_typer(upgrade, name="upgrade", rich_help_panel=SERVER)


def check(
    context: CommandContext,
    db: Annotated[str | None, typer.Option(help="The database, where it is not the home's own.")] = None,
) -> None:
    """Say what this Shoal would do to a home if it started there: tables that it would make or migrate, jobs and
    services that go on, and whether there is room for a backup. Nothing is changed, and a server may run.

    Run it with the newer Shoal, before the server is stopped. The exit code is 1 where something stands in the way.
    """
    from shoal.base.home import Home, read_server, running_server
    from shoal.control.home.upgrade import FOLDER, backups_before, stands
    from shoal.control.settings import load_settings
    from shoal.store import check_database, sqlite_path
    from shoal.upkeep import looking, plan, record

    settings = load_settings({"home": context.home, "db": db})
    home, url = Home(settings.home.path), settings.database
    tables = [one.tables for one in settings.extensions if one.tables is not None]
    path = sqlite_path(url)
    damaged = check_database(path) if path is not None and path.exists() else None
    steps = [plan.step_of(one) for one in stands(url, tables)] if damaged is None else []
    kept = looking.kept_in(url) if steps and damaged is None else []
    disk = _disk(settings, home.path / FOLDER) if path is not None else None
    stops = plan.obstacles(steps, disk, damaged)
    server, last = read_server(home), record.read(home.path)
    before = backups_before(home)
    answer: dict[str, Any] = {
        "home": str(home.path), "version": __version__, "server": server.version if server is not None else None,
        "running": running_server(home) is not None, "tables": [asdict(one) for one in steps],
        "kept": [asdict(one) for one in kept],
        "disk": None if disk is None else {**asdict(disk), "needed_bytes": disk.needed_bytes, "fits": disk.fits},
        "last_backup": {"file": last.file, "at": last.at} if last.at else None,
        "before_upgrades": [str(one) for one in before], "obstacles": stops,
    }  # fmt: skip

    def human() -> None:
        _tell(answer, steps, disk, plan.counts(kept))

    context.show(answer, human)
    if stops:
        raise typer.Exit(FAILED)


def _disk(settings: Settings, folder: Path) -> Disk:
    from shoal.upkeep import looking
    from shoal.upkeep.plan import Disk

    free = shutil.disk_usage(looking.nearest(folder)).free
    return Disk(str(folder), looking.size_of(settings.database), free)


def _tell(answer: dict[str, Any], steps: list[Step], disk: Disk | None, kept: Any) -> None:
    from shoal.base.console import output

    who = f"made or last started by shoal {answer['server']}" if answer["server"] else "no server has told its version"
    print(f"{answer['home']}: {who}; this is shoal {answer['version']}")
    if not steps and not answer["obstacles"]:
        print("there is no database yet: a first start makes one")
        return
    changed = [one for one in steps if one.does != "nothing"]
    print(f"tables: {len(steps) - len(changed)} sets stay as they are")
    if changed:
        rows = [[one.tables, one.has or "-", one.will_have, one.does] for one in changed]
        output.put(output.table(["tables of", "have", "will have", "are"], rows))
    for what, count in kept.items():
        print(f"{count} {what}")
    if disk is not None:
        size, free = output.size(disk.database_bytes), output.size(disk.free_bytes)
        print(f"database {size}; {free} free in {disk.folder}, {output.size(disk.needed_bytes)} needed for a backup")
    if any(one.does == "migrated" for one in steps):
        print(
            "a backup is made and checked before tables are changed; an older Shoal can have the home again only by it"
        )
    else:
        print("no tables that are there change: an older Shoal can have the home again")
    for one in answer["before_upgrades"][:_SHOWN]:
        print(f"backup from before an upgrade: {one}")
    for one in answer["obstacles"]:
        print(f"in the way: {one}")
