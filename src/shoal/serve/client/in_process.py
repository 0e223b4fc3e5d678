"""The client for whoever has the backend in the same process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from shoal.serve.client.arrays import Result, question
from shoal.serve.gateway.backend import Backend
from shoal.serve.protocol import documents
from shoal.serve.types import Parameter, Tensor


class InProcessClient:
    """`AsyncInferenceClient` without a wire: calls a backend on its own event loop, as `tenant` (who sees all, if it is
    empty)."""

    def __init__(self, backend: Backend, tenant: str = "") -> None:
        self._backend = backend
        self._tenant = tenant

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, ArrayLike | Tensor],
        *,
        outputs: Sequence[str] = (),
        version: str | None = None,
        timeout_s: float | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        id: str = "",  # the protocol's name
    ) -> Result:
        """As `InferenceClient.infer`. The inputs are not copied: they must not change before this returns."""
        request = question(
            model, inputs, outputs=outputs, version=version, timeout_s=timeout_s,
            parameters=parameters, id=id, tenant=self._tenant,
        )  # fmt: skip
        return Result(await self._backend.infer(request))

    def ready(self) -> bool:
        return self._backend.ready()

    def model_ready(self, model: str, version: str | None = None) -> bool:
        """Raises UnknownModel."""
        return self._backend.model_ready(self._tenant, model, version)

    def metadata(self, model: str, version: str | None = None) -> dict[str, Any]:
        return documents.metadata(self._backend.metadata(self._tenant, model, version))

    def statistics(self, model: str | None = None, version: str | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = documents.statistics(self._backend.statistics(self._tenant, model, version))[
            "model_stats"
        ]
        return found

    def index(self, *, ready_only: bool = False) -> list[dict[str, str]]:
        return documents.index(self._backend.index(self._tenant, ready_only))

    async def load(self, model: str) -> None:
        """Returns when the model is ready. Raises UnknownModel, BadModel."""
        await self._backend.load(self._tenant, model)

    async def unload(self, model: str) -> None:
        await self._backend.unload(self._tenant, model)
