"""A command line as a job: which words are one, what the job is called, and what it gets of the caller's shell."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.base.console.resources import CpusOption, DeviceMemoryOption, MemoryOption
from shoal.contract.manifest.quantities import read_duration, read_memory
from shoal.core import ANY, Invalid, PriorityClass

MANIFEST_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
INPUT = "stdin"
"""The file in the run directory that a job reads as its standard input."""

_LONGEST_NAME = 48
_CHANGE_DIRECTORY = (
    'cd "$1" 2>/dev/null || { echo "shoal: the user $(id -u), which this job runs as, cannot enter $1."'
    ' "Run it from a directory that this user may enter, or send its files with a manifest (files: [.])." >&2;'
    ' exit 126; }; shift; exec "$@"'
)
_READ_INPUT = f"exec <{INPUT} && {_CHANGE_DIRECTORY}"
_WRAPPED = ("/bin/sh", "-c")

_FIELD = re.compile(r"""["']?[A-Za-z_]\w*["']?\s*:(\s|$)|\{""")
_SCRIPTS = frozenset({".py", ".sh", ".bash", ".pl", ".r", ".jl", ".js", ".rb", ".lua"})
_RUNNERS = re.compile(
    r"(python|pypy)[\d.]*|(ba|da|z|k|fi)?sh|torchrun|accelerate|deepspeed|node|rscript|julia|perl|ruby|lua|env|nice|time"
    r"|nohup|mpirun|mpiexec|uv|poetry|conda|nsys",
    re.ASCII,
)
"""Programs that run what a later word names."""
_INTERACTIVE = re.compile(r"i?python[\d.]*|(ba|da|z|k|c|tc|fi)?sh|node|julia|r|irb|lua|psql|sqlite3?", re.ASCII)
"""Programs that talk to a person when no word says what to do."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """What a command line may ask for; a manifest says the same by its fields."""

    name: Annotated[
        str | None, typer.Option(help="Of a command line: the job's name.", show_default="the program's")
    ] = None
    priority_class: Annotated[
        PriorityClass, typer.Option("--class", help="Of a command line: guaranteed work goes before best-effort work.")
    ] = PriorityClass.BEST_EFFORT
    accelerators: Annotated[
        str | None,
        typer.Option(metavar="[TYPE:]COUNT", help="Of a command line: accelerators or slots.", show_default="0"),
    ] = None
    device_memory: DeviceMemoryOption = None
    cpus: CpusOption = None
    memory: MemoryOption = None
    max_runtime: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Of a command line: it is ended after so long, as 2h.")
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME[=VALUE]", help="A variable for it; without a value, this shell's."),
    ] = None
    env_file: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Lines NAME=VALUE, or NAME for this shell's value.")
    ] = None

    @property
    def only_with_a_server(self) -> list[str]:
        """The given options that mean nothing where no server runs the command."""
        given = {
            "--name": self.name, "--accelerators": self.accelerators, "--cpus": self.cpus, "--memory": self.memory,
            "--max-runtime": self.max_runtime,
        }  # fmt: skip
        return [option for option, value in given.items() if value is not None]

    @property
    def device_memory_bytes(self) -> int:
        """Of each device; 0: the device is not shared by memory."""
        return 0 if self.device_memory is None else _size(self.device_memory, "--device-memory")

    def environment(self, shell: Mapping[str, str]) -> dict[str, str]:
        """The variables that the options name. Raises Invalid."""
        found: dict[str, str] = {}
        for path in self.env_file or ():
            found |= _read_variables(path, shell)
        for word in self.env or ():
            found |= _variable(word, shell, "--env")
        return found

    def manifest(self, line: Sequence[str], folder: Path, shell: Mapping[str, str], *, reads: bool) -> dict[str, Any]:
        """The job of a command line that runs in `folder`. `reads`: the file INPUT is its standard input."""
        asked = _accelerators(self.accelerators, shared=self.device_memory is not None)
        if self.device_memory is not None:
            asked |= {"share": self.priority_class.value, "memory": self.device_memory_bytes}
        resources: dict[str, Any] = {"accelerators": asked}
        if self.cpus is not None:
            resources["cpus"] = self.cpus
        if self.memory is not None:
            resources["memory"] = _size(self.memory, "--memory")
        made: dict[str, Any] = {
            "name": name_of(line) if self.name is None else self.name,
            "command": [*_WRAPPED, _READ_INPUT if reads else _CHANGE_DIRECTORY, "sh", str(folder), *line],
            "env": {"PATH": shell.get("PATH", os.defpath), **self.environment(shell)},
            "priority_class": self.priority_class.value,
            "resources": resources,
        }
        if self.max_runtime is not None:
            made["max_runtime"] = _read(read_duration, self.max_runtime, "--max-runtime", "such as 30m or 2h")
        return made


def is_command(word: str) -> bool:
    """Whether a first word can only be a program's, not a manifest's."""
    path = Path(word)
    if word == "-" or path.suffix.lower() in MANIFEST_SUFFIXES or shutil.which(word) is None:
        return False
    return "/" in word or not os.path.isfile(path)  # noqa: PTH113 - a word may be too long for a name


def check_manifest(path: Path) -> None:
    """Raises Invalid with what to type instead where a file is no manifest, or may as well be a program."""
    if str(path) == "-" or path.suffix.lower() in MANIFEST_SUFFIXES:
        return
    if not os.path.exists(path):  # noqa: PTH110 - the same
        raise Invalid(
            f"there is neither a manifest nor a program {str(path)!r} here", where="FILE",
            hint=f"check the name; a program that only the server's machines have stands behind --: "
            f"`shoal run -- {path} ...`",
        )  # fmt: skip
    if shutil.which(path) is not None:
        program = f"./{path}" if not path.is_absolute() else str(path)
        raise Invalid(
            f"{str(path)!r} may be a manifest or a program", where="FILE",
            hint=f"`shoal run -f {path}` submits the manifest, `shoal run -- {program}` runs the program",
        )  # fmt: skip
    if os.path.isfile(path) and not _is_mapping(path):  # noqa: PTH113 - a word may be too long for a name
        program = {".py": "python3 ", ".sh": "sh "}.get(path.suffix.lower(), "PROGRAM ")
        how = f"./{path}" if os.access(path, os.X_OK) else f"{program}{path}"
        raise Invalid(f"{str(path)!r} is no manifest", where="FILE", hint=f"to run it as a job: `shoal run {how}`")


def _is_mapping(path: Path) -> bool:
    """Whether the first line that says something is a field, as in a manifest."""
    with path.open(errors="replace") as lines:
        text = (line.strip() for line in lines)
        first = next((line for line in text if line and not line.startswith(("#", "---", "%"))), "")
    return _FIELD.match(first) is not None


def name_of(line: Sequence[str]) -> str:
    """A job's name for a command line: that of the program, or of the script or module that the program runs."""
    program = Path(line[0]).name.lower()
    meant = line[0]
    if _RUNNERS.fullmatch(program):
        for before, word in itertools.pairwise(line):
            if before == "-c":
                break
            if before == "-m":
                meant = word.replace(".", "/")
                break
            if Path(word).suffix.lower() in _SCRIPTS and not word.startswith("-"):
                meant = word
                break
    stem = Path(meant).name if Path(meant).suffix.lower() not in _SCRIPTS else Path(meant).stem
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:_LONGEST_NAME].strip("-") or "command"


