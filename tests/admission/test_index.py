"""The index keeps up with every change, and what it handed out never changes."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

from shoal.admission import ClusterIndex, decide
from shoal.admission.persistent import CowMap, Runs
from shoal.admission.snapshot import group_key
from shoal.core import ANY, Node, PriorityClass, Quota, Resources, Tenant

from .cases import GIB, NOW, G, carry_out, clusters, devices, free_of, index_of, job, need, node, nodes, running

RUNS = settings(max_examples=60, deadline=None, derandomize=True, phases=[Phase.generate])


def picture(snapshot):  # type: ignore[no-untyped-def]
    """Everything a snapshot says, spelled out."""
    return (
        {name: (state.free_devices, state.free_cpu_milli, state.schedulable) for name, state in snapshot.nodes.items()},
        dict(snapshot.tenants.items()),
        dict(snapshot.pending.by_id.items()),
        {
            name: [(g.key, list(g.ready), list(g.delayed)) for g in queue]
            for name, queue in snapshot.pending.by_tenant.items()
        },
        snapshot.pending.next_due,
        dict(snapshot.running.items()),
        [(key, held.job_id) for key, held in snapshot.ends.items()],
        snapshot.jobs_on,
        snapshot.turn,
        {name: (pool.keys, dict(pool.buckets), pool.free) for name, pool in snapshot.pools.items()},
        snapshot.median_at_risk_s,
        snapshot.preemptible,
    )


@RUNS
@given(index=clusters(), seed=st.integers(0, 10**9))
def test_a_job_of_which_nothing_is_to_be_decided_changes_no_decision(index: ClusterIndex, seed: int) -> None:
    rng = random.Random(seed)
    silent = 0
    for step in range(40):
        for _ in range(20):
            snapshot = index.snapshot(NOW)
            decision = decide(snapshot)
            carry_out(index, snapshot, decision)
            if not decision.starts and not decision.preemptions:
                break
        held = sorted(index.snapshot(NOW).running)
        if held and rng.random() < 0.3:
            index.stop(rng.choice(held), ran_s=1.0)
            continue
        guaranteed = PriorityClass.GUARANTEED if rng.random() < 0.3 else PriorityClass.BEST_EFFORT
        new = job(f"y{step}", rng.choice("ab"), rng.choice([1, 2, 3]), at=rng.uniform(0, 9), cls=guaranteed)
        if not index.add_pending(new):
            silent += 1
            decision = decide(index.snapshot(NOW))
            assert "y" + str(step) not in {start.job_id for start in decision.starts}
            assert not decision.starts
            assert not decision.preemptions
    event(f"{silent // 10 * 10} silent")


def shuffle(index: ClusterIndex, rng: random.Random, steps: int) -> None:
    """Change something, as a control plane would, `steps` times."""
    for step in range(steps):
        now = NOW + step
        snapshot = index.snapshot(now)
        held, waiting = sorted(snapshot.running), sorted(snapshot.pending.by_id)
        act = rng.randrange(7)
        if act == 0 and held:
            index.stop(rng.choice(held), ran_s=rng.uniform(0, 100), completed=rng.random() < 0.5)
        elif act == 1 and waiting:
            index.remove_pending(rng.choice(waiting))
        elif act == 2:
            delay = rng.choice([0.0, now + 2])
            index.add_pending(job(f"x{step}-{rng.random()}", rng.choice("abc"), rng.choice([1, 2]), not_before=delay))
        elif act == 3 and held:
            index.update_running(rng.choice(held), at_risk_s=rng.random(), expected_end=now + 9, stopping=True)
        elif act == 4:
            index.set_tenant(Tenant(rng.choice("abc"), 2.0, Quota(accelerators=rng.choice([None, 3]))))
        elif act == 5:
            closed = [name for name in snapshot.nodes if rng.random() < 0.3]
            index.set_nodes([state.node for state in snapshot.nodes.values()], unschedulable=closed)
        else:
            carry_out(index, snapshot, decide(snapshot))


@RUNS
@given(clusters(), st.integers(0, 10_000))
def test_a_snapshot_never_changes(index: ClusterIndex, seed: int) -> None:
    old = index.snapshot(NOW)
    before, decided = picture(old), decide(old)
    shuffle(index, random.Random(seed), 12)
    assert picture(old) == before
    assert decide(old) == decided


@RUNS
@given(clusters(), st.integers(0, 10_000))
def test_a_what_if_leaves_the_snapshot_alone(index: ClusterIndex, seed: int) -> None:
    old = index.snapshot(NOW)
    before = picture(old)
    shuffle(ClusterIndex.resume(old), random.Random(seed), 12)
    assert picture(old) == before


@RUNS
@given(clusters(), st.integers(0, 10_000))
def test_change_by_change_comes_to_the_same_as_from_scratch(index: ClusterIndex, seed: int) -> None:
    shuffle(index, random.Random(seed), 12)
    now = NOW + 100
    snapshot = index.snapshot(now)
    fresh = ClusterIndex(index.policy)
    closed = [name for name, state in snapshot.nodes.items() if not state.schedulable]
    fresh.set_nodes([state.node for state in snapshot.nodes.values()], unschedulable=closed)
    for state in snapshot.tenants.values():
        fresh.set_tenant(state.tenant, mean_runtime_s=state.mean_runtime_s)
    for name in sorted(snapshot.running):
        fresh.start(snapshot.running[name])
    for name in sorted(snapshot.pending.by_id):
        fresh.add_pending(snapshot.pending.by_id[name])
    again = fresh.snapshot(now)
    assert free_of(again) == free_of(snapshot)
    assert {n: (t.used, t.running_jobs) for n, t in again.tenants.items()} == {
        n: (t.used, t.running_jobs) for n, t in snapshot.tenants.items()
    }
    mine, other = picture(snapshot), picture(again)
    assert mine[0] == other[0]
    assert mine[9:] == other[9:]
    assert mine[2] == other[2]
    assert {n: sorted(map(repr, q)) for n, q in mine[3].items()} == {
        n: sorted(map(repr, q)) for n, q in other[3].items()
    }


def test_a_node_that_returns_is_still_held() -> None:
    made = nodes(2)
    index = index_of(made, [job("j", resources=8), job("k", resources=8)], [running("r", {"n0000": devices(0)})])
    index.set_nodes(made[1:])
    gone = index.snapshot(NOW)
    assert list(gone.nodes) == ["n0001"]
    assert gone.tenants["a"].used.accelerators == {"a100": 1}
    index.set_nodes(made)
    assert index.snapshot(NOW).nodes["n0000"].free_devices["a100"] == tuple(devices(*range(1, 8)))
    assert index.stop("r").job_id == "r"
    assert len(index.snapshot(NOW).nodes["n0000"].free_devices["a100"]) == 8
    assert index.snapshot(NOW).tenants["a"].used == Resources()


def test_any_counts_as_the_type_it_was_given() -> None:
    index = index_of([node("n0", {"h100": 2})], [job("j", resources=Resources({ANY: 2}))])
    snapshot = index.snapshot(NOW)
    carry_out(index, snapshot, decide(snapshot))
    assert index.snapshot(NOW).tenants["a"].used.accelerators == {"h100": 2}


def test_a_job_is_queued_or_running_once() -> None:
    index = index_of(nodes(1), [job("j"), job("j", resources=2)])
    snapshot = index.snapshot(NOW)
    assert len(snapshot.pending) == 1
    held = running("j", {"n0000": devices(0)})
    index.start(held)
    index.start(held)
    assert index.pending("j") is None
    assert index.running("j") == held
    assert index.snapshot(NOW).tenants["a"].running_jobs == 1
    assert index.stop("unknown") is None
    assert index.remove_pending("unknown") is None
    index.update_running("unknown", stopping=True)


def test_a_tenants_mean_follows_its_completed_jobs() -> None:
    index = index_of(nodes(1))
    for at, ran_s in enumerate([10.0, 30.0, 1000.0]):
        index.start(running(f"r{at}", {"n0000": devices(0)}))
        index.stop(f"r{at}", ran_s=ran_s, completed=ran_s < 1000)
    assert index.snapshot(NOW).tenants["a"].mean_runtime_s == 20.0
    index.set_tenant(Tenant("a", 2.0), mean_runtime_s=7.0)
    assert index.snapshot(NOW).tenants["a"].mean_runtime_s == 7.0


def test_what_did_not_change_is_shared_between_snapshots() -> None:
    """A snapshot costs what changed, not what there is."""
    waiting = [job(f"j{at}", "ab"[at % 2], 8, at=at) for at in range(400)]
    index = index_of(nodes(64, per_node=4), waiting, [running("r", {"n0000": devices(0)})])
    first = index.snapshot(NOW)
    index.add_pending(job("new", "a", need(2), cls=G))
    second = index.snapshot(NOW + 1)
    assert second.pending.by_tenant["b"] is first.pending.by_tenant["b"]
    assert second.pools is first.pools
    assert second.nodes is first.nodes
    assert second.running is first.running
    kept = second.pending.by_tenant["a"].best_effort[0]
    assert kept.ready is first.pending.by_tenant["a"].best_effort[0].ready
    third = index.snapshot(NOW + 2)
    assert third.pending.by_id is second.pending.by_id


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=400))
def test_runs_stay_sorted_and_frozen_ones_stay_as_they_were(steps: list[tuple[int, bool]]) -> None:
    runs: Runs[int] = Runs()
    model: dict[tuple[float, str], int] = {}
    frozen, was = runs.freeze(), []
    for at, (number, freeze) in enumerate(steps):
        key = (float(number), "")
        if key in model:
            runs.remove(key)
            del model[key]
        else:
            runs.add(key, at)
            model[key] = at
        if freeze:
            frozen, was = runs.freeze(), sorted(model.items())
        assert list(frozen.items()) == was
    assert list(runs.freeze().items()) == sorted(model.items())
    assert len(runs) == len(model)
    assert [runs.freeze().rank(key) for key in sorted(model)] == list(range(len(model)))


def test_runs_of_many_chunks() -> None:
    runs: Runs[int] = Runs()
    order = list(range(2000))
    random.Random(3).shuffle(order)
    for number in order:
        runs.add((float(number), ""), number)
    assert list(runs.freeze()) == list(range(2000))
    assert runs.freeze().rank((1500.0, "")) == 1500
    for number in range(0, 2000, 2):
        runs.remove((float(number), ""))
    assert list(runs.freeze()) == list(range(1, 2000, 2))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from([f"k{at}" for at in range(30)]), st.booleans(), st.booleans())))
def test_a_map_and_its_frozen_copies(steps: list[tuple[str, bool, bool]]) -> None:
    made: CowMap[int] = CowMap()
    model: dict[str, int] = {}
    frozen, was = made.freeze(), {}
    for at, (key, drop, freeze) in enumerate(steps):
        if drop:
            assert made.pop(key) == model.pop(key, None)
        else:
            made[key] = model[key] = at
        if freeze:
            frozen, was = made.freeze(), dict(model)
        assert dict(frozen.items()) == was
        assert len(frozen) == len(was)
    assert {key: made[key] for key in made} == model


def test_jobs_wait_in_one_group_only_if_they_are_of_one_tenant_and_of_a_like_length() -> None:
    waiting = [
        job("a0", "a"), job("a1", "a"), job("b", "b"), job("short", "a", expected_s=1.0),
        job("long", "a", expected_s=900.0), job("as long", "a", expected_s=1000.0),
    ]  # fmt: skip
    keys = {each.job_id: group_key(each) for each in waiting}
    assert keys["a0"] == keys["a1"]
    assert keys["long"] == keys["as long"]
    assert len(set(keys.values())) == 4


def test_a_pool_has_back_what_ended_on_it_and_nothing_that_it_no_longer_has() -> None:
    def pool(places: int) -> Node:
        return replace(node("pool", {"a100": places}), pooled=True)

    index = index_of([pool(6)])
    held = [running(f"r{at}", {"pool": devices(2 * at, 2 * at + 1)}, cores=2) for at in range(3)]
    for one in held:
        index.start(one)
    index.set_nodes([pool(5)])
    for one in (held[2], held[0], held[1]):
        index.stop(one.job_id)
    state = index.snapshot(NOW).nodes["pool"]
    assert sorted(state.free_devices["a100"]) == devices(0, 1, 2, 3, 4)
    assert (state.free_cpu_milli, state.free_memory_bytes) == (64_000, 512 * GIB)
