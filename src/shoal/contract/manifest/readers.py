"""Words, names and shorthands as people write them: each reader gives the normalised value, or raises a `problem`."""

from __future__ import annotations

import keyword
import shlex
from typing import Any

from shoal.base.validation import shown
from shoal.contract.manifest.kinds import other_kind
from shoal.contract.manifest.quantities import problem
from shoal.contract.patterns import compile_pattern
from shoal.core import ANY

RESERVED_ENV = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES"}
)
MAX_GRACE_S = 600.0


def in_order(value: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(value.items())) if len(value) > 1 else value


def all_in_order(value: Any) -> Any:
    """As `in_order`, at every level."""
    if isinstance(value, dict):
        return {key: all_in_order(inner) for key, inner in sorted(value.items())}
    return [all_in_order(inner) for inner in value] if isinstance(value, list) else value


def not_reserved(name: str) -> str:
    if name in RESERVED_ENV or name.startswith("SHOAL_"):
        raise problem(f"{name} is set by Shoal for every rank", "remove it; the script finds it in its environment")
    return name


def split_command(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise problem(
            f"the command cannot be split into words: {str(error).lower()}",
            "close the quotes, or write the command as a list",
        ) from None


def read_after(value: Any) -> Any:
    return {"job": value} if isinstance(value, str) else value


def read_output(value: Any) -> Any:
    return {"from": value} if isinstance(value, str) else value


def read_program(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or not value[0]:
        raise problem("the command is empty", "name the program first, such as [python, train.py]")
    return value


def read_entrypoint(value: str) -> str:
    module, _, function = value.partition(":")
    words = [*module.split("."), *([function] if ":" in value else [])]
    if not all(word.isidentifier() and not keyword.iskeyword(word) for word in words):
        raise problem(f"{shown(value)} is not an entrypoint", "write package.module or package.module:function")
    return value


def only_jobs(value: Any) -> Any:
    if value == "job":  # every stored manifest says so: what components declare need not be searched
        return value
    other = other_kind(value) if isinstance(value, str) else None
    if other is not None:
        raise problem(f"this is a {other.name}, and a job is wanted here", other.used_by)
    return value


def read_accelerators(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"type": ANY, "count": value}
    if isinstance(value, str):
        kind, colon, count = value.partition(":")
        if colon and not (count.isascii() and count.isdecimal() and len(count) < 7):
            raise problem(f"{shown(value)} is not TYPE:COUNT", "write a100:2, a number, or {type: a100, count: 2}")
        return {"type": kind, "count": int(count)} if colon else {"type": kind}
    return value


def read_secrets(value: Any) -> Any:
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return {name: name for name in value}
    return value


def read_grace(value: float) -> float:
    if value > MAX_GRACE_S:
        raise problem(f"{value:g} seconds is too long a grace", "at most 10m")
    return value


def read_pattern(value: str) -> str:
    try:
        pattern = compile_pattern(value)
    except ValueError as error:
        raise problem(
            f"the pattern cannot be compiled: {error}",
            "write an RE2 expression: like Python's, without lookaround and backreferences",
        ) from None
    if "value" not in pattern.groupindex and pattern.groups != 1:
        raise problem(
            f"the pattern has {pattern.groups} groups, so the value is not clear",
            r"use exactly one group, or name it: loss=(?P<value>[\d.]+)",
        )
    return value
