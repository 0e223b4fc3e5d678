"""Explanations of waiting jobs. They are worked out off the event loop, in a thread on a frozen snapshot; what they
share is worked out once. Why a job could never start is told at each submission, and remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from shoal.admission import Blocker, Explanation, Layout, Outlook, Snapshot, explain, obstacles, with_interval
from shoal.contract.records import JobRecord
from shoal.control.jobs.cache import Live
from shoal.control.jobs.transitions import describe
from shoal.core import NO_AFFINITY, Affinity, Clock, Quota, Reason, Resources, Tenant

_SHARE = 0.1
"""Looking ahead takes at most this part of the time: an outlook that took long to make is used the longer, although
the cluster has changed since."""
_SHAPES = 4096
"""The most shapes of jobs that are remembered at once."""


class Obstacles:
    """Why jobs can never start, remembered by shape: a tenant's next job mostly asks for the same as its last."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._found: dict[tuple[str, Quota, Resources, int, Affinity], list[Reason]] = {}

    def find(
        self, layout: Layout, tenant: Tenant, resources: Resources, ranks: int, affinity: Affinity = NO_AFFINITY
    ) -> list[Reason]:
        """As `admission.obstacles`."""
        if layout is not self._layout or len(self._found) >= _SHAPES:
            self._layout, self._found = layout, {}
        shape = (tenant.name, tenant.quota, resources, ranks, affinity)
        found = self._found.get(shape)
        if found is None:
            found = self._found[shape] = obstacles(layout, tenant, resources, ranks, affinity)
        return list(found)


class Explainer:
    """One explanation is made at a time, so that however many are asked for, one thread competes with the event loop
    for the interpreter. `snapshot` is called on the event loop."""

    def __init__(self, snapshot: Callable[[], Snapshot], clock: Clock) -> None:
        self._snapshot = snapshot
        self._clock = clock
        self._turn = asyncio.Lock()
        self._outlook: Outlook | None = None
        self._made_at = 0.0
        self._took_s = 0.0

    async def explain(self, job_ids: Sequence[str]) -> list[Explanation]:
        """Why these jobs wait, in their order; one that does not wait any more is left out."""
        async with self._turn:
            outlook = self._usable(job_ids)
            began = self._clock.monotonic()
            found = await asyncio.to_thread(_explain_all, outlook, job_ids)
            if outlook is not self._outlook:
                self._outlook, self._made_at = outlook, began
                self._took_s = self._clock.monotonic() - began
            return found

    def _usable(self, job_ids: Sequence[str]) -> Outlook:
        snapshot, last = self._snapshot(), self._outlook
        if last is not None:
            known = last.snapshot.pending.by_id
            young = self._clock.monotonic() - self._made_at < self._took_s / _SHARE
            if young and all(job_id in known or job_id not in snapshot.pending.by_id for job_id in job_ids):
                return last
        return Outlook(snapshot)


def _explain_all(outlook: Outlook, job_ids: Sequence[str]) -> list[Explanation]:
    waiting = outlook.snapshot.pending.by_id
    found = [explain(outlook.snapshot, job_id, outlook) for job_id in job_ids if job_id in waiting]
    return [with_interval(one, outlook) for one in found]


def where_it_is(job: JobRecord, live: Live | None) -> Explanation:
    """Of a job that does not wait for admission."""
    if live is not None and live.queue is not None:
        return handed_over(job.id, live.queue)
    if live is not None and live.staging is not None:
        return staged(job.id, live.staging)
    return Explanation(job.id, (), 0, job.started_at, describe(job))


def staged(job_id: str, staging: Reason) -> Explanation:
    """Of a job that has its place, and waits for what an extension brings there."""
    placed = Blocker("admission", False, Reason("placed", "admitted: quota, share and capacity"))
    return Explanation(job_id, (placed, Blocker(staging.code, True, staging)), 0, None, staging.text)


def handed_over(job_id: str, queue: Reason) -> Explanation:
    """Of a job that admission started and the cluster's own scheduler has not: both levels."""
    admitted = Blocker("admission", False, Reason("placed", "admitted: quota, share and capacity of the pool"))
    waits = Blocker("cluster", True, queue, "the cluster decides: see its own queue")
    return Explanation(job_id, (admitted, waits), 0, None, f"admitted, and waits in the cluster's queue: {queue.text}")
