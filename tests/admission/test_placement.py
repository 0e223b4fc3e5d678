"""Where jobs go: PACK, SPREAD, `any`, devices, cpu-only jobs. Scenario tables: nodes, jobs, expected placements."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.admission import Policy, Spread, decide
from shoal.admission.capacity import Capacity
from shoal.admission.snapshot import resolve
from shoal.core import ANY, PriorityClass, Resources
from shoal.engine.pool import pool_of

from .cases import NOW, B, decide_on, devices, fits, free_of, index_of, job, need, node, nodes, running


def placed(decision) -> dict[str, list[str]]:  # type: ignore[no-untyped-def]
    return {start.job_id: [rank.node for rank in start.placement] for start in decision.starts}


THREE = [node("n0", {"a100": 4}), node("n1", {"a100": 4}), node("n2", {"a100": 4})]
USED = [running("r1", {"n1": devices(0, 1, 2)}), running("r2", {"n2": devices(0)})]  # free: n0 4, n1 1, n2 3


@pytest.mark.parametrize(
    ("spread", "wanted", "expected"),
    [
        (Spread.PACK, [(1, 1)], {"j0": ["n1"]}),
        (Spread.PACK, [(2, 1)], {"j0": ["n2"]}),
        (Spread.PACK, [(4, 1)], {"j0": ["n0"]}),
        (Spread.PACK, [(1, 1), (1, 1), (1, 1)], {"j0": ["n1"], "j1": ["n2"], "j2": ["n2"]}),
        (Spread.PACK, [(1, 4)], {"j0": ["n0"] * 4}),
        (Spread.PACK, [(1, 3)], {"j0": ["n2"] * 3}),
        (Spread.PACK, [(2, 3)], {"j0": ["n0", "n0", "n2"]}),
        (Spread.PACK, [(1, 5)], {"j0": ["n0"] * 4 + ["n1"]}),
        (Spread.SPREAD, [(1, 1)], {"j0": ["n0"]}),
        (Spread.SPREAD, [(1, 1), (1, 1), (1, 1)], {"j0": ["n0"], "j1": ["n2"], "j2": ["n0"]}),
        (Spread.SPREAD, [(1, 3)], {"j0": ["n0", "n0", "n2"]}),
        (Spread.SPREAD, [(1, 8)], {"j0": ["n0"] * 4 + ["n1"] + ["n2"] * 3}),
    ],
)
def test_pack_fills_and_spread_levels(spread, wanted, expected) -> None:  # type: ignore[no-untyped-def]
    waiting = [job(f"j{at}", resources=size, ranks=ranks, at=at) for at, (size, ranks) in enumerate(wanted)]
    assert placed(decide_on(THREE, waiting, USED, policy=Policy(placement=spread))) == expected


@pytest.mark.parametrize(
    ("ranks", "per_node", "placement", "expected"),
    [
        (2, 1, None, {"j": ["n0", "n1"]}),
        (3, 1, None, {"j": ["n0", "n1", "n2"]}),
        (4, 2, None, {"j": ["n0", "n0", "n2", "n2"]}),
        (4, 2, Spread.SPREAD, {"j": ["n0", "n0", "n2", "n2"]}),
        (2, 2, None, {"j": ["n2", "n2"]}),
        (6, 2, None, {}),  # n1 has one device left, and eight would be free in all
        (8, 4, None, {}),
    ],
)
def test_each_node_of_a_gang_gets_as_many_ranks_as_it_asked_for(ranks, per_node, placement, expected) -> None:  # type: ignore[no-untyped-def]
    asked = job("j", ranks=ranks, per_node=per_node, placement=placement)
    decision = decide_on(THREE, [asked], USED)
    assert {name: sorted(where) for name, where in placed(decision).items()} == expected


def test_more_ranks_for_each_node_than_any_node_holds_would_never_fit() -> None:
    decision = decide_on(THREE, [job("j", ranks=5, per_node=5)])
    assert decision.waits["j"].text == (
        "needs 5 x 1 a100, 5 on each node, all nodes together hold 0 of 5 ranks: would never fit"
    )


def test_preemption_makes_room_for_whole_nodes_of_ranks() -> None:
    held = [running(f"r{at}", {f"n{at}": devices(*range(3))}) for at in range(3)]  # one device left on each
    asked = job("g", ranks=4, per_node=2, cls=PriorityClass.GUARANTEED)
    decision = decide_on(THREE, [asked], held)
    assert len(decision.preemptions) == 2
    assert sorted(ranks for _, ranks in decision.claims[0].ranks) == [2, 2]


def test_on_a_pool_the_cluster_sees_to_ranks_for_each_node() -> None:
    pool = pool_of("cluster", THREE, ahead=0.0)
    assert placed(decide_on([pool], [job("j", ranks=4, per_node=2)])) == {"j": ["cluster"] * 4}


def test_a_job_may_choose_for_itself() -> None:
    assert placed(decide_on(THREE, [job("j", placement=Spread.SPREAD)], USED)) == {"j": ["n0"]}


@pytest.mark.parametrize(
    ("taken", "count", "expected"),
    [
        ((), 2, (0, 1)),
        ((0,), 2, (1, 2)),
        ((1, 4), 2, (2, 3)),
        ((4,), 3, (5, 6, 7)),
        ((1, 3, 5, 7), 2, (0, 2)),
        ((4, 6), 1, (5,)),
    ],
)
def test_devices_are_neighbours_with_the_lowest_index_from_the_tightest_run(taken, count, expected) -> None:  # type: ignore[no-untyped-def]
    held = [running("r", {"n0": devices(*taken)})] if taken else []
    decision = decide_on([node("n0", {"a100": 8})], [job("j", resources=count)], held)
    assert decision.starts[0].placement[0].devices == tuple(devices(*expected))


def test_any_takes_the_type_with_least_left_and_one_type_for_the_whole_gang() -> None:
    made = [node("n0", {"a100": 4}), node("n1", {"h100": 2}), node("n2", {"v100": 1})]
    decision = decide_on(
        made, [job("j", resources=Resources({ANY: 1}), ranks=2), job("k", resources=Resources({ANY: 1}))]
    )
    assert placed(decision) == {"j": ["n1", "n1"], "k": ["n2"]}


def test_a_gang_is_never_mixed_from_types_that_are_too_small_alone() -> None:
    made = [node("n0", {"a100": 1}), node("n1", {"h100": 1})]
    decision = decide_on(made, [job("j", resources=Resources({ANY: 1}), ranks=2)])
    assert decision.waits["j"].code == "impossible"


def test_jobs_without_accelerators_go_where_no_accelerator_is_free() -> None:
    made = [node("gpu", {"a100": 1}, cores=8), node("plain", cores=4)]
    waiting = [job(f"j{at}", resources=need(cores=2), at=at) for at in range(6)]
    assert placed(decide_on(made, waiting)) == {
        "j0": ["plain"], "j1": ["plain"], "j2": ["gpu"], "j3": ["gpu"], "j4": ["gpu"], "j5": ["gpu"],
    }  # fmt: skip
    spread = decide_on(made, waiting[:4], policy=Policy(placement=Spread.SPREAD))
    assert placed(spread) == {"j0": ["gpu"], "j1": ["gpu"], "j2": ["plain"], "j3": ["gpu"]}


def test_a_blocked_job_does_not_stop_other_types_tenants_or_smaller_jobs() -> None:
    made = [node("n0", {"a100": 2}), node("n1", {"h100": 2})]
    held = [running("r", {"n0": devices(0)}, end=NOW + 1000)]
    waiting = [
        job("big", "a", 2, at=0.0, priority=9),
        job("other-type", "a", need(2, "h100"), at=1.0),
        job("short", "b", 1, at=2.0, expected_s=500.0),
        job("cpu", "b", need(cores=1), at=3.0),
    ]
    decision = decide_on(made, waiting, held)
    assert {start.job_id for start in decision.starts} == {"other-type", "short", "cpu"}
    short = next(start for start in decision.starts if start.job_id == "short")
    assert (short.reason.code, short.reason.facts["overtakes"]) == ("backfill", ["big"])


def test_nodes_closed_for_new_jobs_get_none() -> None:
    decision = decide_on(nodes(2, per_node=1), [job("j"), job("k")], unschedulable=["n0000"])
    assert placed(decision) == {"j": ["n0001"]}


def test_within_a_tenant_priority_goes_before_arrival() -> None:
    waiting = [job("old", at=1.0), job("new", at=2.0), job("urgent", at=3.0, priority=5)]
    decision = decide_on([node("n0", {"a100": 2})], waiting)
    assert list(placed(decision)) == ["urgent", "old"]
    assert decision.waits["new"].code == "priority"


def test_reasons_are_sentences_with_numbers() -> None:
    made = [node("n0", {"a100": 8}, cores=4), node("n1", {"a100": 8}, cores=4)]
    held = [
        running("j-41", {"n0": devices(0, 1, 2)}, end=NOW + 60),
        running("j-42", {"n1": devices(*range(7))}, end=NOW + 900),
    ]
    waiting = [
        job("eight", "a", 8, expected_s=1.0),
        job("gang", "b", 2, ranks=8),
        job("sixteen", "c", 16),
        job("hungry", "d", need(1, cores=5)),
    ]
    waits = decide_on(made, waiting, held).waits
    assert waits["eight"].text == "waits: needs 8 a100 on one node, 5 free; starts when job j-41 ends"
    assert waits["eight"].facts["starts_at"] == NOW + 60
    assert waits["gang"].text == "waits: needs 8 x 2 a100, 0 of 8 ranks fit now"
    assert waits["sixteen"].text == "no node has 16 a100: would never fit"
    assert waits["hungry"].code == "impossible"


def test_a_back_off_is_waited_out() -> None:
    index = index_of(nodes(1), [job("j", not_before=NOW + 30)])
    decision = decide(index.snapshot(NOW))
    assert (decision.starts, decision.wake_at) == ((), NOW + 30)
    assert decision.waits["j"].text == "waits: tries again in 30 s after a failure"
    assert [start.job_id for start in decide(index.snapshot(NOW + 30)).starts] == ["j"]


_sizes = st.sampled_from([0, 1, 2, 3])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(_sizes, _sizes, st.integers(0, 4)), min_size=1, max_size=4),
    st.lists(st.tuples(_sizes, st.sampled_from(["a100", "h100"]), st.integers(0, 2), st.integers(1, 3)), max_size=8),
    st.sampled_from(list(Spread)),
)
def test_room_finds_a_place_exactly_when_brute_force_does(made, asked, spread) -> None:  # type: ignore[no-untyped-def]
    """The cursors and memories of `Capacity` lose no place, whatever was taken before."""
    index = index_of([node(f"n{i}", {"a100": a, "h100": h}, cores=c) for i, (a, h, c) in enumerate(made)])
    snapshot = index.snapshot(NOW)
    capacity = Capacity(snapshot)
    taken = []
    for count, kind, cores, ranks in asked * 2:
        wanted = need(count, kind, cores=cores)
        plan = capacity.find(resolve(wanted, None), ranks, spread, 0)
        assert (plan is not None) == fits(free_of(snapshot, taken), wanted, ranks)
        if plan is None:
            continue
        assert sum(number for _, number in plan) == ranks
        for at, number in plan:
            given_ids = capacity.take(at, resolve(wanted, None), number, 0)
            name = snapshot.nodes.layout.names[at]
            taken.append((wanted, running("x", [(name, ids) for ids in given_ids], cls=B).placement))
        if spread is Spread.PACK and ranks == 1 and count:
            free = {name: kinds.get(kind, 0) for name, (kinds, _, _) in free_of(snapshot, taken[:-1]).items()}
            chosen = snapshot.nodes.layout.names[plan[0][0]]
            for name, (kinds, cpu, memory) in free_of(snapshot, taken[:-1]).items():
                if fits({name: (kinds, cpu, memory)}, wanted, 1):
                    assert free[chosen] <= free[name]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2)), max_size=8), st.integers(0, 7))
def test_of_a_pool_each_place_is_given_once_and_what_fits_starts(asked: list[tuple[int, int]], taken: int) -> None:
    """Places have no neighbours: which of them a job gets does not matter, how many does."""
    pool = pool_of("pool", [node("n0", {"a100": 4}), node("n1", {"a100": 4})], ahead=0.0)
    held = [running("r", {"pool": [f"a100:{at}" for at in range(taken)]})] if taken else []
    waiting = [job(f"j{at}", resources=count, ranks=ranks, at=float(at)) for at, (count, ranks) in enumerate(asked)]
    starts = decide_on([pool], waiting, held).starts
    given_away = [place for start in starts for rank in start.placement for place in rank.devices]
    assert len(set(given_away)) == len(given_away)
    assert not {f"a100:{at}" for at in range(taken)} & set(given_away)
    wanted = {f"j{at}": (count, ranks) for at, (count, ranks) in enumerate(asked)}
    for start in starts:
        count, ranks = wanted[start.job_id]
        assert [len(rank.devices) for rank in start.placement] == [count] * ranks
    if sum(count * ranks for count, ranks in asked) <= 8 - taken:
        assert len(starts) == len(asked)
