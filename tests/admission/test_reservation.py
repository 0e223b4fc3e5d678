"""A blocked gang gets its turn: backfill may use what it does not need, and never keeps it waiting for ever."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from shoal.admission import Policy, decide
from shoal.contract.records import RankPlacement
from shoal.core import ANY, Quota, Tenant

from .cases import NOW, G, World, decide_on, devices, index_of, job, need, node, nodes, running

HELD = [running("r", {"n0000": devices(0, 1, 2, 3)}, end=NOW + 100)]


def started(decision) -> list[str]:  # type: ignore[no-untyped-def]
    return [start.job_id for start in decision.starts]


@pytest.mark.parametrize(("expected_s", "starts"), [(99.0, True), (100.0, True), (101.0, False), (None, False)])
def test_backfill_must_end_before_the_reservation(expected_s, starts) -> None:  # type: ignore[no-untyped-def]
    waiting = [job("gang", "a", 8, at=0.0), job("small", "b", 1, at=1.0, expected_s=expected_s)]
    decision = decide_on(nodes(1), waiting, HELD)
    assert started(decision) == (["small"] if starts else [])
    assert decision.waits["gang"].facts["starts_at"] == NOW + 100
    assert decision.wake_at == NOW + 100
    if not starts:
        assert decision.waits["small"].code == "reserved"
        assert "kept for job gang, due in 100 s" in decision.waits["small"].text


def test_nothing_is_kept_idle_for_a_job_behind_what_never_ends() -> None:
    service = replace(HELD[0], endless="service mlp", expected_end=None, started_at=0.0)
    behind = [job(f"behind{at}", "a", 8, at=float(at)) for at in range(40)]
    decision = decide_on(nodes(1), [*behind, job("small", "b", 1, at=50.0)], [service])
    assert started(decision) == ["small"]
    assert decision.waits["behind0"].facts["endless"] == ["service mlp"]
    assert decision.waits["behind0"].facts["starts_at"] is None
    assert decision.wake_at is None
    # What others free in time is kept for the one that waits for it, although the first never starts.
    ends = running("e", {"n0001": devices(0)}, end=NOW + 100)
    two = [node("n0000", {"a100": 8}), node("n0001", {"a100": 5})]
    gang = [job("first", "a", 8, at=0.0), job("next", "a", 5, at=1.0), job("small", "b", 3, at=2.0)]
    beside = [service, running("s", {"n0000": devices(4, 5, 6, 7)}, end=NOW + 500), ends]
    kept = decide_on(two, gang, beside)
    assert started(kept) == []
    assert kept.waits["small"].facts["for_job"] == "next"
    assert kept.waits["next"].facts["starts_at"] == NOW + 100


def test_what_never_ends_overtakes_no_job_that_waits_for_an_end() -> None:
    """However short its tenant's jobs are, and however young the job that it would delay."""
    replica = job("replica", "b", 1, at=NOW)._replace(endless="service mlp")
    index = index_of(nodes(1), [job("gang", "a", 8, at=NOW - 1), replica], HELD)
    index.set_tenant(Tenant("b"), mean_runtime_s=0.0)
    assert started(decide(index.snapshot(NOW))) == []


def test_what_the_blocked_job_does_not_need_is_free_for_everyone() -> None:
    waiting = [job("gang", "a", 6, at=0.0), *(job(f"s{at}", "b", at=1.0 + at) for at in range(4))]
    decision = decide_on(nodes(1), waiting, HELD)
    assert started(decision) == ["s0", "s1"]  # four are free, two of them are needed at the reservation
    elsewhere = decide_on(nodes(2), [job("gang", "a", 8, ranks=2, at=0.0), *waiting[1:]], HELD)
    assert started(elsewhere) == []
    more = decide_on(nodes(3), [job("gang", "a", 8, ranks=3, at=0.0), *waiting[1:]], HELD)
    assert started(more) == []


def test_jobs_of_unknown_length_may_overtake_for_a_while_only() -> None:
    waiting = [job("gang", "a", 8, at=NOW - 30), job("small", "b", 1, at=NOW)]
    assert started(decide_on(nodes(1), waiting, HELD, policy=Policy(backfill_s=60))) == ["small"]
    assert started(decide_on(nodes(1), waiting, HELD, policy=Policy(backfill_s=20))) == []


def test_a_reservation_lasts_from_decision_to_decision() -> None:
    waiting = [job("gang", "b", 8, at=NOW - 500)] + [job(f"s{at}", "a", 1, at=NOW) for at in range(20)]
    index = index_of(nodes(1), waiting[:1], HELD)
    first = decide(index.snapshot(NOW))
    index.settle(first)
    for each in waiting[1:]:
        index.add_pending(each)
    for at in range(5):
        decision = decide(index.snapshot(NOW + at))
        index.settle(decision)
        assert decision.turn == "b"
        assert started(decision) == []
    index.stop("r", ran_s=100.0)
    assert started(decide(index.snapshot(NOW + 100))) == ["gang"]


