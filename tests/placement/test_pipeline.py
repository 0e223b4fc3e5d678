"""Pipelined placement: the busiest resource counts, not the sum."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Invalid
from shoal.placement import Graph, Link, Node, place_pipelined
from shoal.placement.pipeline import simulate
from tests.placement.oracle import random_graph

BOTH = {(0, 1): Link(1e9), (1, 0): Link(1e9)}


def chain(*seconds: tuple[float, float], links: dict[tuple[int, int], Link] = BOTH) -> Graph:
    nodes = [Node(f"s{i}", each, (i - 1,) if i else (), 1.0) for i, each in enumerate(seconds)]
    return Graph(tuple(nodes), ("a", "b"), links)


def test_a_chain_takes_its_slowest_stage_and_the_first_chunk_through_the_others() -> None:
    graph = chain((10.0, 10.0), (0.0, 4.0))
    done = simulate(graph, (0, 1), 10)
    assert done.seconds == pytest.approx(10.0 + 0.4)
    assert done.busiest == "a"
    assert simulate(graph, (0, 1), 1).seconds == pytest.approx(14.0)


def test_two_sites_share_a_chain_that_the_sum_would_leave_at_one() -> None:
    graph = chain((6.0, 6.1), (6.0, 6.1))
    found = place_pipelined(graph, 100)
    assert sorted(found.assignment) == [0, 1]
    assert found.seconds < 6.3


def test_a_link_has_its_latency_once_and_may_be_the_bottleneck() -> None:
    graph = chain((1.0, 1.0), (1.0, 1.0), links={(0, 1): Link(0.1, 2.0)})
    done = simulate(graph, (0, 1), 10)
    assert done.busiest == ("a", "b")
    assert done.busy_s["a", "b"] == pytest.approx(10.0)
    assert done.seconds == pytest.approx(0.1 + 2.0 + 10.0 + 0.1)


def test_a_cached_output_is_there_without_a_copy() -> None:
    nodes = (Node("data", (1.0, 1.0), (), 1.0, cached=frozenset({1})), Node("use", (1.0, 1.0), (0,)))
    done = simulate(Graph(nodes, ("a", "b"), {}), (0, 1), 4)
    assert done.seconds == pytest.approx(1.25)


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 30))
def test_it_is_never_slower_than_the_alternatives(seed: int, nodes: int, chunks: int) -> None:
    graph = random_graph(seed, nodes, 2, tree=True)
    every = [s for s in itertools.product((0, 1), repeat=nodes) if all(s[i] in graph.allowed(i) for i in range(nodes))]
    best = min(simulate(graph, each, chunks).seconds for each in every)
    found = place_pipelined(graph, chunks, alternatives=every[:1])
    assert best <= found.seconds * (1 + 1e-9)
    assert found.seconds <= simulate(graph, every[0], chunks).seconds
    assert found.seconds == simulate(graph, found.assignment, chunks).seconds


def test_no_chunks_are_refused() -> None:
    with pytest.raises(Invalid, match="one or more"):
        place_pipelined(chain((1.0, 1.0)), 0)
