"""The runtime `recurrent` of services: batches of rows, and sessions whose state stays here.

Callers see rows first. A network that is recurrent through and through takes [rows, steps, elements] and gives
[rows, steps, units]. A network with other parts has the shapes of its file, and its sessions one row each.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core import ShoalError
from shoal.inference import (
    Array,
    BadModel,
    BadRequest,
    DataType,
    ModelFailed,
    ModelMetadata,
    ModelSpec,
    Runtime,
    RuntimeState,
    TensorSpec,
    describe,
    place,
    read_model,
)
from shoal.recurrent.errors import BadInput
from shoal.recurrent.layers.make import best_target
from shoal.recurrent.loading import load
from shoal.recurrent.network.graph import Tensor
from shoal.recurrent.network.network import Network
from shoal.recurrent.network.sessions import Session
from shoal.recurrent.options import RecurrentOptions
from shoal.recurrent.sequences import Sequences

_TYPES = {
    "float32": DataType.FP32, "float64": DataType.FP64, "float16": DataType.FP16, "int64": DataType.INT64,
    "int32": DataType.INT32, "int16": DataType.INT16, "int8": DataType.INT8, "uint8": DataType.UINT8,
    "bool": DataType.BOOL,
}  # fmt: skip


def open_recurrent(spec: ModelSpec) -> Runtime:
    """The runtime that the options ask for: with sessions, or by steps. Raises BadModel."""
    read_model(spec, spec.source, ".rnn", ".onnx", ".safetensors")
    options = RecurrentOptions.model_validate(dict(spec.options))
    return SequenceRuntime(spec, options) if options.by_steps else SessionRuntime(spec, options)


class _Loaded:
    """What both runtimes have: a network that runs whole sequences. Raises BadModel."""

    def __init__(self, spec: ModelSpec, options: RecurrentOptions) -> None:
        try:
            self._net = _open(Path(spec.source), options, spec)
        except ShoalError as error:
            raise BadModel(error.what, where=f"{place(spec)}: {error.where or spec.source}", hint=error.hint) from error
        graph = self._net.graph
        self._rows_first = not graph.segments and all(not step.batch_first for step in graph.recurrences)
        if options.frames and (self._rows_first or options.by_steps):
            hint = "leave `frames` out: a request may have any number of steps, [rows, steps, elements]"
            raise BadModel("all of the network is recurrent", where=f"{place(spec)}: frames", hint=hint)
        self._frames = (-1 if spec.max_batch > 1 else 1, -1) if options.frames else ()
        self._name = spec.name
        self._carried = graph.pairs
        own = {*graph.pairs, *graph.pairs.values()}
        seen = [one.shape[:1] for one in (*graph.inputs, *graph.outputs) if one.name not in own]
        self._one_row = spec.max_batch > 1 and not options.frames and not self._rows_first and {*seen} == {(1,)}
        """Requests are batched although the network takes one row: each row of a batch is a call of its own."""
        self.metadata: ModelMetadata = describe(
            spec, "shoal_recurrent", self._specs(graph.inputs, self._carried.keys()),
            self._specs(graph.outputs, self._carried.values()),
        )  # fmt: skip
        self._outputs = [one.name for one in self.metadata.outputs]

    def _specs(self, tensors: Sequence[Tensor], states: Any) -> tuple[TensorSpec, ...]:
        """Tensors as callers see them; those that carry a state are the session's own."""
        seen = [one for one in tensors if one.name not in states]
        return tuple(TensorSpec(one.name, _TYPES[one.kind], self._turned_shape(one.shape)) for one in seen)

    def _turned_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self._frames:
            return (*self._frames, *shape)
        if self._one_row:
            return (-1, *shape[1:])
        return (shape[1], shape[0], *shape[2:]) if self._rows_first and len(shape) > 1 else shape

    def _turned(self, array: Array) -> Array:
        return np.ascontiguousarray(np.swapaxes(array, 0, 1)) if self._rows_first and array.ndim > 1 else array

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """A whole sequence of each row, from states of zero."""
        rows = next((len(one) for one in inputs.values()), 1)
        if self._one_row and rows != 1:
            each = [self.run({name: one[at : at + 1] for name, one in inputs.items()}, outputs) for at in range(rows)]
            return {name: np.concatenate([one[name] for one in each]) for name in outputs or self._outputs}
        given = {name: self._turned(one) for name, one in inputs.items()} | self._first_states(rows)
        try:
            found = self._net.run(given, list(outputs) or self._outputs)
        except BadInput as error:
            raise BadRequest(error.what, where=error.where, hint=error.hint) from error
        except ShoalError as error:
            raise ModelFailed(error.what, where=f"model {self._name!r}") from error
        return {name: self._turned(one) for name, one in found.items()}

    def _first_states(self, rows: int) -> dict[str, Array]:
        """Zeros for the inputs that carry a state. Their rows are the first free side."""
        found: dict[str, Array] = {}
        for one in self._net.inputs:
            if one.name in self._carried:
                found[one.name] = np.zeros([side if side >= 0 else rows for side in one.shape], one.kind)
        return found

    def state(self) -> RuntimeState:
        if best_target() is None:
            runs = "layers are interpreted" if self._net.layers else "onnxruntime runs all of it"
            return RuntimeState("FALLBACK", f"no code can be made here, so {runs}: pip install llvmlite")
        return RuntimeState("READY", "; ".join(self._net.graph.remarks))

    def close(self) -> None:
        del self._net


