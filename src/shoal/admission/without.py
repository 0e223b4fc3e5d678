"""A snapshot in which some of the waiting jobs are not there: how an extension keeps jobs back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shoal.admission.persistent import CowMap, FrozenRuns, Runs
from shoal.admission.snapshot import Group, PendingJobs, Snapshot, TenantQueue
from shoal.admission.types import Pending


def without(snapshot: Snapshot, job_ids: Collection[str]) -> Snapshot:
    """The snapshot as admission is asked about it, without these waiting jobs: they take no place from others, and
    their tenants are charged nothing."""
    hidden = frozenset(job_ids) & snapshot.pending.by_id.keys()
    if not hidden:
        return snapshot
    tenants = {snapshot.pending.by_id[job_id].tenant for job_id in hidden}
    kept: CowMap[TenantQueue] = CowMap()
    for name, queue in snapshot.pending.by_tenant.items():
        rest = queue
        if name in tenants:
            rest = TenantQueue(_rest(queue.guaranteed, hidden), _rest(queue.best_effort, hidden))
        if rest.guaranteed or rest.best_effort:
            kept[name] = rest
    pending = PendingJobs(snapshot.pending.by_id, kept.freeze(), snapshot.pending.next_due)
    return replace(snapshot, pending=pending)


def _rest(groups: tuple[Group, ...], hidden: Collection[str]) -> tuple[Group, ...]:
    found = (replace(group, ready=_left(group.ready, hidden), delayed=_left(group.delayed, hidden)) for group in groups)
    return tuple(group for group in found if group.ready or group.delayed)


def _left(jobs: FrozenRuns[Pending], hidden: Collection[str]) -> FrozenRuns[Pending]:
    left: Runs[Pending] = Runs()
    for key, job in jobs.items():
        if job.job_id not in hidden:
            left.add(key, job)
    return left.freeze()