def check_terminal(line: Sequence[str]) -> None:
    """Raises Invalid for a program that would talk to a person: a job has no terminal."""
    program = Path(line[0]).name.lower()
    if _INTERACTIVE.fullmatch(program) and (len(line) == 1 or "-i" in line[1:]):
        raise Invalid(
            f"standard input is a terminal, and a job has none: `{line[0]}` would end at once", where="COMMAND",
            hint=f"name what it shall do (`shoal run {line[0]} SCRIPT`), or pass a file: "
            f"`shoal run {line[0]} < SCRIPT`; --local runs it here",
        )  # fmt: skip


def unwrapped(command: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """The words that a person gave, and the directory where they run if it is not the job's own."""
    if tuple(command[:2]) == _WRAPPED and len(command) > 5 and command[2] in (_CHANGE_DIRECTORY, _READ_INPUT):
        return command[5:], command[4]
    return command, None


def _accelerators(text: str | None, *, shared: bool) -> dict[str, Any]:
    kind, colon, count = (str(int(shared)) if text is None else text).rpartition(":")
    if not (count.isascii() and count.isdecimal()):
        raise Invalid(f"{text!r} is no number of accelerators", where="--accelerators", hint="2, or a100:2")
    if shared and not int(count):
        raise Invalid("there is no device whose memory could be limited", where="--device-memory",
                      hint="give --accelerators 1, or --memory for the host's memory")  # fmt: skip
    return {"type": kind if colon else ANY, "count": int(count)}


def _variable(word: str, shell: Mapping[str, str], where: str) -> dict[str, str]:
    name, equals, value = word.partition("=")
    if not _VARIABLE.fullmatch(name):
        raise Invalid(f"{name!r} is no name of a variable", where=where, hint="NAME=VALUE, or NAME for this shell's")
    if equals:
        return {name: value}
    if name not in shell:
        raise Invalid(f"{name} is not set in this shell", where=where, hint=f"export it first, or give {name}=VALUE")
    return {name: shell[name]}


def _read_variables(path: Path, shell: Mapping[str, str]) -> dict[str, str]:
    from shoal.base.console.files import read_input

    text, source = read_input(path)
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            found |= _variable(line.strip().removeprefix("export "), shell, f"{source}:{number}")
    return found


def _size(text: str, option: str) -> int:
    return int(_read(read_memory, text, option, "such as 20GiB"))


def _read(reader: Any, text: str, option: str, hint: str) -> float:
    try:
        return float(reader(text))
    except ValueError as error:
        raise Invalid(str(error), where=option, hint=hint) from None
