"""Values that go past Typer's adapters are what the adapters would have made of them."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from shoal.base.console.quick import QuickCommand


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


def _app(cls: Any, seen: list[Any]) -> typer.Typer:
    app = typer.Typer()

    @app.command(cls=cls)
    def run(
        word: str,
        more: Annotated[list[str] | None, typer.Argument()] = None,
        text: str = "as it is",
        number: int = 7,
        few: Annotated[int, typer.Option(min=1, max=9)] = 3,
        share: float | None = None,
        colour: Colour = Colour.RED,
        place: Path | None = None,
        several: Annotated[list[str] | None, typer.Option("--each")] = None,
        numbers: Annotated[list[int] | None, typer.Option("--n")] = None,
        flag: bool = False,
        called: Annotated[str, typer.Option(callback=lambda value: f"<{value}>")] = "back",
    ) -> None:
        seen.append((word, more, text, number, few, share, colour, place, several, numbers, flag, called))

    return app


def outcome(cls: Any, words: list[str]) -> tuple[int, list[Any], str]:
    seen: list[Any] = []
    done = CliRunner().invoke(_app(cls, seen), words)
    return done.exit_code, seen, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        [], ["a"], ["a", "b", "c"], ["a", "--text", "x"], ["a", "--text", ""], ["", "--text", "x"],
        ["a", "--number", "12"], ["a", "--number", "twelve"], ["a", "--few", "3"], ["a", "--few", "10"],
        ["a", "--share", "0.5"], ["a", "--share", "none"], ["a", "--colour", "blue"], ["a", "--colour", "green"],
        ["a", "--place", "/tmp"], ["a", "--each", "1", "--each", "2"], ["a", "--n", "1", "--n", "2"],
        ["a", "--n", "x"], ["a", "--flag"], ["a", "--called", "up"], ["a", "--nothing"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_quick_command_takes_what_typer_takes_and_refuses_what_it_refuses(words: list[str]) -> None:
    assert outcome(QuickCommand, words) == outcome(None, words)


@given(st.text(), st.lists(st.text(), max_size=3), st.integers())
def test_texts_come_as_they_are(word: str, each: list[str], number: int) -> None:
    words = [f"--number={number}", *(f"--each={one}" for one in each), "--", word]
    assert outcome(QuickCommand, words) == outcome(None, words)
