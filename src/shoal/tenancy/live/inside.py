"""The part of a plane that an ordinary control plane has not: it knows what the shared pool says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from shoal.admission import Blocker, Snapshot
from shoal.contract.lifecycle import JobState
from shoal.core import DeviceUse, Reason
from shoal.extension import Extension, LiveJob, NoSection, Server
from shoal.tenancy.translate import from_pool


class Inside(Extension):
    """`pool` says why the shared pool would not start a job now, if it would not; it is told of what runs in the plane
    when each is likely to end. `uses_device` says whether a job of the plane works on devices of the pool."""

    name: ClassVar[str] = "plane"
    pool: Callable[[LiveJob, list[float]], Reason | None]
    uses_device: Callable[[str], bool | None]

    def __init__(self, server: Server, settings: NoSection) -> None:
        del server, settings

    def answers(self) -> Mapping[type, object]:
        return {DeviceUse: self}

    async def explain(self, snapshot: Snapshot, job: LiveJob) -> Sequence[Blocker]:
        if job.job.state not in (JobState.QUEUED, JobState.STARTING):
            return ()
        ends = [end for one in snapshot.running.values() if (end := one.expected_end or one.latest_end) is not None]
        pool = self.pool(job, ends)
        return () if pool is None else (from_pool(pool),)
