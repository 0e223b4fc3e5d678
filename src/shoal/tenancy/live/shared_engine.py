"""The engine of a plane: the shared control plane. A gang becomes a job there, and its state comes back.

The job's idempotency key is made of the plane's id and the gang's name, so a gang is handed over once, whichever of the
two planes dies when. The job is tried once: whether to try again is for the plane to say. What it runs, with its
secrets, is not written down there: the shared server asks this engine for it when it launches the job.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from shoal.contract.gangs import RUN, gang_name, parse_gang_name
from shoal.contract.lifecycle import ErrorCode, JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import AttemptRecord, JobRecord, NewEvent
from shoal.core import Capability, Fault, NotFound, Reason, Unavailable
from shoal.engine import (
    Exit,
    Gang,
    GangStatus,
    Inventory,
    LaunchFailed,
    LogChunk,
    LogTimes,
    Phase,
    RankStatus,
)
from shoal.engine.pool import wanted
from shoal.engine.present import Present
from shoal.extension import LiveJob, Server
from shoal.tenancy.live.repository import PlaneRepository
from shoal.tenancy.pooling import pool_for
from shoal.tenancy.records import PlaneRecord

_QUEUED_THERE = Reason("shared-pool", "waits in the shared pool")
_TAKEN_BACK = "the shared pool needed its place"
_PHASES = {
    JobState.QUEUED: Phase.QUEUED, JobState.STARTING: Phase.STARTING, JobState.RUNNING: Phase.RUNNING,
    JobState.CHECKPOINTING: Phase.RUNNING,
}  # fmt: skip


@dataclass(slots=True)
class HandedOver:
    """A gang and the job that it is in the shared server."""

    name: str
    job_id: str
    gang: Gang | None = None
    last: GangStatus | None = None


class SharedEngine:
    """See `shoal.engine.protocol.Engine`. `job_of` finds the plane's own job, whose class and priority go along."""

    name = "shared"

    def __init__(self, plane: PlaneRecord, server: Server, job_of: Callable[[str], JobRecord]) -> None:
        self._plane = plane
        self._server = server
        self._planes = PlaneRepository(server.store)
        self._job_of = job_of
        self._handed: dict[str, HandedOver] = {}
        self._by_job: dict[str, HandedOver] = {}
        self._gangs: dict[str, Gang] = {}
        self._streams: list[asyncio.Queue[GangStatus | None]] = []
        self._nodes = Present(self._inventory())

    async def open(self) -> None:
        for live in self._server.owned(self._plane.id):
            self._know(live.job)

    async def close(self) -> None:
        self._nodes.close()
        for stream in self._streams:
            stream.put_nowait(None)
        self._streams.clear()

    def capabilities(self) -> tuple[Capability, ...]:
        return (
            Capability("shared pool", True, f"work counts against tenant {self._plane.tenant} of the server above"),
        )

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

    # --- gangs ---

    async def launch(self, gang: Gang) -> GangStatus:
        self._gangs[gang.name] = gang
        handed = self._handed.get(gang.name) or self._stored(gang.name) or await self._hand_over(gang)
        status = self._status(handed)
        if status.fault is not None and status.reason is not None:
            raise LaunchFailed(status.reason.text, fault=status.fault, where=gang.name)
        return status

    def to_run(self, job: JobRecord, placed: Gang) -> Gang:
        """The gang of this job of the shared server, on the places that it got there. Raises Unavailable until the
        plane, after a restart, has said again what it is, and LaunchFailed for one that was taken back."""
        handed = self._by_job.get(job.id)
        gang = self._gangs.get(handed.name) if handed is not None else None
        if gang is None:
            raise Unavailable(f"plane {self._plane.name} has not said yet what {job.id} runs")
        if job.attempt > 1 and any(attempt.running_at is not None for attempt in self._server.store.attempts(job.id)):
            raise LaunchFailed(_TAKEN_BACK, fault=Fault.PLATFORM, where=placed.name)  # the plane tries anew, if it does
        env = {rank.rank: rank.env for rank in gang.ranks}
        ranks = tuple(replace(rank, env={**env.get(rank.rank, {}), **rank.env}) for rank in placed.ranks)
        return replace(gang, name=placed.name, ranks=ranks, limits=placed.limits)

    async def gangs(self) -> Mapping[str, GangStatus]:
        return {name: self._status(handed) for name, handed in self._handed.items()}

    async def status(self, name: str) -> GangStatus | None:
        handed = self._handed.get(name) or self._stored(name)
        return self._status(handed) if handed is not None else None

    async def changes(self) -> AsyncIterator[GangStatus]:
        stream: asyncio.Queue[GangStatus | None] = asyncio.Queue()
        self._streams.append(stream)
        for handed in list(self._handed.values()):
            stream.put_nowait(self._status(handed))
        while (status := await stream.get()) is not None:
            yield status

    def moved(self, job_id: str) -> None:
        """Something was written of this job of the shared server."""
        handed = self._by_job.get(job_id)
        if handed is None:
            return
        status = self._status(handed)
        if status != handed.last:
            handed.last = status
            for stream in self._streams:
                stream.put_nowait(status)

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
        await self._server.cancel(handed.job_id, actor=f"plane:{self._plane.name}", cause=reason or "asked to stop")
        self.moved(handed.job_id)
        if grace_s is not None and (there := self._running(name)) is not None:
            await self._server.engine.stop(there, grace_s=grace_s, reason=reason)

    async def read(self, name: str, rank: int, stream: str, offset: int, limit: int = 65536) -> LogChunk:
        return await self._server.engine.read(self._there(name), rank, stream, offset, limit)

    async def log_times(self, name: str, rank: int) -> LogTimes:
        return await self._server.engine.log_times(self._there(name), rank)

    async def forget(self, name: str) -> None:
        await self.stop(name, grace_s=0.0, reason="forgotten")
        self._gangs.pop(name, None)
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

    def _know(self, job: JobRecord) -> HandedOver:
        name = (job.idempotency_key or "").partition(":")[2]
        handed = self._handed[name] = self._by_job[job.id] = HandedOver(name, job.id)
        return handed

    def _stored(self, name: str) -> HandedOver | None:
        job = self._server.store.job_by_key(self._plane.tenant, self._key(name))
        return self._know(job) if job is not None else None

    async def _hand_over(self, gang: Gang) -> HandedOver:
        server, now = self._server, self._server.clock.now()
        named = parse_gang_name(gang.name)
        own = self._job_of(named.job_id) if named is not None else None
        manifest = JobManifest.model_validate(_manifest(gang, own))
        job = JobRecord(
            id=server.new_id("j"), tenant=self._plane.tenant, name=manifest.name, state=JobState.QUEUED, version=1,
            manifest=manifest.canonical_json(), resources=manifest.resources_per_rank(), ranks=len(gang.ranks),
            min_ranks=len(gang.ranks), priority_class=manifest.priority_class, priority=manifest.priority,
            submitted_at=now, updated_at=now, queued_at=now, expected_s=own.expected_s if own is not None else None,
            idempotency_key=self._key(gang.name), owner_id=self._plane.id,
        )  # fmt: skip
        event = NewEvent(
            now, "job.submitted", f"plane:{self._plane.name}", f"plane {self._plane.name} handed over {gang.name}",
            tenant=job.tenant, job_id=job.id, new_state=JobState.QUEUED,
        )  # fmt: skip
        handed = self._know(job)
        await self._planes.submit(self._plane, job, event)
        server.submitted(job)
        return handed

    def _running(self, name: str) -> str | None:
        """What a gang is called in the shared engine, if it may be running there."""
        handed = self._handed.get(name)
        live = self._server.job(handed.job_id) if handed is not None else None
        return gang_name(live.job.id, live.job.attempt, RUN) if live is not None and live.job.attempt else None

    def _there(self, name: str) -> str:
        """The same, also of one that is over. Raises NotFound."""
        handed = self._handed.get(name) or self._stored(name)
        if handed is None:
            raise NotFound(f"there is no gang {name}")
        live = self._server.job(handed.job_id)
        job = live.job if live is not None else self._server.store.job(handed.job_id)
        if job is None:
            raise NotFound(f"there is no gang {name}")
        return gang_name(job.id, max(1, job.attempt), RUN)

    def _status(self, handed: HandedOver) -> GangStatus:
        live = self._server.job(handed.job_id)
        if live is not None:
            return self._status_of_live(handed, live)
        job = self._server.store.job(handed.job_id)
        attempts = self._server.store.attempts(handed.job_id) if job is not None else []
        if job is None:
            lost = Exit(lost=True, detail="the shared server does not know it any more")
            return GangStatus(handed.name, Phase.ENDED, (RankStatus(0, Phase.ENDED, exit=lost),))
        return self._ended(handed.name, job, attempts[-1] if attempts else None)

    def _status_of_live(self, handed: HandedOver, live: LiveJob) -> GangStatus:
        job, attempt = live.job, live.attempt
        if job.state is JobState.QUEUED and attempt is not None and attempt.running_at is not None:
            # It was preempted above. Whether and when to try again is for the plane to say.
            return self._ended(handed.name, job, attempt, taken_back=True)
        phase = _PHASES.get(job.state, Phase.STARTING)
        if phase is Phase.QUEUED:
            ranks = tuple(RankStatus(rank, phase) for rank in range(job.ranks))
            return GangStatus(handed.name, phase, ranks, live.wait or _QUEUED_THERE)
        facts = attempt.ranks if attempt is not None and phase is Phase.RUNNING else ()
        ranks = tuple(
            RankStatus(fact["rank"], phase, self._hidden(fact["node"]), fact["pid"], fact["started_at"])
            for fact in facts
        )
        return GangStatus(handed.name, phase, ranks or tuple(RankStatus(rank, phase) for rank in range(job.ranks)))

    def _ended(
        self, name: str, job: JobRecord, attempt: AttemptRecord | None, *, taken_back: bool = False
    ) -> GangStatus:
        if attempt is None or attempt.running_at is None:
            never = Exit(stopped=True, detail="not started")
            ranks = tuple(RankStatus(rank, Phase.ENDED, exit=never) for rank in range(job.ranks))
            stopped = job.state is JobState.CANCELLED
            code = job.error_code or ErrorCode.LAUNCH
            reason = Reason("stopped" if stopped else str(code), job.message)
            return GangStatus(name, Phase.ENDED, ranks, reason, None if stopped else code.fault)
        return GangStatus(
            name, Phase.ENDED, tuple(self._ended_rank(fact, job, attempt, taken_back) for fact in attempt.ranks),
            Reason("ended", attempt.message),
        )  # fmt: skip

    def _ended_rank(
        self, fact: Mapping[str, Any], job: JobRecord, attempt: AttemptRecord, taken_back: bool
    ) -> RankStatus:
        if taken_back:
            exit_ = Exit(lost=True, detail=_TAKEN_BACK)
        else:
            exit_ = Exit(
                code=fact["exit_code"], signal=fact["signal"], lost=fact["lost"], stopped=fact["stopped"],
                node_lost=attempt.error_code is ErrorCode.NODE_LOST,
                oom=attempt.error_code is ErrorCode.OUT_OF_MEMORY and fact["signal"] is not None,
                limit="above" if attempt.error_code is ErrorCode.OVER_LIMIT else "",
                detail=_detail(attempt),
            )  # fmt: skip
        node = self._hidden(fact["node"])
        ended_at = fact["ended_at"] or attempt.ended_at or job.updated_at
        return RankStatus(fact["rank"], Phase.ENDED, node, fact["pid"], fact["started_at"], ended_at, exit_)

    def _hidden(self, node: str) -> str:
        """Another name for a machine, the same for the same one within a plane."""
        key = self._server.derive_secret(f"plane-node:{self._plane.id}")
        return "node-" + hashlib.blake2b(node.encode(), key=key.encode()[:64], digest_size=4).hexdigest()


