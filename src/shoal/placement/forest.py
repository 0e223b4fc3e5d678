"""The best sites of a graph without cycles, by dynamic programming: any number of sites, outputs shipped once a target.

A node's output forms a star with its consumers. Among the sets of sites that get a copy, the best is found by trying
all of them, so the number of sites is limited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from shoal.placement.graph import Graph

MOST_SITES = 10
"""Of them, 1,024 sets are tried for each node."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Of each node, the consumers that are counted. Leaving some out makes every assignment cheaper or equally so."""

    consumers: tuple[tuple[int, ...], ...]
    whole: bool


def spanning(graph: Graph) -> Forest:
    """The edges with the most expensive copies that close no cycle, taken regardless of direction (Kruskal, 1956)."""
    numbers = graph.arrays
    finite = np.where(np.isfinite(numbers.copy), numbers.copy, 0.0).max(axis=(1, 2), initial=0.0)
    parent = list(range(len(graph.nodes)))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    kept: list[list[int]] = [[] for _ in graph.nodes]
    for edge in np.argsort(-finite[numbers.producer], kind="stable"):
        producer, consumer = int(numbers.producer[edge]), int(numbers.consumer[edge])
        a, b = root(producer), root(consumer)
        if a != b:
            parent[a] = b
            kept[producer].append(consumer)
    return Forest(tuple(map(tuple, kept)), sum(map(len, kept)) == numbers.producer.size)


@dataclass
class _Solver:
    graph: Graph
    forest: Forest
    sets: list[tuple[int, ...]]
    parent: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """`order` has each node after its parent. `reach` (site, source, set) says which sets bring an output there."""
        sites = range(len(self.graph.sites))
        self.reach = np.array([[[t == s or t in each for each in self.sets] for s in sites] for t in sites])
        beside: list[list[int]] = [list(each) for each in self.forest.consumers]
        for producer, consumers in enumerate(self.forest.consumers):
            for each in consumers:
                beside[each].append(producer)
        self.parent = [-2] * len(beside)
        for start in range(len(beside)):
            if self.parent[start] != -2:
                continue
            self.parent[start] = -1
            waiting = [start]
            while waiting:
                node = waiting.pop()
                self.order.append(node)
                for each in beside[node]:
                    if self.parent[each] == -2:
                        self.parent[each] = node
                        waiting.append(each)

    def solve(self) -> tuple[list[int], float]:
        sites = len(self.graph.sites)
        own = self.graph.arrays.seconds.copy()  # grows by what the producers below a node cost, by the node's site
        below = np.zeros((len(own), sites))  # what a consumer's tree costs, by its site
        chosen: list[np.ndarray] = [np.empty(0)] * len(own)
        for node in reversed(self.order):
            children = [each for each in self.forest.consumers[node] if self.parent[each] == node]
            cost = own[node][:, None] + self._stars(node, children, below)
            chosen[node] = cost
            up = self.parent[node]
            if up in self.forest.consumers[node]:
                own[up] += np.where(self.reach, cost, np.inf).min(axis=(1, 2))
            else:
                below[node] = cost.min(axis=1)
        total = sum(float(chosen[node].min()) for node in self.order if self.parent[node] == -1)
        return self._read(chosen, below), total

    def _stars(self, node: int, children: Sequence[int], below: np.ndarray) -> np.ndarray:
        """Shape (sites, sets): copies of the output to a set of sites, and its consumers each at the best of them."""
        copy = self.graph.arrays.copy[node]
        found = np.zeros((len(copy), len(self.sets)))
        for source in range(len(copy)):
            for number, targets in enumerate(self.sets):
                at = sorted({source, *targets})
                found[source, number] = (
                    copy[source, list(targets)].sum() + below[np.ix_(children, at)].min(axis=1).sum()
                )
        return found

    def _read(self, chosen: Sequence[np.ndarray], below: np.ndarray) -> list[int]:
        sites, sets = [-1] * len(chosen), [-1] * len(chosen)
        for node in self.order:
            cost, up = chosen[node], self.parent[node]
            if up >= 0 and up in self.forest.consumers[node]:  # its output must reach the parent's site
                cost = np.where(self.reach[sites[up]], cost, np.inf)
            elif up >= 0:
                at = sorted({sites[up], *self.sets[sets[up]]})
                row = at[int(below[node][at].argmin())]
                cost = np.where(np.arange(len(cost))[:, None] == row, cost, np.inf)
            best = int(cost.argmin())
            sites[node], sets[node] = divmod(best, cost.shape[1])
        return sites


def best_of_forest(graph: Graph, forest: Forest) -> tuple[list[int], float]:
    """The best assignment where only the forest's edges count, and its seconds there: a lower bound for the graph."""
    sites = range(len(graph.sites))
    sets = [each for size in range(len(sites)) for each in combinations(sites, size)]
    return _Solver(graph, forest, sets).solve()
