"""Affinity of work to nodes: what nodes say of themselves (labels and taints), and what jobs say of nodes.

The words are Kubernetes': a node has labels and taints; a job requires and prefers labels, and tolerates taints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

OWN_PREFIX = "shoal/"
"""Labels and taints that the server itself gives: no user tolerates such a taint."""


class Effect(StrEnum):
    """What a taint does to jobs that do not tolerate it: none starts there; or none starts there that fits elsewhere;
    or none starts there, and those that run there are asked to leave."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps jobs off a node that do not tolerate it. Written `LABEL=VALUE:EFFECT`, or `LABEL:EFFECT`."""

    label: str
    value: str = ""
    effect: Effect = Effect.NO_SCHEDULE

    def __str__(self) -> str:
        return f"{self.label}{'=' + self.value if self.value else ''}:{self.effect.value}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """The taints of a label that a job tolerates: with any value and effect where these are None."""

    label: str
    value: str | None = None
    effect: Effect | None = None

    def covers(self, taint: Taint) -> bool:
        return (
            self.label == taint.label
            and self.value in (None, taint.value)
            and self.effect in (None, taint.effect)
        )  # fmt: skip

    def __str__(self) -> str:
        value = "" if self.value is None else f"={self.value}"
        return f"{self.label}{value}{'' if self.effect is None else ':' + self.effect.value}"


Labels = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels that a node must have, each with one of some values."""


def match(labels: Labels, node: Mapping[str, str]) -> bool:
    """Whether a node with these labels has all that are asked for."""
    return all(node.get(name) in values for name, values in labels)


@dataclass(frozen=True, slots=True)
class Preference:
    """Nodes with these labels are worth `seconds_saved` of run time to the job."""

    labels: Labels
    seconds_saved: float


@dataclass(frozen=True)
class Affinity:
    """What a job says of the nodes that it runs on. `off` names nodes that it is kept off for now."""

    require: Labels = ()
    prefer: tuple[Preference, ...] = ()
    tolerate: tuple[Toleration, ...] = ()
    off: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.require, self.prefer, self.tolerate, self.off)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]  # computed once: schedulers look shapes up

    def __bool__(self) -> bool:
        return bool(self.require or self.prefer or self.tolerate or self.off)

    def plus(self, other: Affinity) -> Affinity:
        """What both say: all requirements, and the tolerations and preferences of each."""
        if not self or not other:
            return self or other
        return Affinity(
            self.require + other.require, self.prefer + other.prefer, self.tolerate + other.tolerate,
            self.off | other.off,
        )  # fmt: skip

    def intolerable(self, taints: tuple[Taint, ...], *effects: Effect) -> tuple[Taint, ...]:
        """The taints with these effects that the job does not tolerate."""
        return tuple(
            taint for taint in taints
            if taint.effect in effects and not any(one.covers(taint) for one in self.tolerate)
        )  # fmt: skip

    def allows(self, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        """Whether the job may start on such a node."""
        refused = self.intolerable(taints, Effect.NO_SCHEDULE, Effect.NO_EXECUTE) if taints else ()
        return not refused and match(self.require, labels)

    def seconds_saved(self, labels: Mapping[str, str]) -> float:
        """What all preferences together say of such a node."""
        return sum(one.seconds_saved for one in self.prefer if match(one.labels, labels))


NO_AFFINITY = Affinity()
