"""Marked functions of the tests, in a module that a process of its own can import."""

from __future__ import annotations

from typing import Any

from shoal.cascade import feature

CALLS: list[Any] = []


def many_towns(arguments: list[tuple[Any, ...]]) -> list[float]:
    CALLS.append(("batch", len(arguments)))
    return [float(len(name)) for (name,) in arguments]


@feature(batch=many_towns)
def town(name: str) -> float:
    return float(len(name))


@feature
def squares(value: float) -> tuple[float, float]:
    CALLS.append("squares")
    return value * value, value


@feature
def looked_at(value: float) -> float:
    return value / 2


def features(row: Any) -> list[Any]:
    found: list[Any] = [town(row["home"])]
    found.append(town(row["work"]) if row["away"] else town(row["home"]))
    half = looked_at(row["x"])
    found.append(half + 1 if half > 0 else 0.0)  # cannot be put off
    for power in range(2):
        found.append(row["x"] ** power)
    return [*found, squares(row["x"])]


def uneven(row: Any) -> list[Any]:
    return [town(row["home"])] * (2 if row["away"] else 1)


@feature
def near(value: float) -> float:
    return value + 1


@feature
def far(value: float) -> float:
    return value - 1


def branching(row: Any) -> list[Any]:
    """One feature or the other at the same place, and a third that is not met in the first rows."""
    found = [near(row["x"]) if row["away"] else far(row["x"]), town(row["home"])]
    found.append(squares(row["x"])[0] if row["x"] > 2.5 else 0.0)
    return found


def rare(row: Any) -> list[Any]:
    """A branch that no recorded row takes: another feature at a place, and one whose value is looked into."""
    if row["x"] > 10:
        return [far(row["x"]) + 1, near(row["x"]), near(2.0)]
    return [row["x"], town(row["home"]), near(row["x"])]
