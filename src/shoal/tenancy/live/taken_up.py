"""Work that a plane had handed over and not written down when its server ended, taken up again.

A plane writes a start with the job's next step: the shared server has written it down. So before a plane opens, each
job that waits there and that the shared server knows is on its place again, as if it had been written then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shoal.contract.gangs import DOWNLOAD, RUN, gang_name
from shoal.contract.lifecycle import JobState
from shoal.contract.records import AttemptRecord, JobRecord, RankPlacement
from shoal.control.jobs import transitions
from shoal.core import Reason
from shoal.extension import Server
from shoal.store import Store
from shoal.tenancy.records import PlaneRecord
from shoal.tenancy.translate import POOL

_BEFORE = Reason("started", "was handed over before the plane was opened anew")


async def take_up(store: Store, server: Server, plane: PlaneRecord) -> None:
    """`store` is the plane's, in control and not used yet."""
    unfinished = store.unfinished_jobs()
    waiting = {
        f"{plane.id}:{gang_name(job.id, job.attempt + 1, phase)}": job
        for job in unfinished
        if job.state is JobState.QUEUED
        for phase in (RUN, DOWNLOAD)
    }
    known = [live.job for live in server.owned(plane.id)]
    known += server.store.jobs_by_key(plane.tenant, waiting.keys() - {job.idempotency_key for job in known})
    found = {waiting[key].id: (waiting[key], job) for job in known if (key := job.idempotency_key or "") in waiting}
    if not found:
        return
    active = [job.id for job in unfinished if job.state.active]
    places = Places(store.current_attempts(active).values())
    await store.apply_all(
        [
            transitions.place(job, places.take(above), _BEFORE, epoch=store.epoch, now=above.submitted_at, wait=None)
            for job, above in found.values()
        ]
    )


class Places:
    """Places of the pool that none of these attempts has, however many the pool has now."""

    def __init__(self, attempts: Iterable[AttemptRecord]) -> None:
        self._taken = {device for attempt in attempts for rank in attempt.placement for device in rank.devices}
        self._next: Counter[str] = Counter()

    def take(self, handed_over: JobRecord) -> tuple[RankPlacement, ...]:
        asked = [kind for kind, count in handed_over.resources.accelerators.items() for _ in range(count)]
        ranks = range(handed_over.ranks)
        return tuple([RankPlacement(rank, POOL, tuple(map(self._one, asked))) for rank in ranks])

    def _one(self, kind: str) -> str:
        while True:
            place = f"{kind}:{self._next[kind]}"
            self._next[kind] += 1
            if place not in self._taken:
                return place
