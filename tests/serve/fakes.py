"""A backend of a few small models that run at once, and refuses what the real one refuses."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.inference.errors import BadModel
from shoal.inference.tensors import check_request, to_array, to_tensor
from shoal.inference.types import DataType, InferRequest, InferResponse, ModelMetadata, TensorSpec
from shoal.serve.contract import ModelState, VersionStatus
from shoal.serve.errors import DeadlineMissed, NotReady, UnknownModel
from shoal.serve.gateway.stats import Stats, Total

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Model:
    metadata: ModelMetadata
    run: Callable[[Arrays], Arrays]
    tenant: str = "ada"


def _specs(*specs: tuple[str, DataType, tuple[int, ...]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(*spec) for spec in specs)


def _model(name: str, inputs: Any, outputs: Any, run: Callable[[Arrays], Arrays], max_batch: int = 0) -> Model:
    return Model(ModelMetadata(name, ("1", "2"), "callable_python", _specs(*inputs), _specs(*outputs), max_batch), run)


def _echo(name: str, kind: DataType, shape: tuple[int, ...] = (-1,)) -> Model:
    return _model(name, [("IN", kind, shape)], [("OUT", kind, shape)], lambda given: {"OUT": given["IN"]})


def models() -> dict[str, Model]:
    """`add_sub` as in Triton's examples; `echo_TYPE` for each type; `image` takes one of 110 kB and answers with
    scores; `strings` joins."""
    shape = (-1, 16)
    found = [
        _model(
            "add_sub",
            [("INPUT0", DataType.INT32, shape), ("INPUT1", DataType.INT32, shape)],
            [("OUTPUT0", DataType.INT32, shape), ("OUTPUT1", DataType.INT32, shape)],
            lambda given: {
                "OUTPUT0": given["INPUT0"] + given["INPUT1"],
                "OUTPUT1": given["INPUT0"] - given["INPUT1"],
            },
            max_batch=8,
        ),
        _model(
            "image",
            [("IMAGE", DataType.FP32, (-1, 3, 48, 192))],
            [("SCORES", DataType.FP32, (-1, 4))],
            lambda given: {"SCORES": np.tile(np.array([0.1, 0.4, 0.2, 0.3], "f4"), (len(given["IMAGE"]), 1))},
            max_batch=8,
        ),
        _model(
            "nan", [("IN", DataType.FP32, (-1,))], [("OUT", DataType.FP32, (-1,))],
            lambda given: {"OUT": given["IN"] / np.float32("nan")},
        ),
        *(_echo(f"echo_{kind}", kind) for kind in DataType),
    ]  # fmt: skip
    return {model.metadata.name: model for model in found}


@dataclass
class FakeBackend:
    """`tokens` says whose a token is; without any, callers need none and see all. A model named in `failing` raises
    that error, one in `held` answers, or is loaded, only when its event is set."""

    models: dict[str, Model] = field(default_factory=models)
    tokens: dict[str, str] = field(default_factory=dict)
    failing: dict[str, Exception] = field(default_factory=dict)
    held: dict[str, threading.Event] = field(default_factory=dict)
    unloaded: set[str] = field(default_factory=set)
    seen: list[InferRequest] = field(default_factory=list)
    running: int = 0
    cancelled: int = 0

    def tenant_of(self, token: str | None) -> str | None:
        if not self.tokens:
            return ""
        return self.tokens.get(token) if token is not None else None

    async def infer(self, request: InferRequest) -> InferResponse:
        model = self._find(request.tenant, request.model, request.version)
        self.seen.append(request)
        if request.model in self.unloaded:
            raise NotReady("the model is not loaded", where=f"model {request.model!r}")
        check_request(request, model.metadata)
        self.running += 1
        try:
            await self._wait(request)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if request.model in self.failing:
            raise self.failing[request.model]
        outputs = model.run({tensor.name: to_array(tensor) for tensor in request.inputs})
        wanted = [output.name for output in request.outputs] or [*outputs]
        kinds = {spec.name: spec.datatype for spec in model.metadata.outputs}
        tensors = [to_tensor(name, outputs[name], kinds[name]) for name in wanted]
        return InferResponse(request.model, request.version or "2", tensors, request.id)

    async def _wait(self, request: InferRequest) -> None:
        held = self.held.get(request.model)
        until = time.monotonic() + (request.timeout_s if request.timeout_s is not None else 60.0)
        while held is not None and not held.is_set():
            if time.monotonic() > until:
                raise DeadlineMissed("the answer would come too late", retry_after_s=2.5)
            await asyncio.sleep(0.002)

    def ready(self) -> bool:
        return not self.unloaded

    def model_ready(self, tenant: str, model: str, version: str | None) -> bool:
        self._find(tenant, model, version)
        return model not in self.unloaded

    def metadata(self, tenant: str, model: str, version: str | None) -> ModelMetadata:
        return self._find(tenant, model, version).metadata

    def statistics(self, tenant: str, model: str | None, version: str | None) -> Sequence[Stats]:
        if model is not None:
            self._find(tenant, model, version)
        return [self._statistics(name) for name in self._visible(tenant) if model in (None, name)]

    def _statistics(self, name: str) -> Stats:
        count = sum(request.model == name for request in self.seen)
        some = Total(count, count * 0.25)
        return Stats(
            name, "1", inferences=count, executions=count, success=some, rejected=Total(3, 0.5), queue=some,
            compute_input=some, compute_infer=some, compute_output=some, last_at=1_700_000_000.5,
            batches={1: some} if count else {},
        )  # fmt: skip

    def index(self, tenant: str, ready_only: bool) -> Sequence[VersionStatus]:
        entries = []
        for name in self._visible(tenant):
            if name in self.unloaded:
                entries.append(VersionStatus(name, "1", ModelState.UNAVAILABLE, "unloaded"))
            else:
                entries.append(VersionStatus(name, "1", ModelState.READY))
        return [entry for entry in entries if not ready_only or entry.state is ModelState.READY]

    async def load(self, tenant: str, model: str) -> None:
        self._find(tenant, model, None)
        await asyncio.sleep(0)
        while model in self.held and not self.held[model].is_set():
            await asyncio.sleep(0.002)
        if isinstance(self.failing.get(model), BadModel):
            raise self.failing[model]
        self.unloaded.discard(model)

    async def unload(self, tenant: str, model: str) -> None:
        self._find(tenant, model, None)
        self.unloaded.add(model)

    def _visible(self, tenant: str) -> list[str]:
        return [name for name, model in self.models.items() if tenant in ("", model.tenant)]

    def _find(self, tenant: str, model: str, version: str | None) -> Model:
        if model not in self._visible(tenant):
            raise UnknownModel("there is no such model", where=f"model {model!r}")
        found = self.models[model]
        if version is not None and version not in found.metadata.versions:
            raise UnknownModel(f"there is no version {version!r}", where=f"model {model!r}")
        return found
