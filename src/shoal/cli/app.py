"""The tree of commands. A command's module is imported when the command is meant, and what it needs when it runs.

Other commands are declared by components: the name is the command's, the value a module whose `register(app)` adds it.
They are looked up only for a name that is not in the table, and for help.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperGroup

from shoal import __version__

if TYPE_CHECKING:
    from shoal.base.discover import Found
    from shoal.cli.context import CliContext
    from shoal.core import Invalid

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "up": ("up",),
    "run": ("run",),
    "submit": ("submit",),
    "jobs": ("jobs", "wait", "show", "explain", "cancel", "suspend", "resume"),
    "streams": ("logs", "events", "metrics"),
    "files": ("ls", "download"),
    "manifests": ("manifest", "sbatch", "import"),
    "tenants": ("tenant", "quota", "secret"),
    "down": ("down",),
    "top": ("top",),
    "server": ("status", "nodes", "node", "settings", "doctor", "gc", "version"),
    "backup": ("backup", "restore"),
    "install": ("install",),
    "demo": ("demo",),
}
"""What each module of `shoal.cli` registers, in the order in which help shows it."""

_WRONG_WORDS = cast("type[Exception]", typer.BadParameter.__mro__[1])
_SHOWN_ERROR = cast("type[Exception]", typer.BadParameter.__mro__[2])
"""Typer's own errors: wrong words, and all that are for a person to read."""

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

    def main(self, args: Any = None, *, standalone_mode: bool = True, **more: Any) -> Any:  # type: ignore[override]
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **more)
        try:
            code = super().main(args, standalone_mode=False, **more)
        except (_SHOWN_ERROR, typer.Abort) as error:
            from shoal.cli import root

            code = root.refuse(error, sys.argv[1:] if args is None else list(args))
        except Exception as error:
            from shoal.base.console.command import complain, exit_code
            from shoal.core import Invalid

            if not isinstance(error, Invalid):  # of a package whose command cannot be loaded
                raise
            complain(error, as_json=False)
            code = exit_code(error)
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-"):
            from shoal.base.console.quick import quicken

            quicken(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except _WRONG_WORDS as error:
            from shoal.cli import root

            raise root.with_meant(error, args) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from shoal.cli import root

        root.write_help(self, ctx, formatter)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        from shoal.base.discover import find

        return [*_MODULE_OF, *(name for name in find("commands") if name not in _MODULE_OF)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name in _MODULE_OF:
            self.commands.update(commands_of(_MODULE_OF[cmd_name]))
        elif cmd_name not in self.commands and not self._add_installed(cmd_name):
            self.add_all()  # so that what was meant can be told
        return self.commands.get(cmd_name)

    def add_all(self) -> Sequence[Invalid]:
        """All commands but those that cannot be loaded, and what is wrong with these and with the declarations."""
        from shoal.base.discover import find, problems
        from shoal.core import Invalid

        wrong = list(problems())
        for name, module in _MODULE_OF.items():
            self.commands[name] = commands_of(module)[name]
        for name, found in find("commands").items():
            if name in self.commands and name not in _MODULE_OF:
                continue
            try:
                if name in _MODULE_OF:
                    raise Invalid(f"commands {name} of the package {found.package} is Shoal's own", where=found.target)
                self.commands[name] = _command_of(found)
            except Invalid as error:
                wrong.append(error)
        return wrong

    def _add_installed(self, name: str) -> bool:
        from shoal.base.discover import find_one

        found = find_one("commands", name)
        if found is not None:
            self.commands[name] = _command_of(found)
        return found is not None


@functools.cache
def _command_of(found: Found) -> Any:
    """The command that a component declares. Raises Invalid where it cannot be loaded or its module does not add it."""
    from shoal.core import Invalid

    module = found.load()
    try:
        return _registered(module)[found.name]
    except Exception as error:  # whatever a package of others does
        what = f"commands {found.name} of the package {found.package} cannot be added: {type(error).__name__}: {error}"
        raise Invalid(what, where=found.target, hint="its module needs a register(app) that adds it") from error


app = typer.Typer(
    name="shoal",
    cls=Commands,
    help="Many tenants share a few accelerators. Start with `shoal up --detach`, then\n`shoal run python3 train.py`.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage or input, 3 not found, 4 no server,\n"
    "5 not allowed, 6 conflict, 130 interrupted.",
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
