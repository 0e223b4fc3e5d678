"""Install: what a machine needs to keep a server running, written as files for systemd, logrotate and an admin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from shoal.base import services
from shoal.base.console.command import command
from shoal.base.console.panels import SERVER
from shoal.cli.context import CliContext
from shoal.core import Invalid

_HOME, _CONFIG = Path("/var/lib/shoal"), Path("/etc/shoal/config.yaml")


def register(app: typer.Typer) -> None:
    command(app, "install", takes=("json",), rich_help_panel=SERVER, short_help="Keep a server running by systemd")(
        install
    )


def install(
    context: CliContext,
    system: Annotated[bool, typer.Option("--system", help="For the machine; else nothing is written.")] = False,
    user: Annotated[
        str,
        typer.Option(metavar="NAME", help="Whose rights the server has. As root it gives each tenant its own user."),
    ] = "shoal",
    home: Annotated[Path, typer.Option("--home", metavar="DIR", help="The server's home.")] = _HOME,
    root: Annotated[
        Path, typer.Option("--root", metavar="DIR", help="Write below this directory: for packages and images.")
    ] = Path("/"),
    shown: Annotated[bool, typer.Option("--print", help="Print the files; write none.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that Shoal did not write.")] = False,
) -> None:
    """Write a systemd unit, a user, directories, rotation of logs and a settings file, and say what to type then.

    Nothing is started, and a settings file that is there stays. Run it again after an upgrade or a move of Python.
    """
    if not system:
        raise Invalid("it is installed for the machine only", where="--system", hint="shoal install --system --print")
    made = services.files(services.Installation(Path(sys.executable), home, _CONFIG, user))
    if shown:
        context.show([one.as_json() for one in made], lambda: print("\n".join(one.shown() for one in made)))
        return
    written = [services.put(root, one, force=force) for one in made]
    told = [{"path": str(one.path), "written": new} for one, new in zip(made, written, strict=True)]

    def human() -> None:
        for one in told:
            print(f"{one['path']}" + ("" if one["written"] else "  (was there, and stays)"))
        if root == Path("/"):
            print("now type:\n  " + "\n  ".join(services.NEXT))

    context.show(told, human)