def _detail(attempt: AttemptRecord) -> str:
    """What an exit's detail was there, as far as it cannot be told from the exit itself."""
    if attempt.error_code is ErrorCode.COMMAND_NOT_FOUND:
        return "could not be executed"
    if attempt.error_code in (ErrorCode.OVER_LIMIT, ErrorCode.RANK_LOST, ErrorCode.NODE_LOST):
        return attempt.message.partition(": ")[2] or attempt.message
    return ""


def _manifest(gang: Gang, own: JobRecord | None) -> dict[str, Any]:
    """What the shared server needs to know to place it. Its command is for the record alone."""
    kinds = wanted(gang.ranks[0])
    kind, count = next(iter(kinds.items()), ("any", 0))
    return {
        "name": own.name if own is not None else "gang",
        "command": ["handed-over", gang.name],
        "resources": {
            "accelerators": {"type": kind, "count": count}, "cpus": gang.cpu_milli / 1000,
            "memory": gang.memory_bytes or None,
        },
        "ranks": len(gang.ranks),
        "priority_class": own.priority_class if own is not None else "best-effort",
        "priority": own.priority if own is not None else 0,
        "restart": {"limits": {"user": 0, "platform": 100, "infrastructure": 0}},
        "grace": gang.grace_s,
    }  # fmt: skip
