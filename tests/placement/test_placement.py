"""Placement against every assignment tried, in graphs of all shapes and magnitudes."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Invalid
from shoal.placement import Graph, Link, Node, place, short_time
from tests.placement.oracle import brute_force, random_graph, seconds_of

BOTH = {(0, 1): Link(1.0), (1, 0): Link(1.0)}
CLOSE = 1 + 2e-7


def two(*nodes: Node, links: dict[tuple[int, int], Link] = BOTH) -> Graph:
    return Graph(nodes, ("cpu", "gpu"), links)


@given(st.integers(0, 10**9), st.integers(1, 9), st.integers(-9, 9))
def test_two_sites_are_solved_exactly(seed: int, nodes: int, exponent: int) -> None:
    graph = random_graph(seed, nodes, 2, magnitude=10.0**exponent)
    found = place(graph)
    best = brute_force(graph)
    assert seconds_of(graph, found.assignment) == pytest.approx(found.seconds)
    assert best / CLOSE <= found.seconds <= best * CLOSE
    assert found.exact
    assert found.at_least_s <= best * (1 + 1e-9)


@pytest.mark.slow
def test_ten_thousand_graphs() -> None:
    for seed in range(10_000):
        graph = random_graph(seed, random.Random(seed).randint(1, 10 if seed % 20 == 0 else 7), 2)
        assert place(graph).seconds == pytest.approx(brute_force(graph), rel=2e-7)


@given(st.integers(0, 10**9), st.integers(1, 6), st.integers(1, 4))
def test_trees_are_solved_exactly_at_any_number_of_sites(seed: int, nodes: int, sites: int) -> None:
    graph = random_graph(seed, min(nodes, 5 if sites == 4 else 6), sites, tree=True)
    found = place(graph)
    assert found.seconds == pytest.approx(brute_force(graph))
    assert seconds_of(graph, found.assignment) == pytest.approx(found.seconds)
    assert found.exact


@given(st.integers(0, 10**9), st.integers(1, 6), st.integers(1, 4))
def test_chains_that_join_are_solved_exactly_at_any_number_of_sites(seed: int, nodes: int, sites: int) -> None:
    graph = random_graph(seed, min(nodes, 5 if sites == 4 else 6), sites, chains=True)
    found = place(graph)
    assert found.seconds == pytest.approx(brute_force(graph))
    assert seconds_of(graph, found.assignment) == pytest.approx(found.seconds)
    assert found.exact


@given(st.integers(0, 10**9), st.integers(2, 6))
def test_other_graphs_lie_between_the_bound_and_a_tenth_above_the_best(seed: int, nodes: int) -> None:
    graph = random_graph(seed, nodes, 3)
    found = place(graph)
    best = brute_force(graph)
    assert found.at_least_s <= best * (1 + 1e-9)
    assert best / CLOSE <= found.seconds <= best * 1.1 * CLOSE


def test_an_output_is_shipped_once_for_all_its_consumers() -> None:
    consumers = [Node(f"use{i}", (4.0, 1.0), (0,), 0.0) for i in range(5)]
    found = place(two(Node("make", (0.0, inf), (), 10.0), *consumers))
    assert found.assignment == (0, 1, 1, 1, 1, 1)
    assert (found.seconds, found.bytes_moved) == (15.0, 10.0)


def test_an_output_that_is_cached_at_a_site_is_not_copied_there() -> None:
    graph = two(Node("data", (0.0, inf), (), 10.0, cached=frozenset({1})), Node("use", (4.0, 1.0), (0,)))
    assert place(graph).assignment == (0, 1)
    assert place(graph).bytes_moved == 0
    assert place(replace(graph, nodes=(replace(graph.nodes[0], cached=frozenset()), graph.nodes[1]))).seconds == 4.0


@pytest.mark.parametrize("exponent", [-12, -3, 0, 6, 12])
def test_capacities_of_every_magnitude_fit_into_the_solver(exponent: int) -> None:
    """One node takes as long as a million others together: neither overflows nor vanishes."""
    rng = random.Random(0)
    scale = 10.0**exponent
    small = [Node(f"n{i}", (rng.random() * scale, rng.random() * scale), (0,), 0.3 * scale) for i in range(1, 9)]
    graph = two(Node("big", (1e9 * scale, 1.1e9 * scale), (), 1e5 * scale), *small, links=BOTH)
    best = brute_force(graph)
    assert place(graph).seconds == pytest.approx(best, rel=1e-12)
    fast = np.array([min(node.seconds) for node in small]).sum()
    only = two(Node("src", (0.0, 0.0), (), 0.0), *small)
    assert place(only).seconds == pytest.approx(fast, rel=1e-6)


def test_two_thousand_nodes_equal_the_cut_of_their_assignment() -> None:
    graph = random_graph(3, 2000, 2)
    found = place(graph)
    assert found.exact
    assert found.seconds == pytest.approx(seconds_of_large(graph, found.assignment))


def seconds_of_large(graph: Graph, sites: tuple[int, ...]) -> float:
    targets: list[set[int]] = [set() for _ in sites]
    for position, node in enumerate(graph.nodes):
        for each in node.inputs:
            targets[each].add(sites[position])
    total = sum(node.seconds[s] for node, s in zip(graph.nodes, sites, strict=True))
    for node, own, some in zip(graph.nodes, sites, targets, strict=True):
        for target in some - {own} - set(node.cached):
            link = graph.links[own, target]
            total += link.latency_s + node.out_bytes / link.bytes_per_s
    return total


def test_reasons_name_the_other_site_and_what_it_costs() -> None:
    found = place(
        two(
            Node("read", (0.0, inf), (), 9.0),
            Node("step", (5.0, 1.0), (0,), 9.0),
            Node("heavy", (90.0, 1.0), (0,), 0.0),
            Node("show", (0.0, 0.0), (1,), pin=0),
        )
    )
    texts = [each.text for each in found.reasons]
    assert found.assignment == (0, 0, 1, 0)
    assert texts == [
        "cpu: gpu cannot run it",
        "cpu: gpu would save 4 s, its copies would cost 9 s",
        "gpu: cpu would save 9 s of copies, the work there takes 89 s more",
        "cpu: it is pinned there",
    ]
    assert found.reasons[1].facts == {"site": "cpu", "other": "gpu", "work_s": -4.0, "copies_s": 9.0}
    assert found.reason(1).code == "copies"


def test_a_reason_without_copies_compares_the_work_alone() -> None:
    assert place(two(Node("a", (1.0, 3.0)))).reason(0).text == "cpu: gpu takes 2 s longer"
    apart = place(two(Node("a", (1.0, inf), (), 1.0), Node("b", (1.0, 2.0), (0,)), links={}))
    assert apart.reason(1).text == "cpu: nothing links gpu with the nodes beside it"
    both = place(two(Node("a", (0.0, inf), (), 2.0), Node("b", (1.0, 3.0), (0,))))
    assert both.reason(1).text == "cpu: gpu takes 2 s longer, and 2 s of copies"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ((Node("a", (1.0,)),), "1 times for 2 sites"),
        ((Node("a", (1.0, -1.0)),), "at least 0"),
        ((Node("a", (1.0, float("nan"))),), "at least 0"),
        ((Node("a", (1.0, 1.0), (), -1.0),), "at least 0"),
        ((Node("a", (1.0, 1.0), (0,)),), "before the node"),
        ((Node("a", (1.0, inf), pin=1),), "it can run at no site"),
        ((Node("a", (1.0, 1.0), pin=2),), "no site 2"),
    ],
)
def test_bad_nodes_are_refused_by_name(nodes: tuple[Node, ...], said: str) -> None:
    with pytest.raises(Invalid, match=said) as refused:
        two(*nodes)
    assert refused.value.where == "node 0 (a)"


def test_bad_links_are_refused() -> None:
    with pytest.raises(Invalid, match="a rate above 0"):
        two(Node("a", (1.0, 1.0)), links={(0, 1): Link(0.0)})
    with pytest.raises(Invalid, match="site that is not there"):
        two(Node("a", (1.0, 1.0)), links={(0, 2): Link(1.0)})


@pytest.mark.parametrize("sites", [2, 3])
def test_what_no_assignment_can_copy_is_refused(sites: int) -> None:
    names = tuple("abc"[:sites])
    nodes = (Node("a", (1.0,) * sites, pin=0), Node("b", (1.0,) * sites, (0,), pin=1))
    with pytest.raises(Invalid, match="no assignment can copy"):
        place(Graph(nodes, names, {}))


def test_too_many_sites_are_refused_only_where_they_matter() -> None:
    names = tuple(f"s{i}" for i in range(11))
    one = Node("a", (1.0,) * 11)
    assert place(Graph((one,), names, {})).seconds == 1.0
    with pytest.raises(Invalid, match="at most 10"):
        place(Graph((one, *[Node(each, (1.0,) * 11, (0,)) for each in "bc"]), names, {}))


def test_an_empty_graph_takes_no_time() -> None:
    assert place(two()).seconds == 0
    assert place(Graph((), ("a", "b", "c"), {})).assignment == ()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (2.5, "2.5 s"), (0.0091, "9.1 ms"), (3.4e-5, "34 us"), (2e-8, "20 ns")]
)
def test_short_times(seconds: float, text: str) -> None:
    assert short_time(seconds) == text
