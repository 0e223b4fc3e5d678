"""A snapshot in which some of the waiting jobs are not there, or may not be on some nodes: how jobs are kept from a
decision, or from a part of the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from shoal.admission.index import ClusterIndex
from shoal.admission.persistent import CowMap, Key, Runs
from shoal.admission.snapshot import Group, GroupKey, PendingJobs, Snapshot, TenantQueue, group_key
from shoal.admission.types import Pending
from shoal.core import Affinity


def without(snapshot: Snapshot, job_ids: Collection[str]) -> Snapshot:
    """The snapshot as a decider is asked about it, without these waiting jobs: they take no place from others, and
    their tenants are charged nothing. What was claimed for them is free again. It takes as long as there are jobs to
    leave out, however many wait."""
    waiting: CowMap[Pending] = CowMap.thaw(snapshot.pending.by_id)
    hidden: dict[str, dict[GroupKey, list[Pending]]] = {}
    for job_id in job_ids:
        job = waiting.pop(job_id)
        if job is not None:
            hidden.setdefault(job.tenant, {}).setdefault(group_key(job), []).append(job)
    if not hidden:
        return snapshot
    queues: CowMap[TenantQueue] = CowMap.thaw(snapshot.pending.by_tenant)
    for name, gone in hidden.items():
        queue = queues[name]
        rest = TenantQueue(_rest(queue.guaranteed, gone), _rest(queue.best_effort, gone))
        if rest.guaranteed or rest.best_effort:
            queues[name] = rest
        else:
            queues.pop(name)
    pending = PendingJobs(waiting.freeze(), queues.freeze(), snapshot.pending.next_due)
    claims = tuple(claim for claim in snapshot.claims if claim.job_id in pending.by_id)
    return replace(snapshot, pending=pending, claims=claims)


def kept_off(snapshot: Snapshot, nodes: Mapping[str, frozenset[str]]) -> Snapshot:
    """The snapshot in which waiting jobs may not be on these nodes, by job id, whatever else is said of them."""
    index = ClusterIndex.resume(snapshot)
    found = False
    for job_id, names in nodes.items():
        job = index.pending(job_id)
        if job is not None and names:
            index.add_pending(job._replace(affinity=job.affinity.plus(Affinity(off=names))))
            found = True
    return index.snapshot(snapshot.now) if found else snapshot


def _rest(groups: tuple[Group, ...], gone: dict[GroupKey, list[Pending]]) -> tuple[Group, ...]:
    found = (_left(group, gone[group.key]) if group.key in gone else group for group in groups)
    return tuple(group for group in found if group.ready or group.delayed)


def _left(group: Group, gone: list[Pending]) -> Group:
    ready, delayed = Runs.thaw(group.ready), Runs.thaw(group.delayed)
    for job in gone:
        if not _removed(ready, (job.queued_at, job.job_id)):
            delayed.remove((job.not_before, job.job_id))
    return replace(group, ready=ready.freeze(), delayed=delayed.freeze())


def _removed(jobs: Runs[Pending], key: Key) -> bool:
    try:
        jobs.remove(key)
    except KeyError:
        return False
    return True
