"""Arguments held against an annotation, as getopt takes them apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shoal.shell.annotations.model import Annotation, Kind, Option, Split

_PATHS = {Kind.INPUT, Kind.OUTPUT, Kind.INPUTS, Kind.OUTPUTS, Kind.FOLDER}


class NotUnderstood(Exception):
    """Why a command runs here. The text is a part of a sentence that people read."""


@dataclass(frozen=True, slots=True)
class Match:
    """What one call of a command does. `inputs` are positions of its operands in the arguments that may be dealt out;
    `reads` and `writes` are paths as they were given; `few`: it ends once it has found something."""

    annotation: Annotation
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    inputs: tuple[int, ...]
    stdin: bool
    ratio: float
    split: Split
    across: bool
    join: Split
    cwd: bool
    changes: bool
    few: bool
    recursive: bool
    effects: frozenset[str]
    path_positions: tuple[int, ...] = ()


@dataclass(slots=True)
class _Given:
    effects: set[str]
    reads: list[str]
    writes: list[str]
    operands: list[tuple[int, str]]
    positions: list[int]
    programs: list[str]
    values: list[str]


def match(found: Sequence[Annotation], argv: Sequence[str], environ: Mapping[str, str]) -> Match:
    """By the first annotation that understands it. Raises NotUnderstood with the reason of the last."""
    why = NotUnderstood("it has no annotation")
    for one in found:
        try:
            return _match(one, argv, environ)
        except NotUnderstood as error:
            why = error
    raise why


def _match(annotation: Annotation, argv: Sequence[str], environ: Mapping[str, str]) -> Match:
    given = _Given(set(), [], [], [], [], [], [])
    at = 1
    if annotation.subcommand:
        if len(argv) < 2 or argv[1] != annotation.subcommand:
            raise NotUnderstood(
                f"`{annotation.name} {argv[1] if len(argv) > 1 else ''}`".rstrip() + " has no annotation"
            )
        at = 2
    stops = annotation.stops or "POSIXLY_CORRECT" in environ
    only_operands = False
    while at < len(argv):
        word = argv[at]
        if only_operands or word == "-" or not word.startswith("-"):
            given.operands.append((at, word))
            only_operands = only_operands or stops
            at += 1
        elif word == "--":
            only_operands, at = True, at + 1
        else:
            at = _take_option(annotation, argv, at, given)
    return _finish(annotation, argv, given)


def _take_option(annotation: Annotation, argv: Sequence[str], at: int, given: _Given) -> int:
    """Returns the position after it."""
    word = argv[at]
    if word.startswith("--") or (annotation.single_dash and len(word) > 2):
        name, equals, value = word.partition("=")
        option = _long(annotation, name)
        if option.kind is None:
            if equals:
                raise NotUnderstood(f"{name} takes no value")
            return _took(option, None, given, at, at + 1)
        if equals or option.optional:
            return _took(option, value if equals else None, given, at, at + 1)
        return _took_next(option, argv, at, given)
    if annotation.numeric and re.fullmatch(r"-[0-9]+", word):
        return at + 1
    for place, letter in enumerate(word[1:], 1):
        found = annotation.by_name.get("-" + letter)
        if found is None:
            raise NotUnderstood(f"-{letter} is not understood")
        if found.kind is None:
            _took(found, None, given, at, at + 1)
            continue
        rest = word[place + 1 :]
        if rest or found.optional:
            return _took(found, rest or None, given, at, at + 1)
        return _took_next(found, argv, at, given)
    return at + 1


def _took_next(option: Option, argv: Sequence[str], at: int, given: _Given) -> int:
    if at + 1 >= len(argv):
        raise NotUnderstood(f"{option.names[0]} lacks its value")
    return _took(option, argv[at + 1], given, at + 1, at + 2)


def _long(annotation: Annotation, name: str) -> Option:
    exact = annotation.by_name.get(name)
    if exact is not None:
        return exact
    if not name.startswith("--"):
        raise NotUnderstood(f"{name} is not understood")
    found = {id(one): one for known, one in annotation.by_name.items() if known.startswith(name)}
    if len(found) != 1:
        raise NotUnderstood(f"{name} is {'ambiguous' if found else 'not understood'}")
    return next(iter(found.values()))


def _took(option: Option, value: str | None, given: _Given, position: int, after: int) -> int:
    if "here" in option.effects:
        raise NotUnderstood(f"with {option.names[0]} it always runs here")
    given.effects |= option.effects
    if value is not None and option.kind is not None:
        _take_value(option.kind, value, option.separator, given)
        if option.kind in _PATHS:
            given.positions.append(position)
    return after


def _take_value(kind: Kind, value: str, separator: str, given: _Given) -> None:
    if kind is Kind.TEXT:
        given.values.append(value)
    elif kind in (Kind.INPUT, Kind.FOLDER):
        given.reads.append(value)
        if value == "-":
            given.effects.add("reads-stdin")
    elif kind is Kind.OUTPUT:
        given.writes.append(value)
    elif kind is Kind.PROGRAM:
        given.programs.append(value)
    elif kind is Kind.INPUTS:
        given.reads += value.split(separator)
    elif kind is Kind.OUTPUTS:
        given.writes += value.split(separator)


def _finish(annotation: Annotation, argv: Sequence[str], given: _Given) -> Match:
    inputs, left = list[int](), list(given.operands)
    filled = 0
    for spec in annotation.operands:
        if spec.unless and spec.unless in given.effects:
            continue
        took = left if spec.many else left[: spec.count]
        left = left[len(took) :]
        if not took and not spec.optional and not spec.many:
            raise NotUnderstood("an argument is missing")
        for position, word in took:
            _take_value(spec.kind, word, spec.separator, given)
            if spec.kind in _PATHS:
                given.positions.append(position)
            if spec.kind in (Kind.INPUT, Kind.FOLDER):
                filled += 1
                if spec.many:
                    inputs.append(position)
    if left:
        raise NotUnderstood(f"the argument {left[0][1][:40]!r} is not understood")
    if lacking := [one for one in annotation.requires if one not in given.effects]:
        raise NotUnderstood(f"without {lacking[0]} it always runs here")
    _check_programs(annotation, given.programs)
    if any("\0" in word for word in argv):
        raise NotUnderstood("an argument holds a NUL")
    return _effects(annotation, given, inputs, filled)


def _check_programs(annotation: Annotation, programs: Sequence[str]) -> None:
    for text in programs:
        for pattern in annotation.refuses:
            if found := re.search(pattern, text):
                raise NotUnderstood(f"its program has {found.group(0).strip()!r}, which may do anything")


def _effects(annotation: Annotation, given: _Given, inputs: list[int], filled: int) -> Match:
    told = given.effects
    ratio = 1.0 if "whole" in told else 0.001 if "few" in told or "quiet" in told else annotation.ratio
    split = annotation.split
    for way in (Split.CONCAT, Split.MERGE):
        if way.value in told:
            split = way
    if "no-split" in told or "-" in given.reads or "reads-stdin" in told:
        split = Split.NEVER
    no_inputs = filled == 0
    stdin = "reads-stdin" in told or (annotation.stdin and no_inputs and not told & {"no-stdin", "recursive"})
    recursive = "recursive" in told or any(one.kind is Kind.FOLDER for one in annotation.operands)
    changes = annotation.writes or "writes" in told or bool(given.writes)
    changed = tuple(given.reads) if "writes" in told else ()
    return Match(
        annotation=annotation,
        reads=tuple(one for one in given.reads if one != "-"),
        writes=(*given.writes, *changed),
        inputs=tuple(inputs),
        stdin=stdin,
        ratio=ratio,
        split=split,
        across=_across(annotation, given),
        join=_join(annotation, given),
        cwd=annotation.cwd or (recursive and no_inputs),
        changes=changes,
        few="quiet" in told,
        recursive=recursive,
        effects=frozenset(told),
        path_positions=tuple(given.positions),
    )


def _across(annotation: Annotation, given: _Given) -> bool:
    if not annotation.across or given.effects & {"no-across", "no-split"}:
        return False
    told = "\0".join(given.programs or given.values)
    return not annotation.across_if or re.fullmatch(annotation.across_if, told, re.DOTALL) is not None


def _join(annotation: Annotation, given: _Given) -> Split:
    if given.effects & {"no-join", "no-split"}:
        return Split.NEVER
    if not all(re.fullmatch(annotation.join_values, one, re.DOTALL) for one in given.values):
        return Split.NEVER
    return Split.SUM if Split.SUM.value in given.effects else annotation.join
