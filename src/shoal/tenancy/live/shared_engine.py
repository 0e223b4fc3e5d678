"""The engine of a plane: the shared control plane. A gang becomes a job there, and its state comes back.

The job's idempotency key is made of the plane's id and the gang's name, so a gang is handed over once, whichever of the
two planes dies when. The job is tried once: whether to try again is for the plane to say. What it runs, with its
secrets, is not written down there: the shared server asks this engine for it when it launches the job.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from shoal.contract.gangs import RUN, gang_name, parse_gang_name
from shoal.contract.lifecycle import JobState
from shoal.contract.records import JobRecord, NewEvent
from shoal.core import Capability, Fault, NotFound, Reason, Sandbox, Unavailable
from shoal.engine import Gang, GangStatus, Inventory, LaunchFailed, LogChunk, LogTimes, Phase
from shoal.engine.present import Present
from shoal.extension import LiveJob, Server
from shoal.tenancy.live.news import News
from shoal.tenancy.records import PlaneRecord
from shoal.tenancy.translate import TAKEN_BACK, asked_for, pool_for, quota_left, status_of, unknown


@dataclass(slots=True, eq=False)
class HandedOver:
    """A gang and the job that it is in the shared server, in its last attempt there. `gang` is what is to run, once
    the plane has said so; `status` is what the plane knows, or is to be told in the next round; `stopping` once the
    plane asked for its end."""

    engine: SharedEngine
    name: str
    job_id: str
    status: GangStatus
    attempt: int
    gang: Gang | None = None
    stopping: bool = False


class SharedEngine:
    """See `shoal.engine.protocol.Engine`. `job_of` finds the plane's own job, whose class and priority go along.
    `news` are those of all planes."""

    name = "shared"

    def __init__(
        self, plane: PlaneRecord, server: Server, job_of: Callable[[str], JobRecord], news: News[HandedOver]
    ) -> None:  # fmt: skip
        self._plane = plane
        self._news = news
        self._since = server.clock.now()
        self._server = server
        self._job_of = job_of
        self._handed: dict[str, HandedOver] = {}
        self._by_job: dict[str, HandedOver] = {}
        self._names: dict[str, str] = {}
        self._naming = server.derive_secret(f"plane-node:{plane.id}").encode()[:64]
        self._streams: list[asyncio.Queue[GangStatus | None]] = []
        self._nodes = Present(self._inventory())

    async def open(self) -> None:
        for live in self._server.owned(self._plane.id):
            name = self._name_of(live.job)
            self._know(name, live.job, self._status_of_live(name, live))

    def tell(self, handed: HandedOver) -> None:
        for stream in self._streams:
            stream.put_nowait(handed.status)

    def changes_above(self, handed: HandedOver) -> bool:
        live = self._server.job(handed.job_id)
        return live is not None and live.writes > 0

    async def close(self) -> None:
        self._nodes.close()
        for stream in self._streams:
            stream.put_nowait(None)
        self._streams.clear()

    def capabilities(self) -> tuple[Capability, ...]:
        tenant, given = self._plane.tenant, self._server.sandbox(self._plane.tenant)
        levels = [
            Capability(
                level.capability, given.at_least(level) is given, f"the shared server gives {tenant} {given.value}"
            )
            for level in Sandbox
            if level is not Sandbox.NONE
        ]
        return (Capability("shared pool", True, f"work counts against tenant {tenant} of the server above"), *levels)

    # --- nodes ---

    async def inventory(self) -> Inventory:
        return self._inventory()

    def nodes(self) -> AsyncIterator[Inventory]:
        return self._nodes.follow()

    def pool_changed(self) -> None:
        """Nodes came or went, or the quota changed."""
        self._nodes.set(self._inventory())

    def _inventory(self) -> Inventory:
        tenant = self._server.tenants().get(self._plane.tenant)
        if tenant is None:
            raise Unavailable(f"the shared server has no tenant {self._plane.tenant} any more")
        machines = (state.node for state in self._server.snapshot().nodes.values() if state.schedulable)
        return Inventory((pool_for(tenant.quota, machines),))

    def pool_says(self, job: LiveJob, ends: Iterable[float]) -> Reason | None:
        """Why the team's quota of the shared pool does not let this job of the plane start; None where it does. `ends`:
        when what the plane has running is likely to end."""
        state = self._server.snapshot().tenants.get(self._plane.tenant)
        if state is None:
            return None
        now = self._server.clock.now()
        next_free = min((end for end in ends if end > now), default=None)
        return quota_left(state.tenant.quota, state.used, job.job.resources, job.job.min_ranks, next_free)

    # --- gangs ---

    async def launch(self, gang: Gang) -> GangStatus:
        handed = self._handed.get(gang.name) or self._hand_over(gang)
        if handed.gang is None and await self._vanished(handed):
            self._tell(handed, unknown(handed.status))
            await self.stop(gang.name, reason="no trace of its processes was found")
            return unknown(handed.status)
        handed.gang = gang
        status = handed.status
        if status.fault is not None and status.reason is not None:
            raise LaunchFailed(status.reason.text, fault=status.fault, where=gang.name)
        return status

    def to_run(self, job: JobRecord, placed: Gang) -> Gang:
        """The gang of this job of the shared server, on the places that it got there. Raises Unavailable until the
        plane, after a restart, has said again what it is, and LaunchFailed for one that was taken back."""
        handed = self._by_job.get(job.id)
        gang = handed.gang if handed is not None else None
        if gang is None:
            raise Unavailable(f"plane {self._plane.name} has not said yet what {job.id} runs")
        if job.attempt > 1 and any(attempt.running_at is not None for attempt in self._server.store.attempts(job.id)):
            raise LaunchFailed(TAKEN_BACK, fault=Fault.PLATFORM, where=placed.name)  # the plane tries anew, if it does
        env = {rank.rank: rank.env for rank in gang.ranks}
        ranks = tuple([replace(rank, env={**env.get(rank.rank, {}), **rank.env}) for rank in placed.ranks])
        division = f"{self._plane.id}/{gang.tenant}"  # of the plane's tenants none has another's processes or files
        return replace(
            gang, name=placed.name, ranks=ranks, limits=placed.limits, tenant=placed.tenant, division=division
        )  # fmt: skip

    async def _vanished(self, handed: HandedOver) -> bool:
        """Whether the plane knows that it has begun, and there is no trace of it: then it is not to begin again there,
        for whether to try anew is for the plane to say. The shared server writes down that it began when it ends."""
        live, named = self._server.job(handed.job_id), parse_gang_name(handed.name)
        if live is None or live.job.state is not JobState.STARTING or named is None:
            return False
        began = self._job_of(named.job_id).state in (JobState.RUNNING, JobState.CHECKPOINTING)
        there = self._running(handed.name)
        return began and there is not None and await self._server.engine.status(there) is None

    async def gangs(self) -> Mapping[str, GangStatus]:
        """After a comparison of both sides: whatever should have been told and was not is told now."""
        for live in self._server.owned(self._plane.id):
            if live.job.id not in self._by_job and (name := self._name_of(live.job)) not in self._handed:
                self._know(name, live.job, self._status_of_live(name, live))
        for handed in self._handed.values():
            if not handed.status.ended:
                self._tell(handed, self._look(handed))
        return {name: handed.status for name, handed in self._handed.items()}

    async def status(self, name: str) -> GangStatus | None:
        handed = self._handed.get(name) or self._stored(name)
        return handed.status if handed is not None else None

    async def changes(self) -> AsyncIterator[GangStatus]:
        stream: asyncio.Queue[GangStatus | None] = asyncio.Queue()
        self._streams.append(stream)
        for handed in list(self._handed.values()):
            stream.put_nowait(handed.status)
        while (status := await stream.get()) is not None:
            yield status

    def moved(self, job: LiveJob) -> None:
        """The shared server knows something new of one of its jobs that this plane handed over."""
        handed = self._by_job.get(job.job.id)
        if handed is None:
            return
        if job.job.version == 0:
            if job.job.state.terminal:
                self._was_handed_over(handed)
        elif job.job.state is JobState.STARTING and handed.status.phase is Phase.QUEUED and not handed.status.reason:
            handed.attempt = job.job.attempt  # to the plane that is the same
        else:
            handed.attempt = job.job.attempt
            self._tell(handed, self._status_of_live(handed.name, job, asked=handed.stopping))

    async def notify(self, name: str, notice: Mapping[str, object]) -> None:
        if (there := self._running(name)) is not None:
            await self._server.engine.notify(there, notice)

    async def signal(self, name: str, signum: int) -> None:
        if (there := self._running(name)) is not None:
            await self._server.engine.signal(there, signum)

    async def stop(self, name: str, *, grace_s: float | None = None, reason: str = "") -> None:
        handed = self._handed.get(name)
        if handed is None:
            return
        handed.stopping = True
        await self._server.cancel(handed.job_id, actor=f"plane:{self._plane.name}", cause=reason or "asked to stop")
        if grace_s is not None and (there := self._running(name)) is not None:
            await self._server.engine.stop(there, grace_s=grace_s, reason=reason)

    async def read(self, name: str, rank: int, stream: str, offset: int, limit: int = 65536) -> LogChunk:
        return await self._server.engine.read(self._there(name), rank, stream, offset, limit)

    async def log_times(self, name: str, rank: int) -> LogTimes:
        return await self._server.engine.log_times(self._there(name), rank)

    async def forget(self, name: str) -> None:
        if (handed := self._handed.get(name)) is not None and self._server.job(handed.job_id) is not None:
            await self.stop(name, grace_s=0.0, reason="forgotten")
        handed = self._handed.pop(name, None)
        if handed is not None:
            self._by_job.pop(handed.job_id, None)

    async def erase(self, name: str, *, dry_run: bool = False) -> int:
        try:
            return await self._server.engine.erase(self._there(name), dry_run=dry_run)
        except NotFound:
            return 0

    async def sweep(self, known: frozenset[str]) -> tuple[str, ...]:
        del known  # stray processes are the shared server's to find
        return ()

    # --- inside ---

    def _key(self, name: str) -> str:
        return f"{self._plane.id}:{name}"

    @staticmethod
    def _name_of(job: JobRecord) -> str:
        """The gang that this job was handed over as."""
        return (job.idempotency_key or "").partition(":")[2]

    def _know(self, name: str, job: JobRecord, status: GangStatus) -> HandedOver:
        handed = self._handed[name] = self._by_job[job.id] = HandedOver(self, name, job.id, status, job.attempt)
        return handed

    def _stored(self, name: str) -> HandedOver | None:
        """One that is over there, and that this life of the plane has not seen."""
        job = self._server.store.job_by_key(self._plane.tenant, self._key(name))
        return self._know(name, job, self._status(name, job)) if job is not None else None

    def _hand_over(self, gang: Gang) -> HandedOver:
        """What the plane has written down need not be written down above before it starts there: after a restart the
        plane hands it over again."""
        server, now = self._server, self._server.clock.now()
        named = parse_gang_name(gang.name)
        own = self._job_of(named.job_id) if named is not None else None
        earlier = own is None or own.updated_at < self._since  # another life of the plane may have handed it over
        if earlier and (found := self._stored(gang.name)) is not None:
            return found
        asked = asked_for(gang, own)
        manifest = asked.manifest
        job = JobRecord(
            id=server.new_id("j"), tenant=self._plane.tenant, name=manifest.name, state=JobState.QUEUED, version=0,
            manifest=asked.text, resources=asked.resources, ranks=len(gang.ranks), min_ranks=len(gang.ranks),
            priority_class=manifest.priority_class, priority=manifest.priority, submitted_at=now, updated_at=now,
            queued_at=now, expected_s=own.expected_s if own is not None else None, owner_id=self._plane.id,
            idempotency_key=self._key(gang.name),
        )  # fmt: skip
        event = NewEvent(
            now, "job.submitted", f"plane:{self._plane.name}", f"plane {self._plane.name} handed over {gang.name}",
            tenant=job.tenant, job_id=job.id, new_state=JobState.QUEUED,
        )  # fmt: skip
        handed = self._know(gang.name, job, status_of(gang.name, job, None, None, self._hidden))
        server.submitted(job, manifest, event)
        return handed

    def _was_handed_over(self, handed: HandedOver) -> None:
        """An earlier life of the plane has handed it over as another job; that one counts."""
        self._by_job.pop(handed.job_id, None)
        found = self._stored(handed.name)
        if found is not None:
            found.gang, found.stopping = handed.gang, handed.stopping
            self._news.note(found, over=found.status.ended)

    def _tell(self, handed: HandedOver, status: GangStatus) -> None:
        if status != handed.status:
            handed.status = status
            self._news.note(handed, over=status.ended)

    def _running(self, name: str) -> str | None:
        """What a gang is called in the shared engine, if it may be running there."""
        handed = self._handed.get(name)
        return gang_name(handed.job_id, handed.attempt, RUN) if handed is not None and handed.attempt else None

    def _there(self, name: str) -> str:
        """The same, also of one that is over. Raises NotFound."""
        handed = self._handed.get(name)
        if handed is not None:
            return gang_name(handed.job_id, max(1, handed.attempt), RUN)
        job = self._server.store.job_by_key(self._plane.tenant, self._key(name))
        if job is None:
            raise NotFound(f"there is no gang {name}")
        return gang_name(job.id, max(1, job.attempt), RUN)

    def _look(self, handed: HandedOver) -> GangStatus:
        """What the shared server says of it now."""
        live = self._server.job(handed.job_id)
        if live is not None:
            handed.attempt = live.job.attempt
            return self._status_of_live(handed.name, live, asked=handed.stopping)
        job = self._server.store.job(handed.job_id)
        return unknown(handed.status) if job is None else self._status(handed.name, job, asked=handed.stopping)

    def _status(self, name: str, job: JobRecord, *, asked: bool = False) -> GangStatus:
        live = self._server.job(job.id)
        if live is not None:
            return self._status_of_live(name, live, asked=asked)
        attempts = self._server.store.attempts(job.id) if job.state.terminal else []
        return status_of(name, job, attempts[-1] if attempts else None, None, self._hidden, asked=asked)

    def _status_of_live(self, name: str, live: LiveJob, *, asked: bool = False) -> GangStatus:
        return status_of(name, live.job, live.attempt, live.wait, self._hidden, asked=asked)

    def _hidden(self, node: str) -> str:
        """Another name for a machine, the same for the same one within a plane."""
        hidden = self._names.get(node)
        if hidden is None:
            digest = hashlib.blake2b(node.encode(), key=self._naming, digest_size=4)
            hidden = self._names[node] = f"node-{digest.hexdigest()}"
        return hidden
