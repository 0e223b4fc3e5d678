"""Jobs side by side. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

_NAMES = frozenset({"name", "description", "bundle"})
"""Fields of a manifest in which jobs differ anyway."""


class Point(Protocol):
    """One reported value."""

    @property
    def attempt(self) -> int: ...

    @property
    def at(self) -> float: ...

    @property
    def step(self) -> int | None: ...

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> float | None: ...


@dataclass(slots=True)
class Reported:
    """The values of one metric of one job, in order. `curve` has them by step, those of a later attempt in the place of
    an earlier one's; where steps are missing, by their number."""

    curve: dict[int, float] = field(default_factory=dict)

    @property
    def last(self) -> float:
        return self.curve[max(self.curve)]

    @property
    def least(self) -> float:
        return min(self.curve.values())

    @property
    def greatest(self) -> float:
        return max(self.curve.values())

    @property
    def step(self) -> int:
        """The last one."""
        return max(self.curve)

    def add(self, step: int, value: float, *, again: bool) -> None:
        """`again`: an attempt has begun, and what it repeats was lost."""
        if again:
            self.curve = {before: one for before, one in self.curve.items() if before < step}
        self.curve[step] = value


def reported(points: Iterable[Point]) -> dict[str, Reported]:
    """By the name of the metric. Values that are no number are left out."""
    found: dict[str, Reported] = {}
    attempts: dict[str, int] = {}
    for one in points:
        if one.value is None:
            continue
        metric = found.setdefault(one.name, Reported())
        step = one.step if one.step is not None else len(metric.curve)
        metric.add(step, one.value, again=attempts.get(one.name, one.attempt) != one.attempt)
        attempts[one.name] = one.attempt
    return found


def differences(manifests: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The fields in which manifests differ, by their paths, each with its value in every one; None where it is left
    out."""
    flat = [dict(_flat(one)) for one in manifests]
    paths = dict.fromkeys(path for one in flat for path in one)
    found = {path: [one.get(path) for one in flat] for path in paths if path.partition(".")[0] not in _NAMES}
    return {path: values for path, values in found.items() if any(one != values[0] for one in values)}


def _flat(value: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    for name, inner in value.items():
        path = f"{above}.{name}" if above else str(name)
        if isinstance(inner, Mapping) and inner:
            yield from _flat(inner, path)
        elif isinstance(inner, list | tuple) and name == "command":
            yield path, " ".join(map(str, inner))
        else:
            yield path, inner
