"""Opening a model: the runtime that fits, its warm-up, and what both cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from shoal.serve.errors import BadModel, BadRequest, ModelFailed
from shoal.serve.runtimes.base import Array, Runtime
from shoal.serve.runtimes.checks import need, place
from shoal.serve.runtimes.memory import give_back, resident_now
from shoal.serve.tensors import numpy_dtype
from shoal.serve.types import DataType, ModelMetadata, ModelSpec, RuntimeKind, TensorSpec

_QUICK_S = 0.05
_QUICK_RUNS = 6


@dataclass(frozen=True, slots=True)
class WarmupRuns:
    """Seconds of each warm-up run of a batch of `batch` samples, in order; the first one often is the slowest."""

    batch: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a model is and what opening it cost. `resident_bytes` is what loading and warm-up added to the process."""

    metadata: ModelMetadata
    load_s: float
    warmup_s: float
    resident_bytes: int
    runs: tuple[WarmupRuns, ...] = ()


def open_runtime(spec: ModelSpec) -> Runtime:
    """Load the model with the runtime that its kind and its source ask for. Raises BadModel."""
    return _opener(spec)(spec)


def open_warm(spec: ModelSpec, *, clock: Callable[[], float] = time.perf_counter) -> tuple[Runtime, LoadReport]:
    """Load the model and run it until it is warm. Raises BadModel, also for a model that fails in its warm-up."""
    opener = _opener(spec)  # the memory and time of the runtime's packages are the process's
    give_back()  # what others left would be used again, and the model seem smaller than it is
    before, started = resident_now(), clock()
    runtime = opener(spec)
    loaded = clock()
    try:
        runs = warm_up(runtime, spec, clock=clock)
    except BaseException:
        runtime.close()
        give_back()
        raise
    warm = clock()
    give_back()  # what loading needed for a while only
    grown = max(0, resident_now() - before)
    return runtime, LoadReport(runtime.metadata, loaded - started, warm - loaded, grown, runs)


def warm_up(
    runtime: Runtime, spec: ModelSpec, *, clock: Callable[[], float] = time.perf_counter
) -> tuple[WarmupRuns, ...]:
    """Run the model `spec.warmup` times on zeros, alone and with the largest batch. Where that takes next to no time it
    is run some more: a moment's pause of the machine would be all that is known of it. Raises BadModel."""
    largest = runtime.metadata.max_batch
    done = []
    for batch in (1, largest) if largest > 1 else (1,):
        seconds: list[float] = []
        while len(seconds) < spec.warmup or (0 < len(seconds) < _QUICK_RUNS and sum(seconds) < _QUICK_S):
            started = clock()
            _run_once(runtime, spec, batch)
            seconds.append(clock() - started)
        if seconds:
            done.append(WarmupRuns(batch, tuple(seconds)))
    return tuple(done)


def _run_once(runtime: Runtime, spec: ModelSpec, batch: int) -> None:
    inputs = zeros(runtime.metadata, spec, batch)
    shapes = {name: list(array.shape) for name, array in inputs.items()}
    try:
        outputs = runtime.run(inputs, ())
    except (ModelFailed, BadRequest) as error:
        raise BadModel(
            f"it fails in its warm-up, on zeros of shape {shapes}: {error.what}",
            where=place(spec),
            hint="declare `inputs` with the lengths to use for free dimensions, or set warmup: 0",
        ) from error
    if runtime.metadata.max_batch > 1:
        for name, array in outputs.items():
            if array.shape[:1] != (batch,):
                raise BadModel(
                    f"output {name!r} has shape {list(array.shape)} for a batch of {batch}",
                    where=place(spec),
                    hint="an output whose first dimension is not the batch's cannot be shared out; set max_batch: 1",
                )


def zeros(metadata: ModelMetadata, spec: ModelSpec, batch: int) -> Mapping[str, Array]:
    """Inputs of zeros (empty strings) by name. A free dimension has the length that the specification declares for
    it, else 1; a model that takes batches gets one of `batch`. Raises BadModel if an input is declared that is not."""
    declared = {each.name: each.shape for each in spec.inputs}
    unknown = declared.keys() - {each.name for each in metadata.inputs}
    if unknown:
        raise BadModel(
            f"`inputs` declares {', '.join(sorted(unknown))}, which the model does not have",
            where=place(spec),
            hint=f"its inputs: {', '.join(each.name for each in metadata.inputs)}",
        )
    inputs = {}
    for each in metadata.inputs:
        shape = [_side(own, fixed) for own, fixed in zip(each.shape, _aligned(declared, each), strict=True)]
        if metadata.max_batch > 1:
            shape[0] = batch
        fill = b"" if each.datatype is DataType.BYTES else 0
        inputs[each.name] = np.full(shape, fill, numpy_dtype(each.datatype))
    return inputs


def _aligned(declared: Mapping[str, tuple[int, ...]], own: TensorSpec) -> tuple[int, ...]:
    shape = declared.get(own.name, own.shape)
    return shape if len(shape) == len(own.shape) else own.shape


def _side(own: int, declared: int) -> int:
    return next((side for side in (own, declared) if side != -1), 1)


def _opener(spec: ModelSpec) -> Callable[[ModelSpec], Runtime]:
    """The runtime, after the packages that it needs are imported. Raises BadModel where one is not installed."""
    match spec.runtime:
        case RuntimeKind.SKLEARN if not spec.source.endswith(".onnx"):
            need(spec, "skops.io")
            from shoal.serve.runtimes.sklearn import SklearnRuntime

            return SklearnRuntime
        case RuntimeKind.ONNX | RuntimeKind.SKLEARN:
            from shoal.serve.runtimes.onnx import OnnxRuntime

            return OnnxRuntime
        case RuntimeKind.CALLABLE:
            from shoal.serve.runtimes.callable import CallableRuntime

            return CallableRuntime
        case RuntimeKind.TORCH:
            need(spec, "torch")
            from shoal.serve.runtimes.torch import TorchRuntime

            return TorchRuntime
