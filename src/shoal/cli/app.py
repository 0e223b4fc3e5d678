"""The tree of commands. A command's module is imported when the command is meant, and what it needs when it runs."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from shoal import __version__

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "server": ("up", "down", "status", "gc", "settings", "doctor", "nodes", "version"),
    "backup": ("backup", "restore"),
    "top": ("top",),
    "demo": ("demo",),
    "jobs": ("submit", "run", "wait", "jobs", "show", "explain", "cancel", "halt", "resume"),
    "streams": ("logs", "events", "metrics"),
    "services": ("deploy", "services", "scale", "undeploy"),
    "serve": ("serve",),
    "tenants": ("quota", "tenant", "secret"),
    "measure": ("measure",),
    "schedule": ("schedule",),
    "guard": ("guard",),
    "manifests": ("manifest", "import"),
}
"""What each module of `shoal.cli` registers, in the order in which help shows it."""

_MODULE_OF = {name: module for module, names in COMMANDS.items() for name in names}


@functools.cache
def commands_of(module: str) -> Mapping[str, Any]:
    """The commands and groups that a module of `shoal.cli` registers, by name."""
    app = typer.Typer()
    importlib.import_module(f"shoal.cli.{module}").register(app)
    return typer.main.get_group(app).commands


class Commands(TyperGroup):
    """Imports a command's module when somebody asks for the command, and all of them only for help or after a typo."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(_MODULE_OF)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        for module in [_MODULE_OF[cmd_name]] if cmd_name in _MODULE_OF else COMMANDS:
            self.commands.update(commands_of(module))
        return self.commands.get(cmd_name)


app = typer.Typer(
    name="shoal",
    cls=Commands,
    help="Many tenants share a few accelerators. Start with `shoal up --detach`, then `shoal run -f job.yaml`.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage or input, 3 not found, 4 no server, 5 not allowed, 6 conflict.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"shoal {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
