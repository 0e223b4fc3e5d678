"""The best sites of a graph in which each output has one consumer at most, as in pipelines, by dynamic programming from
the inputs on. It needs no arrays: a pipeline of sixty commands takes under a millisecond."""

from __future__ import annotations

from math import inf

from shoal.placement.graph import Graph


def best_of_chains(graph: Graph) -> tuple[list[int], float] | None:
    """The best assignment and its seconds, infinite where none can copy what it needs; None where an output has several
    consumers."""
    if len({producer for producer, _ in graph.edges}) < len(graph.edges):
        return None
    every = range(len(graph.sites))
    costs: list[dict[int, float]] = []  # of a node and all before it, by its site
    arrived: list[list[float]] = []  # the same with its output at each site
    sources: list[list[int]] = []  # the site from which the output gets there
    for position, node in enumerate(graph.nodes):
        inputs = tuple(dict.fromkeys(node.inputs))
        cost = {
            site: node.seconds[site] + sum(arrived[each][site] for each in inputs) for site in graph.allowed(position)
        }
        if graph.consumers[position]:
            best = [min((cost[s] + graph.copy_seconds(position, s, target), s) for s in cost) for target in every]
            arrived.append([seconds for seconds, _ in best])
            sources.append([site for _, site in best])
        else:
            arrived.append([inf] * len(every))
            sources.append([min(cost, key=cost.__getitem__)] * len(every))
        costs.append(cost)
    sites = [-1] * len(costs)
    for position in reversed(range(len(costs))):
        consumers = graph.consumers[position]
        sites[position] = sources[position][sites[consumers[0]] if consumers else 0]
    return sites, sum(costs[each][sites[each]] for each, consumers in enumerate(graph.consumers) if not consumers)
