"""The control plane: store, engine, admission and the loops, put together behind the methods that every door uses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from shoal.admission import (
    ClusterIndex,
    Explanation,
    NodeState,
    Snapshot,
    TenantState,
)
from shoal.base.files import file_system_room, free_bytes
from shoal.base.loops import Loop
from shoal.contract.events import EventKind
from shoal.contract.gangs import RUN, gang_name
from shoal.contract.ids import Ids
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import AttemptRecord, BundleRecord, Change, JobRecord, NewEvent, TenantRecord
from shoal.control.attempts.collector import Collector
from shoal.control.attempts.phases import Layout
from shoal.control.attempts.reconciler import Reconciler
from shoal.control.attempts.results import FileEntry, FilePiece, Results
from shoal.control.attempts.runner import AttemptRunner
from shoal.control.attempts.staging import Staging
from shoal.control.extensions.checks import check_deadline, check_files
from shoal.control.extensions.decider import Decider
from shoal.control.extensions.loaded import Chosen, Extensions, Facilities
from shoal.control.home.bundles import Bundles
from shoal.control.home.garbage import GarbageCollector
from shoal.control.home.locations import require_outside
from shoal.control.home.vault import Secrets, Vault
from shoal.control.jobs import arrays, transitions
from shoal.control.jobs.cache import JobCache, Live, affinity_of
from shoal.control.jobs.explaining import Explainer, Obstacles, where_it_is
from shoal.control.jobs.memory_use import LOADED, MemoryUse, with_default
from shoal.control.jobs.repository import JobRepository
from shoal.control.limits import complete, rank_limits
from shoal.control.nodes import NodeWatch
from shoal.control.plane_settings import PlaneSettings
from shoal.control.sandboxes import require_apart, sandboxed
from shoal.control.tenants import Tenants
from shoal.core import (
    Capability,
    Clock,
    Conflict,
    DiskFull,
    Fault,
    Invalid,
    NotFound,
    Overloaded,
    Quota,
    Reason,
    Sandbox,
    SystemClock,
    Tenant,
)
from shoal.engine import Engine, Gang, LaunchFailed, LogChunk, LogTimes
from shoal.extension import Beside, Manifest
from shoal.store import Store

log = structlog.get_logger("shoal.plane")

_LEAST_ROOM_BYTES = 64 << 10
"""With less than this the database cannot keep a change."""


class ControlPlane:
    """Open it after the store's control lease was acquired. `on_fatal` is called once when the plane cannot go on
    (the lease was lost); the server then exits, and running work goes on without it."""

    def __init__(
        self, store: Store, engine: Engine, home: Path, settings: PlaneSettings | None = None, *,
        clock: Clock | None = None,
        extensions: Sequence[Chosen] = (),
        least_sandbox: Callable[[], Sandbox] = lambda: Sandbox.NONE,
        on_fatal: Callable[[BaseException], None] = lambda _: None,
        fault: Callable[[str], None] | None = None,
        new_id: Callable[[str], str] | None = None,
    ) -> None:  # fmt: skip
        settings = settings or PlaneSettings()
        self.store = store
        self.engine = engine
        self.home = home
        self.settings = settings
        self.clock = clock or SystemClock()
        self.ready = False
        self.recovery_s = 0.0
        self._layout = Layout(home, rank_limits(settings.jobs, *file_system_room(home)))
        self._results = Results(self._layout)
        self._vault = Vault(home / "secret.key")
        self.secrets = Secrets(store, self.clock, self._vault)
        self.tenants = Tenants(
            store, self.clock, engine, least_sandbox=least_sandbox, changed=self._tenant_changed,
            inner=settings.outermost is not None,
        )  # fmt: skip
        self._new_id = new_id or Ids(self.clock).new
        self._bundles = Bundles(store, self.clock, home / "bundles", settings.bundles)
        self._opened_at = self.clock.now()
        self._capabilities: tuple[Capability, ...] = ()
        self._on_fatal = on_fatal
        self.extensions = Extensions(extensions)
        self.cache = JobCache(
            ClusterIndex(settings.policy), lambda: self.decider.wake(), self.extensions.offer, store.ends,
            self.extensions.moved, self.extensions.counts_waiting, self.extensions.affinity,
        )  # fmt: skip
        self.repository = JobRepository(store, self.cache, self.clock, fault)
        self._memory_use = MemoryUse()
        self._explainer = Explainer(lambda: self.extensions.without_held(self.snapshot()), self.clock)
        self._obstacles = Obstacles()
        self.collector = Collector(
            self.repository, engine, every_s=settings.collect_every_s, reported=self.extensions.reported,
            finish=self.extensions.finish,
        )  # fmt: skip
        self.runner = AttemptRunner(
            self.repository, engine, self._layout,
            secrets=lambda live: self.secrets.resolve(live.job.tenant, live.manifest.secrets),
            prepare=self._prepare, drain=self.collector.drain, killed=self.extensions.killed,
            delegated=self.extensions.delegated, inputs=self.extensions.inputs,
            staging=Staging(lambda: self.extensions.staging), epoch=store.epoch, on_fatal=on_fatal,
            ended=self._memory_use.ended,
        )  # fmt: skip
        self.decider = Decider(
            self.repository, epoch=store.epoch, started=self.runner.take, on_fatal=on_fatal,
            policy=self.extensions.decide, decided=self.extensions.decided, put_off=settings.plane is not None,
        )  # fmt: skip
        self.reconciler = Reconciler(
            self.repository, engine, self.runner, on_fatal=on_fatal, every_s=settings.reconcile_every_s
        )
        self.node_watch = NodeWatch(self.repository, engine, self.runner, on_fatal=on_fatal)
        self.extensions.join(Facilities(
            home=home, cache=self.cache, known_tenants=self.tenants, extensions=self.extensions,
            wake=self.decider.wake_from_thread, repository=self.repository, engine=engine, jobs=self,
            new_id=self._new_id, derive_secret=self._vault.derive, on_fatal=on_fatal,
            resolve=self.secrets.resolve, plane=settings.plane, any_port=settings.any_port, http_limits=settings.http,
        ))  # fmt: skip
        self.garbage = GarbageCollector(
            self.repository, engine, self._layout, self._bundles, used=self.extensions.bundles,
            retention=settings.retention, on_fatal=on_fatal,
        )  # fmt: skip

    async def open(self) -> None:
        """Reconcile with what the store and the engine hold, then start the loops. Running work is adopted."""
        began = self.clock.monotonic()
        await self.engine.open()
        self.tenants.open()
        self._capabilities = self.engine.capabilities()
        jobs = self.store.unfinished_jobs()
        active = [job.id for job in jobs if job.state.active]
        self.cache.drained.update(self.store.drained_nodes())
        self.cache.load(
            jobs, self.store.current_attempts(active), [record.as_tenant() for record in self.tenants.records.values()],
            await self.engine.inventory(),
        )  # fmt: skip
        self._memory_use.load(self.store.last_ends(LOADED))
        self.runner.open()
        for job_id in active:
            self.runner.take(job_id)
        self.decider.open()
        self.reconciler.open()
        self.node_watch.open()
        self.collector.open()
        self.garbage.open()
        await self.extensions.open(self.store, self._on_fatal)
        self.recovery_s = self.clock.monotonic() - began
        await self.store.record(
            [NewEvent(self.clock.now(), EventKind.CONTROL_OPENED, "server", "the control plane is open",
                      data={"epoch": self.store.epoch, "adopted": len(active), "unfinished": len(jobs),
                            "reconcile_s": round(self.recovery_s, 4)})]
        )  # fmt: skip
        self.ready = True

    @property
    def loops(self) -> tuple[Loop, ...]:
        """In the order in which they are to be closed."""
        return (
            self.decider,
            self.extensions,
            self.reconciler,
            self.node_watch,
            self.collector,
            self.garbage,
            self.runner,
        )

    async def close(self) -> None:
        """Stop the loops. Running work goes on and is adopted by the next server."""
        self.ready = False
        for loop in self.loops:
            await loop.close()
        await self.engine.close()

    # --- jobs ---

    async def submit(
        self, manifest: JobManifest, *, tenant: str, actor: str, idempotency_key: str | None = None,
        beside: Beside | None = None,
    ) -> tuple[JobRecord, bool]:  # fmt: skip
        """Accept a job: durable when this returns. The flag is False when the key had been used for this very
        manifest before: then the earlier job is returned. `beside` is stored with a new one, or not at all."""
        given = manifest
        manifest = self.complete(given, tenant=tenant)
        job = self._new_job(manifest, tenant, idempotency_key, given)
        try:
            check_deadline(job.deadline_at, job.submitted_at)
            self._check_tenant(manifest, tenant)
            self.extensions.check_sections(manifest)
            manifest = arrays.resolve(manifest, tenant, self.store, self.cache)
        except (Invalid, Overloaded, NotFound, Conflict):
            earlier = self.store.job_by_key(tenant, idempotency_key) if idempotency_key else None
            if earlier is None or earlier.fingerprint != job.fingerprint:
                raise
            return earlier, False
        if manifest.after:
            job = job.evolve(manifest=manifest.canonical_json())
        array, tasks = arrays.tasks_of(job, manifest)
        events = arrays.submitted(tasks, actor)
        with self.cache.held.claimed(manifest.after):
            await self._bundles.use(tenant, manifest.bundle)
            with self.repository.writing:
                stored = await arrays.store_all(self.store, array, tasks, events, beside)
            created = stored.id == tasks[0].id
            if created:
                for task in tasks:
                    self.cache.added(task, manifest=manifest)
        return stored, created

    def complete(self, manifest: Manifest, *, tenant: str) -> Manifest:
        """The manifest as it would be stored: with defaults for the resources that it leaves out."""
        record = self.tenants.records.get(tenant)
        quota = record.quota if record is not None else Quota()
        nodes = (kind.capacity for kind, _ in self.cache.index.layout.kinds)
        return complete(manifest, self.settings.jobs, quota, nodes, self._memory_use.of(tenant, manifest))

    def _new_job(
        self, manifest: JobManifest, tenant: str, idempotency_key: str | None, given: JobManifest
    ) -> JobRecord:  # fmt: skip
        """The fingerprint tells whether a key was used again for the same; it is of what was `given`, so that repeating
        a submission is that after a default was changed."""
        now, text = self.clock.now(), manifest.canonical_json()
        fingerprint = "" if idempotency_key is None else given.fingerprint(text if given is manifest else None)
        return JobRecord(
            id=self._new_id("j"), tenant=tenant, name=manifest.name, state=JobState.QUEUED, version=1,
            manifest=text,
            resources=manifest.resources_per_rank(), ranks=manifest.max_ranks,
            min_ranks=manifest.min_ranks, priority_class=manifest.priority_class,
            priority=manifest.priority, submitted_at=now, updated_at=now, queued_at=now,
            deadline_at=manifest.deadline_at(now), expected_s=manifest.expected_runtime_s,
            idempotency_key=idempotency_key, fingerprint=fingerprint,
        )  # fmt: skip

    def _check_tenant(self, manifest: JobManifest, tenant: str) -> None:
        record = self.tenants.check_class(tenant, manifest.priority_class, "jobs")
        require_apart(manifest.network, self.tenants.sandbox(tenant))
        require_outside(manifest, self.settings.outermost or self.home)
        count = 1 if manifest.tasks is None else len(manifest.tasks.indices)
        arrays.check_queue(tenant, record.quota.queued_jobs, self.cache.queued(tenant), count)
        disk, used = record.quota.disk_bytes, self.garbage.usage.get(tenant, 0)
        if disk is not None and used > disk:
            raise Overloaded(
                f"the files of tenant {tenant} take {used >> 20} MiB, over its quota of {disk >> 20}",
                where="quota.disk_bytes", hint="ask for a higher quota, or wait: what is old is removed (`shoal gc`)",
            )  # fmt: skip
        check_files(self.store, tenant, manifest.bundle, manifest.files, "shoal submit")

    async def check(self, manifest: JobManifest, *, tenant: str) -> list[Reason]:
        """What would be wrong with this job here, without submitting it: raises as `submit` does, returns warnings."""
        job = self._new_job(self.complete(manifest, tenant=tenant), tenant, None, manifest)
        check_deadline(job.deadline_at, job.submitted_at)
        self._check_tenant(manifest, tenant)
        self.extensions.check_sections(manifest)
        missing = arrays.missing(manifest, tenant, self.store, self.cache)
        return missing + await self.remarks(job, manifest.secrets)

    def obstacles(self, job: JobRecord) -> list[Reason]:
        """Why this job can never start as nodes and quotas are."""
        if (coming := self.extensions.coming_obstacles(job)) is not None:
            return list(coming)
        tenant, layout = self.tenants.as_tenant(job.tenant), self.cache.index.layout
        return self._obstacles.find(layout, tenant, job.resources, job.min_ranks, affinity_of(job))

    async def remarks(self, job: JobRecord, secrets: Mapping[str, str]) -> list[Reason]:
        """What would keep this job from starting here, if it were submitted now."""
        return self.obstacles(job) + self.secrets.missing(job.tenant, secrets.values())

    def job(self, job_id: str) -> JobRecord:
        live = self.cache.get(job_id)
        job = live.job if live is not None else self.store.job(job_id)
        if job is None:
            raise NotFound(f"no job {job_id}", where=job_id, hint="`shoal jobs` lists them")
        why = self.cache.held.why(job_id) or (live.staging if live is not None else None)
        return job if why is None else job.evolve(reason=why.as_json())

    def run_dir(self, job: JobRecord) -> Path | None:
        """Where its newest attempt runs or ran, below the home; None before the first."""
        return self._layout.run_dir(job.id, job.attempt).relative_to(self.home) if job.attempt else None

    async def files(self, job_id: str, path: str, **options: Any) -> tuple[list[FileEntry], str | None]:
        """As `Results.entries`."""
        return await asyncio.to_thread(self._results.entries, self.job(job_id), path, **options)

    async def file(self, job_id: str, path: str, **options: Any) -> FilePiece:
        """As `Results.read`."""
        return await asyncio.to_thread(self._results.read, self.job(job_id), path, **options)

    async def cancel(self, job_id: str, *, actor: str, cause: str = "") -> JobRecord:
        """Asks for the end of a job; it is CANCELLED at once when it waits, else after its processes ended."""
        cause = cause or f"cancelled by {actor}"

        def step(job: JobRecord, attempt: AttemptRecord | None) -> Change | None:
            return transitions.cancel(job, attempt, self.clock.now(), actor, cause)

        return await self._change(job_id, step, already=JobState.CANCELLED)

    async def suspend(self, job_id: str, *, actor: str, cause: str = "") -> JobRecord:
        """Asks a job to checkpoint and pause until `resume`."""
        cause = cause or f"suspended by {actor}"

        def step(job: JobRecord, attempt: AttemptRecord | None) -> Change | None:
            if job.state is JobState.SUSPENDED:
                return None
            if job.owner_id is not None:
                raise Conflict(f"this job belongs to {job.owner_id} and cannot be suspended by itself", where=job.id,
                               hint="for a service's replica: `shoal scale SERVICE 0`")  # fmt: skip
            return transitions.suspend(job, attempt, self.clock.now(), actor, cause)

        return await self._change(job_id, step)

    async def resume(self, job_id: str, *, actor: str, cause: str = "") -> JobRecord:
        cause = cause or f"resumed by {actor}"
        return await self._change(job_id, lambda job, _: transitions.resume(job, self.clock.now(), actor, cause))

    async def _change(self, job_id: str, step: Any, *, already: JobState | None = None) -> JobRecord:
        try:
            return await self.repository.change(job_id, step)
        except transitions.JobOver as over:
            if over.job.state is already:
                return over.job
            raise

    async def explain(self, job_id: str) -> Explanation:
        """Why a job waits; for one that does not, a summary of where it is."""
        job = self.job(job_id)
        live = self.cache.get(job_id)
        if (held := self.cache.held.explain(job_id)) is not None:
            return held

        async def usual() -> Explanation:
            if job.state is JobState.QUEUED and (found := await self._explainer.explain([job_id])):
                return found[0] if live is None else with_default(found[0], live.manifest)
            return where_it_is(self.job(job_id), live)

        if live is None:
            return await usual()
        where = "" if job.state is JobState.QUEUED else (await usual()).summary
        return await self.extensions.explain(self.snapshot(), live, usual, where)

    async def logs(
        self, job_id: str, *, rank: int = 0, attempt: int | None = None, phase: str = RUN, offset: int = 0,
        limit: int = 65536,
    ) -> LogChunk:  # fmt: skip
        job, number = self._attempt(job_id, rank, attempt)
        over = job.state.terminal or number < job.attempt or not job.state.active
        try:
            chunk = await self.engine.read(gang_name(job_id, number, phase), rank, "log", offset, limit)
        except NotFound:
            chunk = LogChunk(b"", max(0, offset), max(0, offset), ended=False)
        # A stream ends when nothing more can come of this attempt; a queued job may still get another.
        return replace(chunk, ended=over and not chunk.data and (number < job.attempt or job.state.terminal))

    async def log_times(self, job_id: str, *, rank: int = 0, attempt: int | None = None) -> LogTimes:
        _, number = self._attempt(job_id, rank, attempt)
        try:
            return await self.engine.log_times(gang_name(job_id, number, RUN), rank)
        except NotFound:
            return ()

    def _attempt(self, job_id: str, rank: int, attempt: int | None) -> tuple[JobRecord, int]:
        """The job, and the attempt's number (default: the current one). Raises NotFound."""
        job = self.job(job_id)
        number = job.attempt if attempt is None else attempt
        if not 0 <= rank < job.ranks:
            raise NotFound(f"job {job_id} has no rank {rank}", where="rank", hint=f"ranks are 0 to {job.ranks - 1}")
        if not 0 <= number <= job.attempt:
            raise NotFound(f"job {job_id} has no attempt {number}", where="attempt", hint=f"the last is {job.attempt}")
        return job, number

    # --- tenants and their files ---

    async def put_tenant(self, name: str, *, actor: str, **settings: Any) -> TenantRecord:
        """Create a tenant, or change it; `settings` are fields of its record."""
        act = self.tenants.change if name in self.tenants.records else self.tenants.create
        return await act(name, actor=actor, **settings)

    def _tenant_changed(self, tenant: Tenant) -> None:
        self.cache.index.set_tenant(tenant)
        self.decider.wake()

    def _prepare(self, live: Live, gang: Gang) -> Gang:
        tenant = live.job.tenant
        try:
            require_outside(live.manifest, self.settings.outermost or self.home)  # links may have changed since
        except Invalid as problem:
            raise LaunchFailed(problem.what, fault=Fault.USER, where=problem.where, hint=problem.hint) from problem
        return sandboxed(self.extensions.prepare(live, gang), tenant, self.tenants.sandbox(tenant), self.engine)

    async def add_bundle(self, chunks: AsyncIterator[bytes], *, tenant: str, actor: str) -> BundleRecord:
        """Raises as `Bundles.add`, and NotFound for an unknown tenant."""
        self.tenants.get(tenant)
        return await self._bundles.add(chunks, tenant=tenant, actor=actor)

    # --- the cluster ---

    def nodes(self) -> list[NodeState]:
        return list(self.snapshot().nodes.values())

    async def drain_node(self, name: str, *, actor: str, because: str = "") -> NodeState:
        """No new work goes to the node until `undrain_node`; what runs there goes on. Raises NotFound."""
        nodes = self.snapshot().nodes
        if name not in nodes:
            raise NotFound(f"no node {name}", where="name", hint="`shoal nodes` lists them")
        told = f"node {name} was drained{': ' + because if because else ''}"
        await self.store.drain_node(
            name, because, NewEvent(self.clock.now(), EventKind.NODE_DRAINED, actor, told, data={"node": name})
        )
        self.cache.drain(name, because)
        return self.snapshot().nodes[name]

    async def undrain_node(self, name: str, *, actor: str) -> None:
        """Raises NotFound for a node that is not drained; one that is gone may be."""
        told = NewEvent(self.clock.now(), EventKind.NODE_UNDRAINED, actor, f"node {name} is drained no more",
                        data={"node": name})  # fmt: skip
        if not await self.store.undrain_node(name, told):
            raise NotFound(f"node {name} is not drained", where="name", hint="`shoal nodes` shows which are")
        self.cache.drain(name, None)

    def tenants_state(self) -> list[TenantState]:
        return list(self.snapshot().tenants.values())

    def snapshot(self) -> Snapshot:
        """The cluster now, frozen. To be taken on the event loop; what is taken may go to any thread."""
        return self.cache.index.snapshot(self.clock.now())

    def _trouble(self) -> str | None:
        """Why nothing can be written now. A full disk is seen before a write fails, and its end before one does not."""
        room = free_bytes(self.home)
        if room < _LEAST_ROOM_BYTES:
            return f"the disk is full: {room >> 10} KiB are free for the server's home"
        failed = self.repository.writing.trouble
        over = isinstance(failed, DiskFull) and self.store.in_home
        return None if failed is None or over else failed.what

    def status(self, by_state: Mapping[tuple[str, JobState], int] | None = None) -> dict[str, Any]:
        """`by_state` is what `store.job_counts` told; it is asked if None."""
        trouble = self._trouble()
        counts: dict[str, int] = {}
        for (_, state), number in (self.store.job_counts() if by_state is None else by_state).items():
            counts[state] = counts.get(state, 0) + number
        return {
            "ready": self.ready and trouble is None,
            **({"last_write_failed": trouble} if trouble is not None else {}),
            "epoch": self.store.epoch,
            "uptime_s": round(self.clock.now() - self._opened_at, 3),
            "reconcile_s": round(self.recovery_s, 4),
            "engine": self.engine.name,
            "jobs": counts,
            "live": len(self.cache),
            "decisions": self.decider.cycles,
            "last_decision_s": round(self.decider.last_cycle_s, 6),
            "repaired": self.reconciler.repaired,
            "capabilities": [
                {"name": one.name, "available": one.available, "detail": one.detail, "consequence": one.consequence}
                for one in (*self.settings.missing, *self._capabilities, *self.extensions.capabilities())
            ],
        }
