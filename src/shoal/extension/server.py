"""The server as its extensions see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from sqlalchemy import Connection

from shoal.admission import Explanation, Snapshot
from shoal.base.http import Limits as HttpLimits
from shoal.contract.manifest import JobManifest, ResourceRequest
from shoal.contract.records import AttemptRecord, JobRecord, NewEvent, TenantRecord
from shoal.core import Clock, PriorityClass, Reason, Sandbox
from shoal.engine import Engine
from shoal.store import Store

if TYPE_CHECKING:
    from shoal.extension.base import Extension, Section


class LiveJob(Protocol):
    """A job that is not over, as the server knows it now."""

    @property
    def job(self) -> JobRecord: ...

    @property
    def attempt(self) -> AttemptRecord | None: ...

    @property
    def manifest(self) -> JobManifest: ...

    @property
    def wait(self) -> Reason | None:
        """Why it was left waiting by the last decision."""
        ...

    @property
    def writes(self) -> int:
        """How many changes of it are being written."""
        ...


KIND_LABEL = "kind"
"""The label by which a manifest names what runs alike; without it, jobs of one name do."""


def kind_of(live: LiveJob) -> str:
    """What runs alike: it holds the tenant, so that none learns of another's jobs."""
    return f"{live.job.tenant}/{live.manifest.labels.get(KIND_LABEL) or live.job.name}"


class Sized(Protocol):
    """A manifest of processes that all ask for the same."""

    @property
    def resources(self) -> ResourceRequest | None: ...

    @property
    def max_ranks(self) -> int: ...

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self: ...


Manifest = TypeVar("Manifest", bound=Sized)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Beside:
    """What an extension stores in one transaction with a job that it submits: its own rows, written by `run` as for
    `Store.transact`, and events. Both are given the id of the job, or of its array."""

    run: Callable[[Connection, str], bool]
    events: Callable[[str], Sequence[NewEvent]] = lambda _: ()


class Server(Protocol):
    """To be used on the event loop's thread, except `wake`."""

    # --- where it runs ---

    @property
    def home(self) -> Path: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def store(self) -> Store: ...

    @property
    def plane(self) -> str | None:
        """The id of the plane that this is; None of a shared server."""
        ...

    @property
    def any_port(self) -> bool:
        """The server listens on any free port, as in tests."""
        ...

    @property
    def http_limits(self) -> HttpLimits:
        """What clients may take of the server, by connections and bytes."""
        ...

    # --- what is there ---

    @property
    def engine(self) -> Engine:
        """Where gangs run: to be read from, and to pass on notices and signals."""
        ...

    def job(self, job_id: str) -> LiveJob | None:
        """A job that is not over."""
        ...

    def active_jobs(self) -> Iterable[LiveJob]:
        """Those that hold resources."""
        ...

    def tenants(self) -> Mapping[str, TenantRecord]: ...

    def sandbox(self, tenant: str) -> Sandbox:
        """How far apart the processes of the tenant's jobs are kept."""
        ...

    def chosen(self) -> Sequence[tuple[type[Extension], Section]]:
        """The extensions that are installed, each with its section of the settings; on where that is."""
        ...

    def ask(self, question: type[T]) -> T | None:
        """An object that answers this question, a protocol such as `shoal.core.Speeds`: that of the first extension, in
        the order of names; None where no extension that is on answers it. Not before `Extension.open`."""
        ...

    def ask_all(self, question: type[T]) -> Sequence[T]:
        """The objects of all extensions that answer it, in the order of names. Not before `Extension.open`."""
        ...

    def snapshot(self) -> Snapshot:
        """What admission decides from, now."""
        ...

    async def explain(self, job_id: str) -> Explanation:
        """Why a job waits."""
        ...

    # --- what may be accepted ---

    def check_class(self, tenant: str, priority_class: PriorityClass, what: str) -> None:
        """The tenant may have such `what`. Raises NotFound or Forbidden."""
        ...

    def check_files(self, tenant: str, bundle: str | None, left: tuple[str, ...], command: str) -> None:
        """The tenant has uploaded this bundle; `left` are files that `command` would have uploaded. Raises Invalid."""
        ...

    def complete(self, manifest: Manifest, *, tenant: str) -> Manifest:
        """With defaults for the resources that it leaves out."""
        ...

    async def remarks(self, job: JobRecord, secrets: Mapping[str, str]) -> Sequence[Reason]:
        """What would keep this job from starting here, if it were submitted now."""
        ...

    async def check(self, manifest: JobManifest, *, tenant: str) -> Sequence[Reason]:
        """What keeps this job from starting here, if it were submitted now. Raises as `submit` does."""
        ...

    # --- what is changed ---

    async def submit(
        self, manifest: JobManifest, *, tenant: str, actor: str, key: str, beside: Beside | None = None
    ) -> tuple[JobRecord, bool]:
        """Accept a job or a job array of this tenant, with the rights that it has now, as its own request would be:
        durable when this returns. The first task, and False where the same job was stored with this key before.

        Raises Invalid, Forbidden, NotFound, Overloaded, Unavailable, or Conflict: the key was used for another job, or
        `run` of `beside` gave False. Then nothing is stored."""
        ...

    def wake(self) -> None:
        """Decide again soon. From any thread."""
        ...

    def new_id(self, letter: str) -> str:
        """Unique, and above all before it."""
        ...

    def derive_secret(self, purpose: str) -> str:
        """The same for the same purpose, as long as the server's key is."""
        ...

    def secrets(self, job: LiveJob) -> Mapping[str, str]:
        """The secrets that its manifest names, by variable: to do for a job, before it starts, what it may do itself.
        Never to be written down. Raises ShoalError where its tenant lacks one."""
        ...

    def submitted(self, job: JobRecord, manifest: JobManifest | None = None, first: NewEvent | None = None) -> None:
        """The extension has stored this waiting job by itself; its manifest is read from its row if not given.

        With `first` it is not stored yet, of version 0, and has an idempotency key: it is stored by its first step,
        together with this event, so that a job that starts at once is written once. An extension that cannot lose it
        submits it again after a restart. Where a job with its key is stored, it is CANCELLED at version 0, and no one
        but `moved` is told."""
        ...

    async def cancel(self, job_id: str, *, actor: str, cause: str) -> None:
        """See that a job ends; nothing where it is over, or ending already."""
        ...

    # --- jobs that belong to something ---

    def owned(self, owner_id: str) -> Iterable[LiveJob]:
        """The jobs that are not over and belong to this, such as the replicas of a service."""
        ...

    def owners(self) -> Iterable[str]:
        """The ids of all that jobs belong to which are not over, of other extensions as well."""
        ...

    # --- when something goes wrong ---

    def on_fatal(self, error: BaseException) -> None:
        """The extension cannot go on, and so the server cannot."""
        ...

    def fault(self, point: str) -> None:
        """The deterministic simulation may crash the server here."""
        ...
