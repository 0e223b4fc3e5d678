"""The backend that the protocol's fronts (REST, gRPC, in process) need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shoal.inference.types import InferRequest, InferResponse, ModelMetadata
from shoal.serve.contract import VersionStatus
from shoal.serve.gateway.stats import Stats


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

    def statistics(self, tenant: str, model: str | None, version: str | None) -> Sequence[Stats]: ...

    def index(self, tenant: str, ready_only: bool) -> Sequence[VersionStatus]: ...

    async def load(self, tenant: str, model: str) -> None:
        """Returns when the model is ready; raises BadModel or UnknownModel. Like `unload` it goes on when its caller is
        gone: a model must not be left half loaded."""
        ...

    async def unload(self, tenant: str, model: str) -> None: ...
