"""Backups of a home: backup, restore. They need no server; one may run while a backup is made."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from shoal.base.console.command import command
from shoal.base.console.panels import SERVER
from shoal.cli.context import CliContext

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.", dir_okay=False)]
DbOption = Annotated[str | None, typer.Option(help="The database, where it is not the home's own: sqlite:///PATH.")]


def register(app: typer.Typer) -> None:
    command(app, "backup", rich_help_panel=SERVER, short_help="Copy the database and its keys into one file")(backup)
    command(app, "restore", rich_help_panel=SERVER)(restore)


def backup(
    context: CliContext,
    file: FileArgument,
    db: DbOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Copy the database and the home's keys into one file, while the server runs or not.

    Keep the file private (its mode is 0600): it holds the admin's token and the key that opens all secrets. Logs, runs,
    checkpoints and bundles are not in it: they are files in the home.
    """
    from shoal.control.home.backup import make_backup
    from shoal.control.settings import load_settings

    settings = load_settings({"home": context.home, "db": db})
    made = make_backup(settings.home, settings.database, file, force=force)
    size = file.stat().st_size
    told = {"file": str(file), "bytes": size, **asdict(made)}
    context.show(told, lambda: print(f"{file}: {size} bytes, everything up to sequence {made.seq}"))


def restore(
    context: CliContext,
    file: FileArgument,
    db: DbOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Into a home that has a database: it is moved aside first.")
    ] = False,
) -> None:
    """Put a backup's database and keys into a home. Then start the server: it compares what runs with what it knows."""
    from shoal.control.home.backup import restore_backup
    from shoal.control.settings import load_settings

    settings = load_settings({"home": context.home, "db": db})
    home = settings.home.path
    about, aside = restore_backup(home, settings.database, file, force=force)
    told = {"home": str(home), "replaced": str(aside) if aside else None, **asdict(about)}

    def human() -> None:
        print(f"{home} is as it was at sequence {about.seq}; start it with `shoal up --home {home}`")
        if not about.sha256:
            context.note(
                f"warning: an older Shoal ({about.version}) made this backup, without digests: its database can be "
                "read, but a changed byte in it would not be noticed"
            )
        if aside is not None:
            print(f"what it replaces is in {aside}")

    context.show(told, human)
