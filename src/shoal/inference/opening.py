"""Opening a model: the runtime that fits, its warm-up, and what both cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shoal.core import Invalid, Unavailable
from shoal.inference.checks import need, place
from shoal.inference.errors import BadModel, BadRequest, ModelFailed
from shoal.inference.memory import give_back, resident_now
from shoal.inference.pairs import PairedState, innermost
from shoal.inference.registry import check_options, opener_of, runtime_named
from shoal.inference.runtime import Array, Runtime, Sessions, Steps, WarmUp, abilities_of
from shoal.inference.tensors import numpy_dtype
from shoal.inference.types import DataType, ModelMetadata, ModelSpec, TensorSpec

_QUICK_S = 0.05
_QUICK_RUNS = 6


@dataclass(frozen=True, slots=True)
class WarmupRuns:
    """Seconds of each warm-up run of a batch of `batch` samples, in order; the first one often is the slowest."""

    batch: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a model is and what opening it cost. `resident_bytes` is what loading and warm-up added to the process.
    `abilities` are the optional protocols of its runtime; `session_bytes` is the memory of a sequence's state,
    and `rows` how many requests it works on at once, in steps."""

    metadata: ModelMetadata
    load_s: float
    warmup_s: float
    resident_bytes: int
    runs: tuple[WarmupRuns, ...] = ()
    abilities: tuple[str, ...] = ()
    session_bytes: int = 0
    rows: int = 1


def open_runtime(spec: ModelSpec) -> Runtime:
    """Load the model with the runtime that it names. Raises BadModel."""
    opener, spec = _prepared(spec)
    return _opened(opener, spec)


def open_warm(spec: ModelSpec, *, clock: Callable[[], float] = time.perf_counter) -> tuple[Runtime, LoadReport]:
    """Load the model and run it until it is warm. Raises BadModel, also for a model that fails in its warm-up."""
    opener, spec = _prepared(spec)  # the memory and time of the runtime's packages are the process's
    give_back()  # what others left would be used again, and the model seem smaller than it is
    before, started = resident_now(), clock()
    runtime = _opened(opener, spec)
    loaded = clock()
    try:
        runs = warm_up(runtime, spec, clock=clock)
    except BaseException:
        runtime.close()
        give_back()
        raise
    warm = clock()
    own = innermost(runtime)
    if isinstance(own, WarmUp):
        own.warmed_up()
    give_back()  # what loading needed for a while only
    grown = max(0, resident_now() - before)
    sessions = runtime if isinstance(runtime, Sessions) else None
    metadata = replace(runtime.metadata, sequences_only=sessions is not None and sessions.sessions_only)
    session_bytes = sessions.session_bytes if sessions is not None else 0
    abilities = _abilities(runtime)
    rows = max(1, runtime.rows) if isinstance(runtime, Steps) and "steps" in abilities else 1
    return runtime, LoadReport(metadata, loaded - started, warm - loaded, grown, runs, abilities, session_bytes, rows)


def _abilities(runtime: Runtime) -> tuple[str, ...]:
    """State pairs take the place of what their runtime has for sequences, and leave it all else. Steps of sequences are
    put together, and so are not rows that join by themselves."""
    found = {*abilities_of(innermost(runtime)), *abilities_of(runtime)}
    return tuple(sorted(found - {"steps"} if "sessions" in found else found))


def _opened(opener: Callable[[ModelSpec], Runtime], spec: ModelSpec) -> Runtime:
    """With what keeps its state pairs, where the specification names some."""
    runtime = opener(spec)
    if not spec.state:
        return runtime
    try:
        return PairedState(runtime, spec)
    except BaseException:
        runtime.close()
        raise


def warm_up(
    runtime: Runtime, spec: ModelSpec, *, clock: Callable[[], float] = time.perf_counter
) -> tuple[WarmupRuns, ...]:
    """Run the model `spec.warmup` times on zeros, alone and with the largest batch. Where that takes next to no time it
    is run some more: a moment's pause of the machine would be all that is known of it. It ends where the model lacks
    something outside of it, such as a store of features: that may be back with the first request. Raises BadModel."""
    largest = runtime.metadata.max_batch
    done: list[WarmupRuns] = []
    for batch in (1, largest) if largest > 1 else (1,):
        seconds: list[float] = []
        while len(seconds) < spec.warmup or (0 < len(seconds) < _QUICK_RUNS and sum(seconds) < _QUICK_S):
            started = clock()
            try:
                _run_once(runtime, spec, batch)
            except Unavailable:
                return tuple(done)
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
    unknown = declared.keys() - {each.name for each in metadata.inputs} - {pair.input for pair in spec.state}
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


def _prepared(spec: ModelSpec) -> tuple[Callable[[ModelSpec], Runtime], ModelSpec]:
    """What opens the model, with the packages that it needs imported, and the specification with its options checked.
    Raises BadModel."""
    try:
        declared = runtime_named(spec.runtime)
        delegate = declared.delegates.get(Path(spec.source).suffix.lower())
        if delegate is not None:
            declared = runtime_named(delegate)
        checked = check_options(declared, spec.options)
    except Invalid as error:
        raise BadModel(error.what, where=f"{place(spec)}, {error.where}", hint=error.hint) from None
    for module in declared.packages:
        need(spec, module, extra=declared.extra)
    return opener_of(declared), replace(spec, options=checked)
