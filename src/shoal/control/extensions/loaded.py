"""The installed extensions as the server uses them: built from their settings, opened and closed in order, asked in
turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog
from pydantic import ValidationError

from shoal.admission import Decision, Explanation, Snapshot
from shoal.base.http import Limits as HttpLimits
from shoal.base.loops import Defects
from shoal.base.validation import problems
from shoal.contract.gangs import Move
from shoal.contract.lifecycle import Desired
from shoal.contract.manifest import JobManifest, parse_stored
from shoal.contract.pages import Page
from shoal.contract.records import AttemptRecord, Change, JobRecord, NewEvent, TenantRecord
from shoal.control.attempts.phases import inputs_of
from shoal.control.extensions.answers import Answers
from shoal.control.extensions.checks import check_files
from shoal.control.extensions.deciding import Decisions
from shoal.control.extensions.supervision import Supervisor
from shoal.control.jobs import transitions
from shoal.control.jobs.cache import JobCache, Live
from shoal.control.jobs.repository import JobRepository
from shoal.control.sandboxes import check_sources
from shoal.control.tenants import Tenants
from shoal.core import (
    Affinity,
    Capability,
    Clock,
    Estimate,
    FinishTimes,
    Invalid,
    KillCauses,
    NeededBundles,
    Node,
    NodeOffers,
    NodesToCome,
    PriorityClass,
    Reason,
    Sandbox,
)
from shoal.engine import Engine, Gang
from shoal.extension import Beside, Extension, LiveJob, Manifest, Section, Server
from shoal.store import Store

NOT_IN_PLANES = "leave it out, or use the shared server"

E = TypeVar("E", bound=Extension)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Chosen:
    """An extension that is installed, and its section of the settings. `here` is false in a plane, for what only the
    shared server has."""

    kind: type[Extension]
    settings: Section
    here: bool = True


class Jobs(Protocol):
    """What the control plane does with jobs."""

    async def explain(self, job_id: str) -> Explanation: ...

    def complete(self, manifest: Manifest, *, tenant: str) -> Manifest: ...

    async def remarks(self, job: JobRecord, secrets: Mapping[str, str]) -> Sequence[Reason]: ...

    async def check(self, manifest: JobManifest, *, tenant: str) -> Sequence[Reason]: ...

    async def submit(
        self, manifest: JobManifest, *, tenant: str, actor: str, idempotency_key: str | None = None,
        beside: Beside | None = None,
    ) -> tuple[JobRecord, bool]: ...  # fmt: skip


@dataclass(frozen=True, slots=True)
class Facilities:
    """What the control plane offers its extensions: see `shoal.extension.Server`."""

    home: Path
    cache: JobCache
    known_tenants: Tenants
    extensions: Extensions
    wake: Callable[[], None]
    repository: JobRepository
    engine: Engine
    jobs: Jobs
    new_id: Callable[[str], str]
    derive_secret: Callable[[str], str]
    resolve: Callable[[str, Mapping[str, str]], Mapping[str, str]]
    on_fatal: Callable[[BaseException], None]
    plane: str | None = None
    any_port: bool = False
    http_limits: HttpLimits = field(default_factory=HttpLimits)

    @property
    def clock(self) -> Clock:
        return self.repository.clock

    @property
    def store(self) -> Store:
        return self.repository.store

    def job(self, job_id: str) -> Live | None:
        return self.cache.get(job_id)

    def active_jobs(self) -> Iterable[Live]:
        return self.cache.active()

    def tenants(self) -> Mapping[str, TenantRecord]:
        return self.known_tenants.records

    def chosen(self) -> Sequence[tuple[type[Extension], Section]]:
        return [(one.kind, one.settings) for one in self.extensions.all]

    def sandbox(self, tenant: str) -> Sandbox:
        return self.known_tenants.sandbox(tenant)

    def ask(self, question: type[T]) -> T | None:
        return next(iter(self.ask_all(question)), None)

    def ask_all(self, question: type[T]) -> Sequence[T]:
        return self.extensions.answers.to(question)

    def snapshot(self) -> Snapshot:
        return self.cache.index.snapshot(self.clock.now())

    async def explain(self, job_id: str) -> Explanation:
        return await self.jobs.explain(job_id)

    def check_class(self, tenant: str, priority_class: PriorityClass, what: str) -> None:
        self.known_tenants.check_class(tenant, priority_class, what)

    def check_files(self, tenant: str, bundle: str | None, left: tuple[str, ...], command: str) -> None:
        check_files(self.store, tenant, bundle, left, command)

    def complete(self, manifest: Manifest, *, tenant: str) -> Manifest:
        return self.jobs.complete(manifest, tenant=tenant)

    async def remarks(self, job: JobRecord, secrets: Mapping[str, str]) -> Sequence[Reason]:
        return await self.jobs.remarks(job, secrets)

    async def check(self, manifest: JobManifest, *, tenant: str) -> Sequence[Reason]:
        return await self.jobs.check(manifest, tenant=tenant)

    async def submit(
        self, manifest: JobManifest, *, tenant: str, actor: str, key: str, beside: Beside | None = None
    ) -> tuple[JobRecord, bool]:
        return await self.jobs.submit(manifest, tenant=tenant, actor=actor, idempotency_key=key, beside=beside)

    def secrets(self, job: LiveJob) -> Mapping[str, str]:
        return self.resolve(job.job.tenant, job.manifest.secrets)

    def submitted(self, job: JobRecord, manifest: JobManifest | None = None, first: NewEvent | None = None) -> None:
        self.cache.added(job, manifest=manifest, submission=first)

    async def cancel(self, job_id: str, *, actor: str, cause: str) -> None:
        def step(job: JobRecord, attempt: AttemptRecord | None) -> Change | None:
            if job.desired is Desired.CANCEL:
                return None
            return transitions.cancel(job, attempt, self.clock.now(), actor, cause)

        with suppress(transitions.JobOver):
            await self.repository.change(job_id, step)

    def owned(self, owner_id: str) -> Iterable[Live]:
        return self.cache.owned(owner_id)

    def owners(self) -> Iterable[str]:
        return self.cache.owners()

    def fault(self, point: str) -> None:
        self.repository.fault(point)


class Extensions:
    """Those that are on, in the order of their names; none before `join`. `off` are installed and not on, `elsewhere`
    are in the shared server only."""

    def __init__(self, chosen: Sequence[Chosen]) -> None:
        self.all = tuple(chosen)
        here = [one for one in chosen if one.here]
        self.off = tuple(one.kind for one in here if not one.settings.enabled)
        self.elsewhere = tuple(one.kind for one in chosen if not one.here)
        self._chosen = tuple(one for one in here if one.settings.enabled)
        self._on: tuple[Extension, ...] = ()
        self._own: dict[str, tuple[Extension, ...]] = {}
        self._defects = Defects(structlog.get_logger("shoal.extensions"))
        self._decisions = Decisions((), lambda _: None)
        self._home = Path()
        self.answers = Answers(())
        self._opened: list[Extension] = []
        self._loops: list[Supervisor] = []
        self._unfollow: list[Callable[[], None]] = []

    def join(self, server: Server) -> None:
        """Build them, each with the server that it is an extension of."""
        self._on = tuple(one.kind(server, one.settings) for one in self._chosen)
        self._own.clear()
        self._decisions = Decisions(self._on, server.job)
        self._home = server.home
        self.answers = Answers(self._on)

    def __iter__(self) -> Iterator[Extension]:
        return iter(self._on)

    def get(self, kind: type[E]) -> E | None:
        """The one of this class, if it is on."""
        return next((one for one in self._on if isinstance(one, kind)), None)

    async def open(self, store: Store, on_fatal: Callable[[BaseException], None]) -> None:
        for one in self._on:
            if type(one).committed is not Extension.committed:
                self._unfollow.append(store.subscribe(one.committed))
            await one.open()
            self._opened.append(one)
            for loop in one.loops():
                self._loops.append(Supervisor(one.name, loop, on_fatal))
                self._loops[-1].open()

    async def close(self) -> None:
        """In the opposite order."""
        while self._unfollow:
            self._unfollow.pop()()
        while self._loops:
            await self._loops.pop().close()
        while self._opened:
            await self._opened.pop().close()

    # --- asked in turn ---

    def decide(self, snapshot: Snapshot) -> Decision:
        """One decision of what all say: `Decisions.decide`."""
        return self._decisions.decide(snapshot)

    def affinity(self, job: Live) -> Affinity:
        """On which nodes a job may be: `Decisions.affinity`."""
        return self._decisions.affinity(job)

    def without_held(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot without the jobs that extensions hold, the others off the nodes that these keep them off."""
        return self._decisions.visible(snapshot, self._decisions.held(snapshot))

    def idle(self) -> bool:
        return all(one.idle() for one in self._on)

    def _with(self, hook: str) -> tuple[Extension, ...]:
        """Those that have this hook. It is called for each job; most have it as the seam does, which does nothing."""
        if (found := self._own.get(hook)) is None:
            usual = getattr(Extension, hook)
            found = self._own[hook] = tuple(one for one in self._on if getattr(type(one), hook) is not usual)
        return found

    def counts_waiting(self) -> bool:
        return any(one.counts_waiting() for one in self._with("counts_waiting"))

    def decided(self) -> None:
        for one in self._on:
            one.decided()

    async def explain(
        self, snapshot: Snapshot, job: Live, usual: Callable[[], Awaitable[Explanation]], where: str
    ) -> Explanation:
        """As `Decisions.explain`."""
        return await self._decisions.explain(snapshot, job, usual, where)

    def offer(self, node: Node) -> Node:
        for one in self.answers.to(NodeOffers):
            node = self.answers.given(partial(one.offered, node), NodeOffers) or node
        return node

    @property
    def staging(self) -> list[Extension]:
        """Those that stage something."""
        return [one for one in self._on if type(one).stage is not Extension.stage]

    def inputs(self, job: Live) -> Sequence[Move]:
        """How the job's inputs are fetched. One that raises changes nothing: a copy of each is always right."""
        moves: Sequence[Move] = inputs_of(job.manifest)
        for one in self._on:
            found = self.answers.given(partial(one.inputs, job, moves), Extension)
            moves = moves if found is None else found
        return moves

    def prepare(self, job: Live, gang: Gang) -> Gang:
        for one in self._with("prepare"):
            prepared = one.prepare(job, gang)
            if prepared is gang:
                continue
            if added := [mount for mount in prepared.mounts if mount not in gang.mounts]:
                check_sources(added, [self._home / one.name, *one.mount_roots()], one.name)
            gang = prepared
        enter = tuple(word for one in self._with("enter") for word in one.enter(job, gang))
        attend = tuple(word for one in self._with("attend") for word in one.attend(job, gang))
        if not enter and not attend:
            return gang
        return replace(gang, argv=(*attend, *enter, *gang.argv), enter=(*enter, *gang.enter))

    def delegated(self, job: Live) -> bool:
        return job.job.owner_id is not None and any(one.delegated(job) for one in self._with("delegated"))

    def killed(self, job: Live) -> str | None:
        return self.answers.first(KillCauses, lambda one: one.kill_cause(job.job.id))

    def moved(self, job: Live) -> None:
        for one in self._with("moved"):
            one.moved(job)

    def reported(self, job: Live) -> None:
        for one in self._with("reported"):
            one.reported(job)

    def finish(self, job: Live, progress: Mapping[str, Any]) -> Estimate | None:
        return self.answers.first(FinishTimes, lambda one: one.finish_at(job.job.id, progress))

    def coming_obstacles(self, job: JobRecord) -> Sequence[Reason] | None:
        """Why no node can come for a job, where nodes come for such jobs; None where none do."""
        asked = self.answers.to(NodesToCome) and '"extensions"' in job.manifest  # few jobs' manifests need to be read
        sections = parse_stored(job.manifest, source=job.id).extensions if asked else {}
        if not sections:
            return None
        return self.answers.first(NodesToCome, lambda one: one.obstacles(sections, job.resources, job.min_ranks))

    def bundles(self) -> Iterator[tuple[str, str]]:
        for one in self.answers.to(NeededBundles):
            yield from one.needed_bundles()

    def capabilities(self) -> Iterator[Capability]:
        for one in self._on:
            yield from one.capabilities()
        for kind in self.off:
            yield from kind.off()
        yield from self._decisions.capabilities()
        for loop in self._loops:
            yield from loop.capabilities()

    def pages(self, tenant: str | None) -> dict[str, Page]:
        """What each shows to this tenant's people, or to an admin."""
        found: dict[str, Page] = {}
        for one in self._on:
            try:
                page = one.page(tenant)
            except Exception as error:  # of one component: the others' pages are shown
                self._defects.note("a page could not be made", error, extension=one.name)
                continue
            if page is not None:
                found[one.name] = page
        return found

    def check_sections(self, manifest: JobManifest) -> None:
        """Raises Invalid for a section of a manifest that no extension here takes or accepts, or that is wrong."""
        if not manifest.extensions:
            return
        on = {one.name: one for one in self._on}
        kinds = {name: type(one) for name, one in on.items()}
        for name, values in manifest.extensions.items():
            kind = kinds.get(name)
            if name in {one.name for one in self.elsewhere}:
                raise Invalid(f"{name} is not in planes", where=f"extensions.{name}", hint=NOT_IN_PLANES)
            if kind is None or kind.manifest is None:
                known = ", ".join(sorted(one.name for one in self._on if one.manifest is not None)) or "none here"
                raise Invalid(f"there is no extension {name!r}", where=f"extensions.{name}", hint=f"known: {known}")
            try:
                kind.manifest.model_validate(values, context=manifest)
            except ValidationError as error:
                wrong = problems(error)[0]
                where = f"extensions.{name}.{wrong.where}" if wrong.where else f"extensions.{name}"
                raise Invalid(wrong.what, where=where) from None
            on[name].accept(manifest)
