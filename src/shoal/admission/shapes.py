"""Needs of the jobs of a shape on these nodes, and whether they ever fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from shoal.admission import reasons
from shoal.admission.amounts import held_by_all
from shoal.admission.snapshot import Group, Need, Shape, Snapshot, resolve
from shoal.admission.types import Pending, Spread
from shoal.core import ANY, PriorityClass, Reason


@dataclass(slots=True)
class Asked:
    """What a shape comes to in this decision: alternatives that could ever fit, or why none does. `stuck` remembers,
    by mask and class, that it fits no more: for want of capacity (the reason), or because others took it (of what)."""

    needs: tuple[Need, ...]
    spread: Spread
    impossible: Reason | None = None
    stuck: dict[tuple[int, PriorityClass], Reason | Need] = field(default_factory=dict)


@dataclass(slots=True)
class Line:
    """What is left of a group in this decision: the job at its head and those behind it."""

    group: Group
    head: Pending
    rest: Iterator[Pending]


class Shapes:
    """Of one decision: each shape is worked out once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._asked: dict[Shape, Asked] = {}

    def asked(self, shape: Shape) -> Asked:
        """`ANY` gives one alternative per type, fewest free devices first."""
        asked = self._asked.get(shape)
        if asked is not None:
            return asked
        needs = [resolve(shape.resources, None)]
        if ANY in shape.resources.accelerators:
            pools, types = self._snapshot.pools, self._snapshot.nodes.layout.types
            order = sorted(types, key=lambda kind: (pools[kind].free if kind in pools else 0, kind))
            needs = [resolve(shape.resources, kind) for kind in order] or needs
        needs = [self._snapshot.nodes.layout.on_nodes(need, shape.per_node, shape.affinity) for need in needs]
        held = {need: held_by_all(self._snapshot.nodes.layout, need, shape.ranks) for need in needs}
        possible = tuple(need for need in needs if held[need] >= shape.ranks)
        asked = self._asked[shape] = Asked(possible, shape.placement or self._snapshot.policy.placement)
        if not possible:
            best = max(needs, key=lambda need: held[need])
            asked.impossible = reasons.impossible(best, shape.ranks, held[best])
        return asked
