"""Devices that several jobs share: one guaranteed, best-effort ones beside it, and memory that is never oversold."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shoal.admission import ClusterIndex, Running, decide, explain
from shoal.admission.amounts import Amount
from shoal.admission.types import NO_SEATS, Seats
from shoal.contract.records import RankPlacement
from shoal.core import ANY, Device, Node, PriorityClass, Quota, Resources, Share, Tenant

from .cases import GIB, NOW, B, G, World, carry_out, check_explanation, decide_on, index_of, job, node

RUNS = settings(max_examples=150, deadline=None, derandomize=True, phases=[Phase.generate])


def gpus(name: str, count: int = 1, *, seats: int = 2, memory_gib: int | None = 40, cores: int = 64) -> Node:
    memory = None if memory_gib is None else memory_gib * GIB
    made = tuple(Device(f"a100:{at}", "a100", at, memory, seats) for at in range(count))
    return Node(name, made, cores * 1000, 512 * GIB)


def share(kind: Share, memory_gib: int = 10, count: int = 1, *, of: str = "a100", cores: float = 0) -> Resources:
    whole = kind is Share.EXCLUSIVE
    return Resources({of: count}, int(cores * 1000), 0, kind, 0 if whole else memory_gib * GIB)


GUARANTEED, BEST_EFFORT, EXCLUSIVE = (share(each) for each in (Share.GUARANTEED, Share.BEST_EFFORT, Share.EXCLUSIVE))


def holds(job_id: str, resources: Resources, *devices: int, where: str = "n", cls: PriorityClass = B) -> Running:
    placed = (RankPlacement(0, where, tuple(f"a100:{at}" for at in devices)),)
    return Running(job_id, "a", cls, 0, resources, placed, 0.0, at_risk_s=float(len(job_id)))


def started(decision) -> dict[str, list[str]]:  # type: ignore[no-untyped-def]
    return {start.job_id: [d for rank in start.placement for d in rank.devices] for start in decision.starts}


# --- examples


def test_a_guaranteed_and_several_best_effort_jobs_share_a_device() -> None:
    wanted = [job("g", "a", GUARANTEED, cls=G), job("b1", "b", BEST_EFFORT), job("b2", "b", BEST_EFFORT)]
    decision = decide_on([gpus("n")], wanted)
    assert started(decision) == {"g": ["a100:0"], "b1": ["a100:0"], "b2": ["a100:0"]}


def test_a_second_guaranteed_job_waits_for_a_device_of_its_own() -> None:
    decision = decide_on([gpus("n")], [job("g2", "b", GUARANTEED, cls=G)], [holds("g1", GUARANTEED, 0, cls=G)])
    assert decision.waits["g2"].text.startswith("waits: needs a guaranteed share of 1 a100 (10 GiB), 0 free")
    assert decision.waits["g2"].facts["after"] == ["g1"]


def test_seats_and_memory_bound_the_best_effort_jobs() -> None:
    beside = [holds("b1", BEST_EFFORT, 0), holds("b2", BEST_EFFORT, 0)]
    assert "b3" in decide_on([gpus("n")], [job("b3", "b", BEST_EFFORT)], beside).waits
    large = share(Share.BEST_EFFORT, 35)
    assert "b2" in decide_on([gpus("n")], [job("b2", "b", large)], beside[:1]).waits
    assert started(decide_on([gpus("n")], [job("b2", "b", share(Share.BEST_EFFORT, 30))], beside[:1]))


def test_memory_that_a_device_does_not_tell_is_not_counted() -> None:
    large = share(Share.BEST_EFFORT, 500)
    assert len(started(decide_on([gpus("n", memory_gib=None)], [job(f"b{at}", "a", large) for at in range(3)]))) == 2


def test_an_exclusive_job_has_the_device_to_itself() -> None:
    assert "b" in decide_on([gpus("n")], [job("b", "b", BEST_EFFORT)], [holds("e", EXCLUSIVE, 0)]).waits
    assert "e" in decide_on([gpus("n")], [job("e", "b", EXCLUSIVE)], [holds("b", BEST_EFFORT, 0)]).waits


def test_best_effort_work_goes_where_least_of_it_is() -> None:
    beside = [holds("b", BEST_EFFORT, 0), holds("g", GUARANTEED, 1, cls=G)]
    assert started(decide_on([gpus("n", 3)], [job("n", "b", BEST_EFFORT)], beside)) == {"n": ["a100:2"]}
    assert started(decide_on([gpus("n", 2)], [job("n", "b", BEST_EFFORT)], beside)) == {"n": ["a100:1"]}


def test_a_guaranteed_share_takes_memory_from_the_best_effort_job_with_least_to_lose() -> None:
    beside = [holds("long", share(Share.BEST_EFFORT, 20), 0), holds("b", share(Share.BEST_EFFORT, 20), 0)]
    decision = decide_on([gpus("n")], [job("g", "b", GUARANTEED, cls=G)], beside)
    assert [each.job_id for each in decision.preemptions] == ["b"]
    assert decide_on([gpus("n")], [job("g", "b", GUARANTEED, cls=G)], beside[:1]).preemptions == ()


def test_a_guaranteed_exclusive_job_has_all_best_effort_work_leave_one_device() -> None:
    beside = [holds("b1", BEST_EFFORT, 0), holds("b22", BEST_EFFORT, 0), holds("b333", BEST_EFFORT, 1)]
    decision = decide_on([gpus("n", 2)], [job("g", "b", EXCLUSIVE, cls=G)], beside)
    assert [each.job_id for each in decision.preemptions] == ["b333"]


def test_ranks_of_a_gang_have_devices_of_their_own() -> None:
    gang = job("b", "b", BEST_EFFORT, ranks=2)
    assert started(decide_on([gpus("n", 2)], [gang])) == {"b": ["a100:0", "a100:1"]}
    assert decide_on([gpus("n", 1, seats=4)], [gang]).waits["b"].code == "impossible"


def test_all_devices_of_a_rank_have_room_for_it() -> None:
    both = share(Share.GUARANTEED, count=2)
    assert "g" in decide_on([gpus("n", 2)], [job("g", "b", both, cls=G)], [holds("g1", GUARANTEED, 0, cls=G)]).waits
    beside = [holds("g1", GUARANTEED, 0, cls=G), holds("b1", share(Share.BEST_EFFORT, 35), 1)]
    assert decide_on([gpus("n", 2)], [job("g", "b", GUARANTEED, cls=G)], beside).preemptions[0].job_id == "b1"
    full = [holds("b1", BEST_EFFORT, 0), holds("b2", BEST_EFFORT, 0)]
    assert "b" in decide_on([gpus("n", 2)], [job("b", "b", share(Share.BEST_EFFORT, count=2))], full).waits
    waits = decide_on([gpus("n")], [job("b", "b", BEST_EFFORT)], full).waits
    assert waits["b"].text.startswith("waits: needs a best-effort share of 1 a100 (10 GiB), 0 free")


def test_of_equal_devices_the_one_with_most_memory_left_is_taken() -> None:
    beside = [holds("b1", share(Share.BEST_EFFORT, 20), 0), holds("b2", share(Share.BEST_EFFORT, 10), 1)]
    assert started(decide_on([gpus("n", 2)], [job("b", "b", BEST_EFFORT)], beside)) == {"b": ["a100:1"]}


def test_where_no_device_can_be_shared_the_job_is_told_so() -> None:
    decision = decide_on([node("n", {"a100": 2})], [job("b", "b", BEST_EFFORT)])
    assert decision.waits["b"].text == "no node has a best-effort share of 1 a100 (10 GiB): would never fit"


def test_a_share_of_any_type_goes_to_one_that_can_be_shared() -> None:
    nodes = [node("m", {"h100": 2}), gpus("n")]
    decision = decide_on(nodes, [job("b", "b", share(Share.BEST_EFFORT, of=ANY))])
    assert decision.starts[0].placement[0].node == "n"


def test_shares_count_for_quota_and_best_effort_ones_are_charged_by_their_cores() -> None:
    limited = [Tenant("b", 1.0, Quota(accelerators=1))]
    jobs = [job(f"b{at}", "b", share(Share.BEST_EFFORT, cores=2), expected_s=10.0) for at in range(2)]
    decision = decide_on([gpus("n")], jobs, tenants=limited)
    assert [start.charge for start in decision.starts] == [20.0]
    assert decision.waits["b1"].code == "quota"
    guaranteed = decide_on([gpus("n")], [job("g", "b", share(Share.GUARANTEED, cores=8), cls=G, expected_s=10.0)])
    assert [start.charge for start in guaranteed.starts] == [10.0]


def test_capacity_kept_for_a_share_is_kept_on_its_device_only() -> None:
    """The guaranteed job waits for the best-effort one that leaves; the other device is open meanwhile."""
    leaving = replace(holds("b1", share(Share.BEST_EFFORT, 35), 0), stopping=True)
    other = holds("g1", share(Share.GUARANTEED, 20), 1, cls=G)
    jobs = [job("g", "b", share(Share.GUARANTEED, 30), cls=G), job("b2", "b", share(Share.BEST_EFFORT, 5))]
    decision = decide_on([gpus("n", 2)], jobs, [leaving, other])
    assert decision.waits["g"].code == "preempting"
    assert started(decision) == {"b2": ["a100:1"]}


def test_what_a_leaving_job_frees_is_not_kept_twice() -> None:
    leaving = replace(holds("b1", share(Share.BEST_EFFORT, 35), 0), stopping=True)
    jobs = [job("g", "b", share(Share.GUARANTEED, 30), cls=G), job("b2", "b", share(Share.BEST_EFFORT, 5))]
    assert started(decide_on([gpus("n")], jobs, [leaving])) == {"b2": ["a100:0"]}


@pytest.mark.parametrize(("memory_gib", "starts"), [(5, True), (6, False)])
def test_a_reservation_keeps_what_is_not_freed_until_then(memory_gib: int, starts: bool) -> None:
    ends = replace(holds("b1", share(Share.BEST_EFFORT, 30), 0), expected_end=NOW + 10)
    waits = job("x", "b", share(Share.BEST_EFFORT, 35), at=1.0)
    small = job("s", "b", share(Share.BEST_EFFORT, memory_gib), at=2.0, expected_s=100.0)
    decision = decide_on([gpus("n", seats=4)], [waits, small], [ends])
    assert ("s" in started(decision)) is starts


def test_a_short_job_uses_up_what_is_kept() -> None:
    ends = replace(holds("b1", share(Share.BEST_EFFORT, 30), 0), expected_end=NOW + 10)
    waits = job("x", "b", share(Share.BEST_EFFORT, 35), at=1.0)
    short = job("s", "b", share(Share.BEST_EFFORT, 4), at=2.0, expected_s=5.0)
    long = job("t", "b", share(Share.BEST_EFFORT, 5), at=3.0, expected_s=100.0)
    assert set(started(decide_on([gpus("n", seats=4)], [waits, short, long], [ends]))) == {"s", "t"}


def test_a_reservation_of_a_gang_keeps_a_device_for_each_rank() -> None:
    ends = [replace(holds(f"b{at}", share(Share.BEST_EFFORT, 30), at), expected_end=NOW + 10) for at in range(2)]
    waits = job("x", "b", share(Share.BEST_EFFORT, 35), ranks=2, at=1.0)
    small = job("s", "b", share(Share.BEST_EFFORT, 6), at=2.0, expected_s=100.0)
    assert started(decide_on([gpus("n", 2, seats=4)], [waits, small], ends)) == {}


# --- properties


def amounts() -> st.SearchStrategy[Amount]:
    part = st.builds(Seats, st.integers(0, 1), st.integers(0, 3), st.integers(0, 9))
    seats = st.dictionaries(st.sampled_from("xyz"), part)
    return st.builds(Amount, st.just({}), st.integers(0, 3), st.integers(0, 3), st.just({}), seats)


@given(amounts(), amounts())
def test_what_is_drawn_is_neither_lost_nor_doubled(keep: Amount, source: Amount) -> None:
    kept, left = keep.copy(), source.copy()
    kept.draw(left)
    for device in keep.seats:
        for was, now, had, has in zip(
            keep.seats[device], kept.seats[device], source.seats.get(device, NO_SEATS), left.seats[device], strict=True
        ):
            assert (was - now, now) == (had - has, max(0, was - had))
    assert keep.within(source) is not bool(any(map(any, kept.seats.values())) or kept.cpu_milli or kept.memory_bytes)
    both = keep.copy()
    both.plus(source)
    both.minus(source)
    assert {at: seats for at, seats in both.seats.items() if any(seats)} == {
        at: seats for at, seats in keep.seats.items() if any(seats)
    }


@st.composite
def shared_clusters(draw: st.DrawFn) -> ClusterIndex:
    nodes = [
        gpus(f"n{at}", draw(st.integers(1, 3)), seats=draw(st.sampled_from([0, 1, 2, 3])), memory_gib=8,
             cores=draw(st.sampled_from([3, 64])))
        for at in range(draw(st.integers(1, 3)))
    ]  # fmt: skip

    def waiting(job_id: str):  # type: ignore[no-untyped-def]
        kind = draw(st.sampled_from(list(Share)))
        classes = {Share.EXCLUSIVE: [G, B], Share.GUARANTEED: [G], Share.BEST_EFFORT: [B]}
        memory, count, cores = (draw(st.sampled_from(each)) for each in ([1, 3, 4, 8], [1, 1, 1, 2], [0, 1]))
        wanted = share(kind, memory, count, of=draw(st.sampled_from(["a100", "a100", ANY])), cores=cores)
        return job(
            job_id, draw(st.sampled_from("ab")), wanted, ranks=draw(st.sampled_from([1, 1, 2])),
            cls=draw(st.sampled_from(classes[kind])), at=draw(st.integers(900, 1000)),
            expected_s=draw(st.sampled_from([None, 5.0, 500.0])), most=draw(st.sampled_from([0, 0, 3])),
        )  # fmt: skip

    index = index_of(nodes, [waiting(f"r{at}") for at in range(draw(st.integers(1, 8)))])
    snapshot = index.snapshot(NOW - 100)
    for held in carry_out(index, snapshot, decide(snapshot)):
        stopping = draw(st.sampled_from([False, False, False, True]))
        index.update_running(held.job_id, at_risk_s=float(draw(st.integers(0, 50))), stopping=stopping)
    for job_id in list(snapshot.pending.by_id):
        index.remove_pending(job_id)
    for at in range(draw(st.integers(1, 6))):
        index.add_pending(waiting(f"j{at}"))
    return index


Held = list[tuple[Resources, tuple[RankPlacement, ...]]]


def open_devices(node: Node, held: Held, wanted: Resources) -> int:
    """The oracle, by looking at each device and all that is on it."""
    found = 0
    for device in node.devices:
        on = [r for r, placement in held for rank in placement
              if rank.node == node.name and device.id in rank.devices]  # fmt: skip
        if wanted.share is Share.EXCLUSIVE:
            found += not on
            continue
        alone = any(each.share is Share.EXCLUSIVE for each in on)
        mates = sum(each.share is wanted.share for each in on)
        places = 1 if wanted.share is Share.GUARANTEED else device.best_effort_seats
        memory = sum(each.device_memory_bytes for each in on) + wanted.device_memory_bytes
        found += bool(device.best_effort_seats) and not alone and mates < places and memory <= device.memory_bytes
    return found


def fits(nodes: list[Node], held: Held, wanted: Resources, ranks: int) -> bool:
    total = 0
    for each in nodes:
        cores = each.cpu_milli - sum(
            r.cpu_milli for r, placement in held for rank in placement if rank.node == each.name
        )
        here = open_devices(each, held, wanted) // wanted.accelerator_count
        total += min(here, cores // wanted.cpu_milli) if wanted.cpu_milli else here
    return total >= ranks


def holding(snapshot, without=(), starts=()) -> Held:  # type: ignore[no-untyped-def]
    held = [(each.resources, each.placement) for each in snapshot.running.values() if each.job_id not in without]
    return held + [(snapshot.pending.by_id[start.job_id].resources, start.placement) for start in starts]


@RUNS
@given(shared_clusters())
def test_no_device_is_oversold(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    held = holding(snapshot, starts=decide(snapshot).starts)
    for state in snapshot.nodes.values():
        for device in state.node.devices:
            on = [r for r, placement in held for rank in placement
                  if rank.node == state.node.name and device.id in rank.devices]  # fmt: skip
            kinds = [each.share for each in on]
            assert Share.EXCLUSIVE not in kinds or len(on) == 1
            assert kinds.count(Share.GUARANTEED) <= 1
            assert kinds.count(Share.BEST_EFFORT) <= device.best_effort_seats
            assert sum(each.device_memory_bytes for each in on) <= (device.memory_bytes or 0)


@RUNS
@given(shared_clusters())
def test_what_waits_for_capacity_does_not_fit_and_guaranteed_work_waits_for_no_best_effort_work(
    index: ClusterIndex,
) -> None:
    snapshot = index.snapshot(NOW)
    decision = decide(snapshot)
    nodes = [state.node for state in snapshot.nodes.values()]
    best_effort = {each.job_id for each in snapshot.running.values() if each.priority_class is B}
    first = next(iter(sorted(
        (each for each in snapshot.pending.by_id.values() if each.priority_class is G), key=lambda each: each.queued_at
    )), None)  # fmt: skip
    fixed = all(each.most == each.ranks for each in snapshot.pending.by_id.values())
    for job_id, why in decision.waits.items():
        waiting = snapshot.pending.by_id[job_id]
        if why.code == "shape" and fixed:
            assert not fits(nodes, holding(snapshot, starts=decision.starts), waiting.resources, waiting.ranks)
        if why.code == "impossible":
            assert not fits(nodes, [], waiting.resources, waiting.ranks)
        if (
            why.code in ("shape", "share", "priority")
            and waiting is first
            and len(best_effort) == len(snapshot.running)
        ):
            # Nobody before it: all the best-effort work together is not in its way.
            starts = [s for s in decision.starts if snapshot.pending.by_id[s.job_id].priority_class is G]
            claimed = any(each.code == "preempting" for each in decision.waits.values())
            assert claimed or not fits(nodes, holding(snapshot, best_effort, starts), waiting.resources, waiting.ranks)


@RUNS
@given(shared_clusters())
def test_everything_is_found_again_when_it_is_added_up_anew(index: ClusterIndex) -> None:
    """Job by job, and all at once: what is free on each device is the same."""
    snapshot = index.snapshot(NOW)
    carry_out(index, snapshot, decide(snapshot))
    before = index.snapshot(NOW)
    index.set_nodes([state.node for state in before.nodes.values()])
    after = index.snapshot(NOW)
    assert [state.free_seats for state in before.nodes.values()] == [s.free_seats for s in after.nodes.values()]
    assert [state.free_devices for state in before.nodes.values()] == [s.free_devices for s in after.nodes.values()]
    assert before.pools == after.pools


@RUNS
@given(shared_clusters())
def test_the_fewest_with_least_to_lose_give_way(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    guaranteed = [each for each in snapshot.pending.by_id.values() if each.priority_class is G]
    for other in list(snapshot.pending.by_id.values()):
        if other is not next(iter(guaranteed), None):
            index.remove_pending(other.job_id)
    if not guaranteed or any(each.stopping for each in snapshot.running.values()):
        return
    snapshot, waiting = index.snapshot(NOW), guaranteed[0]
    decision = decide(snapshot)
    nodes = [state.node for state in snapshot.nodes.values()]
    may_go = [each for each in snapshot.running.values() if each.priority_class is B]

    def loss(chosen) -> float:  # type: ignore[no-untyped-def]
        return sum(slots(each) * (each.at_risk_s or 0.0) for each in chosen)

    def slots(each: Running) -> float:
        count = each.resources.accelerator_count if each.resources.share is not Share.BEST_EFFORT else 0
        return len(each.placement) * count or max(1.0, len(each.placement) * each.resources.cpu_milli / 1000)

    enough = [
        loss(chosen)
        for size in range(len(may_go) + 1)
        for chosen in combinations(may_go, size)
        if fits(nodes, holding(snapshot, {each.job_id for each in chosen}), waiting.resources, waiting.ranks)
    ]
    chosen = [snapshot.running[each.job_id] for each in decision.preemptions]
    if started(decision):
        assert fits(nodes, holding(snapshot), waiting.resources, waiting.ranks)
    elif not enough:
        assert not chosen
    else:
        assert loss(chosen) == pytest.approx(min(enough))


@RUNS
@given(shared_clusters())
def test_explanations_are_true(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    starting = {start.job_id for start in decide(snapshot).starts}
    for job_id in snapshot.pending.by_id:
        check_explanation(snapshot, explain(snapshot, job_id), starting)


@RUNS
@given(shared_clusters())
def test_everything_that_can_run_runs_in_the_end(index: ClusterIndex) -> None:
    world = World(index, lambda waiting: waiting.expected_s or 20.0)
    for held in list(index.snapshot(NOW).running.values()):
        world.runs_on(held, NOW + 10)
    for _ in range(200):
        if not world.step():
            break
    left = index.snapshot(world.now).pending.by_id
    assert all(decide(index.snapshot(world.now)).waits[each].code == "impossible" for each in left)
