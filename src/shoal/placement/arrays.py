"""The numbers of a graph as arrays, for the solvers that work on all nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shoal.placement.graph import Graph


@dataclass(frozen=True)
class Arrays:
    """The numbers of a graph. `seconds` (nodes, sites) is infinite where a node may not run; `copy` (nodes, from, to);
    `producer` and `consumer` (edges,) are nodes."""

    seconds: np.ndarray
    copy: np.ndarray
    producer: np.ndarray
    consumer: np.ndarray

    @staticmethod
    def of(graph: Graph) -> Arrays:
        count = len(graph.sites)
        seconds = np.array([node.seconds for node in graph.nodes], float).reshape(-1, count)
        pins = np.array([-1 if node.pin is None else node.pin for node in graph.nodes], int)
        elsewhere = (pins[:, None] >= 0) & (np.arange(count) != pins[:, None])
        seconds[elsewhere] = inf
        size = np.array([node.out_bytes for node in graph.nodes], float)
        copy = np.full((len(graph.nodes), count, count), inf)
        for (a, b), link in graph.links.items():
            copy[:, a, b] = link.latency_s + size / link.bytes_per_s
        copy[:, range(count), range(count)] = 0.0
        for position, node in enumerate(graph.nodes):
            if node.cached:
                copy[position][:, list(node.cached)] = 0.0
        producer, consumer = np.array(graph.edges, int).reshape(-1, 2).T
        return Arrays(seconds, copy, producer, consumer)

    def total(self, assignment: Sequence[int]) -> float:
        sites = np.asarray(assignment, int)
        every = np.arange(len(sites))
        needed = np.zeros(self.seconds.shape, bool)
        needed[self.producer, sites[self.consumer]] = True
        copies = self.copy[every, sites][needed]
        return float(self.seconds[every, sites].sum() + copies.sum())
