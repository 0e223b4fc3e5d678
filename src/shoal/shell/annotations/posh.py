"""Annotations in POSH's language (deeptir18/posh, ANNOTATIONS.md), as this language has them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from shoal.core import Invalid

_LINE = re.compile(r"(?P<name>[\w./+-]+(?: [\w.+-]+)?)(?:\[(?P<flags>[^\]]*)\])?\s*:(?P<rest>.*)", re.DOTALL)
_SECTION = re.compile(r"(FLAGS|OPTPARAMS|PARAMS)\s*:\s*\[")
_NOTE = "# POSH does not say which commands change files: give these `writes = true`, or they fail near the data.\n\n"
_TYPES = {
    "input_file": "input", "output_file": "output", "input_file_list": "input-list",
    "output_file_list": "output-list", "str": "str",
}  # fmt: skip


@dataclass
class _Way:
    options: list[str] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    properties: dict[str, object] = field(default_factory=dict)


def translate(text: str, source: str) -> str:
    """TOML. A command with several lines gets several ways, tried in order. Raises Invalid with the line that is
    wrong."""
    ways: dict[str, list[_Way]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        told = line.strip()
        if not told or told.startswith("#"):
            continue
        where = f"{source}:{number}"
        found = _LINE.fullmatch(told)
        if found is None:
            raise Invalid(
                "this is no annotation", where=where, hint="name[flags]: FLAGS:[...] OPTPARAMS:[...] PARAMS:[...]"
            )
        own = ways.setdefault(found["name"].rpartition("/")[2], [])
        if own and " " in found["name"]:
            raise Invalid("a subcommand has one line", where=where)
        own.append(_way(found["flags"] or "", found["rest"], where))
    return _NOTE + "\n".join(_table(name, found) for name, found in ways.items())


def _way(flags: str, rest: str, where: str) -> _Way:
    made = _Way()
    words = {one.strip() for one in flags.split(",") if one.strip()}
    known: dict[str, tuple[str, object]] = {
        "needs_current_dir": ("cwd", True), "splittable_across_input": ("across", True),
        "reduces_input": ("ratio", 0.5), "filters_input": ("ratio", 0.5), "long_arg_single_dash": ("single_dash", True),
    }  # fmt: skip
    for word in words:
        if word not in known:
            raise Invalid(f"{word!r} is no property of a command", where=where, hint=", ".join(known))
        made.properties[known[word][0]] = known[word][1]
    single = "single_dash" in made.properties
    for section, body in _sections(rest, where):
        for one in _groups(body, where):
            told = _pairs(one)
            if section == "PARAMS":
                made.operands.append(_operand(told, made, where))
            else:
                made.options.append(_option(told, section, single=single, where=where))
    return made


def _sections(rest: str, where: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while start := _SECTION.search(rest, at):
        depth, end = 1, start.end()
        while end < len(rest) and depth:
            depth += {"[": 1, "]": -1}.get(rest[end], 0)
            end += 1
        if depth:
            raise Invalid("a [ is not closed", where=where)
        found.append((start[1], rest[start.end() : end - 1]))
        at = end
    if rest.strip() and not found:
        raise Invalid("it has neither FLAGS, OPTPARAMS nor PARAMS", where=where)
    return found


def _groups(body: str, where: str) -> list[str]:
    found, depth, begin = [], 0, 0
    for at, letter in enumerate(body):
        if letter == "(":
            begin = at + 1 if depth == 0 else begin
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth == 0:
                found.append(body[begin:at])
    if depth:
        raise Invalid("a ( is not closed", where=where)
    return found


def _pairs(text: str) -> dict[str, str]:
    """`a:b,c,d:e(f,g)`; a word without a value has an empty one."""
    parts, depth, current = [], 0, ""
    for letter in text + ",":
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += letter
    return {name.strip(): value.strip() for name, _, value in (one.partition(":") for one in parts if one)}


def _option(told: dict[str, str], section: str, *, single: bool, where: str) -> str:
    names = [f"-{told['short']}"] if "short" in told else []
    names += [f"{'-' if single else '--'}{told['long']}"] if "long" in told else []
    if not names:
        raise Invalid("an option has neither short nor long", where=where)
    if section == "FLAGS":
        return " ".join(names)
    kind = _type(told, where)
    return f"{' '.join(names)} [={kind}]" if "attached" in told else f"{' '.join(names)} ={kind}"


def _operand(told: dict[str, str], made: _Way, where: str) -> str:
    kind = _type(told, where)
    size = told.get("size", "1")
    if "splittable" in told:
        made.properties["split"] = "concat"
    many = "multiple" in told or size.startswith("list")
    return f"{kind}{'*' if many else ''}"


def _type(told: dict[str, str], where: str) -> str:
    kind = _TYPES.get(told.get("type", "str"))
    if kind is None:
        raise Invalid(f"{told['type']!r} is no type", where=where, hint=", ".join(_TYPES))
    separator = re.search(r"list_separator:\((.*?)\)", told.get("size", ""))
    if separator and separator[1].strip() and kind in ("input", "output"):
        return f"{kind}-list/{separator[1]}"
    return kind


def _table(name: str, ways: list[_Way]) -> str:
    name, _, subcommand = name.partition(" ")
    key = name if re.fullmatch(r"[\w-]+", name) else json.dumps(name)
    if subcommand:
        return f"[{key}.subcommands.{json.dumps(subcommand)}]\n{_body(ways[0])}"
    if len(ways) == 1:
        return f"[{key}]\n{_body(ways[0])}"
    return f"[{key}]\n" + "".join(f"[[{key}.ways]]\n{_body(one)}" for one in ways)


def _body(way: _Way) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in sorted(way.properties.items())]
    lines += [f"options = {json.dumps(way.options)}", f"operands = {json.dumps(way.operands)}"]
    return "\n".join(lines) + "\n"
