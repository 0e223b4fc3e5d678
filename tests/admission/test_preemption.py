"""Guaranteed work takes best-effort work's place at the least loss, once, and keeps the capacity it freed."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shoal.admission import ClusterIndex, Decision, Policy, decide
from shoal.core import Quota, Tenant

from .cases import (
    NOW,
    B,
    G,
    World,
    carry_out,
    clusters,
    decide_on,
    devices,
    fits,
    free_of,
    index_of,
    job,
    need,
    node,
    nodes,
    running,
)  # fmt: skip


def victims(decision) -> set[str]:  # type: ignore[no-untyped-def]
    return {preemption.job_id for preemption in decision.preemptions}


def test_the_victims_are_those_with_least_to_lose() -> None:
    held = [
        running("long", {"n0000": devices(0, 1)}, at_risk_s=100),
        running("fresh", {"n0000": devices(2, 3)}, at_risk_s=5),
        running("small", {"n0000": devices(4)}, at_risk_s=30),
        running("other", {"n0000": devices(5)}, at_risk_s=40),
        running("firm", {"n0000": devices(6, 7)}, cls=G, at_risk_s=0),
    ]
    decision = decide_on(nodes(1), [job("g", "b", 2, cls=G)], held)
    assert victims(decision) == {"fresh"}
    assert decision.preemptions[0].for_job == "g"
    assert "5 s since its last checkpoint" in decision.preemptions[0].reason.text
    assert decision.waits["g"].code == "preempting"
    assert victims(decide_on(nodes(1), [job("g", "b", 3, cls=G)], held)) == {"fresh", "small"}


def test_silence_does_not_protect() -> None:
    """One that never reported is charged the median of those that did; without any reporter, its run time."""
    held = [
        running("r1", {"n0000": devices(0, 1, 2, 3)}, at_risk_s=50),
        running("silent", {"n0000": devices(4, 5, 6, 7)}, started=NOW - 5),
    ]
    # silent started 5 s ago but counts as 50, like r1; the tie goes by name
    assert victims(decide_on(nodes(1), [job("g", "b", 4, cls=G)], held)) == {"r1"}
    mute = [
        running("old", {"n0000": devices(0, 1, 2, 3)}, started=NOW - 500),
        running("young", {"n0000": devices(4, 5, 6, 7)}, started=NOW - 5),
    ]
    assert victims(decide_on(nodes(1), [job("g", "b", 4, cls=G)], mute)) == {"young"}


def test_nobody_is_asked_when_it_would_not_help() -> None:
    held = [
        running("be", {"n0000": devices(0)}, at_risk_s=0),
        running("firm", {"n0000": devices(1)}, cls=G),
    ]
    assert not decide_on(nodes(1, per_node=2), [job("g", "b", 2, cls=G)], held).preemptions
    assert not decide_on(nodes(1, per_node=2), [job("be2", "b", 1)], held).preemptions
    quota = [Tenant("b", quota=Quota(accelerators=0))]
    over = decide_on(nodes(1, per_node=2), [job("g", "b", 1, cls=G)], held, quota)
    assert (over.preemptions, over.waits["g"].code) == ((), "quota")
    off = decide_on(nodes(1, per_node=2), [job("g", "b", 1, cls=G)], held, policy=Policy(preemption=False))
    assert not off.preemptions


def test_room_that_is_being_made_is_not_made_twice_nor_given_away() -> None:
    held = [running(f"r{at}", {"n0000": devices(2 * at, 2 * at + 1)}, at_risk_s=at) for at in range(4)]
    index = index_of(nodes(1), [job("g", "b", 4, cls=G)], held)
    first = decide(index.snapshot(NOW))
    assert victims(first) == {"r0", "r1"}
    for job_id in victims(first):
        index.update_running(job_id, stopping=True)
    index.stop("r0")  # one has left, its two devices are free
    index.add_pending(job("greedy", "a", 2, at=-1.0, expected_s=0.1))
    index.add_pending(job("rival", "c", 2, cls=G, at=-1.0))
    index.settle(first)
    second = decide(index.snapshot(NOW + 1))
    assert not second.starts
    assert second.waits["g"].code == "preempting"
    assert second.waits["greedy"].code == "reserved"
    assert victims(second) == {"r2"}  # for the rival; what is kept for g is not its
    index.remove_pending("rival")
    index.stop("r1")
    third = decide(index.snapshot(NOW + 2))
    assert [start.job_id for start in third.starts] == ["g"]


def test_a_job_starts_once_where_room_was_made_and_the_next_of_its_kind_beside_it() -> None:
    held = [running(f"r{at}", {"n0000": devices(2 * at, 2 * at + 1)}, at_risk_s=at) for at in range(4)]
    index = index_of(nodes(1), [job("g", "b", 4, cls=G)], held)
    index.settle(decide(index.snapshot(NOW)))
    for at in range(4):
        index.stop(f"r{at}")
    index.add_pending(job("next", "b", 4, cls=G, at=1.0))
    assert [start.job_id for start in decide(index.snapshot(NOW + 1)).starts] == ["g", "next"]


def test_a_job_for_which_room_is_made_and_the_next_of_its_kind_start_where_a_node_comes() -> None:
    held = [running(f"r{at}", {"n0000": devices(2 * at, 2 * at + 1)}, at_risk_s=at) for at in range(4)]
    index = index_of(nodes(1), [job("g", "b", 4, cls=G)], held)
    first = decide(index.snapshot(NOW))
    for job_id in victims(first):
        index.update_running(job_id, stopping=True)
    index.settle(first)
    index.set_nodes(nodes(2))
    index.add_pending(job("next", "b", 4, cls=G, at=1.0))
    assert [start.job_id for start in decide(index.snapshot(NOW + 1)).starts] == ["g", "next"]


def test_the_room_a_reservation_rests_on_is_not_made_for_one_who_would_delay_it() -> None:
    """A gang waits for both devices until 100 s from now; a guaranteed job behind it may have the best-effort job's
    device only if it gives it back in time."""
    held = [
        running("firm", {"n0000": devices(0)}, cls=G, end=NOW + 100),
        running("be", {"n0000": devices(1)}, end=NOW + 50, at_risk_s=1),
    ]
    gang = job("gang", "b", 1, ranks=2, cls=G, at=-9.0, expected_s=60.0)

    def asked(expected_s: float) -> Decision:
        behind = job("behind", "b", 1, cls=G, expected_s=expected_s)
        return decide_on(nodes(1, per_node=2), [gang, behind], held)

    assert victims(asked(90.0)) == {"be"}
    kept = asked(110.0)
    assert victims(kept) == set()
    assert (kept.waits["behind"].code, kept.waits["behind"].facts["for_job"]) == ("reserved", "gang")


def test_the_room_that_a_leaving_job_frees_for_a_reservation_is_no_others() -> None:
    """As above, but the best-effort job is on its way out already: who would delay the gang does not wait for it."""
    held = [
        running("firm", {"n0000": devices(0)}, cls=G, end=NOW + 100),
        running("be", {"n0000": devices(1)}, end=NOW + 50, at_risk_s=1, stopping=True),
    ]
    gang = job("gang", "b", 1, ranks=2, cls=G, at=-9.0, expected_s=60.0)

    def cause(expected_s: float) -> str:
        behind = job("behind", "b", 1, cls=G, expected_s=expected_s)
        return decide_on(nodes(1, per_node=2), [gang, behind], held).waits["behind"].code

    assert cause(90.0) == "preempting"
    assert cause(110.0) == "reserved"


@settings(max_examples=200, deadline=None, derandomize=True, phases=[Phase.generate])
@given(clusters())
def test_nobody_leaves_in_vain(index: ClusterIndex) -> None:
    """Once the victims have left and nothing else changed, every job they left for starts, whatever has arrived."""
    snapshot = index.snapshot(NOW)
    decision = decide(snapshot)
    carry_out(index, snapshot, decision)
    for held in list(index.snapshot(NOW).stopping):
        index.stop(held.job_id)
        # Back in the queue, where it may fit "without delaying" somebody; and with a rival that waited longer.
        index.add_pending(job(held.job_id, held.tenant, held.resources, ranks=len(held.placement), expected_s=1.0))
    index.add_pending(job("rival", "c", 2, ranks=2, cls=G, priority=9, expected_s=1.0))
    after = decide(index.snapshot(NOW))
    started = {start.job_id for start in after.starts}
    assert {preemption.for_job for preemption in decision.preemptions} <= started


def test_a_job_for_which_room_is_made_takes_other_room_that_is_free_first() -> None:
    held = [
        running("be", {"n0000": devices(0)}, at_risk_s=1),
        running("short", {"n0001": devices(0)}, cls=G),
    ]
    index = index_of(nodes(2, per_node=1), [job("g", "b", 1, cls=G)], held)
    snapshot = index.snapshot(NOW)
    decision = decide(snapshot)
    assert victims(decision) == {"be"}
    carry_out(index, snapshot, decision)
    index.stop("short")
    second = decide(index.snapshot(NOW + 1))
    assert [(start.job_id, start.placement[0].node) for start in second.starts] == [("g", "n0001")]
    assert not second.claims


def test_a_claim_lapses_with_its_node() -> None:
    held = [running("be", {"n0000": devices(0)}, at_risk_s=1), running("be2", {"n0001": devices(0)}, at_risk_s=2)]
    index = index_of(nodes(2, per_node=1), [job("g", "b", 1, cls=G)], held)
    snapshot = index.snapshot(NOW)
    carry_out(index, snapshot, decide(snapshot))
    index.set_nodes(nodes(2, per_node=1), unschedulable=["n0000"])
    second = decide(index.snapshot(NOW + 1))
    assert victims(second) == {"be2"}


def test_the_rest_of_a_gangs_victims_stay_where_they_are() -> None:
    """A two-rank gang needs a node whole twice: the cheap victims on nodes of which too much is firm are left alone."""
    held = [
        running("cheap", {"n0000": devices(0)}, at_risk_s=1),
        running("firm", {"n0000": devices(1)}, cls=G),
        running("v1", {"n0001": devices(0, 1)}, at_risk_s=10),
        running("v2", {"n0002": devices(0)}, at_risk_s=10),
        running("v3", {"n0003": devices(0, 1)}, at_risk_s=50),
    ]
    decision = decide_on(nodes(4, per_node=2), [job("g", "b", 2, ranks=2, cls=G)], held)
    assert victims(decision) == {"v1", "v2"}


def test_a_victim_on_several_nodes_frees_all_of_them() -> None:
    held = [
        running("wide", {"n0000": devices(0, 1), "n0001": devices(0, 1)}, at_risk_s=10),
        running("one", {"n0002": devices(0, 1)}, at_risk_s=15),
        running("two", {"n0003": devices(0, 1)}, at_risk_s=30),
    ]
    decision = decide_on(nodes(4, per_node=2), [job("g", "b", 2, ranks=2, cls=G)], held)
    assert victims(decision) == {"wide"}  # 40 accelerator-seconds for both ranks, against 30 + 60


def test_a_preempted_job_resumes_once_the_guaranteed_one_is_done() -> None:
    index = index_of(nodes(1, per_node=1), [job("be", "a", expected_s=100.0, at=0.0)])
    world = World(index, lambda waiting: waiting.expected_s)
    world.decide()
    index.add_pending(job("g", "b", cls=G, at=5.0, expected_s=10.0))
    world.step()  # the best-effort job leaves, and is queued again
    index.add_pending(job("be", "a", expected_s=100.0, at=6.0))
    while world.step():
        pass
    assert [waiting.job_id for _, waiting in world.started] == ["be", "g", "be"]


@st.composite
def _cluster(draw):  # type: ignore[no-untyped-def]
    """Full-ish nodes of two types of jobs, some spanning nodes, some with cores that matter."""
    made = [node(f"n{at}", {"a100": 3}, cores=4) for at in range(draw(st.integers(1, 3)))]
    free = {each.name: [0, 1, 2] for each in made}
    cores = {each.name: 4 for each in made}
    held = []
    for at in range(draw(st.integers(1, 6))):
        names = draw(st.lists(st.sampled_from(sorted(free)), min_size=1, max_size=2, unique=True))
        size, cpu = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        if any(len(free[name]) < size or cores[name] < cpu for name in names):
            continue
        where = {}
        for name in names:
            where[name] = devices(*(free[name].pop(0) for _ in range(size)))
            cores[name] -= cpu
        risk = draw(st.integers(0, 20))
        cls = draw(st.sampled_from([B, B, B, G]))
        held.append(running(f"r{at}", where, "a", cls=cls, cores=cpu, at_risk_s=risk))
    wanted = need(draw(st.integers(1, 3)), cores=draw(st.integers(0, 3)))
    return made, held, job("g", "b", wanted, ranks=draw(st.integers(1, 2)), cls=G)


@settings(max_examples=300, deadline=None, derandomize=True, phases=[Phase.generate])
@given(_cluster())
def test_the_loss_is_the_smallest_that_brute_force_finds(case) -> None:  # type: ignore[no-untyped-def]
    made, held, waiting = case
    snapshot = index_of(made, [waiting], held).snapshot(NOW)
    decision = decide(snapshot)

    def loss(ids) -> float:  # type: ignore[no-untyped-def]
        return sum(_loss(snapshot.running[job_id]) for job_id in ids)

    candidates = [each.job_id for each in held if each.priority_class is B]
    enough = []
    for size in range(len(candidates) + 1):
        for chosen in combinations(candidates, size):
            left = index_of(made, (), [each for each in held if each.job_id not in chosen])
            if fits(free_of(left.snapshot(NOW)), waiting.resources, waiting.ranks):
                enough.append((loss(chosen), set(chosen)))
    if not enough:
        assert not decision.preemptions
        assert not decision.starts
    elif any(not chosen for _, chosen in enough):
        assert [start.job_id for start in decision.starts] == ["g"]
    else:
        assert loss(victims(decision)) == pytest.approx(min(enough, key=lambda e: e[0])[0])
        assert not any(chosen < victims(decision) for _, chosen in enough)


def _loss(held) -> float:  # type: ignore[no-untyped-def]
    slots = held.resources.accelerator_count * len(held.placement)
    return held.at_risk_s * (slots or max(1.0, held.resources.cpu_milli * len(held.placement) / 1000))
