"""The rows of services as frozen values. Times are Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.contract.records import JobRecord, NewEvent
from shoal.core import Reason
from shoal.serve.lifecycle import TROUBLES, ServiceState


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """One row of the service table.

    `manifest` is the validated manifest as canonical JSON. `replicas` is how many are wanted. `generation` grows with
    each update that replaces replicas, `deployment` with each update. `serves` is the newest generation of which a
    replica was ever ready (0: none). `launched` is how many replicas it ever had, and so the index of the next.
    `reason` is the last one that was recorded, None when it is READY.
    """

    id: str
    tenant: str
    name: str
    state: ServiceState
    version: int
    manifest: str
    replicas: int
    created_at: float
    updated_at: float
    generation: int = 1
    deployment: int = 1
    serves: int = 0
    launched: int = 0
    ended_at: float | None = None
    reason: Reason | None = None
    fingerprint: str = ""

    @property
    def settled(self) -> bool:
        """Whether there is nothing to wait for: it is as it was wanted, or will hardly be by waiting alone."""
        if self.state is ServiceState.DEGRADED:
            return self.reason is not None and self.reason.code in TROUBLES
        return self.state in (ServiceState.READY, ServiceState.FAILED, ServiceState.STOPPED)


@dataclass(frozen=True, slots=True)
class DeploymentRecord:
    """One accepted deployment of a service, numbered from 1: what it asked for, and under which idempotency key. The
    newest of a generation says what that generation's replicas serve."""

    service_id: str
    number: int
    generation: int
    tenant: str
    created_at: float
    manifest: str
    fingerprint: str
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class ServiceChange:
    """One guarded step of a service, with the replicas it submits: applied whole, and only if the stored row still has
    `before.version` (None: there is no such service yet)."""

    before: ServiceRecord | None
    after: ServiceRecord
    events: tuple[NewEvent, ...] = ()
    deployment: DeploymentRecord | None = None
    jobs: tuple[JobRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceFilter:
    """Which services to list, newest first; `before_id` continues a listing."""

    tenant: str | None = None
    states: frozenset[ServiceState] | None = None
    name: str | None = None
    limit: int = 100
    before_id: str | None = None