@pytest.mark.parametrize("told", [None, 1.0, 7.0, 60.0], ids=["unknown", "far too short", "about right", "too long"])
@pytest.mark.parametrize("seed", range(3))
def test_a_gang_starts_in_bounded_time_against_an_endless_stream_of_small_jobs(told, seed) -> None:  # type: ignore[no-untyped-def]
    """Whatever the stream says of its run times, and although its tenant outweighs the gang's."""
    rng = random.Random(seed)
    longest = 12.0
    index = index_of(nodes(2, per_node=4), tenants=[Tenant("stream", 10.0), Tenant("gangs", 1.0)])
    world = World(index, lambda waiting: rng.uniform(2.0, longest))
    count = 0

    def refill() -> None:
        nonlocal count
        while len(index.snapshot(world.now).pending) < 30:
            count += 1
            index.add_pending(job(f"s{count}", "stream", rng.choice([1, 1, 2]), at=world.now, expected_s=told))

    for _ in range(50):
        refill()
        world.step()
    asked_at = world.now
    index.add_pending(job("gang", "gangs", 4, ranks=2, at=asked_at))
    policy = index.policy
    while not any(waiting.job_id == "gang" for _, waiting in world.started):
        refill()
        world.step()
        # Its turn comes after one quantum of the stream; then overtaking of unknown length ends, then what runs ends.
        turn = policy.quantum_s * 10.0 / 8 + longest
        assert world.now - asked_at < turn + policy.backfill_s + 4 * longest + (told or 0.0)


def test_a_job_too_big_for_what_the_quota_leaves_is_overtaken_for_a_while_only() -> None:
    tenants = [Tenant("a", quota=Quota(accelerators=4))]
    held = [running("r", {"n0000": devices(0, 1)}, end=NOW + 100)]
    fresh = [job("big", "a", 4, at=NOW - 10), job("small", "a", 1, at=NOW)]
    assert started(decide_on(nodes(1), fresh, held, tenants)) == ["small"]
    old = [job("big", "a", 4, at=NOW - 100), job("small", "a", 1, at=NOW)]
    decision = decide_on(nodes(1), old, held, tenants)
    assert started(decision) == []
    assert decision.waits["small"].text == "waits behind big, which waits for quota"
    assert decision.waits["small"].facts == {"behind": ["big"]}
    never = [job("huge", "a", 5, at=NOW - 100), job("small", "a", 1, at=NOW)]
    assert started(decide_on(nodes(1), never, held, tenants)) == ["small"]


def test_a_guaranteed_job_is_not_kept_waiting_by_a_best_effort_reservation() -> None:
    waiting = [job("gang", "a", 8, at=0.0), job("g", "b", 4, cls=G, at=NOW)]
    assert started(decide_on(nodes(1), waiting, HELD)) == ["g"]


def test_cores_are_reserved_as_well() -> None:
    made = [node("n0", {"a100": 2}, cores=4)]
    held = [running("r", {"n0": devices(0)}, cores=1, end=NOW + 100)]
    waiting = [job("gang", "a", need(2, cores=3), at=0.0), job("cpu", "b", need(cores=1), at=1.0)]
    assert started(decide_on(made, waiting, held)) == ["cpu"]
    waiting = [job("gang", "a", need(2, cores=4), at=0.0), job("cpu", "b", need(cores=1), at=1.0)]
    assert started(decide_on(made, waiting, held)) == []


def test_what_starts_in_the_same_decision_counts_among_those_that_end() -> None:
    decision = decide_on(nodes(1), [job("s", at=0.0, resources=4, expected_s=50.0), job("gang", resources=8, at=1.0)])
    assert started(decision) == ["s"]
    assert (decision.waits["gang"].facts["starts_at"], decision.waits["gang"].facts["after"]) == (NOW + 50, ["s"])


def test_a_reservation_is_on_as_few_nodes_as_it_can_be() -> None:
    held = [
        running("early", {"n0000": devices(0)}, end=NOW + 10),
        running("late", {"n0001": devices(0, 1)}, end=NOW + 20),
        running("firm", {"n0000": devices(1)}, cls=G, end=NOW + 1000),
    ]
    decision = decide_on(nodes(2, per_node=2), [job("gang", ranks=2)], held)
    assert decision.waits["gang"].facts["after"] == ["late"]


@pytest.mark.parametrize(("memory_gib", "starts"), [(2, True), (3, False)])
def test_memory_is_reserved_as_well(memory_gib: int, starts: bool) -> None:
    held = replace(HELD[0], placement=(RankPlacement(0, "n0", tuple(devices(0))),), resources=need(1, memory_gib=1))
    waiting = [job("gang", "a", need(2, memory_gib=6), at=0.0), job("small", "b", need(memory_gib=memory_gib), at=1.0)]
    decision = decide_on([node("n0", {"a100": 2}, memory_gib=8)], waiting, [held])
    assert started(decision) == (["small"] if starts else [])


def test_what_a_reservation_does_not_ask_for_is_free_to_the_last_bit() -> None:
    waiting = [job("gang", "a", 8, at=0.0), job("rest", "b", need(cores=64, memory_gib=512), at=1.0)]
    assert started(decide_on(nodes(1), waiting, HELD)) == ["rest"]


def test_a_type_that_one_tenants_quota_forbids_is_open_to_the_next_that_asks_for_any() -> None:
    held = [running("r", {"n0": devices(0)}, "z")]
    waiting = [
        job("first", "a", need(1, "a100"), at=1.0),
        job("bound", "a", need(1, ANY), at=2.0),
        job("free", "b", need(1, ANY), at=3.0),
    ]
    tenants = [Tenant("a", quota=Quota(by_type=(("h100", 0),))), Tenant("b")]
    decision = decide_on([node("n0", {"a100": 1}), node("n1", {"h100": 1})], waiting, held, tenants)
    assert set(decision.waits) == {"first", "bound"}
    assert decision.starts[0].placement[0].devices == tuple(devices(0, kind="h100"))
