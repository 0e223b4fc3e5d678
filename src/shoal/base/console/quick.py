"""Commands that load no validator for values that need none.

Typer builds a pydantic adapter for every parameter of a command, given or not, and pydantic takes longer to import than
a short command takes to run. Most values need no adapter: what was left out, defaults, and text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

_NUMBERS = {int: re.compile(r"-?[0-9]{1,15}"), float: re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")}


class QuickCommand(TyperCommand):
    """Takes words as Typer's own commands do; values that need no adapter go past it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        quicken(self.params)

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None:
            quicken([option])
        return option


def quicken(parameters: Iterable[Any]) -> None:
    """Let the values of these parameters of Typer's go past the adapter where they need none."""
    for one in parameters:
        if "process_value" not in vars(one):
            one.process_value = _past_the_adapter(one, one.process_value)


def _plain_number(kind: Any, text: Any, info: Any) -> int | float | None:
    """The number that this text is in everybody's eyes, if it is one that the parameter takes; else None."""
    if type(text) is not str or kind not in _NUMBERS or not _NUMBERS[kind].fullmatch(text):
        return None
    number: int | float = kind(text)
    least, most = getattr(info, "min", None), getattr(info, "max", None)
    return number if (least is None or number >= least) and (most is None or number <= most) else None


def _looks(info: Any) -> bool:
    """Whether a path is looked at, and not only named."""
    return any(getattr(info, name, None) for name in ("exists", "resolve_path", "writable"))


def _past_the_adapter(parameter: Any, by_typer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    described = parameter.type_descriptor
    kind = described.annotation
    plain = described.parameter_info.parser is None and not described.is_file
    several = parameter.multiple or parameter.nargs != 1

    def process(context: Any, value: Any) -> Any:
        if not plain or (parameter.required and not value):
            return by_typer(context, value)
        if value is None:
            taken: Any = () if several else None
        elif several and kind == list[str] and all(type(one) is str for one in value):
            taken = list(value)
        elif not several and type(value) is kind and (kind is str or value == parameter.default):
            taken = value
        elif not several and (number := _plain_number(kind, value, described.parameter_info)) is not None:
            taken = number
        elif not several and kind is Path and type(value) is str and not _looks(described.parameter_info):
            taken = Path(value)
        else:
            return by_typer(context, value)
        return taken if parameter.callback is None else parameter.callback(context, parameter, taken)

    return process
