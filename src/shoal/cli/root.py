"""The root of the command line: its help, a line a command, and how wrong words are refused."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from shoal.base.console.command import FAILED, complain
from shoal.base.console.panels import PANELS, SERVER
from shoal.core import Invalid

MEANT: Mapping[str, str] = {
    "completion": "'--install-completion'",
    "config": "'settings'",
    "cp": "'download'",
    "delete": "'cancel' (a job) or 'undeploy' (a service)",
    "describe": "'show'",
    "fetch": "'download'",
    "get": "'jobs', 'services' or 'download'",
    "help": "'--help'",
    "info": "'status' (the server) or 'show' (a job)",
    "init": "'up'",
    "kill": "'cancel'",
    "list": "'jobs' or 'services'",
    "login": "SHOAL_URL and SHOAL_TOKEN in the environment (there is no login)",
    "ps": "'jobs'",
    "queue": "'jobs'",
    "rm": "'cancel' (a job) or 'undeploy' (a service)",
    "sacct": "'jobs --since 1d'",
    "scancel": "'cancel'",
    "serve-model": "'deploy'",
    "sinfo": "'nodes'",
    "squeue": "'jobs'",
    "srun": "'run'",
    "start": "'up' (the server), 'run' (a job) or 'deploy' (a service)",
    "stop": "'down' (the server), 'cancel' (a job) or 'undeploy' (a service)",
    "tail": "'logs -f'",
    "token": "'tenant token' (of a tenant) or 'users' (of a person)",
    "why": "'explain'",
}
"""What other tools' words are called here."""

_GUESS = re.compile(r"\.? (?:Did you mean (?P<word>.+?)\?|\((?P<kind>Possible options: .+?)\))$")
_COMMON = ("--home", "--json", "--url")


def refuse(error: Any, words: Sequence[str]) -> int:
    """Say what is wrong with the words of a command, as every other error is said. Returns the exit code."""
    if isinstance(error, typer.Abort):
        print("aborted", file=sys.stderr)
        return FAILED
    own = words[: words.index("--")] if "--" in words else words
    context: Any = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(context.get_help())
        return int(error.exit_code)
    what, hint = _in_words(error, context)
    complain(Invalid(what, where=None if context is None else context.command_path, hint=hint), as_json="--json" in own)
    return int(error.exit_code)


def _in_words(error: Any, context: Any) -> tuple[str, str | None]:
    text = str(error.format_message()).strip()
    option = getattr(error, "option_name", None)
    if context is not None and context.parent is None and option in _COMMON:
        what, _, _ = text.partition(" (")
        return _begin(what), f"it stands behind the command: `shoal jobs {option} ...`"
    guess = _GUESS.search(text)
    if guess is not None:
        word = guess["word"] or guess["kind"].removeprefix("Possible options: ").replace(", ", " or ")
        return _begin(text[: guess.start()]), f"did you mean {word}?"
    return _begin(text), None if context is None else f"`{context.command_path} --help` says what it takes"


def _begin(text: str) -> str:
    """As other errors are written: no capital, no full stop."""
    text = text.rstrip(". \n")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def with_meant(error: Any, words: Sequence[str]) -> Any:
    """The error of a command that there is not, with what such a word is called here."""
    if words and words[0] in MEANT:
        error.message = f"No such command {words[0]!r}. Did you mean {MEANT[words[0]]}?"
    return error


# --- help ---


def write_help(group: Any, context: Any, formatter: Any) -> None:
    """All commands, a line each, those that a beginner needs first."""
    by_panel: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
    broken = group.add_all()
    for name in group.list_commands(context):
        command = group.commands.get(name)
        if command is not None and not command.hidden:
            panel = getattr(command, "rich_help_panel", None)
            by_panel.setdefault(panel if isinstance(panel, str) else SERVER, []).append((name, summary(command)))
    width = max(len(name) for rows in by_panel.values() for name, _ in rows)
    formatter.write(f"Usage: {context.command_path} COMMAND [OPTIONS]\n\n{group.help}\n")
    for panel, rows in by_panel.items():
        if rows:
            formatter.write(f"\n{_bold(panel)}\n")
            formatter.write("".join(f"  {name:<{width}}  {text}\n" for name, text in rows))
    for problem in broken:
        print(f"warning: {problem}", file=sys.stderr)
    options = ", ".join(one.opts[0] for one in group.get_params(context) if not getattr(one, "hidden", False))
    formatter.write(f"\n`{context.command_path} COMMAND --help` says more.\nOptions: {options}\n{group.epilog}\n")


def summary(command: Any) -> str:
    """The short help of a command, else the first statement of its help."""
    if command.short_help:
        return str(command.short_help)
    return re.split(r"[.:;](?:\s|$)", " ".join((command.help or "").split()), maxsplit=1)[0]


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text
