"""What a plane is shown of the shared pool: one pool, as large as the pool is and as its tenant's quota allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shoal.core import Device, Node, Quota

POOL = "shared"


def pool_for(quota: Quota, nodes: Iterable[Node]) -> Node:
    """`nodes` are the machines, or pools, of the shared server."""
    nodes = tuple(nodes)
    kinds = Counter(device.type for node in nodes for device in node.devices)
    limits = dict(quota.by_type)
    places = tuple(
        Device(f"{kind}:{index}", kind, index)
        for kind, count in sorted(kinds.items())
        for index in range(_least(count, limits.get(kind), quota.accelerators))
    )
    cpu_milli = _least(sum(node.cpu_milli for node in nodes), quota.cpu_milli)
    memory_bytes = _least(sum(node.memory_bytes for node in nodes), quota.memory_bytes)
    return Node(POOL, places, cpu_milli, memory_bytes, pooled=True)


def _least(amount: int, *limits: int | None) -> int:
    return min([amount, *(limit for limit in limits if limit is not None)])
