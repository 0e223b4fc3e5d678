"""Errors of pydantic in words for the person who wrote the manifest."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from shoal.base import discover
from shoal.base.validation import details, shown, wanted
from shoal.contract.manifest import schema, values
from shoal.contract.manifest.document import Document
from shoal.contract.manifest.kinds import Kind
from shoal.contract.manifest.path import Path, show_path
from shoal.contract.manifest.schema import JOB

MAX_PROBLEMS = 50

_SHAPES = {
    values.NAME: ("is not a name", "use lower-case letters, digits and dashes, at most 63, such as digits-sgd"),
    values.ENV_NAME: ("is not a variable's name", "use letters, digits and underscores, not first a digit"),
    values.SECRET_NAME: ("is not a secret's name", "name a stored secret: letters, digits, dashes, dots, underscores"),
    values.METRIC_NAME: ("is not a metric's name", "use letters, digits and _ . / -, such as val/accuracy"),
    values.ACCELERATOR_TYPE: ("is not an accelerator's type", "write `any` or a type of `shoal nodes`, such as a100"),
    values.BUNDLE: ("is not a bundle's digest", "write sha256: and 64 hexadecimal digits; `files` is meant for hand"),
    values.NO_NUL: ("holds a NUL character", "remove it: no process can be given one"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    line: int
    field: str
    what: str
    hint: str | None


def explain(error: ValidationError, document: Document, kind: Kind = JOB) -> Iterator[Problem]:
    """Every problem of the document, at most `MAX_PROBLEMS` of them."""
    found = [detail for detail in details(error) if detail["loc"]]
    for detail in found[:MAX_PROBLEMS]:
        yield _explain(detail, document, kind)
    for field, what, hint in kind.conflicts(document.value):
        yield Problem(document.line(field), show_path(field), what, hint)
    if len(found) > MAX_PROBLEMS:
        left = len(found) - MAX_PROBLEMS
        yield Problem(document.line(()), "manifest", f"there are {left} more problems", "mend these first")


def _explain(detail: dict[str, Any], document: Document, kind: Kind) -> Problem:
    loc: Path = _without_tag(detail["loc"])
    is_key = loc[-1] == "[key]"
    path = loc[:-1] if is_key else loc
    what, hint = _say(detail, path, document, kind)
    return Problem(document.line(path), show_path(path), what, hint)


def _without_tag(loc: Path) -> Path:
    """Of a field with alternatives, pydantic names the one that it tried as if it were a field of it."""
    return loc[:1] + loc[2:] if loc[0] == "ranks" and loc[1:2] in ((schema.COUNT,), (schema.RANGE,)) else loc


def _say(detail: dict[str, Any], path: Path, document: Document, kind: Kind) -> tuple[str, str | None]:
    found, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    match found:
        case "shoal":
            return context["what"], context["hint"]
        case "missing":
            name = str(path[-1])
            return f"the field `{name}` is missing", _MISSING.get(name) or kind.missing.get(name) or _about(path, kind)
        case "extra_forbidden":
            return _unknown_field(path, kind)
        case "string_pattern_mismatch":
            said, hint = kind.shapes.get(context["pattern"]) or _SHAPES[context["pattern"]]
            return f"{_quoted(value, path)} {said}", hint
        case "enum" | "literal_error":
            allowed = context["expected"].replace("'", "")
            return f"{shown(value)} is not a choice here", f"allowed: {allowed}{_near(value, allowed)}"
        case "greater_than_equal" | "less_than_equal":
            bound = f"at least {context['ge']:g}" if "ge" in context else f"at most {context['le']:g}"
            return f"{shown(value)} is out of range", f"{bound}"
        case "greater_than":
            return f"{shown(value)} is out of range", f"more than {context['gt']:g}"
        case "too_short":
            return "there is nothing in it", _hint_at(path, kind)
        case "string_too_long" | "too_long":
            return "the value is too long", f"at most {context['max_length']}"
    if found == "string_type" and path in document.written and not isinstance(value, str):
        text = document.written[path]
        return f"{text or 'nothing'} is read as {_read_as(value)}, not as text", f'quote it: "{text}"'
    need = wanted(found)
    if need is not None:
        return f"must be {need}, and {shown(value)} is not", _hint_at(path, kind)
    return str(detail["msg"]), _hint_at(path, kind)


_MISSING = {
    "name": "give it a name, such as `name: digits-sgd`",
    "max": "say how many at most, such as {min: 1, max: 4}",
    "from": "say where the data is",
    "to": "say where the data goes",
}


_EITHER: dict[tuple[str, ...], str] = {("ranks",): "or give a range, such as {min: 1, max: 4}"}
"""Fields that are a value or a mapping."""

_KNOWN_AS = {
    "gpu": "accelerators", "gpus": "accelerators", "cpu": "cpus", "mem": "memory", "learners": "ranks",
    "replicas": "ranks", "nodes": "ranks", "timeout": "max_runtime", "retries": "limits", "cmd": "command",
    "args": "command", "partition": "priority_class",
}  # fmt: skip
"""What other systems call a field."""


def _unknown_field(path: Path, kind: Kind) -> tuple[str, str]:
    names = kind.field_names(_pattern_of(path[:-1], kind))
    name = str(path[-1])
    meant = ({**_KNOWN_AS, **kind.known_as}).get(name.lower(), name.lower().replace("-", "_"))
    elsewhere = [(*at, meant) for at in kind.parts if "*" not in at and meant in kind.field_names(at)]
    near = difflib.get_close_matches(meant, names, n=1) or [known for known in names if known.startswith(meant)]
    if "extensions" in names and discover.find("extension").get(name) is not None:
        hint = f"write it below `extensions`, as `extensions: {{{name}: ...}}`; "
    elif meant in names:
        hint = f"did you mean `{meant}`? "
    elif elsewhere:
        hint = f"did you mean `{show_path(elsewhere[0])}`? "
    else:
        hint = f"did you mean `{near[0]}`? " if near else ""
    return f"there is no field `{name[:60]}` here", f"{hint}allowed: {', '.join(names)}"


def _about(path: Path, kind: Kind) -> str | None:
    """What its schema says of a field."""
    field = kind.fields(_pattern_of(path[:-1], kind)).get(str(path[-1])) if path else None
    return field.description if field is not None else None


def _pattern_of(path: Path, kind: Kind) -> tuple[str, ...]:
    """The path as the kind's parts name it."""
    pattern: tuple[str, ...] = ()
    for step in path:
        anything = isinstance(step, int) or (*pattern, "*") in kind.parts
        pattern = (*pattern, "*" if anything else str(step))
    return pattern


def _near(value: Any, allowed: str) -> str:
    words = allowed.replace(" or ", ", ").split(", ")
    near = difflib.get_close_matches(str(value).lower().replace("_", "-"), words, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _quoted(value: Any, path: Path) -> str:
    """Values of variables may be private: they are never repeated."""
    return "the value" if path[0] == "env" and path[-1] != value else shown(value)


def _read_as(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, int | float) else shown(value)


def _hint_at(path: Path, kind: Kind) -> str | None:
    pattern = _pattern_of(path, kind)
    if pattern in _EITHER:
        return _EITHER[pattern]
    of_each = kind.needed_names((*pattern, "*"))
    if of_each:
        return f"write a list of {{{', '.join(f'{name}: ...' for name in of_each)}}}"
    names = kind.field_names(pattern)
    return f"its fields: {', '.join(names)}" if names else _about(path, kind)
