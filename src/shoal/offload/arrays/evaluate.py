"""Runs what was captured: chooses a backend for a whole program, and hands on warnings at the user's lines."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shoal.offload.arrays.capture import capture
from shoal.offload.arrays.choose import Chooser, Way
from shoal.offload.arrays.chunks import Chunks, Fault, Reducer
from shoal.offload.arrays.foreign import ask, decides, own_outputs
from shoal.offload.arrays.functions import Roll, in_place_views, roll_of, where
from shoal.offload.arrays.kernels import BoundKernel
from shoal.offload.arrays.lazy import Lazy, fields
from shoal.offload.arrays.program import Program, build, computed, roll
from shoal.offload.arrays.residents import RESIDENTS
from shoal.offload.arrays.results import result_dtype
from shoal.offload.arrays.state import error_state, is_program, state
from shoal.offload.arrays.tracked import Tracked, calm, memory, strip, track
from shoal.offload.costs import WHOLE_NUMBERS, Worth
from shoal.offload.devices.device import DeviceLost
from shoal.offload.devices.paged import BoundDevice
from shoal.offload.explain import Decisions
from shoal.offload.profile import PROFILE, REASONS, line_of
from shoal.offload.settings import Fallback, OffloadSettings

_lock = threading.RLock()
"""One evaluation at a time: a second thread that looks waits, and finds the value."""

_PARTIAL = {"sum": np.add, "min": np.minimum, "max": np.maximum}


class Evaluator:
    """What `captured.state` calls. It has the settings of one `install`."""

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser
        self.decisions = Decisions(chooser.settings.explain) if chooser.settings.explain else None

        self._worth = Worth(chooser.settings.threshold)

    def attach(self, threshold: int) -> None:
        state.threshold = threshold
        state.whole_numbers = WHOLE_NUMBERS if threshold == OffloadSettings().threshold else threshold
        state.compute, state.reduce = self.compute, self.reduce
        state.eager, state.call = self.eager, self.call

    def compute(self, lazy: Lazy) -> None:
        with _lock:
            if lazy.value is None and type(lazy.ufunc) is Roll:
                roll(lazy)
            if lazy.value is None and RESIDENTS.of(lazy) is not None:
                self._home(lazy)
            if lazy.value is None:
                self._evaluate(lazy, None)

    def reduce(self, lazy: Lazy, name: str) -> Any:
        """The sum, mean, smallest or largest value without the array itself. None: take the array's own method."""
        kind = lazy.dtype.kind
        if self.chooser.settings.strict or (kind != "f" and name != "sum") or kind not in "fb":
            return None
        parts = self.parts(lazy, _reducers[name])
        if parts is None:
            return None
        result = _PARTIAL["sum" if name == "mean" else name].reduce(np.array(parts))
        if kind == "b":
            return result
        return lazy.dtype.type(result / lazy.size if name == "mean" else result)

    def parts(self, lazy: Lazy, reducer: Reducer) -> list[Any] | None:
        """What the reducer gives for each block of a pending result, which is not stored. None: it is not possible."""
        with _lock:
            if lazy.value is not None or type(lazy.ufunc) is Roll:
                return None
            if (resident := RESIDENTS.of(lazy)) is not None:
                return self.chooser.devices.parts(resident, reducer)
            if lazy.reduced or (reducer.of_total is None and self.chooser.devices.ready):
                return None  # asked again: to store it is cheaper; and a device knows sums alone
            fields["reduced"](lazy, True)
            return self._evaluate(lazy, reducer)

    def _evaluate(self, lazy: Lazy, reducer: Reducer | None) -> list[Any] | None:
        """Compute it; where values on a device are lost meanwhile, from what they were made of."""
        program = build(lazy, keep_root=reducer is None)
        if reducer is not None and program.operations[-1].node is not lazy:
            return None
        try:
            return self._run(program, reducer)
        except DeviceLost:
            RESIDENTS.clear()
            return self._run(build(lazy, keep_root=reducer is None), reducer)

    def _home(self, lazy: Lazy) -> None:
        """Copy a result from the device. Where that is lost, all results there are pending only, as they were."""
        resident = RESIDENTS.of(lazy)
        assert resident is not None
        try:
            self.chooser.devices.fetch(resident)
        except DeviceLost:
            RESIDENTS.clear()
            return
        RESIDENTS.forget(lazy)
        self._settle([(lazy, resident.host)])

    @staticmethod
    def _settle(found: list[tuple[Lazy, np.ndarray]]) -> None:
        """The values of pending results, from memory that is theirs alone."""
        for node, output in found:
            fields["value"](node, output.view(Tracked))
            fields["inputs"](node, ())
        for node, _ in found:
            for one in node.consumers:
                if (reader := one()) is not None and reader.value is None:  # of another shape: not of this program
                    memory.guard(node.value, id(memory.root(node.value)), reader)
            fields["consumers"](node, [])

    def _run(self, program: Program, reducer: Reducer | None) -> list[Any]:
        own = time.thread_time()
        way = self.chooser.choose(program, reducer)
        device = way.kernel if isinstance(way.kernel, BoundDevice) else None
        for each in program.residents.values() if device is None else ():
            if RESIDENTS.of(each) is not None:
                self._home(each)
            if each.value is None:
                raise DeviceLost
        there = {} if device is None else device.residents
        hosts = {id(program.operations[step].node): each.host for step, each in there.items()}
        outputs = [
            hosts[id(each)] if id(each) in hosts else np.ndarray(program.shape, each.dtype) for each in program.outputs
        ]
        del hosts
        began, worked, own = time.perf_counter(), time.process_time(), time.thread_time() - own
        outcome = way.chunks.run(program, outputs, way.replaced, reducer, way.kernel)
        seconds = time.perf_counter() - began
        # on a shared machine the time that the work took, not the time that it waited for a core
        share = (time.process_time() - worked) / min(way.chunks.threads, max(1, outcome.pieces))
        if isinstance(way.kernel, BoundKernel):
            self.chooser.kernels.observe(way.kernel.kernel.recipe, outcome.again, outcome.pieces)
        if device is not None:  # to wait for it is its work
            share = seconds
        for step, resident in there.items():
            if resident.whole or (resident.kept and device is not None and step in device.recipe.outputs):
                RESIDENTS.add(program.operations[step].node, resident)
                self.chooser.devices.stays(resident)
        del there
        found = [each for each in zip(program.outputs, outputs, strict=True) if RESIDENTS.of(each[0]) is None]
        del outputs
        self._settle(found)
        del found
        self.chooser.costs.observe(program, way.backend, min(seconds, share), way.estimate_s)
        self.chooser.calibrating.observe(seconds)
        if self.decisions is not None:
            self.decisions.observe(program, way, seconds, self.chooser.absent())
        _record(program, way, seconds, None if reducer is None else reducer.name)
        gain = 0.0 if way.backend == "plain" else way.alternatives["plain"] - min(seconds, share)
        state.threshold = self._worth.threshold(state.threshold, program, gain - own)
        _warn(program, outcome.faults)
        return outcome.parts

    def eager(self, ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any], frame: Any) -> Any:
        """An operation that is done at once, on plain arrays, by whichever class decides about the other operands."""
        outs = options.get("out")
        if outs is not None and any(map(decides, (*inputs, *outs))):
            PROFILE.add((frame.f_code, frame.f_lasti), ufunc.__name__, "plain", "foreign-operand", 0.0)
            return ask(ufunc, method, inputs, options)
        if not is_program(frame):
            return self._within_library(ufunc, method, inputs, options)
        if outs is not None:
            options = {**options, "out": tuple(map(strip, outs))}
        if "where" in options:
            options = {**options, "where": strip(options["where"])}
        taken = tuple(map(strip, inputs))
        reason = "in-place" if outs is not None else "not-elementwise" if method != "__call__" else state.why
        began = time.perf_counter()
        if method == "__call__" and (way := self._threaded(ufunc, taken, options)) is not None:
            target, chunks = way
            faults, result = _elementwise(chunks, ufunc, taken, target), target
            backend = "chunks"
        else:
            backend, faults = "plain", set()
            self._fallback(ufunc, reason, frame)
            result = _plainly(getattr(ufunc, method), taken, options, faults)
        site = (frame.f_code, frame.f_lasti)
        call = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        name = method if method in ("reduce", "accumulate", "reduceat") else ufunc.__name__  # as NumPy's warnings say
        PROFILE.add(site, call, backend, reason, time.perf_counter() - began, getattr(result, "nbytes", 0))
        for kind in sorted(faults):
            told = "cast" if kind == "overflow" and _too_large(taken) else name
            _warn_at(kind, told, frame.f_code, frame.f_lasti, frame.f_globals)
        if outs is not None:
            return own_outputs(outs, options["out"], result)
        if type(result) is np.ndarray and result.size < state.whole_numbers and result.dtype.kind in "iu":
            for each in inputs:
                calm(each)
            return result
        return tuple(map(track, result)) if isinstance(result, tuple) else track(result)

    def _fallback(self, ufunc: Any, reason: str, frame: Any) -> None:
        """Tell of an operation that could have been captured, or refuse it, where the settings ask for that."""
        mode = self.chooser.settings.fallback
        if mode is Fallback.ALLOW or reason in ("small", "not-elementwise", "in-place"):
            return
        text = f"{ufunc.__name__} stays with NumPy: {REASONS[reason]}"
        if mode is Fallback.RAISE:
            raise RuntimeError(text)
        line = line_of(frame.f_code, frame.f_lasti)
        warnings.warn_explicit(
            text, UserWarning, frame.f_code.co_filename, line, module=frame.f_globals.get("__name__")
        )

    def _within_library(self, ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        taken = {key: strip(value) for key, value in options.items()}
        result = getattr(ufunc, method)(*map(strip, inputs), **taken)
        return own_outputs(options["out"], taken["out"], result) if "out" in options else result

    def _threaded(
        self, ufunc: Any, inputs: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[np.ndarray, Chunks] | None:
        """Where to write a large elementwise operation in threads; None where plain NumPy must do it."""
        if error_state.get() is not state.ordinary or set(options) - {"out"}:
            return None
        shapes: set[tuple[int, ...]] = set()
        key: list[Any] = [ufunc]
        for each in inputs:
            if type(each) is np.ndarray and each.ndim:
                shapes.add(each.shape)
                key.append(each.dtype)
            elif isinstance(each, np.generic):
                key.append(each.dtype)
            elif type(each) in (float, bool, complex) or (type(each) is int and 0 <= each <= 127):
                key.append(type(each))
            else:
                return None
        try:
            shape = np.broadcast_shapes(*shapes)
        except (ValueError, RuntimeError):  # the latter: more than 32 dimensions
            return None
        size = math.prod(shape)
        if size < state.threshold:
            return None
        dtype = result_dtype(tuple(key))
        if dtype is None:
            return None
        chunks = self.chooser.single(ufunc, size, dtype)
        if chunks is None:
            return None
        target = options["out"][0] if "out" in options else None
        if target is None:
            target = np.ndarray(shape, dtype)
        elif (
            type(target) is not np.ndarray
            or target.shape != shape
            or target.dtype != dtype
            or not target.flags.writeable
            or not in_place_views(target, inputs)
        ):
            return None
        return target, chunks

    def call(self, function: Any, types: Any, args: Any, options: Any, frame: Any) -> Any:  # noqa: ARG002
        """A function of NumPy with captured arguments."""
        name = function.__name__
        if function is np.where and len(args) == 3 and not options:
            lazy = capture(where, args, frame)
            if lazy is not None:
                return lazy
        elif function is np.roll and (shifted := roll_of(args, options)) is not None:
            lazy = capture(shifted, args[:1], frame)
            if lazy is not None:
                PROFILE.add((frame.f_code, frame.f_lasti), name, "chunks", "shifted", 0.0)
                return lazy
        elif name in _REDUCTIONS and len(args) == 1 and not options and type(args[0]) is Lazy:
            return getattr(args[0], _REDUCTIONS[name])()
        elif name in ("shape", "ndim") and len(args) == 1 and not options:
            return getattr(args[0], name)
        elif name in _VIEWS and is_program(frame):
            return function._implementation(*map(computed, args), **options)
        taken, named = strip(args), strip(options)
        began = time.perf_counter()
        result = function(*taken, **named)
        PROFILE.add((frame.f_code, frame.f_lasti), name, "plain", "not-elementwise", time.perf_counter() - began)
        arrays = list(_pairs((*args, *options.values()), (*taken, *named.values())))
        for each, given in arrays:
            if result is given and type(result) is np.ndarray:
                return each  # the caller's own array
        if _may_share(result):
            for each, _ in arrays:
                _exposed(each)
        return track(result) if is_program(frame) else result


_REDUCTIONS: Mapping[str, str] = {
    "sum": "sum",
    "mean": "mean",
    "min": "min",
    "max": "max",
    "amin": "min",
    "amax": "max",
}

_VIEWS = frozenset((
    "reshape", "transpose", "ravel", "squeeze", "expand_dims", "swapaxes", "moveaxis", "rollaxis", "flip", "fliplr",
    "flipud", "atleast_1d", "atleast_2d", "atleast_3d", "diagonal", "real", "imag", "split", "array_split",
    "matrix_transpose",
))  # fmt: skip
"""Their results share memory with the argument: they stay tracked."""

_reducers = {
    "sum": Reducer("sum", lambda block: np.add.reduce(block, axis=None), lambda total, _: total),
    "mean": Reducer("mean", lambda block: np.add.reduce(block, axis=None), lambda total, _: total),
    "min": Reducer("min", lambda block: np.minimum.reduce(block, axis=None)),
    "max": Reducer("max", lambda block: np.maximum.reduce(block, axis=None)),
}


def _may_share(result: Any) -> bool:
    """Whether it may hold memory of an argument."""
    if type(result) is tuple or type(result) is list:
        return any(map(_may_share, result))
    return isinstance(result, np.ndarray) and result.base is not None


def _pairs(own: Sequence[Any], stripped: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """The arrays of a call, also those within lists, each with the plain one that was handed on."""
    for each, given in zip(own, stripped, strict=True):
        if isinstance(each, np.ndarray):
            yield each, given
        elif (type(each) is tuple or type(each) is list) and each is not given:
            yield from _pairs(each, given)


def _exposed(value: Any) -> None:
    array = computed(value)
    if isinstance(array, Tracked):
        memory.expose(array)


def _plainly(function: Any, inputs: tuple[Any, ...], options: dict[str, Any], faults: set[str]) -> Any:
    if error_state.get() is not state.ordinary:
        return function(*inputs, **options)

    def noticed(kind: str, _: int) -> None:
        faults.add(kind)

    with np.errstate(divide="call", over="call", invalid="call", call=noticed):
        return function(*inputs, **options)


def _too_large(inputs: tuple[Any, ...]) -> bool:
    """Whether a number of Python is beyond the type of the arrays: its conversion warns, and not the operation."""
    limits = [np.finfo(each.dtype).max for each in inputs if isinstance(each, np.ndarray) and each.dtype.kind in "fc"]
    return any(type(each) in (int, float, complex) and abs(each) > max(limits, default=math.inf) for each in inputs)


def _elementwise(chunks: Chunks, ufunc: Any, inputs: tuple[Any, ...], target: np.ndarray) -> set[str]:
    faults: set[str] = set()
    chunks.run_one(ufunc, inputs, target, faults)
    return faults


def _record(program: Program, way: Way, seconds: float, reduction: str | None) -> None:
    weights = [way.weight(one) for one in program.operations]
    total = sum(weights) or 1.0
    each_bytes = program.bytes_touched / len(program.operations)
    estimate = seconds if way.backend == "plain" else way.alternatives.get("plain", seconds)
    for one, weight in zip(program.operations, weights, strict=True):
        code, lasti, _ = one.node.site
        PROFILE.add(
            (code, lasti),
            one.ufunc.__name__,
            way.backend_of(one),
            way.reason_of(one),
            seconds * weight / total,
            each_bytes,
            "",
            (estimate - seconds) * weight / total,
        )
    if reduction is not None:
        code, lasti, _ = program.operations[-1].node.site
        PROFILE.add((code, lasti), reduction, way.backend, way.reason, 0.0)


def _warn(program: Program, faults: set[Fault]) -> None:
    for number, kind in sorted(faults):
        operation = program.operations[number]
        code, lasti, module = operation.node.site
        if module is not None:
            _warn_at(kind, operation.ufunc.__name__, code, lasti, module)


def _warn_at(kind: str, name: str, code: Any, lasti: int, module: dict[str, Any]) -> None:
    warnings.warn_explicit(
        f"{kind} encountered in {name}",
        RuntimeWarning,
        code.co_filename,
        line_of(code, lasti),
        module=module.get("__name__"),
        registry=module.setdefault("__warningregistry__", {}),
    )
