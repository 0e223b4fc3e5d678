"""Who runs what: tenants and their workloads."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from shoal.core.objective import Objective
from shoal.core.resources import Resources


class PriorityClass(StrEnum):
    """Guaranteed work may take best-effort work's place; never the other way round."""

    GUARANTEED = "guaranteed"
    BEST_EFFORT = "best-effort"


@dataclass(frozen=True, slots=True)
class Quota:
    """Upper limits on what a tenant may hold at once; `None` means unlimited.

    `accelerators` limits the total over all types, `by_type` single types.
    """

    accelerators: int | None = None
    by_type: tuple[tuple[str, int], ...] = ()
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    running_jobs: int | None = None
    queued_jobs: int | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    name: str
    weight: float = 1.0
    quota: Quota = field(default_factory=Quota)

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"tenant {self.name}: a weight must be positive and finite: {self.weight}")


@dataclass(frozen=True, slots=True)
class Job:
    """Runs to completion, as a gang of `ranks` processes that each hold `resources`."""

    name: str
    tenant: str
    resources: Resources
    ranks: int = 1
    priority_class: PriorityClass = PriorityClass.BEST_EFFORT
    priority: int = 0
    objective: Objective | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """Runs until it is stopped, as `replicas` independent processes that each hold `resources`."""

    name: str
    tenant: str
    resources: Resources
    replicas: int = 1
    priority_class: PriorityClass = PriorityClass.GUARANTEED
    objective: Objective | None = None


Workload = Job | Service
