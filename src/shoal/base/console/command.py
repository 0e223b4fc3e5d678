"""Options and errors that all commands share: --json, --home and --url, how errors look, and which code they exit
with.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from shoal.base.console.quick import QuickCommand
from shoal.base.home import default_home
from shoal.core import Conflict, Forbidden, Invalid, NotFound, ShoalError, Unavailable

if TYPE_CHECKING:
    from pydantic import BaseModel

FAILED, USAGE, NOT_FOUND, NO_SERVER, FORBIDDEN, CONFLICT, INTERRUPTED = 1, 2, 3, 4, 5, 6, 130

_CODES = {"no-server": NO_SERVER, "too-large": USAGE, "unauthenticated": FORBIDDEN}
_KINDS: tuple[tuple[type[ShoalError], int], ...] = (
    (Invalid, USAGE),
    (NotFound, NOT_FOUND),
    (Unavailable, NO_SERVER),
    (Forbidden, FORBIDDEN),
    (Conflict, CONFLICT),
)

_COMMON = "Common"
JsonFlag = Annotated[bool, typer.Option("--json", help="JSON for programs, on stdout.", rich_help_panel=_COMMON)]
HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home", help="The server's home directory (SHOAL_HOME, else ~/.shoal).", rich_help_panel=_COMMON,
        file_okay=False,
    ),
]  # fmt: skip
UrlOption = Annotated[
    str | None, typer.Option("--url", help="The server's address (SHOAL_URL).", rich_help_panel=_COMMON)
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Its id, a unique beginning of it, or its name.")]
TenantOption = Annotated[str | None, typer.Option("--tenant", "-t", help="For this tenant (admin).")]


@dataclass(frozen=True, slots=True)
class CommandContext:
    """How one command talks to the server and to its caller. The command line gives its commands one that has a client;
    see `command`."""

    json: bool
    home: Path | None
    url: str | None

    def client(self, *, patience_s: float = 2.0) -> AbstractContextManager[Any]:  # noqa: ARG002
        """A `shoal.Client`. `patience_s`: how long a server that is just restarting is waited for."""
        raise ShoalError("this command has no client", hint="run it as a command of `shoal`")

    def folder(self) -> Path:
        """The home directory, named or not."""
        return self.home or default_home(os.environ)

    def show(self, value: BaseModel | Iterable[BaseModel] | object, human: Callable[[], None]) -> None:
        """One JSON document with --json, else whatever `human` prints."""
        if self.json:
            print(json.dumps(plain(value), indent=2))
        else:
            human()

    def line(self, value: BaseModel | object, human: Callable[[], None]) -> None:
        """One JSON line of a stream with --json, else whatever `human` prints; out at once."""
        if self.json:
            print(json.dumps(plain(value)), flush=True)
        else:
            human()

    def note(self, text: str) -> None:
        """A remark for people, beside the output proper."""
        print(text, file=sys.stderr, flush=True)


MakeContext = Callable[[bool, Path | None, str | None], CommandContext]


def plain(value: Any) -> Any:
    """As JSON can hold it."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


_OPTIONS: Mapping[str, tuple[Any, Any]] = {
    "json": (False, JsonFlag), "home": (None, HomeOption), "url": (None, UrlOption),
}  # fmt: skip
"""Default and type of each common option."""


@dataclass(frozen=True, slots=True)
class SettingOption:
    """An option of `shoal up` for one setting. A component declares it by the option's name;
    `kind` is `str` or `Path`."""

    setting: str
    text: str
    kind: type[str | Path] = str
    metavar: str = "VALUE"

    def annotation(self) -> Any:
        return Annotated[
            self.kind | None, typer.Option(help=f"{self.text} The setting {self.setting}.", metavar=self.metavar)
        ]

    def set_to(self, value: str | Path) -> str:
        """As `--set` takes it. The server may run elsewhere, so a path is absolute."""
        return f"{self.setting}={value.absolute() if isinstance(value, Path) else value}"


@dataclass(frozen=True, slots=True)
class JobOption:
    """An option of `shoal submit` and `shoal run`, which may be repeated. A component declares it by the option's name;
    `section` makes of what is given the section `extensions: {EXTENSION: ...}` of the job, or raises Invalid."""

    extension: str
    text: str
    section: Callable[[Sequence[str]], Mapping[str, Any]]
    metavar: str = "VALUE"

    def annotation(self) -> Any:
        return Annotated[list[str] | None, typer.Option(help=self.text, metavar=self.metavar)]


