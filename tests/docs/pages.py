"""Runs what the pages tell a reader to type.

A `console` block with `<!-- run -->` on the line before it is run; with `<!-- run slow -->` its whole page runs among
the slow tests. All blocks of a page run in order, in one shell, in an empty home. A block with `title="NAME"` is a file
that the reader writes: it is there from its place in the page on. The lines after a command are what it prints: numbers
and ids may differ, and `...` stands for anything. A command may fail only where the page shows its error.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(
    r"^(?P<mark><!-- run(?P<slow> slow)? -->\n+)?(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]+)"')
_END = "shoal-page-command-ended"


@dataclass(frozen=True, slots=True)
class Command:
    text: str
    printed: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class File:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    path: Path
    slow: bool
    steps: tuple[Command | File, ...]


def read(path: Path) -> Page | None:
    """The page's steps; None if it has nothing to run."""
    text = path.read_text()
    steps: list[Command | File] = []
    slow = False
    for fence in _FENCE.finditer(text):
        title = _TITLE.search(fence["info"])
        if title:
            steps.append(File(title[1], fence["text"]))
        if fence["mark"]:
            slow = slow or bool(fence["slow"])
            steps += commands(fence["text"], text.count("\n", 0, fence.start("text")) + 1)
    runs = any(isinstance(step, Command) for step in steps)
    return Page(path, slow, tuple(steps)) if runs else None


def commands(block: str, first_line: int) -> list[Command]:
    """What a reader types (after `$ `; a here-document and lines after `\\` belong to it), each with what it prints."""
    found: list[Command] = []
    lines = block.splitlines()
    number = 0
    while number < len(lines):
        start = number
        if not lines[number].startswith("$ "):
            raise ValueError(f"line {first_line + number}: nothing was typed before {lines[number]!r}")
        text = [lines[number].removeprefix("$ ")]
        document = re.search(r"<<'?(\w+)'?", text[0])
        while text[-1].endswith("\\") or (document and lines[number] != document[1]):
            number += 1
            text.append(lines[number])
        number += 1
        printed = []
        while number < len(lines) and not lines[number].startswith("$ "):
            printed.append(lines[number])
            number += 1
        found.append(Command("\n".join(text), tuple(printed), first_line + start))
    return found


def pages() -> list[Page]:
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in map(read, paths) if page is not None]


# --- comparing ---


def agrees(printed: str, shown: tuple[str, ...]) -> bool:
    """Whether a command printed what the page shows."""
    wanted = [_plain(line) for line in shown]
    pattern = r"\s*".join(".*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*?") for line in wanted)
    return re.fullmatch(rf"\s*{pattern}\s*", "\n".join(map(_plain, printed.splitlines())), re.DOTALL) is not None


def _plain(line: str) -> str:
    """Without what differs from run to run: ids, numbers and durations, colours, width of columns."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line)
    line = re.sub(r"\b[js]-[0-9a-z]{8,}\b", "ID", line)
    line = re.sub(r"\b(?:\d+(?:\.\d+)?(?:ms|us|s|m|h|d|x|%)?)(?: ?\d+s)?\b|\b\d+%", "N", line)
    return " ".join(line.split())


# --- running ---


def run(page: Page, directory: Path, more: Mapping[str, str] | None = None) -> None:
    """Run a page's commands there, with `more` variables; raises AssertionError, with the page's line, when one does
    not do what it shows."""
    shell = subprocess.Popen(
        ["bash"], cwd=directory, env={**environment(directory), **(more or {})}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        for step in page.steps:
            if isinstance(step, File):
                target = directory / step.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(step.text)
            else:
                _check(page, step, *_type(shell, step.text))
    finally:
        assert shell.stdin
        shell.stdin.close()
        shell.wait(60)


def _type(shell: subprocess.Popen[str], text: str) -> tuple[int, str]:
    assert shell.stdin
    assert shell.stdout
    shell.stdin.write(f"{{ {text}\n}} </dev/null\necho {_END} $?\n")
    shell.stdin.flush()
    printed = ""
    for line in shell.stdout:
        before, end, code = line.rpartition(f"{_END} ")
        if end:
            return int(code), printed + before
        printed += line
    return shell.wait(60), printed


def _check(page: Page, command: Command, code: int, printed: str) -> None:
    where = f"{page.path.relative_to(ROOT)}:{command.line}: {command.text}"
    may_fail = any(line.startswith("error:") for line in command.printed)
    assert code == 0 or may_fail, f"{where}\nexit code {code}, and it printed:\n{printed}"
    if command.printed:
        shown = "\n".join(command.printed)
        assert agrees(printed, command.printed), f"{where}\nprinted\n{printed}\nand the page shows\n{shown}"


def environment(home: Path) -> Mapping[str, str]:
    """That of a reader who has installed Shoal; ports are free ones, so that pages can run beside each other."""
    bin_directory = Path(sys.executable).parent
    return {
        "HOME": str(home), "PATH": f"{bin_directory}:{os.environ['PATH']}", "LANG": "C.UTF-8", "COLUMNS": "200",
        "SHOAL_PORT": "0", "SHOAL_SERVE__PORT": "0", "SHOAL_SERVE__GRPC_PORT": "0", "TMPDIR": str(home),
    }  # fmt: skip


def clean(home: Path) -> None:
    """End what a page left running."""
    if not (home / ".shoal" / "server.json").exists():
        return
    shoal = [str(Path(sys.executable).parent / "shoal")]
    script = (
        "import shoal\n"
        "with shoal.Client() as client:\n"
        "    for one in client.services.list().services: client.services.undeploy(one.id)\n"
        "    live = [one for one in client.jobs().jobs if not one.state.terminal]\n"
        "    for one in live: client.cancel(one.id)\n"
        "    for one in live: client.wait(one.id, timeout_s=30)\n"
    )
    env = dict(environment(home))
    subprocess.run([sys.executable, "-c", script], env=env, check=False, timeout=90)
    subprocess.run([*shoal, "down"], env=env, check=False, timeout=60)
