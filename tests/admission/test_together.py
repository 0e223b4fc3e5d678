"""A gang is kept in one switch or rack where any holds it: against all plans that there are, on small clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.admission import Policy, Spread
from shoal.core import Node, PriorityClass

from .cases import NOW, decide_on, devices, job, node, running

Labels = Mapping[str, str]


def cluster(sizes: Sequence[int], labels: Sequence[Labels]) -> list[Node]:
    made = [node(f"n{at}", {"a100": size}) for at, size in enumerate(sizes)]
    return [replace(each, labels=dict(told)) for each, told in zip(made, labels, strict=True)]


def plans(sizes: Sequence[int], count: int, ranks: int) -> Iterator[tuple[int, ...]]:
    """How many ranks go to each node, in every way that there is."""
    for plan in product(*(range(size // count + 1) for size in sizes)):
        if sum(plan) == ranks:
            yield plan


def rating(plan: Sequence[int], labels: Sequence[Labels]) -> tuple[int, int]:
    """Less is better: (0, 1) on one node; (1, nodes) in one switch; (2, nodes) in one rack; else (3, groups)."""
    used = [at for at, ranks in enumerate(plan) if ranks]
    if len(used) == 1:
        return 0, 1
    groups = 0
    for step, label in enumerate(("switch", "rack"), start=1):
        every = [told.get(label) or f"alone {at}" for at, told in enumerate(labels)]
        if not 1 < len(set(every)) < len(every):
            continue  # it tells nothing apart, or puts nothing together
        groups = len({every[at] for at in used})
        if groups == 1:
            return step, len(used)
    return 3, groups or len(used)


RACKS = st.sampled_from([{}, {"rack": "r1"}, {"rack": "r1"}, {"rack": "r2"}, {"rack": "r3"}])
SWITCHES = st.sampled_from(["", "", "a", "b"])


@st.composite
def places(draw: st.DrawFn) -> Labels:
    """A switch belongs to one rack."""
    rack, switch = draw(RACKS), draw(SWITCHES)
    return {**rack, "switch": f"{rack['rack']}-{switch}"} if rack and switch else rack


def racked(*racks: Sequence[int]) -> list[tuple[int, Labels]]:
    return [(size, {"rack": f"r{at}"}) for at, sizes in enumerate(racks) for size in sizes]


@settings(max_examples=200, deadline=None, derandomize=True)
@example(racked((4,), (2, 2)), 1, 4)
@example(racked((2, 3), (3, 2)), 1, 5)
@example([*racked((3, 2), (3, 1)), (4, {})], 1, 8)
@example(racked((2, 1, 1), (3, 3)), 1, 4)  # the tighter one needs more nodes
@example(racked((2, 2), (2, 2)), 1, 3)
@given(st.lists(st.tuples(st.integers(0, 4), places()), min_size=2, max_size=6), st.integers(1, 2), st.integers(2, 7))
def test_no_other_plan_keeps_a_gang_closer(made: list[tuple[int, Labels]], count: int, ranks: int) -> None:
    """Nor the next gang of one decision, beside those before it."""
    sizes, labels = [size for size, _ in made], [told for _, told in made]
    gangs = [job(f"j{at}", resources=count, ranks=ranks, at=float(at)) for at in range(3)]
    starts = iter(decide_on(cluster(sizes, labels), gangs).starts)
    for _ in gangs:
        best = min((rating(plan, labels) for plan in plans(sizes, count, ranks)), default=None)
        start = next(starts, None)
        assert (start is None) == (best is None)
        if start is None:
            break
        where = [rank.node for rank in start.placement]
        chosen = tuple(where.count(f"n{at}") for at in range(len(sizes)))
        assert chosen in set(plans(sizes, count, ranks))
        assert rating(chosen, labels) == best
        sizes = [size - taken * count for size, taken in zip(sizes, chosen, strict=True)]


RACKED = [{"rack": "r1"}] * 3 + [{"rack": "r2"}] * 3


@pytest.mark.parametrize(
    ("taken", "ranks", "where", "told"),
    [
        ((), 3, {"n0", "n1", "n2"}, "3 nodes of rack r1"),
        ((0,), 3, {"n3", "n4", "n5"}, "3 nodes of rack r2"),
        ((3,), 2, {"n4", "n5"}, "2 nodes of rack r2"),  # r1 keeps its three nodes for a gang of three
        ((0, 3), 3, {"n1", "n2", "n5"}, "3 nodes in 2 groups by rack"),
    ],
)
def test_the_reason_says_where_a_gang_is_kept(taken: Sequence[int], ranks: int, where: set[str], told: str) -> None:
    held = [running(f"r{at}", {f"n{at}": devices(0)}) for at in taken]
    (start,) = decide_on(cluster([1] * 6, RACKED), [job("j", ranks=ranks)], held).starts
    assert {rank.node for rank in start.placement} == where
    assert told in start.reason.text


def test_of_a_rack_the_last_ranks_go_to_the_fullest_node() -> None:
    held = [running("r1", {"n1": devices(0)}), running("r2", {"n4": devices(0, 1, 2), "n5": devices(0, 1, 2)})]
    (start,) = decide_on(cluster([4] * 6, RACKED), [job("j", ranks=7)], held).starts
    assert [rank.node for rank in start.placement] == ["n0"] * 4 + ["n1"] * 3


def test_of_racks_in_which_it_needs_as_many_nodes_it_takes_the_one_with_least_left_over() -> None:
    (start,) = decide_on(
        cluster([2, 1, 1, 1, 2, 1, 1], [{"rack": "r1"}] * 4 + [{"rack": "r2"}] * 3), [job("j", ranks=4)]
    ).starts
    assert "3 nodes of rack r2" in start.reason.text


@pytest.mark.parametrize("labels", [[{"rack": "r1"}] * 3, [{"rack": f"r{at}"} for at in range(3)]])
def test_labels_that_tell_nothing_apart_or_put_nothing_together_are_not_told(labels: Sequence[Labels]) -> None:
    (start,) = decide_on(cluster([1] * 3, labels), [job("j", ranks=3)]).starts
    assert start.reason.text == "starts: 3 x 1 a100 on 3 nodes"


def test_a_gang_that_is_to_be_spread_is_spread_over_all() -> None:
    (start,) = decide_on(cluster([2] * 6, RACKED), [job("j", ranks=6, placement=Spread.SPREAD)]).starts
    assert len({rank.node for rank in start.placement}) == 6


def test_which_labels_count_can_be_set() -> None:
    made = cluster([1] * 6, [{"rack": f"r{at % 2}", "row": f"w{at // 3}"} for at in range(6)])
    (start,) = decide_on(made, [job("j", ranks=3)], policy=Policy(together=("row",))).starts
    assert "3 nodes of row w0" in start.reason.text
    (start,) = decide_on(made, [job("j", ranks=3)], policy=Policy(together=())).starts
    assert start.reason.text == "starts: 3 x 1 a100 on 3 nodes"


def test_what_is_kept_for_a_gang_that_waits_is_close_together() -> None:
    """When the first job ends, a whole rack is free: the gang waits for that one, and the other may be used."""
    soon = running("soon", {"n3": devices(0), "n5": devices(0)}, end=NOW + 10)
    late = running("late", {"n0": devices(0), "n2": devices(0)}, end=NOW + 900)
    others = [job(f"o{at}", "b", at=1.0, expected_s=10_000.0) for at in range(2)]
    decision = decide_on(cluster([1] * 6, RACKED), [job("gang", "a", ranks=3), *others], [soon, late])
    assert [rank.node for start in decision.starts for rank in start.placement] == ["n1"]


def test_guaranteed_work_that_waits_for_what_is_leaving_stays_in_one_rack() -> None:
    held = [running(f"r{at}", {f"n{at}": devices(0)}, stopping=at in (1, 3, 4, 5)) for at in range(6)]
    gang = job("g", ranks=3, cls=PriorityClass.GUARANTEED)
    (claim,) = decide_on(cluster([1] * 6, RACKED), [gang], held).claims
    assert {name for name, _ in claim.ranks} == {"n3", "n4", "n5"}
