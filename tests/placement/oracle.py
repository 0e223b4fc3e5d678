"""Every assignment tried, and its seconds counted by hand: what placement is held against."""

from __future__ import annotations

import itertools
import random
from math import inf

from shoal.placement import Graph, Link, Node


def seconds_of(graph: Graph, sites: tuple[int, ...]) -> float:
    total = 0.0
    for node, site in zip(graph.nodes, sites, strict=True):
        if node.pin not in (None, site):
            return inf
        total += node.seconds[site]
    for producer, node in enumerate(graph.nodes):
        targets = {sites[c] for c, reader in enumerate(graph.nodes) if producer in reader.inputs}
        for target in targets - {sites[producer]} - set(node.cached):
            link = graph.links.get((sites[producer], target))
            total += inf if link is None else link.latency_s + node.out_bytes / link.bytes_per_s
    return total


def brute_force(graph: Graph) -> float:
    every = itertools.product(range(len(graph.sites)), repeat=len(graph.nodes))
    return min(seconds_of(graph, sites) for sites in every)


def random_graph(
    seed: int, nodes: int, sites: int, *, tree: bool = False, chains: bool = False, magnitude: float = 1.0
) -> Graph:
    """Whole and odd times, absent implementations, pins, cached outputs, nodes read by several and by none; with
    `chains` by one at most."""
    rng = random.Random(seed)
    made: list[Node] = []
    for position in range(nodes):
        read = {each for node in made for each in node.inputs} if chains else set[int]()
        before = [each for each in range(position) if each not in read]
        chosen = rng.sample(before, min(len(before), rng.choice((1,) if tree else (0, 1, 1, 2, 3))))
        seconds = [rng.choice((rng.randint(0, 20), rng.random() * 20)) * magnitude for _ in range(sites)]
        pin = rng.randrange(sites) if position == 0 or rng.random() < 0.15 else None
        if sites > 1 and pin is None and rng.random() < 0.15:
            seconds[rng.randrange(sites)] = inf
        cached = frozenset(s for s in range(sites) if rng.random() < 0.1)
        made.append(Node(f"n{position}", tuple(seconds), tuple(chosen), rng.random() * 15 * magnitude, pin, cached))
    pairs = itertools.permutations(range(sites), 2)
    links = {pair: Link(rng.choice((1.0, 2.0, 7.5)), rng.choice((0.0, magnitude))) for pair in pairs}
    return Graph(tuple(made), tuple(f"site{s}" for s in range(sites)), links)
