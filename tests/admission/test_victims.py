"""Of all that would free capacity the least is lost, by one job and by many; a claim lasts as long as its capacity
comes."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from shoal.admission import decide
from shoal.core import ANY

from .cases import NOW, G, carry_out, decide_on, devices, index_of, job, need, node, nodes, running


def victims(decision) -> set[str]:  # type: ignore[no-untyped-def]
    return {preemption.job_id for preemption in decision.preemptions}


@pytest.mark.parametrize("seed", range(8))
def test_of_many_on_one_node_the_cheapest_leave(seed: int) -> None:
    rng = random.Random(seed)
    held, free = {}, iter(range(40))
    for at in range(12):
        count = rng.choice([1, 2, 3])
        held[f"v{at:02d}"] = (devices(*(next(free) for _ in range(count))), rng.choice([1.0, 2.0, 3.0, 7.0]))
    used = sum(len(ids) for ids, _ in held.values())
    wanted = rng.randint(3, used - 2)
    decision = decide_on(
        nodes(1, per_node=used), [job("g", "b", wanted, cls=G)],
        [running(name, {"n0000": ids}, at_risk_s=risk) for name, (ids, risk) in held.items()],
    )  # fmt: skip
    cost = {name: (risk * len(ids), len(ids)) for name, (ids, risk) in held.items()}
    best = min(
        (sum(cost[name][0] for name in chosen), count)
        for count in range(len(held) + 1)
        for chosen in combinations(held, count)
        if sum(cost[name][1] for name in chosen) >= wanted
    )
    chosen = victims(decision)
    assert (sum(cost[name][0] for name in chosen), len(chosen)) == best


def test_what_is_free_is_not_freed_again() -> None:
    held = [running(f"v{at}", {"n0000": devices(at)}, at_risk_s=at) for at in range(6)]
    assert victims(decide_on(nodes(1, per_node=8), [job("g", "b", 3, cls=G)], held)) == {"v0"}


def test_of_equal_losses_the_fewest_jobs_leave() -> None:
    held = [
        running("one", {"n0000": devices(0)}, at_risk_s=5),
        running("other", {"n0000": devices(1)}, at_risk_s=5),
        running("wide", {"n0000": devices(2, 3)}, at_risk_s=5),
    ]
    assert victims(decide_on(nodes(1, per_node=4), [job("g", "b", 2, cls=G)], held)) == {"wide"}


def test_for_cores_alone_the_fewest_leave_too() -> None:
    held = [running(f"v{cores}", {"n0": []}, cores=cores, at_risk_s=0) for cores in (1, 2)]
    decision = decide_on([node("n0", cores=3)], [job("g", "b", need(cores=2), cls=G)], held)
    assert victims(decision) == {"v2"}


def test_of_a_crowd_that_holds_cores_those_leave_who_lose_least() -> None:
    held = [running(f"v{at:02d}", {"n0": []}, cores=1, at_risk_s=at) for at in range(12)]
    decision = decide_on([node("n0", cores=12)], [job("g", "b", need(cores=3), cls=G)], held)
    assert victims(decision) == {"v00", "v01", "v02"}


def test_of_several_types_the_one_where_least_is_lost() -> None:
    made = [node("n0", {"a100": 1}), node("n1", {"h100": 1})]
    held = [
        running("dear", {"n0": devices(0)}, at_risk_s=100),
        running("cheap", {"n1": devices(0, kind="h100")}, kind="h100", at_risk_s=1),
    ]
    assert victims(decide_on(made, [job("g", "b", need(1, ANY), cls=G)], held)) == {"cheap"}


def test_jobs_on_several_nodes_leave_together_though_another_has_a_reservation() -> None:
    made = [*nodes(2, per_node=4), node("h0", {"h100": 1})]
    held = [
        running("first", {"n0000": devices(0, 1), "n0001": devices(0, 1)}, at_risk_s=1),
        running("second", {"n0000": devices(2, 3), "n0001": devices(2, 3)}, at_risk_s=2),
        running("firm", {"h0": devices(0, kind="h100")}, "c", kind="h100", cls=G, end=NOW + 100),
    ]
    waiting = [job("reserved", "a", need(1, "h100"), cls=G), job("g", "b", 4, ranks=2, cls=G)]
    decision = decide_on(made, waiting, held)
    assert decision.waits["reserved"].facts["starts_at"] == NOW + 100
    assert victims(decision) == {"first", "second"}
    assert decision.claims[0].ranks == (("n0000", 1), ("n0001", 1))


def test_a_gang_waits_for_those_that_leave_on_as_few_nodes_as_it_can() -> None:
    held = [
        running("one", {"n0000": devices(0)}, stopping=True),
        running("two", {"n0001": devices(0, 1)}, stopping=True),
        running("firm", {"n0000": devices(1)}, "c", cls=G),
    ]
    decision = decide_on(nodes(2, per_node=2), [job("g", "b", 1, ranks=2, cls=G)], held)
    assert decision.claims[0].ranks == (("n0001", 2),)
    assert not decision.preemptions


def test_a_claim_lapses_when_its_room_went_to_another() -> None:
    index = index_of(nodes(1, per_node=2), [job("g", "b", 2, cls=G)], [running("v", {"n0000": devices(0, 1)})])
    snapshot = index.snapshot(NOW)
    decision = decide(snapshot)
    carry_out(index, snapshot, decision)
    assert victims(decision) == {"v"}
    assert decide(index.snapshot(NOW + 1)).claims == decision.claims, "its victim is still there"
    index.stop("v")
    index.start(running("firm", {"n0000": devices(0, 1)}, "c", cls=G))
    after = decide(index.snapshot(NOW + 2))
    assert not after.claims
    assert after.waits["g"].code == "shape"


def test_one_that_the_claimed_room_would_hold_is_told_so_and_what_it_waits_for() -> None:
    held = [running("v", {"n0000": devices(0, 1)}, at_risk_s=1)]
    decision = decide_on(nodes(1, per_node=4), [job("g", "b", 4, cls=G), job("small", "a", 2)], held)
    assert victims(decision) == {"v"}
    told = decision.waits["small"]
    assert told.code == "reserved"
    assert "kept for jobs for which others free capacity" in told.text
    assert told.facts["for_job"] is None
    assert told.facts["after"] == ["v"]


def test_a_start_says_whose_it_was_and_how_long_it_waited() -> None:
    (start,) = decide_on(nodes(1), [job("j", "b", at=NOW - 30)]).starts
    assert start.reason.facts == {"tenant": "b", "waited_s": 30.0}


def test_the_tenants_that_went_first_are_named() -> None:
    waiting = [job(f"{tenant}{at}", tenant, at=at) for tenant in "abcde" for at in range(2)]
    decision = decide_on(nodes(1, per_node=1), [*waiting, job("a-last", "a", at=9.0)])
    one = decision.waits["b0"].text.partition(";")[0]
    assert one == "waits for its turn: a had less than their share"
    decision = decide_on(nodes(1, per_node=4), waiting)
    assert "4 tenants (a, b, c) had less than their share" in decision.waits["e0"].text


@pytest.mark.parametrize("seed", range(8))
def test_for_a_gang_those_of_all_nodes_leave_that_lose_least(seed: int) -> None:
    rng = random.Random(seed)
    where = [(name, at) for name in ("n0000", "n0001", "n0002", "n0003") for at in range(3)]
    risk = dict(zip(where, rng.sample(range(1, 100), len(where)), strict=True))
    held = [running(f"{name}-{at}", {name: devices(at)}, at_risk_s=risk[name, at]) for name, at in where]
    ranks = rng.randint(2, 8)
    decision = decide_on(nodes(4, per_node=3), [job("g", "b", 1, ranks=ranks, cls=G)], held)
    cheapest = sorted(where, key=lambda one: risk[one])[:ranks]
    assert victims(decision) == {f"{name}-{at}" for name, at in cheapest}
