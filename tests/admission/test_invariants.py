"""What holds of every decision, on random clusters."""

from __future__ import annotations

from collections import Counter

from hypothesis import Phase, given, settings

from shoal.admission import ClusterIndex, decide
from shoal.core import ANY, PriorityClass, Resources

from .cases import NOW, B, G, clusters, fits, free_of

RUNS = settings(max_examples=80, deadline=None, derandomize=True, phases=[Phase.generate])


def _held_by(snapshot, tenant, decision):  # type: ignore[no-untyped-def]
    """Accelerators by type, cpus and jobs that a tenant holds once the decision is carried out."""
    kinds, cpu, jobs = Counter(), 0, 0
    held = [(r.tenant, r.resources, r.placement) for r in snapshot.running.values()]
    for start in decision.starts:
        waiting = snapshot.pending.by_id[start.job_id]
        held.append((waiting.tenant, waiting.resources, start.placement))
    for owner, resources, placement in held:
        if owner == tenant:
            jobs += 1
            cpu += resources.cpu_milli * len(placement)
            for rank in placement:
                kinds.update(device.split(":")[0] for device in rank.devices)
    return kinds, cpu, jobs


@RUNS
@given(clusters())
def test_no_resource_is_given_twice_and_gangs_are_whole(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    decision = decide(snapshot)
    used = Counter(
        (rank.node, device) for held in snapshot.running.values() for rank in held.placement for device in rank.devices
    )
    for start in decision.starts:
        waiting = snapshot.pending.by_id[start.job_id]
        assert [rank.rank for rank in start.placement] == list(range(len(start.placement)))
        assert waiting.ranks <= len(start.placement) <= waiting.most
        kinds = {device.split(":")[0] for rank in start.placement for device in rank.devices}
        for rank in start.placement:
            assert len(rank.devices) == waiting.resources.accelerator_count
            used.update((rank.node, device) for device in rank.devices)
        if ANY in waiting.resources.accelerators:
            assert len(kinds) == 1
        else:
            assert kinds == set(waiting.resources.accelerators)
    assert max(used.values(), default=0) <= 1
    starts = [(snapshot.pending.by_id[start.job_id].resources, start.placement) for start in decision.starts]
    for kinds_free, cpu, memory in free_of(snapshot, starts).values():
        assert min(kinds_free.values(), default=0) >= 0
        assert cpu >= 0
        assert memory >= 0


@RUNS
@given(clusters())
def test_no_quota_is_exceeded_by_a_start(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    decision = decide(snapshot)
    for name in {snapshot.pending.by_id[start.job_id].tenant for start in decision.starts}:
        quota = snapshot.tenants[name].tenant.quota
        kinds, cpu, jobs = _held_by(snapshot, name, decision)
        assert quota.accelerators is None or kinds.total() <= quota.accelerators
        assert all(kinds[kind] <= limit for kind, limit in quota.by_type)
        assert quota.cpu_milli is None or cpu <= quota.cpu_milli
        assert quota.running_jobs is None or jobs <= quota.running_jobs


@RUNS
@given(clusters())
def test_only_running_best_effort_work_gives_way_and_only_for_guaranteed(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    decision = decide(snapshot)
    asked = [preemption.job_id for preemption in decision.preemptions]
    assert len(asked) == len(set(asked))
    starting = {start.job_id for start in decision.starts}
    for preemption in decision.preemptions:
        victim = snapshot.running[preemption.job_id]
        assert victim.priority_class is PriorityClass.BEST_EFFORT
        assert not victim.stopping
        assert snapshot.pending.by_id[preemption.for_job].priority_class is G
        assert preemption.for_job not in starting
        assert decision.waits[preemption.for_job].code == "preempting"


@RUNS
@given(clusters())
def test_every_job_for_which_room_is_made_fits_once_that_room_is_free(index: ClusterIndex) -> None:
    """All of them together, with this decision's starts: no capacity is reserved twice, nobody is asked in vain."""
    snapshot = index.snapshot(NOW)
    decision = decide(snapshot)
    for preemption in decision.preemptions:
        index.update_running(preemption.job_id, stopping=True)
    for start in decision.starts:
        index.remove_pending(start.job_id)
    reserved = [job_id for job_id, why in decision.waits.items() if why.code == "preempting"]
    starts = [(snapshot.pending.by_id[start.job_id].resources, start.placement) for start in decision.starts]
    leaving = {p.job_id for p in decision.preemptions} | {r.job_id for r in snapshot.running.values() if r.stopping}
    for job_id in leaving:
        index.stop(job_id)
    free = free_of(index.snapshot(NOW), starts)
    for job_id in reserved:
        waiting = snapshot.pending.by_id[job_id]
        assert fits(free, waiting.resources, waiting.ranks)


@RUNS
@given(clusters())
def test_a_job_that_waits_for_want_of_room_truly_does_not_fit(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    decision = decide(snapshot)
    starts = [(snapshot.pending.by_id[start.job_id].resources, start.placement) for start in decision.starts]
    after, before = free_of(snapshot, starts), free_of(snapshot)
    # A job behind it that takes as many ranks as fit may have taken some of the capacity that is not kept.
    fixed = all(job.most == job.ranks for job in snapshot.pending.by_id.values())
    for job_id, why in decision.waits.items():
        waiting = snapshot.pending.by_id[job_id]
        types = _allowed_types(snapshot, waiting.tenant, waiting.resources)
        if why.code in ("shape", "share", "priority") and "behind" not in why.facts:
            assert not fits(after, waiting.resources, waiting.ranks, types)
        if why.code in ("share", "priority") and "behind" not in why.facts:
            assert fits(before, waiting.resources, waiting.ranks)
        if why.code == "reserved":
            assert fits(after if fixed else before, waiting.resources, waiting.ranks)
        if why.code == "impossible":
            index.set_nodes([state.node for state in snapshot.nodes.values()])
            empty = {
                s.node.name: (dict(s.node.capacity().accelerators), s.node.cpu_milli, s.node.memory_bytes)
                for s in snapshot.nodes.values()
            }
            assert not fits(empty, waiting.resources, waiting.ranks)


def _allowed_types(snapshot, tenant, resources: Resources):  # type: ignore[no-untyped-def]
    """Types that the quota by type does not rule out entirely; only `any` may choose."""
    if ANY not in resources.accelerators:
        return ("a100", "h100")
    limited = {kind for kind, _ in snapshot.tenants[tenant].tenant.quota.by_type}
    return tuple(kind for kind in ("a100", "h100") if kind not in limited)


@RUNS
@given(clusters())
def test_every_waiting_group_has_a_reason_and_no_starting_job_has_one(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    decision = decide(snapshot)
    started = {start.job_id for start in decision.starts}
    assert len(started) == len(decision.starts)
    assert started <= set(snapshot.pending.by_id)
    assert not started & set(decision.waits)
    for name in snapshot.pending.by_tenant:
        for group in snapshot.pending.by_tenant[name]:
            left = [waiting.job_id for waiting in group.ready if waiting.job_id not in started]
            assert not left or left[0] in decision.waits


@RUNS
@given(clusters())
def test_best_effort_never_starts_while_an_equal_guaranteed_job_that_fits_waits(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    decision = decide(snapshot)
    best_effort = [snapshot.pending.by_id[s.job_id] for s in decision.starts]
    shapes = {(p.tenant, p.resources, p.ranks) for p in best_effort if p.priority_class is B}
    for job_id, why in decision.waits.items():
        waiting = snapshot.pending.by_id[job_id]
        if waiting.priority_class is G and why.code in ("shape", "share", "priority", "reserved"):
            # Only a reservation of another guaranteed job may keep it out of capacity that a short job can still use.
            assert (waiting.tenant, waiting.resources, waiting.ranks) not in shapes or why.code == "reserved"


@RUNS
@given(clusters())
def test_the_same_snapshot_gives_the_same_decision(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    first = decide(snapshot)
    assert decide(snapshot) == first
    assert decide(ClusterIndex.resume(snapshot).snapshot(NOW)) == first
