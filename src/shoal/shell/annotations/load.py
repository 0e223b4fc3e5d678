"""Annotations from TOML. See docs/how/shell.md for the language."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from shoal.core import Invalid
from shoal.shell.annotations.model import Annotation, Kind, Operand, Option, Split

DATA = Path(__file__).parent / "data"
_OPTION = re.compile(r"(?P<names>-\S+(?: -\S+)*)(?: (?P<value>=\S+|\[=\S+\]))?(?: : (?P<effects>.+))?")
_OPERAND = re.compile(r"(?P<kind>[a-z-]+)(?P<many>[*?+]|)(?: unless (?P<unless>\S+))?")
_FLAGS = (
    "across",
    "text",
    "cwd",
    "writes",
    "names",
    "terminal",
    "stdin",
    "numeric",
    "stops",
    "single_dash",
    "starts_others",
    "finds",
)
_NUMBERS = ("ratio", "bytes_per_s")
_LISTS = ("requires", "touches", "split_adds", "refuses", "environment", "home_files")
_KNOWN = {
    *_FLAGS, *_NUMBERS, *_LISTS, "options", "operands", "split", "join", "join_values", "across_if", "like",
    "write_error", "subcommands", "ways",
}  # fmt: skip


@cache
def shipped() -> Mapping[str, Sequence[Annotation]]:
    """Those that come with Shoal, by the name of the command."""
    return load([])


def load(more: Sequence[Path]) -> Mapping[str, Sequence[Annotation]]:
    """Those that come with Shoal, and those of the files `more`, which replace them by name. Raises Invalid."""
    tables: dict[str, Any] = {}
    for path in (*sorted(DATA.glob("*.toml")), *more):
        tables |= _read(path.read_text(), str(path))
    return _all(tables, str(more[-1]) if more else str(DATA))


def parse(text: str, source: str) -> Mapping[str, Sequence[Annotation]]:
    """The annotations of one file. Raises Invalid."""
    return _all(_read(text, source), source)


def _read(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"this is no TOML: {error}", where=source) from error


def _all(tables: Mapping[str, Any], source: str) -> dict[str, Sequence[Annotation]]:
    return {name: _command(name, table, tables, f"{source}: [{name}]") for name, table in tables.items()}


def _command(name: str, table: Any, tables: Mapping[str, Any], where: str) -> tuple[Annotation, ...]:
    if not isinstance(table, dict):
        raise Invalid("a command is a table", where=where, hint=f"write [{name}]")
    if like := table.get("like"):
        if like not in tables:
            raise Invalid(f"there is no command {like!r} to be like", where=where)
        table = {**tables[like], **table}
    if unknown := set(table) - _KNOWN:
        raise Invalid(
            f"{sorted(unknown)[0]!r} is no word of the language",
            where=where,
            hint=f"one of {', '.join(sorted(_KNOWN))}",
        )
    shared = {key: value for key, value in table.items() if key not in ("subcommands", "ways", "like")}
    if "subcommands" in table:
        both = {sub: _joined(shared, inner) for sub, inner in table["subcommands"].items()}
        return tuple(_one(name, sub, inner, f"{where} {sub}") for sub, inner in both.items())
    ways = [_joined(shared, way) for way in table.get("ways", [{}])]
    return tuple(_one(name, "", way, where) for way in ways)


def _joined(shared: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, Any]:
    return {**shared, **inner, "options": [*shared.get("options", ()), *inner.get("options", ())]}


def _one(name: str, subcommand: str, table: Mapping[str, Any], where: str) -> Annotation:
    if unknown := set(table) - _KNOWN:
        raise Invalid(f"{sorted(unknown)[0]!r} is no word of the language", where=where)
    plain: dict[str, Any] = {key: bool(table[key]) for key in _FLAGS if key in table}
    plain |= {key: float(table[key]) for key in _NUMBERS if key in table}
    plain |= {key: tuple(table[key]) for key in _LISTS if key in table}
    return Annotation(
        name=name, subcommand=subcommand, split=_way(table, "split", where), join=_way(table, "join", where),
        join_values=str(table.get("join_values", ".*")), across_if=str(table.get("across_if", "")),
        write_error=int(table.get("write_error", 1)),
        options=tuple(_option(line, where) for line in table.get("options", ())),
        operands=tuple(_operand(line, where) for line in table.get("operands", ())),
        **plain,
    )  # fmt: skip


def _way(table: Mapping[str, Any], word: str, where: str) -> Split:
    try:
        return Split(table.get(word, ""))
    except ValueError:
        raise Invalid(f"{word} is {', '.join(one.value for one in Split if one)}", where=where) from None


def _option(line: str, where: str) -> Option:
    found = _OPTION.fullmatch(line)
    if found is None:
        raise Invalid(f"{line!r} is no option", where=where, hint='such as "-m --max-count =str : quiet"')
    value, optional = found["value"], False
    if value and value.startswith("["):
        value, optional = value[1:-1], True
    kind, separator = _kind(value[1:], where) if value else (None, ",")
    effects = frozenset((found["effects"] or "").split())
    return Option(tuple(found["names"].split()), kind, optional, separator, effects)


def _operand(line: str, where: str) -> Operand:
    found = _OPERAND.fullmatch(line)
    if found is None:
        raise Invalid(f"{line!r} is no operand", where=where, hint='such as "input*" or "str unless pattern"')
    kind, separator = _kind(found["kind"], where)
    many, optional = found["many"] in ("*", "+"), found["many"] == "?"
    return Operand(kind, many, optional, found["unless"] or "", separator=separator)


def _kind(text: str, where: str) -> tuple[Kind, str]:
    name, _, separator = text.partition("/")
    try:
        return Kind(name), separator or ","
    except ValueError:
        raise Invalid(f"{name!r} is no kind of argument", where=where, hint=", ".join(Kind)) from None
