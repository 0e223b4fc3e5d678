"""Errors of pydantic in words for the person who wrote the value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shoal.core import Invalid

if TYPE_CHECKING:
    from pydantic import ValidationError

_MOST_SHOWN = 40
_WANTED = {
    "string": "text", "string_unicode": "valid Unicode text", "int": "a whole number", "float": "a number",
    "finite_number": "a finite number", "bool": "true or false", "path": "a path", "tuple": "a list", "list": "a list",
    "set": "a list", "frozen_set": "a list", "mapping": "a mapping", "dict": "a mapping of names to values",
    "model": "a mapping of fields",
}  # fmt: skip
"""By what pydantic calls an error before `_type`, `_parsing`, `_from_float` or `_attributes_type`."""
_BOUNDS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}


def problems(error: ValidationError, *, shapes: Mapping[str, str] | None = None) -> list[Invalid]:
    """One error for each problem, `where` being its place within the value, or None for the whole value.

    `shapes` has a sentence by the pattern of a field. The text that such a pattern refused is not repeated.
    """
    return [
        Invalid(sentence(detail, shapes), where=place_of(detail["loc"]) or None, hint=_context(detail).get("hint"))
        for detail in details(error)
    ]


def details(error: ValidationError) -> list[dict[str, Any]]:
    """What pydantic tells of each problem, less those that only repeat others: a list whose every item is wrong is
    called too short as well."""
    found: list[dict[str, Any]] = [dict(detail) for detail in error.errors(include_url=False)]
    inside = {detail["loc"][:depth] for detail in found for depth in range(len(detail["loc"]))}
    return [detail for detail in found if not (detail["type"] == "too_short" and detail["loc"] in inside)]


def place_of(location: Sequence[str | int]) -> str:
    """`models[3].times[0].batch` for `("models", 3, "times", 0, "batch")`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).removeprefix(".")


def wanted(kind: str) -> str | None:
    """What a value of the right type would be, by the type of pydantic's error; None where another thing is wrong."""
    return _WANTED.get(re.sub(r"_(type|parsing|from_float|attributes_type)$", "", kind))


def sentence(detail: Mapping[str, Any], shapes: Mapping[str, str] | None = None) -> str:
    """What is wrong, such as `must be at least 1, not 0`."""
    kind, context = str(detail["type"]), _context(detail)
    if "what" in context:  # an error of our own
        return str(context["what"])
    match kind:
        case "value_error":
            return str(context["error"])
        case "missing":
            return "this field is missing"
        case "extra_forbidden":
            return "there is no such field"
        case "too_short" if not detail["input"]:
            return "there is nothing in it"
        case "too_short":
            return f"must have {context['min_length']} items or more"
        case "string_too_short":
            return f"must have {_characters(context['min_length'])} or more"
        case "string_too_long":
            return f"must have at most {_characters(context['max_length'])}"
        case "too_long":
            return f"must have at most {context['max_length']} items"
        case "string_pattern_mismatch" if context["pattern"] in (shapes or {}):
            return (shapes or {})[context["pattern"]]
    need = _need(kind, context)
    if need is not None:
        return f"must be {need}, not {shown(detail['input'])}"
    text = str(detail["msg"])
    return text[:1].lower() + text[1:]


def shown(value: Any) -> str:
    """A value as it may stand in a message: short, and never a whole structure."""
    if isinstance(value, str):
        return repr(value if len(value) <= _MOST_SHOWN else value[: _MOST_SHOWN - 3] + "...")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value) if isinstance(value, float) or abs(value) < 1e18 else "a huge number"
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else type(value).__name__


def _need(kind: str, context: Mapping[str, Any]) -> str | None:
    for name, words in _BOUNDS.items():
        if name in context:
            return f"{words} {context[name]:g}"
    if kind in ("enum", "literal_error"):
        return str(context["expected"]).replace("'", "")
    if kind == "string_pattern_mismatch":
        return str(context["pattern"]).strip("^()$").replace("|", " or ")
    return wanted(kind)


def _characters(count: int) -> str:
    return "1 character" if count == 1 else f"{count} characters"


def _context(detail: Mapping[str, Any]) -> Mapping[str, Any]:
    context: Mapping[str, Any] = detail.get("ctx", {})
    return context
