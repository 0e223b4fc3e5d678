"""What the protocol's fronts (REST, gRPC, in process) need from what stands behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from shoal.serve.types import InferRequest, InferResponse, ModelMetadata


class ModelState(StrEnum):
    """A version's state in the repository index, in the protocol's words."""

    READY = "READY"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """`reason` says why the version is not ready; empty if it is."""

    name: str
    version: str
    state: ModelState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Duration:
    """How often, and how long in all."""

    count: int
    total_s: float


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """Since the gateway started. `inferences` counts samples, `executions` batches; times are sums over requests.
    `rejected` were refused before they were worked on. `last_at` is in Unix seconds, 0 if never."""

    name: str
    version: str
    inferences: int
    executions: int
    success: Duration
    fail: Duration
    rejected: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    last_at: float
    batches: tuple[tuple[int, Duration], ...]


class Backend(Protocol):
    """Errors are those of `shoal.serve.errors`. A tenant sees its own models only; the empty tenant sees all."""

    def tenant_of(self, token: str | None) -> str | None:
        """The tenant of a bearer token: its name, "" for the administrator, None for an unknown token."""
        ...

    async def infer(self, request: InferRequest) -> InferResponse: ...

    def ready(self) -> bool:
        """Whether every model that should be loaded is."""
        ...

    def model_ready(self, tenant: str, model: str, version: str | None) -> bool:
        """Raises UnknownModel."""
        ...

    def metadata(self, tenant: str, model: str, version: str | None) -> ModelMetadata: ...

    def statistics(self, tenant: str, model: str | None, version: str | None) -> Sequence[ModelStatistics]: ...

    def index(self, tenant: str, ready_only: bool) -> Sequence[IndexEntry]: ...

    async def load(self, tenant: str, model: str) -> None:
        """Returns when the model is ready; raises BadModel or UnknownModel."""
        ...

    async def unload(self, tenant: str, model: str) -> None: ...
