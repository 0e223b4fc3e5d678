"""Pools: how an engine that delegates shows many machines as one node, and what a gang asks of them.

The places of a pool are its devices with new names. There may be more of them than devices (`ahead`), so that the
cluster's own scheduler always has something to pick from. What is handed over and waits there is out of the order of
priorities and shares, except that it is taken back first. So it is to wait there only for about as long as the next
work takes to arrive: `Pace` hands over that much and no more.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable

from shoal.core import Device, Node
from shoal.engine.protocol import Gang, RankSpec, Refused

AHEAD = 0.25
"""Part of a pool that is handed over beyond what it can run at once, by default."""
_AHEAD_S = 2.0
"""From a free place to the next start on it: the report, our decision, the hand-over, the cluster's next look."""
_STEPS = (0.5, 1.0, 2.0, 4.0)
_STAYS_S = 10.0


class Pace:
    """How much is handed over ahead: what came free within the last two seconds, in coarse steps, `least` at least.

    At that pace, work that was handed over starts about two seconds later, however short it is, and no place of the
    cluster is idle for want of it. Long work ends seldom, so `least` covers it: gangs that held their places for
    longer than the time for which `least` lasts do not count. Otherwise many that end at once would bring in many that
    wait for hours. With `least` 0, nothing is ever ahead. A step stays for ten seconds.
    """

    def __init__(self, least: float = AHEAD) -> None:
        self.least = least
        self._freed: deque[tuple[float, int]] = deque()
        self._step, self._step_at = least, 0.0

    def ended(self, places: int, held_s: float, now: float) -> None:
        """A gang gave back `places` places of the pool, which it had for `held_s`."""
        if self.least and held_s < _AHEAD_S / self.least:
            self._freed.append((now, places))

    def ahead(self, capacity: int, now: float) -> float:
        """Part of a pool of that many devices."""
        while self._freed and self._freed[0][0] <= now - _AHEAD_S:
            self._freed.popleft()
        part = sum(places for _, places in self._freed) / capacity if capacity else 0.0
        step = self.least
        if part > step:
            step = next((each for each in _STEPS if each >= part), _STEPS[-1])
        if step >= self._step or now >= self._step_at + _STAYS_S:
            self._step, self._step_at = step, now
        return self._step


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


def unfit(gang: Gang, nodes: Iterable[Node]) -> list[str]:
    """The machines on which the gang may not run, by their labels and taints. Raises Refused where that is all."""
    nodes = tuple(nodes)
    found = [node.name for node in nodes if not gang.affinity.allows(node.labels, node.taints)]
    if nodes and len(found) == len(nodes):
        asked = ", ".join(f"{name}={'|'.join(values)}" for name, values in gang.affinity.require) or "no such taints"
        raise Refused(
            f"no node of the cluster has what it says of nodes: {asked}", where=gang.name,
            hint="change `nodes` in the manifest",
        )  # fmt: skip
    return found


def wanted(rank: RankSpec) -> Counter[str]:
    """How many devices of which type a rank on a pool needs."""
    return Counter(place.rpartition(":")[0] for place in rank.devices)


def described(gang: Gang) -> str:
    """What a gang on a pool asks for, in words: `2 x 4 a100`, `4 x 2 cores`."""
    each = wanted(gang.ranks[0])
    parts = [f"{count} {kind}" for kind, count in sorted(each.items())] or [f"{gang.cpu_milli / 1000:g} cores"]
    return f"{len(gang.ranks)} x {' and '.join(parts)}"