def command(
    app: typer.Typer,
    name: str,
    takes: Collection[str] = tuple(_OPTIONS),
    more: Mapping[str, Any] = MappingProxyType({}),
    **settings: Any,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function whose first parameter is a `CommandContext`; the common options that it `takes` are added to
    its own. A parameter that is a dataclass stands for its fields, options that several commands share. `more` has the
    types of options by name that the function takes as keywords.

    The context is made by the click context's object where it has one, a `MakeContext`."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own, groups = list[inspect.Parameter](), dict[str, tuple[type[Any], list[str]]]()
        for one in list(inspect.signature(function, eval_str=True).parameters.values())[1:]:
            if isinstance(one.annotation, type) and is_dataclass(one.annotation):
                kinds = get_type_hints(one.annotation, include_extras=True)
                groups[one.name] = one.annotation, [field.name for field in fields(one.annotation)]
                own += [_option(field.name, field.default, kinds[field.name]) for field in fields(one.annotation)]
            elif one.kind is not inspect.Parameter.VAR_KEYWORD:
                own.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        own += [_option(one, None, kind) for one, kind in more.items()]
        common = [_option(one, *_OPTIONS[one]) for one in takes]
        # Typer gives its own context to a parameter of this type.
        common.append(inspect.Parameter("typer_context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

        @functools.wraps(function)
        def run(**given: Any) -> None:
            make: MakeContext = given.pop("typer_context").obj or CommandContext
            told = {one: given.pop(one) if one in takes else default for one, (default, _) in _OPTIONS.items()}
            context = make(told["json"], told["home"], told["url"])
            for one, (kind, names) in groups.items():
                given[one] = kind(**{name: given.pop(name) for name in names})
            guarded(context, lambda: function(context, **given))

        parameters = own + common
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(name, **{"cls": QuickCommand, "help": _flowing(function.__doc__), **settings})(run)
        return function

    return register


def _flowing(text: str | None) -> str:
    """A docstring whose paragraphs take the terminal's width, which Typer does for the first one only."""
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in inspect.cleandoc(text or "").split("\n\n"))


def _option(name: str, default: Any, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def guarded(context: CommandContext, action: Callable[[], None]) -> None:
    """Run a command; its errors become one clear block and an exit code."""
    try:
        action()
        sys.stdout.flush()
    except ShoalError as error:
        complain(error, as_json=context.json)
        raise typer.Exit(exit_code(error)) from None
    except OSError as error:
        if error.filename is None:  # not a file that was opened, but what we print: to a full disk, for one
            raise typer.Exit(lost_output(error, as_json=context.json)) from None
        kind = NotFound if isinstance(error, FileNotFoundError) else ShoalError
        told = kind(error.strerror or str(error), where=error.filename)
        complain(told, as_json=context.json)
        raise typer.Exit(exit_code(told)) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def lost_output(error: OSError, *, as_json: bool = False) -> int:
    """Report that the output cannot be written, unless its reader has closed the pipe. Returns the exit code."""
    # So that Python does not fail on it again when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        complain(ShoalError(error.strerror or str(error), where="standard output"), as_json=as_json)
    return FAILED


def exit_code(error: ShoalError) -> int:
    return _CODES.get(error.code) or next((code for kind, code in _KINDS if isinstance(error, kind)), FAILED)


def complain(error: ShoalError, *, as_json: bool) -> None:
    problems = error.problems if isinstance(error, Invalid) else ()
    if as_json:
        body = {
            **_parts(error), "code": error.code, "problems": [_parts(problem) for problem in problems],
        }  # fmt: skip
        print(json.dumps({"error": body}), file=sys.stderr)
        return
    mark = _red("error:")
    lines = [f"{mark} {error.what}", *_details(error)]
    if problems and (len(problems) > 1 or problems[0].what != error.what):
        lines = [f"{mark} {error.what}", *(["  where: " + error.where] if error.where else [])]
        for problem in problems:
            lines += [f"  - {problem.where}: {problem.what}" if problem.where else f"  - {problem.what}"]
            lines += [f"      hint: {problem.hint}"] if problem.hint else []
        lines += [f"  hint: {error.hint}"] if error.hint else []
    print("\n".join(lines), file=sys.stderr)


def _parts(error: ShoalError) -> dict[str, str | None]:
    return {"what": error.what, "where": error.where, "hint": error.hint}


def _details(error: ShoalError) -> list[str]:
    lines = [f"  where: {error.where}"] if error.where else []
    if error.hint:
        lines.append("  hint: " + error.hint.replace("\n", "\n    "))
    return lines


def _red(text: str) -> str:
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    return f"\033[1;31m{text}\033[0m" if colour else text
