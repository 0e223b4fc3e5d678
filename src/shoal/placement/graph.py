"""A graph of work whose nodes each run at one of several sites: what it is, and what an assignment costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite, isnan
from typing import TYPE_CHECKING

from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.placement.arrays import Arrays


@dataclass(frozen=True, slots=True)
class Link:
    """One way between two sites. A copy takes the latency, and its bytes at the rate."""

    bytes_per_s: float
    latency_s: float = 0.0

    def seconds(self, size: float) -> float:
        return self.latency_s + size / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class Node:
    """A step of work.

    `seconds` has one value for each site; infinity says that it cannot run there. `inputs` are the positions of the
    nodes whose outputs it reads, all before its own. `out_bytes` is the size of its output. `pin` is the only site
    where it may run. `cached` are sites that have its output already: no copy to them is needed.
    """

    name: str
    seconds: tuple[float, ...]
    inputs: tuple[int, ...] = ()
    out_bytes: float = 0.0
    pin: int | None = None
    cached: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can run, the sites by name, and the links by (from, to). Where two sites have no
    link, nothing can be copied. Raises Invalid for what cannot be placed."""

    nodes: tuple[Node, ...]
    sites: tuple[str, ...]
    links: Mapping[tuple[int, int], Link]

    def __post_init__(self) -> None:
        for (a, b), link in self.links.items():
            if not (0 <= a < len(self.sites) and 0 <= b < len(self.sites)):
                raise Invalid(f"a link names a site that is not there: {a} to {b}", hint="sites count from 0")
            if not (link.bytes_per_s > 0 and 0 <= link.latency_s < inf):
                raise Invalid(
                    "a link needs a rate above 0 and a finite latency", where=f"{self.sites[a]} to {self.sites[b]}"
                )
        for position, node in enumerate(self.nodes):
            self._check(position, node)

    def _check(self, position: int, node: Node) -> None:
        where = f"node {position} ({node.name})"
        if len(node.seconds) != len(self.sites):
            raise Invalid(f"{len(node.seconds)} times for {len(self.sites)} sites", where=where)
        if any(isnan(s) or s < 0 for s in node.seconds) or not 0 <= node.out_bytes < inf:
            raise Invalid("times and sizes are numbers of at least 0", where=where)
        if any(not 0 <= each < position for each in node.inputs):
            raise Invalid("an input stands before the node that reads it", where=where)
        if node.pin is not None and not 0 <= node.pin < len(self.sites):
            raise Invalid(f"there is no site {node.pin} to pin it to", where=where)
        if not self.allowed(position):
            raise Invalid("it can run at no site", where=where, hint="give it a finite time at the site of its pin")

    def allowed(self, position: int) -> tuple[int, ...]:
        """The sites where a node can run."""
        node = self.nodes[position]
        some = range(len(self.sites)) if node.pin is None else (node.pin,)
        return tuple(site for site in some if isfinite(node.seconds[site]))

    @cached_property
    def edges(self) -> list[tuple[int, int]]:
        """Each pair of a node and one that reads its output, once."""
        return [(each, position) for position, node in enumerate(self.nodes) for each in dict.fromkeys(node.inputs)]

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Of each node, the nodes that read its output, each once."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for producer, consumer in self.edges:
            found[producer].append(consumer)
        return tuple(map(tuple, found))

    def copy_seconds(self, position: int, source: int, target: int) -> float:
        """To have a node's output at another site than the one where it ran."""
        node = self.nodes[position]
        if source == target or target in node.cached:
            return 0.0
        link = self.links.get((source, target))
        return inf if link is None else link.seconds(node.out_bytes)

    def copies(self, position: int, sites: Sequence[int]) -> dict[tuple[int, int], float]:
        """Seconds by (from, to) of the copies that a node's output needs. Each target gets one, however many
        consumers it has there."""
        source = sites[position]
        needed = {sites[each] for each in self.consumers[position]}
        return {(source, target): s for target in sorted(needed) if (s := self.copy_seconds(position, source, target))}

    @cached_property
    def arrays(self) -> Arrays:
        from shoal.placement.arrays import Arrays

        return Arrays.of(self)

    def total(self, sites: Sequence[int]) -> float:
        """Seconds of work and of copies, one after another."""
        return self.arrays.total(sites)

    def bytes_moved(self, sites: Sequence[int]) -> float:
        return sum(node.out_bytes * len(self.copies(each, sites)) for each, node in enumerate(self.nodes))
