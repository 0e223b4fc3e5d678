"""The best choice between two sites for each node, by one minimum cut.

Exact for two sites. For more, the same cut answers one step of alpha-expansion: each node keeps its site or changes to
a given one (Boykov, Veksler and Zabih, 2001), with an upper bound where the cost of a move is not submodular.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from shoal.placement.cut import Arcs, minimum_cut
from shoal.placement.graph import Graph

_SOURCE, _SINK = 0, 1


def best_of_two(graph: Graph) -> tuple[list[int], float, float]:
    """The best assignment to sites 0 and 1, a lower bound of the seconds of every assignment, and its seconds."""
    numbers, nodes = graph.arrays, len(graph.nodes)
    vertex = np.arange(2, 2 + nodes)
    arcs = Arcs(vertices=2 + 3 * nodes)  # with one for each output on its way out, and one on its way back
    least = numbers.seconds.min(axis=1)
    arcs.extend(np.full(nodes, _SOURCE), vertex, numbers.seconds[:, 1] - least)
    arcs.extend(vertex, np.full(nodes, _SINK), numbers.seconds[:, 0] - least)
    out, back = numbers.copy[:, 0, 1], numbers.copy[:, 1, 0]
    consumers = np.bincount(numbers.producer, minlength=nodes)
    alone = consumers[numbers.producer] == 1
    if alone.any():
        producer, consumer = numbers.producer[alone], numbers.consumer[alone]
        arcs.extend(vertex[producer], vertex[consumer], out[producer])
        arcs.extend(vertex[consumer], vertex[producer], back[producer])
    several = np.flatnonzero(consumers > 1)
    if several.size:
        producer, consumer = numbers.producer[~alone], numbers.consumer[~alone]
        never = np.full(producer.size, inf)
        arcs.extend(vertex[several], vertex[several] + nodes, out[several])
        arcs.extend(vertex[producer] + nodes, vertex[consumer], never)
        arcs.extend(vertex[several] + 2 * nodes, vertex[several], back[several])
        arcs.extend(vertex[consumer], vertex[producer] + 2 * nodes, never)
    base = float(least.sum())
    known, start = min((graph.total(each), each) for each in starts(graph))
    cut = minimum_cut(arcs, known - base)
    found = np.where(cut.source_side[vertex], 0, 1).tolist()
    seconds = graph.total(found)
    return (found, base + cut.low, seconds) if seconds <= known else (start, base + cut.low, known)


def expand(graph: Graph, sites: Sequence[int], site: int) -> list[int]:
    """The assignment after the best set of nodes changed to `site`; the same one where no change helps."""
    vertex, arcs = range(2, 2 + len(graph.nodes)), Arcs(vertices=2 + len(graph.nodes))
    for position, node in enumerate(graph.nodes):
        may = site in graph.allowed(position) and sites[position] != site
        stay = node.seconds[sites[position]]
        arcs.add(_SOURCE, vertex[position], node.seconds[site] if may else inf)
        arcs.add(vertex[position], _SINK, stay)
    for position in range(len(graph.nodes)):
        _copies(graph, sites, site, position, vertex, arcs)
    cut = minimum_cut(arcs, graph.total(sites) * len(graph.sites))
    moved = [old if cut.source_side[each] else site for each, old in zip(vertex, sites, strict=True)]
    return moved if graph.total(moved) < graph.total(sites) else list(sites)


def _copies(graph: Graph, sites: Sequence[int], site: int, position: int, vertex: Sequence[int], arcs: Arcs) -> None:
    """What the output of one node costs: a copy to each site where a consumer stays, and one to `site` where one is or
    goes, while the node itself stays elsewhere."""
    own, consumers = sites[position], graph.consumers[position]
    if own != site and consumers and (seconds := graph.copy_seconds(position, own, site)):
        there = arcs.vertex()
        arcs.add(vertex[position], there, seconds)
        for each in consumers:
            arcs.add(there, _SINK if sites[each] == site else vertex[each], inf)
    for target in {sites[each] for each in consumers} - {site}:
        stays, goes = graph.copy_seconds(position, own, target), graph.copy_seconds(position, site, target)
        kept = arcs.vertex()  # on the source's side as soon as one consumer stays at the target
        for each in consumers:
            if sites[each] == target:
                arcs.add(vertex[each], kept, inf)
        arcs.add(kept, _SINK, min(stays, goes) if own != site else stays)
        if own != site and goes > stays:
            arcs.add(kept, vertex[position], goes - stays)
        elif own != site and stays > goes:
            arcs.add(kept, _SINK, stays - goes)  # not submodular: as if the node stayed


def starts(graph: Graph) -> list[list[int]]:
    """Everything at one site, as far as may be, and each node where it is fastest."""
    seconds = graph.arrays.seconds
    fastest = seconds.argmin(axis=1)
    able = np.isfinite(seconds)
    alone = [np.where(able[:, site], site, fastest) for site in range(len(graph.sites))]
    return [each.tolist() for each in (*alone, fastest)]
