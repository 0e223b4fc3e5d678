"""The tree of commands. A command's module is imported when the command is meant, and what it needs when it runs.

Commands that are not of this package are entry points of the group `shoal.commands`: the name is the command's, the
value a module whose `register(app)` adds it. They are looked up only for a name that is not in the table, and for help.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from shoal import __version__

if TYPE_CHECKING:
    from shoal.cli.context import CliContext

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "up": ("up",),
    "down": ("down",),
    "server": ("status", "gc", "settings", "doctor", "nodes", "node", "version"),
    "backup": ("backup", "restore"),
    "top": ("top",),
    "demo": ("demo",),
    "run": ("run",),
    "jobs": ("submit", "wait", "jobs", "show", "explain", "cancel", "suspend", "resume"),
    "files": ("ls", "download"),
    "streams": ("logs", "events", "metrics"),
    "tenants": ("quota", "tenant", "secret"),
    "manifests": ("manifest", "import", "sbatch"),
}
"""What each module of `shoal.cli` registers, in the order in which help shows it."""

GROUP = "shoal.commands"

_MODULE_OF = {name: module for module, names in COMMANDS.items() for name in names}


@functools.cache
def commands_of(module: str) -> Mapping[str, Any]:
    """The commands and groups that a module of `shoal.cli` registers, by name."""
    return _registered(importlib.import_module(f"shoal.cli.{module}"))


def _registered(module: Any) -> Mapping[str, Any]:
    app = typer.Typer()
    module.register(app)
    return typer.main.get_group(app).commands


def _make_context(json: bool, home: Path | None, url: str | None) -> CliContext:
    from shoal.cli.context import CliContext

    return CliContext(json, home, url)


class Commands(TyperGroup):
    """Imports a command's module when the command is used. Help and typos import all of them."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        from shoal.base.discover import find

        return [*_MODULE_OF, *(name for name in find(GROUP) if name not in _MODULE_OF)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _MODULE_OF:
            self.commands.update(_in_words(lambda: commands_of(_MODULE_OF[cmd_name])))
        elif cmd_name not in self.commands and not self._add_installed(cmd_name):
            for name in self.list_commands(ctx):  # so that what was meant can be told
                self.get_command(ctx, name)
        return self.commands.get(cmd_name)

    def _add_installed(self, name: str) -> bool:
        from shoal.base.discover import find_one

        found = find_one(GROUP, name)
        if found is not None:
            self.commands[name] = _registered(_in_words(found.load))[name]
        return found is not None


def _in_words(load: Callable[[], Any]) -> Any:
    """What an installed package offers and cannot be loaded is an error in words, like any other."""
    from shoal.core import Invalid

    try:
        return load()
    except Invalid as error:
        from shoal.base.console.command import USAGE, complain

        complain(error, as_json=False)
        sys.exit(USAGE)


app = typer.Typer(
    name="shoal",
    cls=Commands,
    help="Many tenants share a few accelerators. Start with `shoal up --detach`, then `shoal run -f job.yaml`.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage or input, 3 not found, 4 no server, 5 not allowed, 6 conflict.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "obj": _make_context},
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
