"""Pages that list commands name only those that exist, with options that they take."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from shoal.cli.app import app

from .pages import ROOT

PAGES = ("coming-from.md", "calendar.md", "keep-artifacts.md", "sweeps.md")
_SPAN = re.compile(r"`(shoal [^`\n]+)`")
_TYPED = re.compile(r"^\$ (shoal (?:[^\n]*\\\n)*[^\n]+)$", re.MULTILINE)
GROUP: Any = get_command(app)


def commands(page: str, found: re.Pattern[str]) -> list[str]:
    text = (ROOT / "docs" / "how-to" / page).read_text()
    return list(dict.fromkeys(one.replace("\\\n", " ") for one in found.findall(text)))


WHOLE = [*commands("coming-from.md", _SPAN), *(one for page in PAGES for one in commands(page, _TYPED))]
NAMED = [one for page in PAGES for one in commands(page, _SPAN)]


def found_in(words: list[str]) -> tuple[Any, list[str]]:
    """The command or group that the first words name, and the words that are left."""
    command, context = GROUP, GROUP.make_context("shoal", ["--help"], resilient_parsing=True)
    while words and hasattr(command, "list_commands"):
        name, *words = words
        command = command.get_command(context, name)
        assert command is not None, f"there is no command {name!r}"
    return command, words


@pytest.mark.parametrize("text", WHOLE)
def test_what_a_reader_types_is_a_command_line(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("FILE", "MODEL", "tune.yaml", "nightly.yaml"):
        Path(name).touch()
    if text in ("shoal COMMAND --help", "shoal --help"):
        return
    command, words = found_in(shlex.split(text)[1:])
    if not hasattr(command, "list_commands"):
        command.make_context("command", words)


@pytest.mark.parametrize("text", NAMED)
def test_what_is_named_in_a_sentence_exists(text: str) -> None:
    if text in ("shoal COMMAND --help", "shoal --help"):
        return
    command, words = found_in(shlex.split(text)[1:])
    options = {option for one in command.params for option in one.opts}
    own = itertools.takewhile(lambda word: word != "--", words)  # what follows is another program's
    assert {word for word in own if word.startswith("--")} <= options
