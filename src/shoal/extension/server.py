"""What the server offers its extensions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from shoal.admission import Snapshot
from shoal.contract.manifest import JobManifest
from shoal.contract.records import AttemptRecord, JobRecord, TenantRecord
from shoal.core import Clock, Reason
from shoal.store import Store


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


class Server(Protocol):
    """To be used on the event loop's thread, except `wake`."""

    @property
    def home(self) -> Path: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def store(self) -> Store: ...

    def job(self, job_id: str) -> LiveJob | None:
        """A job that is not over."""
        ...

    def active_jobs(self) -> Iterable[LiveJob]:
        """Those that hold resources."""
        ...

    def tenants(self) -> Mapping[str, TenantRecord]: ...

    def telemetry(self, job: JobRecord) -> Mapping[str, Any] | None:
        """Where the speed of this job can be read, as the first extension that knows says."""
        ...

    def snapshot(self) -> Snapshot:
        """What admission decides from, now."""
        ...

    def wake(self) -> None:
        """Decide again soon. From any thread."""
        ...
