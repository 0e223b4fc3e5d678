"""Private words stay out of names, docstrings and messages: each has a term that the field uses (docs/glossary.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "shoal"

INSTEAD = {
    "guardian": "attempt runner", "keeper": "reconciler", "patroller": "garbage collector", "scribe": "writer process",
    "dictation": "client", "vigil": "busy polling", "contender": "suspect", "convicted": "interfering",
    "innocent": "non-interfering", "bearable": "minimum run time", "strangeness": "distance", "ladder": "escalation",
    "dear": "expensive", "warden": "watchdog", "undo log": "write-ahead log", "whoever": "the job, the process",
    "so many": "the number of", "so much": "the amount of",
}  # fmt: skip
ALLOWED = {
    ("control/__init__.py", "guardian"): "FfDL's own name",
    ("control/attempts/runner.py", "guardian"): "FfDL's own name",
}
PRIVATE = re.compile(rf"(?<![\w.:/-])({'|'.join(INSTEAD)})(?![\w-]|\.\w)".replace(" ", r"\s+"), re.IGNORECASE)


def words_of(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each string, and of each name that is defined, as words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, " ".join(re.findall(r"[A-Z]?[a-z]+", node.name))


def private_words(source: str) -> Iterator[tuple[int, str]]:
    for line, text in words_of(source):
        for found in PRIVATE.finditer(text):
            yield line, re.sub(r"\s+", " ", found[1].lower())


def test_what_is_private_is_found() -> None:
    source = 'class JobKeeper:\n    """So\n    many jobs."""\n    dearest = "no warden.py here: Whoever"\n'
    assert sorted(private_words(source)) == [(1, "keeper"), (2, "so many"), (4, "whoever")]


def test_only_words_of_the_field_are_used() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {word!r}: say {INSTEAD[word]!r}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, word in private_words(path.read_text())
        if (str(path.relative_to(PACKAGE)), word) not in ALLOWED
    ]
    assert found == []


def test_modules_are_named_by_a_noun_not_by_a_question() -> None:
    asked = re.compile(r"(what|how|where|when|who|which|why)\b", re.IGNORECASE)
    found = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if asked.match("".join(path.read_text().split('"""', 2)[1:2]).lstrip())
    ]
    assert found == [], "begin the docstring with the thing that the module holds"
