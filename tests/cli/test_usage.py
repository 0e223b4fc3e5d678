"""Every command refuses wrong words with a message and exit code 2, never with a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from shoal.cli.app import app


def leaves(group: Any, context: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from leaves(command, context, (*path, name))
        else:
            yield (*path, name), command


GROUP: Any = get_command(app)
COMMANDS = dict(leaves(GROUP, GROUP.make_context("shoal", ["--help"], resilient_parsing=True)))
NEEDS_WORDS = [path for path, command in COMMANDS.items() if any(parameter.required for parameter in command.params)]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_option_that_it_does_not_have(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--no-such-option"])
    assert result.exit_code == 2
    assert "--no-such-option" in result.output


@pytest.mark.parametrize("path", NEEDS_WORDS, ids=" ".join)
def test_words_that_it_needs_are_missing(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path])
    assert result.exit_code == 2
    assert "error: missing " in result.output


def test_every_command_answers_as_json_but_the_one_that_the_page_names() -> None:
    without = [path for path, command in COMMANDS.items() if not any("--json" in one.opts for one in command.params)]
    assert without == [("device", "top"), ("offload", "run"), ("shell", "run"), ("shell", "agent"), ("shell", "proxy")]