class SessionRuntime(_Loaded):
    """With sessions: the state of each caller stays here."""

    def __init__(self, spec: ModelSpec, options: RecurrentOptions) -> None:
        super().__init__(spec, options)
        self._lock = threading.Lock()
        self._open = self._steps = 0

    @property
    def session_bytes(self) -> int:
        """Of the states, with the copy that the next step writes."""
        kept = sum(2 * 4 * layer.spec.state_size(name) for layer in self._net.layers for name in layer.spec.cell.states)
        shapes = [one.shape for one in self._net.inputs if one.name in self._carried]
        carried = sum(8 * int(np.prod([max(1, side) for side in shape])) for shape in shapes)
        return kept + carried

    @property
    def sessions_only(self) -> bool:
        return False

    def open_session(self) -> Session:
        """Its states are zero. Raises BadRequest for a network without steps, and Overloaded beyond the limit."""
        with self._lock:
            try:
                made = self._net.session()
            except BadInput as error:
                raise BadRequest(error.what, where=error.where, hint=error.hint) from error
            self._open += 1
            return made

    def advance(
        self, sessions: Sequence[Session], inputs: Mapping[str, Array], outputs: Sequence[str]
    ) -> Mapping[str, Array]:
        """One request of each session: row i is that of session i, of one or more time steps."""
        wanted = list(outputs) or self._outputs
        if self._frames:
            return self._advance_frames(sessions, inputs, wanted)
        each = [{name: self._turned(one[at : at + 1]) for name, one in inputs.items()} for at in range(len(sessions))]
        if len(sessions) == 1:
            each = [{name: self._turned(one) for name, one in inputs.items()}]
        found = self._step(sessions, each, wanted)
        return {name: np.concatenate([self._turned(one[name]) for one in found]) for name in wanted}

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Without a session: from states of zero."""
        if not self._frames:
            return super().run(inputs, outputs)
        rows = next((len(one) for one in inputs.values()), 1)
        sessions: list[Session] = []
        try:
            for _ in range(rows):
                sessions.append(self.open_session())
            return self.advance(sessions, inputs, outputs)
        finally:
            for one in sessions:
                self.close_session(one)

    def _advance_frames(
        self, sessions: Sequence[Session], inputs: Mapping[str, Array], wanted: list[str]
    ) -> Mapping[str, Array]:
        """One frame after the other. A frame that fails takes those before it back."""
        counts = {one.shape[1] for one in inputs.values()}
        if len(counts) != 1 or counts == {0}:
            raise BadRequest("all inputs have the same number of frames, and one at least")
        before, frames = [one.snapshot() for one in sessions], []
        try:
            for at in range(counts.pop()):
                each = [{name: one[row, at] for name, one in inputs.items()} for row in range(len(sessions))]
                frames.append(self._step(sessions, each, wanted))
        except ShoalError:
            for session, kept in zip(sessions, before, strict=True):
                session.restore(kept)
            raise
        for session, kept in zip(sessions, before, strict=True):
            session.before_last = kept
        rows = range(len(sessions))
        return {name: np.stack([[frame[row][name] for frame in frames] for row in rows]) for name in wanted}

    def _step(
        self, sessions: Sequence[Session], each: Sequence[Mapping[str, Array]], wanted: list[str]
    ) -> list[dict[str, Array]]:
        try:
            found = self._net.step(sessions, each, wanted)
        except BadInput as error:
            raise BadRequest(error.what, where=error.where, hint=error.hint) from error
        except ShoalError as error:
            raise ModelFailed(error.what, where=f"model {self._name!r}") from error
        self._steps += len(sessions)
        return found

    def undo(self, session: Session) -> None:
        """The state is as before the last request."""
        session.undo()

    def close_session(self, session: Session) -> None:
        with self._lock:
            session.close()
            self._open -= 1

    def figures(self) -> Mapping[str, float]:
        return {"sessions": float(self._open), "session_steps_total": float(self._steps)}


class SequenceRuntime(_Loaded):
    """By steps: each request is one whole sequence, and all that are here make one batch."""

    def __init__(self, spec: ModelSpec, options: RecurrentOptions) -> None:
        super().__init__(spec, options)
        self.rows = max(1, spec.max_batch)
        try:
            self._here = Sequences(self._net)
        except ShoalError as error:
            raise BadModel(error.what, where=f"{place(spec)}: {error.where or 'by_steps'}", hint=error.hint) from error

    def join(self, requests: Mapping[int, Mapping[str, Array]]) -> None:
        """Add requests. Raises BadRequest, and then none has joined."""
        wanted = self.metadata.inputs[0].name
        for inputs in requests.values():
            if wanted not in inputs:
                raise BadRequest(f"the input {wanted!r} is missing")
        self._here.join({number: self._turned(inputs[wanted]) for number, inputs in requests.items()})

    def step(self) -> Mapping[int, Mapping[str, Array]]:
        """One step of all requests; the outputs of those that it finished."""
        return {
            number: {name: self._turned(outputs[name]) for name in self._outputs}
            for number, outputs in self._here.step().items()
        }

    def leave(self, request: int) -> None:
        self._here.leave(request)


def _open(path: Path, options: RecurrentOptions, spec: ModelSpec) -> Network:
    threads = max(1, spec.threads)
    if path.suffix == ".rnn":
        return load(path, threads=threads, max_sessions=_most(spec))
    return load(
        path, set=options.set, state=options.state, shape=options.shape, cell=options.cell, type=options.type,
        first_type=options.first_type, threads=threads, max_sessions=_most(spec),
    )  # fmt: skip


def _most(spec: ModelSpec) -> int:
    """Sessions of callers, or of the requests of a batch."""
    return max(spec.max_sequences, spec.max_batch, 1)
