"""Pools: how an engine that delegates shows many machines as one node, and what a gang asks of them.

The places of a pool are its devices with new names. There may be more of them than devices (`ahead`), so that the
cluster's own scheduler always has something to pick from. What is handed over and waits there is out of the order of
priorities and shares, except that it is taken back first; so `ahead` is small.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from shoal.core import Device, Node
from shoal.engine.protocol import Gang, RankSpec

AHEAD = 0.25
"""Part of a pool that is handed over beyond what it can run at once, by default."""


def pool_of(name: str, nodes: Iterable[Node], *, ahead: float = AHEAD) -> Node:
    """These machines as one pool."""
    nodes = tuple(nodes)
    kinds = Counter(device.type for node in nodes for device in node.devices)
    places = tuple(
        Device(f"{kind}:{index}", kind, index)
        for kind, count in sorted(kinds.items())
        for index in range(_with(count, ahead))
    )
    cpu_milli, memory_bytes = sum(node.cpu_milli for node in nodes), sum(node.memory_bytes for node in nodes)
    return Node(name, places, _with(cpu_milli, ahead), _with(memory_bytes, ahead), pooled=True)


def _with(amount: int, ahead: float) -> int:
    return amount + math.ceil(amount * ahead)


def wanted(rank: RankSpec) -> Counter[str]:
    """How many devices of which type a rank on a pool needs."""
    return Counter(place.rpartition(":")[0] for place in rank.devices)


def described(gang: Gang) -> str:
    """What a gang on a pool asks for, in words: `2 x 4 a100`, `4 x 2 cores`."""
    each = wanted(gang.ranks[0])
    parts = [f"{count} {kind}" for kind, count in sorted(each.items())] or [f"{gang.cpu_milli / 1000:g} cores"]
    return f"{len(gang.ranks)} x {' and '.join(parts)}"
