"""The parties that share the machines: tenants, their weights and quotas, and the two priority classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class PriorityClass(StrEnum):
    """Guaranteed work may take best-effort work's place; never the other way round."""

    GUARANTEED = "guaranteed"
    BEST_EFFORT = "best-effort"


@dataclass(frozen=True, slots=True)
class Quota:
    """Upper limits on what a tenant may hold at once; `None` means unlimited.

    `accelerators` limits the total over all types, `by_type` single types. `disk_bytes` is for the tenant's files that
    Shoal keeps: run directories, logs, checkpoints and bundles. The defaults are for jobs that do not say what they
    need; `None`: the server's.
    """

    accelerators: int | None = None
    by_type: tuple[tuple[str, int], ...] = ()
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    running_jobs: int | None = None
    queued_jobs: int | None = None
    disk_bytes: int | None = None
    default_cpu_milli: int | None = None
    default_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    name: str
    weight: float = 1.0
    quota: Quota = field(default_factory=Quota)

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"tenant {self.name}: a weight must be positive and finite: {self.weight}")
