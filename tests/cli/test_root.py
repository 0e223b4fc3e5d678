"""What `shoal` says of itself, and how wrong words are refused: in one style, with what to type."""

from __future__ import annotations

import functools
import json
import re

import pytest
import typer
from typer.testing import CliRunner

from shoal.base.console.panels import PANELS
from shoal.cli.app import app
from shoal.cli.root import MEANT


def told(*words: str, code: int = 2) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, (result.stdout, result.stderr)
    assert result.stdout == ""
    return result.stderr


def test_help_has_a_line_a_command_in_groups_that_begin_with_the_first_steps() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert max(map(len, shown.splitlines())) <= 80
    panels = re.findall(r"^(?! |Usage|Many|Options|Exit|`|\d)(.+)$", shown, re.MULTILINE)
    assert panels == list(PANELS)
    first = shown.split("Start here\n")[1].split("\n\n")[0]
    assert [line.split()[0] for line in first.splitlines()] == ["up", "run", "jobs", "explain", "logs", "deploy", "web"]
    group = typer.main.get_command(app)
    context = group.make_context("shoal", ["--help"], resilient_parsing=True)
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        assert len(re.findall(rf"^  {name} +\S", shown, re.MULTILINE)) == 1
    assert CliRunner().invoke(app, []).stdout.startswith("Usage: shoal COMMAND")
    assert "`shoal run python3 train.py`" in shown


@functools.cache
def known() -> frozenset[str]:
    group = typer.main.get_command(app)
    context = group.make_context("shoal", ["--help"], resilient_parsing=True)
    return frozenset(group.list_commands(context))  # type: ignore[attr-defined]


@pytest.mark.parametrize("word", MEANT)
def test_the_words_of_other_tools_lead_to_ours(word: str) -> None:
    assert word not in known()
    for meant in re.findall(r"'(\w+)", MEANT[word]):
        assert meant in known()
    assert f"hint: did you mean {MEANT[word]}?" in told(word)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["staus"], ["error: no such command 'staus'", "where: shoal", "hint: did you mean 'status'?"]),
        (["jobs", "--stat", "x"], ["error: no such option: --stat", "where: shoal jobs", "--state"]),
        (["--home", "x", "jobs"], ["error: no such option: --home", "stands behind the command: `shoal jobs --home"]),
        (["show"], ["error: missing argument 'JOB'", "hint: `shoal show --help`"]),
        (["tenant", "crate"], ["error: no such command 'crate'", "where: shoal tenant", "'create'"]),
        (["jobs", "x"], ["error: got unexpected extra argument(s) (x)"]),
    ],
)
def test_wrong_words_are_refused_as_everything_is(words: list[str], lines: list[str]) -> None:
    said = told(*words)
    assert said.startswith("error: ")
    assert "╭" not in said
    assert all(line in said for line in lines), said


def test_wrong_words_are_one_json_object_where_json_is_asked_for() -> None:
    error = json.loads(told("jobs", "--stat", "x", "--json"))["error"]
    assert (error["code"], error["what"], error["where"]) == ("invalid", "no such option: --stat", "shoal jobs")
    assert told("run", "--nope", "--", "echo", "--json").startswith("error: ")
