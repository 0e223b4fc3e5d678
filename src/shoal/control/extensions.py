"""The installed extensions as the server uses them: built from their settings, opened and closed in order, asked in
turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from shoal.admission import Decision, Explanation, Snapshot
from shoal.base.http import Limits as HttpLimits
from shoal.base.validation import problems
from shoal.contract.lifecycle import Desired
from shoal.contract.manifest import JobManifest
from shoal.contract.records import AttemptRecord, Change, JobRecord, NewEvent, TenantRecord
from shoal.control import transitions
from shoal.control.checks import check_files
from shoal.control.job_cache import JobCache, Live
from shoal.control.job_repository import JobRepository
from shoal.control.tenants import Tenants
from shoal.core import Capability, Clock, Estimate, Invalid, Node, PriorityClass, Reason, Sandbox
from shoal.engine import Engine, Gang
from shoal.extension import Decide, Explain, Extension, LiveJob, Manifest, Section, Server
from shoal.store import Store

E = TypeVar("E", bound=Extension)


@dataclass(frozen=True, slots=True)
class Chosen:
    """An extension that is installed, and its section of the settings."""

    kind: type[Extension]
    settings: Section


class Jobs(Protocol):
    """What the control plane does with jobs."""

    async def explain(self, job_id: str) -> Explanation: ...

    def complete(self, manifest: Manifest, *, tenant: str) -> Manifest: ...

    async def remarks(self, job: JobRecord, secrets: Mapping[str, str]) -> Sequence[Reason]: ...


@dataclass(frozen=True, slots=True)
class Facilities:
    """What the control plane offers its extensions: see `shoal.extension.Server`."""

    home: Path
    cache: JobCache
    known_tenants: Tenants
    extensions: Callable[[], Iterable[Extension]]
    wake: Callable[[], None]
    repository: JobRepository
    engine: Engine
    jobs: Jobs
    new_id: Callable[[str], str]
    derive_secret: Callable[[str], str]
    on_fatal: Callable[[BaseException], None]
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

    def sandbox(self, tenant: str) -> Sandbox:
        return self.known_tenants.sandbox(tenant)

    def telemetry(self, job: JobRecord) -> Mapping[str, Any] | None:
        told = (one.telemetry(job) for one in self.extensions())
        return next((found for found in told if found is not None), None)

    def steps_per_s(self, job: str, kind: str, workers: int = 1) -> Estimate | None:
        told = (one.steps_per_s(job, kind, workers) for one in self.extensions())
        return next((found for found in told if found is not None), None)

    def sensed(self, job: LiveJob) -> Mapping[str, float]:
        return {name: value for one in self.extensions() for name, value in one.sensed(job).items()}

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
    """Those that are on, in the order of their names. `off` are installed and not on."""

    def __init__(self, chosen: Sequence[Chosen], server: Server) -> None:
        self.off = tuple(one.kind for one in chosen if not one.settings.enabled)
        self._on = tuple(one.kind(server, one.settings) for one in chosen if one.settings.enabled)
        self._opened: list[Extension] = []
        self._unfollow: list[Callable[[], None]] = []

    def __iter__(self) -> Iterator[Extension]:
        return iter(self._on)

    def get(self, kind: type[E]) -> E | None:
        """The one of this class, if it is on."""
        return next((one for one in self._on if isinstance(one, kind)), None)

    async def open(self, store: Store) -> None:
        for one in self._on:
            self._unfollow.append(store.subscribe(one.committed))
            await one.open()
            self._opened.append(one)

    async def close(self) -> None:
        """In the opposite order."""
        while self._unfollow:
            self._unfollow.pop()()
        while self._opened:
            await self._opened.pop().close()

    # --- asked in turn ---

    def decide(self, admit: Decide, snapshot: Snapshot) -> Decision:
        """The last extension is asked first; each may ask those before it, and these admission."""
        for one in self._on:
            admit = partial(_decide, one, admit)
        return admit(snapshot)

    def counts_waiting(self) -> bool:
        return any(one.counts_waiting() for one in self._on)

    def decided(self) -> None:
        for one in self._on:
            one.decided()

    async def explain(self, snapshot: Snapshot, job: Live, usual: Explain) -> Explanation:
        for one in self._on:
            usual = partial(one.explain, snapshot, job, usual)
        return await usual()

    def offer(self, node: Node) -> Node:
        for one in self._on:
            node = one.offer(node)
        return node

    def prepare(self, job: Live, gang: Gang) -> Gang:
        for one in self._on:
            gang = one.prepare(job, gang)
        return gang

    def delegated(self, job: Live) -> bool:
        return job.job.owner_id is not None and any(one.delegated(job) for one in self._on)

    def killed(self, job: Live) -> str | None:
        return next((why for one in self._on if (why := one.killed(job)) is not None), None)

    def moved(self, job: Live) -> None:
        for one in self._on:
            one.moved(job)

    def reported(self, job: Live) -> None:
        for one in self._on:
            one.reported(job)

    def finish(self, job: Live, progress: Mapping[str, Any]) -> Estimate | None:
        told = (one.finish(job, progress) for one in self._on)
        return next((found for found in told if found is not None), None)

    def bundles(self) -> Iterator[tuple[str, str]]:
        for one in self._on:
            yield from one.bundles()

    def capabilities(self) -> Iterator[Capability]:
        for one in self._on:
            yield from one.capabilities()
        for kind in self.off:
            yield from kind.off()

    def status(self) -> dict[str, Any]:
        return {one.name: told for one in self._on if (told := one.status())}

    def check_sections(self, sections: Mapping[str, Any]) -> None:
        """Raises Invalid for a manifest's section that no extension here takes, or that is wrong."""
        kinds = {one.name: type(one) for one in self._on}
        for name, values in sections.items():
            kind = kinds.get(name)
            if kind is None or kind.manifest is None:
                known = ", ".join(sorted(one.name for one in self._on if one.manifest is not None)) or "none here"
                raise Invalid(f"there is no extension {name!r}", where=f"extensions.{name}", hint=f"known: {known}")
            try:
                kind.manifest.model_validate(values)
            except ValidationError as error:
                wrong = problems(error)[0]
                where = f"extensions.{name}.{wrong.where}" if wrong.where else f"extensions.{name}"
                raise Invalid(wrong.what, where=where) from None


def _decide(extension: Extension, admit: Decide, snapshot: Snapshot) -> Decision:
    return extension.decide(snapshot, admit)
