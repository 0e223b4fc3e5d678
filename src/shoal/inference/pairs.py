"""State pairs: sequences for any model that takes its state as inputs and gives the next state as outputs.

A pair names an input and an output of the model. The state begins with zeros. What the model gives as output after one
step is its input at the next one. Callers see neither of the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from shoal.inference.checks import place
from shoal.inference.errors import BadModel, ModelFailed
from shoal.inference.runtime import Array, Runtime
from shoal.inference.tensors import numpy_dtype
from shoal.inference.types import DataType, ModelSpec, StatePair, TensorSpec


@dataclass(slots=True, eq=False)
class PairedSession:
    """The state by input name, each of one row; and the state before the last step, None where there is no way back."""

    state: Mapping[str, Array]
    before: Mapping[str, Array] | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Of one pair: the axis along which rows lie (None: the model takes one at a time), and the shape of one row."""

    pair: StatePair
    axis: int | None
    shape: tuple[int, ...]
    datatype: DataType


class PairedState:
    """A runtime with sessions, made of one without. `inner` is that runtime. Raises BadModel for pairs that the model
    does not have, and where a state's shape is not known."""

    sessions_only = True

    def __init__(self, inner: Runtime, spec: ModelSpec) -> None:
        self.inner = inner
        known = inner.metadata
        inputs = {one.name: one for one in known.inputs}
        outputs = {one.name: one for one in known.outputs}
        declared = {one.name: one.shape for one in spec.inputs}
        self._places = [_place(pair, inputs, outputs, declared, spec) for pair in spec.state]
        fed, given = {one.pair.input for one in self._places}, {one.pair.output for one in self._places}
        self.metadata = replace(
            known,
            inputs=tuple(one for one in known.inputs if one.name not in fed),
            outputs=tuple(one for one in known.outputs if one.name not in given),
        )
        if not self.metadata.inputs:
            raise BadModel("all inputs are state: nothing is left to ask", where=place(spec))
        self._outputs = tuple(one.name for one in self.metadata.outputs)
        self.session_bytes = 2 * sum(prod(one.shape) * (one.datatype.size or 0) for one in self._places)

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """The first step of as many sequences as there are rows, whose state is dropped: for the warm-up."""
        rows = next(iter(inputs.values())).shape[0] if self.metadata.max_batch > 1 else 1
        return self.advance([self.open_session() for _ in range(rows)], inputs, outputs)

    def open_session(self) -> PairedSession:
        return PairedSession({one.pair.input: np.zeros(one.shape, numpy_dtype(one.datatype)) for one in self._places})

    def advance(
        self, sessions: Sequence[PairedSession], inputs: Mapping[str, Array], outputs: Sequence[str]
    ) -> Mapping[str, Array]:
        feeds = dict(inputs)
        for one in self._places:
            rows = [session.state[one.pair.input] for session in sessions]
            feeds[one.pair.input] = rows[0] if len(rows) == 1 else np.concatenate(rows, axis=_axis(one))
        wanted = tuple(outputs) or self._outputs
        found = self.inner.run(feeds, (*wanted, *(one.pair.output for one in self._places)))
        following = [self._rows(one, found[one.pair.output], len(sessions)) for one in self._places]
        for at, session in enumerate(sessions):
            names = [one.pair.input for one in self._places]
            state = {name: rows[at] for name, rows in zip(names, following, strict=True)}
            session.before, session.state = session.state, state
        return {name: found[name] for name in wanted}

    def undo(self, session: PairedSession) -> None:
        assert session.before is not None, "only the last step can be taken back, and once"
        session.state, session.before = session.before, None

    def close_session(self, session: PairedSession) -> None:
        session.state, session.before = {}, None

    def close(self) -> None:
        self.inner.close()

    def _rows(self, one: _Place, array: Array, rows: int) -> list[Array]:
        """Copies, so that a session does not keep the state of a whole batch. Raises ModelFailed for a state that
        would not fit at the next step."""
        shape = list(one.shape)
        if rows > 1:
            shape[_axis(one)] = rows
        if list(array.shape) != shape or array.dtype != numpy_dtype(one.datatype):
            raise ModelFailed(
                f"the state {one.pair.output!r} is {array.dtype} {list(array.shape)}, and {one.pair.input!r} takes "
                f"{one.datatype} {shape}",
                where=f"model {self.metadata.name!r}",
            )
        return [np.array(part) for part in (np.split(array, rows, axis=_axis(one)) if rows > 1 else [array])]


def innermost(runtime: Runtime) -> Runtime:
    """The runtime itself, without what keeps state pairs for it."""
    return runtime.inner if isinstance(runtime, PairedState) else runtime


def _axis(one: _Place) -> int:
    assert one.axis is not None, "the gateway puts nothing together for a model without batches"
    return one.axis


def _place(
    pair: StatePair, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec],
    declared: Mapping[str, tuple[int, ...]], spec: ModelSpec,
) -> _Place:  # fmt: skip
    where = f"{place(spec)}, state {pair.input!r}"
    fed, given = inputs.get(pair.input), outputs.get(pair.output)
    if fed is None or given is None:
        what = f"input {pair.input!r}" if fed is None else f"output {pair.output!r}"
        names = ", ".join(inputs if fed is None else outputs)
        raise BadModel(f"the model has no {what}", where=where, hint=f"it has {names}")
    if fed.datatype is DataType.BYTES or fed.datatype is not given.datatype or len(fed.shape) != len(given.shape):
        what = (
            f"{pair.input!r} is {fed.datatype} {list(fed.shape)}, {pair.output!r} {given.datatype} {list(given.shape)}"
        )
        raise BadModel(what, where=where, hint="a pair is one tensor of numbers, before and after a step")
    told = declared.get(pair.input, fed.shape)
    if len(told) != len(fed.shape):
        raise BadModel(f"it is declared with {len(told)} dimensions and has {len(fed.shape)}", where=where)
    shape = [fixed if own == -1 else own for own, fixed in zip(fed.shape, told, strict=True)]
    free = [at for at, side in enumerate(fed.shape) if side == -1]
    if spec.max_batch > 1:
        if len(free) == 0 or sum(side == -1 for side in shape) != 1:
            raise BadModel(
                f"it has shape {list(fed.shape)}: which dimension is the batch's?", where=where,
                hint="exactly one must be free; declare the lengths of the others under `inputs`, or set max_batch: 1",
            )  # fmt: skip
        axis = shape.index(-1)
        shape[axis] = 1
        return _Place(pair, axis, tuple(shape), fed.datatype)
    return _Place(pair, None, tuple(1 if side == -1 else side for side in shape), fed.datatype)
