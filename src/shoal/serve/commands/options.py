"""Options of `shoal deploy` and `shoal serve` for how a model runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from shoal.core import Invalid

RuntimeOption = Annotated[
    str | None,
    typer.Option("--runtime", help="What runs the model, such as onnx.", show_default="guessed from the file's suffix"),
]
OptionOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="K=V", help="Of the runtime; repeatable. A dot in K sets one entry of a map."),
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="Of one execution.", show_default="1")]
MaxBatchOption = Annotated[
    int | None, typer.Option(min=1, help="Samples that may be executed together.", show_default="1")
]


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """`K=V` by K. V is JSON where it can be read as such (`4`, `true`, `[1, 2]`), else text. Raises Invalid."""
    options: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        path = name.split(".")
        if not equals or not all(path):
            raise Invalid(f"{word!r} is no option", where="--option", hint="write K=V, such as precision=int8")
        into = options
        for step in path[:-1]:
            into = into.setdefault(step, {})
            if not isinstance(into, dict):
                raise Invalid(f"{step} is a value already", where=f"--option {word}", hint="give it once")
        if path[-1] in into:
            raise Invalid("it is given twice", where=f"--option {name}", hint="give it once")
        into[path[-1]] = _value(text)
    return options


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
