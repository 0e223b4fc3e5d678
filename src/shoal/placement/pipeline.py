"""Placement of a graph through which data flows in chunks, so that its stages work at the same time.

Such a graph takes as long as its busiest resource, and the time until the first chunk is through; not the sum. A cut
minimises sums, so the resources get prices: place, raise the price of the busiest one, place again. Prices alone move
all equal nodes together, so each placement is then balanced node by node. The simulation says which is fastest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from shoal.core import Invalid
from shoal.placement.graph import Graph, Link
from shoal.placement.solve import place

_ROUNDS = 3
"""Placements that are tried at most; more found nothing better on random chains of up to 40 stages."""


@dataclass(frozen=True)
class PipelinedPlacement:
    """`assignment` has the site of each node; `seconds` is what the simulation takes; `busiest` is the site, or the
    two sites of the link, that everything else waits for; `busy_s` has each one's seconds of work."""

    assignment: tuple[int, ...]
    seconds: float
    busiest: Hashable
    busy_s: Mapping[Hashable, float]


def place_pipelined(graph: Graph, chunks: int, *, alternatives: Sequence[Sequence[int]] = ()) -> PipelinedPlacement:
    """The times and sizes of the nodes are those of all chunks together. `alternatives` are assignments to try too."""
    if chunks < 1:
        raise Invalid(f"{chunks} chunks: data flows in one or more")
    prices: dict[Hashable, float] = defaultdict(lambda: 1.0)
    found = [simulate(graph, each, chunks) for each in alternatives]
    seen = set[tuple[int, ...]]()
    for _ in range(_ROUNDS):
        placed = _balanced(graph, place(_priced(graph, prices)).assignment, chunks)
        if placed in seen:
            break
        seen.add(placed)
        found.append(simulate(graph, placed, chunks))
        busiest, busy = found[-1].busiest, found[-1].busy_s
        others = sum(busy.values()) - busy[busiest]
        prices[busiest] *= 1 + busy[busiest] / (others or busy[busiest] or 1.0)
    return min(found, key=lambda each: each.seconds)


def _priced(graph: Graph, prices: Mapping[Hashable, float]) -> Graph:
    cost = [prices[name] for name in graph.sites]
    nodes = tuple(
        replace(node, seconds=tuple(s * c for s, c in zip(node.seconds, cost, strict=True))) for node in graph.nodes
    )
    links = {
        (a, b): Link(link.bytes_per_s / price, link.latency_s * price)
        for (a, b), link in graph.links.items()
        for price in (prices[graph.sites[a], graph.sites[b]],)
    }
    return Graph(nodes, graph.sites, links)


def _balanced(graph: Graph, sites: tuple[int, ...], chunks: int) -> tuple[int, ...]:
    """Change one node's site as long as that shortens the estimate; each step takes the change that does most."""
    best = _estimate(graph, sites, chunks)
    while True:
        tried = {
            changed: _estimate(graph, changed, chunks)
            for position, own in enumerate(sites)
            for site in graph.allowed(position)
            if site != own
            for changed in ((*sites[:position], site, *sites[position + 1 :]),)
        }
        better = min(tried, key=tried.__getitem__, default=sites)
        if better == sites or not tried[better] < best:
            return sites
        sites, best = better, tried[better]


def _estimate(graph: Graph, sites: Sequence[int], chunks: int) -> float:
    """The busiest resource for all chunks but one, and that one through everything."""
    busy: dict[Hashable, float] = defaultdict(float)
    for position, node in enumerate(graph.nodes):
        busy[sites[position]] += node.seconds[sites[position]]
        for link, seconds in graph.copies(position, sites).items():
            busy[link] += seconds
    return max(busy.values(), default=0.0) * (1 - 1 / chunks) + sum(busy.values()) / chunks


def simulate(graph: Graph, sites: Sequence[int], chunks: int) -> PipelinedPlacement:
    """Run an assignment chunk by chunk: a site works on one node at a time and a link on one copy, in the order in
    which they become ready. A copy has the latency once for all of its chunks."""
    free: dict[Hashable, float] = defaultdict(float)
    busy: dict[Hashable, float] = defaultdict(float)
    arrived: list[dict[int, float]] = [{} for _ in graph.nodes]
    end = 0.0
    for chunk in range(chunks):
        for position, node in enumerate(graph.nodes):
            site = sites[position]
            name = graph.sites[site]
            ready = max((arrived[each][site] for each in node.inputs), default=0.0)
            end = _use(free, busy, name, ready, node.seconds[site] / chunks, 0.0)
            arrived[position] = dict.fromkeys(node.cached, end) | {site: end}
            for (_, target), seconds in graph.copies(position, sites).items():
                if target not in arrived[position]:
                    latency = graph.links[site, target].latency_s
                    link = (name, graph.sites[target])
                    done = _use(free, busy, link, end, (seconds - latency) / chunks, latency if chunk == 0 else 0.0)
                    arrived[position][target] = done
    last = max(free.values(), default=0.0)
    busiest = max(busy, key=lambda each: busy[each], default=graph.sites[0])
    return PipelinedPlacement(tuple(sites), last, busiest, dict(busy))


def _use(
    free: dict[Hashable, float], busy: dict[Hashable, float], name: Hashable, ready: float, work: float, latency: float
) -> float:
    free[name] = max(free[name], ready) + work + latency
    busy[name] += work
    return free[name]
