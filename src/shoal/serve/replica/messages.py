"""The typed bodies of the frames: how each is written, and how a reader that does not trust the writer reads it."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from math import prod
from typing import Any, ParamSpec, TypeVar

import orjson

from shoal.core import ShoalError, Unavailable
from shoal.inference.errors import BadModel, BadRequest, ModelFailed
from shoal.inference.opening import LoadReport
from shoal.inference.runtime import MOST_FIGURES, MOST_KEPT_BYTES, Condition, RuntimeState
from shoal.inference.types import MAX_SEQUENCES, SEQUENCE_IDLE_S, DataType, ModelSpec, StatePair, TensorSpec
from shoal.serve.contract import codec
from shoal.serve.errors import NotReady
from shoal.serve.replica.wire import WireError
from shoal.serve.types import StepWork

PROTOCOL = 1
"""Raised with each change that an older side would not understand."""

Step = tuple[int, int]
"""A sequence's number, which the gateway gave it, and how many of its steps were answered before this one."""

ModelKey = tuple[str, str]
"""A model's name and version."""

_DATATYPES = {str(datatype): datatype for datatype in DataType}
_ERRORS: dict[str, type[ShoalError]] = {
    each.code: each for each in (BadModel, BadRequest, ModelFailed, NotReady, Unavailable)
}
_LONGEST_TEXT = 4000
_USUAL = {
    "options": {}, "state": (), "max_sequences": MAX_SEQUENCES, "sequence_idle_s": SEQUENCE_IDLE_S,
}  # fmt: skip
"""Fields of a model that replicas of older releases do not know."""
_FIGURE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_WORD = re.compile(r"[A-Z][A-Z0-9_-]{0,31}")
_MALFORMED = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor whose contents are `nbytes` at `offset`. Inputs count from the start of the arena, outputs from the
    start of the room for them; in a frame with a payload both count from the start of that."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ExecutionRequest:
    """One execution. `sizes` are the samples of each request put together; the outputs go to the arena's `room` bytes
    from `offset`, or if that is too little into the payload of the answer. `steps` are those of sequences, one for each
    request; none where the requests belong to no sequence."""

    model: ModelKey
    inputs: tuple[Placed, ...]
    outputs: tuple[str, ...]
    sizes: tuple[int, ...]
    offset: int
    room: int
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds that the replica took: to make arrays of the inputs, to run the model, to put the outputs in their
    place; `device_s` from taking up the work until it was free again."""

    compute_input_s: float
    compute_infer_s: float
    compute_output_s: float
    device_s: float


Outcome = list[Placed] | ShoalError
"""What became of one request: its outputs, or why there are none."""


@dataclass(frozen=True, slots=True)
class ExecutionResponse:
    """The outcomes in the order of the requests. `work` is of a request that was worked on in steps."""

    outcomes: list[Outcome]
    times: Times
    work: StepWork | None = None


P = ParamSpec("P")
T = TypeVar("T")


def _distrusting(read: Callable[P, T]) -> Callable[P, T]:
    """Whatever nonsense makes the reader stumble, it is the writer's fault."""

    @wraps(read)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except _MALFORMED as error:
            raise WireError(f"{read.__name__}: {type(error).__name__}: {error}") from error

    return wrapped


def write_request(question: ExecutionRequest) -> list[object]:
    inputs = [(t.name, t.datatype, t.shape, t.offset, t.nbytes) for t in question.inputs]
    body = [question.model, inputs, question.outputs, question.sizes, question.offset, question.room]
    return [*body, question.steps] if question.steps else body


@_distrusting
def read_request(body: Any) -> ExecutionRequest:
    (name, version), inputs, outputs, sizes, offset, room, *more = body
    placed = tuple([_placed(each) for each in inputs])
    steps = tuple((_count(number), _count(answered)) for number, answered in more[0]) if more else ()
    return ExecutionRequest((_text(name), _text(version)), placed, tuple(outputs), tuple(sizes), offset, room, steps)


def write_response(answer: ExecutionResponse) -> list[object]:
    times = answer.times
    outcomes = [
        write_error(outcome)
        if isinstance(outcome, ShoalError)
        else [(t.name, t.datatype, t.shape, t.offset, t.nbytes) for t in outcome]
        for outcome in answer.outcomes
    ]
    body = [outcomes, times.compute_input_s, times.compute_infer_s, times.compute_output_s, times.device_s]
    return body if answer.work is None else [*body, [answer.work.steps, answer.work.rows, answer.work.step_s]]


@_distrusting
def read_response(body: Any) -> ExecutionResponse:
    outcomes, input_s, infer_s, output_s, device_s, *more = body
    return ExecutionResponse(
        [_error(each) if type(each) is dict else [_placed(tensor) for tensor in each] for each in outcomes],
        Times(_seconds(input_s), _seconds(infer_s), _seconds(output_s), _seconds(device_s)),
        _step_work(*more[0]) if more else None,
    )


def contents_of(tensor: Placed, data: memoryview) -> memoryview:
    """The tensor's bytes, which must lie in `data` and be as many as its shape needs. Raises WireError."""
    size = tensor.datatype.size
    if tensor.offset + tensor.nbytes > len(data):
        raise WireError(f"tensor {tensor.name!r} lies outside of its memory")
    if size is not None and prod(tensor.shape) * size != tensor.nbytes:
        raise WireError(f"tensor {tensor.name!r} of shape {list(tensor.shape)} cannot have {tensor.nbytes} bytes")
    return data[tensor.offset : tensor.offset + tensor.nbytes]


def write_error(error: ShoalError) -> dict[str, str | None]:
    known = type(error) if type(error) in _ERRORS.values() else ModelFailed
    return {"code": known.code, "what": _cut(error.what), "where": _cut(error.where), "hint": _cut(error.hint)}


@_distrusting
def read_error(body: Any) -> ShoalError:
    return _error(body)


@_distrusting
def read_spec(body: Any) -> ModelSpec:
    """The inverse of what `orjson` makes of a ModelSpec."""
    told = dict(body)
    sides = {side: tuple(_tensor_spec(each) for each in told.pop(side)) for side in ("inputs", "outputs")}
    pairs = tuple(StatePair(_text(one["input"]), _text(one["output"])) for one in told.pop("state", ()))
    return ModelSpec(**{**told, **sides, "state": pairs, "runtime": _text(told["runtime"])})


def write_load(spec: ModelSpec, kept: bytes | None) -> dict[str, object]:
    """What is as usual is left out, so that a replica of an older release can load it, too."""
    body = {one.name: getattr(spec, one.name) for one in fields(spec)}
    for name, usual in _USUAL.items():
        if body[name] == usual:
            del body[name]
    return body if kept is None else {**body, "kept": b64encode(kept).decode()}


@_distrusting
def read_load(body: Any) -> tuple[ModelSpec, bytes | None]:
    """The model, and what an earlier process of its runtime kept."""
    kept = body.get("kept")
    spec = read_spec({name: value for name, value in body.items() if name != "kept"})
    return spec, None if kept is None else b64decode(kept, validate=True)


def write_condition(key: ModelKey, condition: Condition) -> list[object]:
    """Leaves out figures whose names nobody could show, and more than can be kept: a runtime's slip is not to cost
    the replica its connection."""
    state, kept = condition.state, condition.kept
    named = [(name, value) for name, value in condition.figures.items() if _FIGURE.fullmatch(str(name))]
    figures = {str(name): float(value) for name, value in named[:MOST_FIGURES]}
    kept_text = None if kept is None or len(kept) > MOST_KEPT_BYTES else b64encode(kept).decode()
    word = state.word if _WORD.fullmatch(str(state.word)) else "UNKNOWN"
    said: list[object] = [*key, figures, word, _cut(str(state.reason)), kept_text, bool(state.is_well)]
    return [*said, True] if state.lasting else said  # an older gateway reads seven


@_distrusting
def read_condition(body: Any) -> tuple[ModelKey, Condition]:
    name, version, given, word, reason, kept, well, *lasting = body
    figures = {_figure(key): float(value) for key, value in given.items() if value is not None}
    data = None if kept is None else b64decode(kept, validate=True)
    if (
        len(figures) > MOST_FIGURES
        or len(data or b"") > MOST_KEPT_BYTES
        or not _WORD.fullmatch(word)
        or len(lasting) > 1
    ):
        raise ValueError("it says too much, or a state that is no word")
    state = RuntimeState(word, _text(reason), well is True, lasting == [True])
    return (_text(name), _text(version)), Condition(figures, state, data)


def _figure(name: str) -> str:
    if not _FIGURE.fullmatch(name):
        raise ValueError(f"{name!r:.80} is no name of a figure")
    return name


@_distrusting
def read_report(body: Any) -> LoadReport:
    """The inverse of what `orjson` makes of a LoadReport; for the gateway, which has the codec loaded anyway."""
    report: LoadReport = codec(LoadReport).validate_json(orjson.dumps(body), strict=True)
    if (
        min(report.load_s, report.warmup_s, report.resident_bytes, *(s for runs in report.runs for s in runs.seconds))
        < 0
    ):
        raise ValueError("nothing costs less than nothing")
    return report


@_distrusting
def read_key(body: Any) -> ModelKey:
    name, version = body
    return _text(name), _text(version)


@_distrusting
def read_ended(body: Any) -> tuple[ModelKey, list[int]]:
    """A model, and numbers of its sequences."""
    key, numbers = body
    return read_key(key), [_count(number) for number in numbers]


@_distrusting
def read_models(body: Any) -> dict[ModelKey, LoadReport]:
    """What a replica that joins has loaded."""
    return {(_text(name), _text(version)): read_report(report) for name, version, report in body}


@_distrusting
def read_hello(body: Any) -> tuple[int, str, str]:
    """(protocol, token, name)"""
    protocol, token, name = body
    return _count(protocol), _text(token), _text(name)


@_distrusting
def read_refusal(body: Any) -> tuple[str, bool]:
    """(why, whether to try again)"""
    why, again = body
    return _text(why), bool(again)


@_distrusting
def read_welcome(body: Any) -> tuple[int, int]:
    """(bytes of the arena, bytes of the longest payload that the gateway reads)"""
    arena_bytes, longest_payload = body
    return _count(arena_bytes), _count(longest_payload)


def _placed(body: Any) -> Placed:
    name, datatype, shape, offset, nbytes = body
    return Placed(_text(name), _DATATYPES[datatype], _shape(shape), _count(offset), _count(nbytes))


def _tensor_spec(body: Any) -> TensorSpec:
    shape = tuple(side if side == -1 else _count(side) for side in body["shape"])
    return TensorSpec(_text(body["name"]), _DATATYPES[body["datatype"]], shape)


def _error(body: Any) -> ShoalError:
    kind = _ERRORS.get(body["code"], ModelFailed)
    where, hint = body["where"], body["hint"]
    return kind(
        _text(body["what"]),
        where=None if where is None else _text(where),
        hint=None if hint is None else _text(hint),
    )


def _step_work(steps: Any, rows: Any, step_s: Any) -> StepWork:
    if _seconds(rows) < 1:
        raise ValueError(f"a step of {rows!r:.80} rows")
    return StepWork(_count(steps), float(rows), _seconds(step_s))


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r:.80} is no text")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r:.80} is no count")
    return value


def _shape(value: Any) -> tuple[int, ...]:
    for side in value:
        if type(side) is not int or side < 0:
            raise TypeError(f"{value!r:.80} is no shape")
    return tuple(value)


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or value < 0:
        raise TypeError(f"{value!r:.80} is no time")
    return float(value)


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:_LONGEST_TEXT].encode(errors="replace").decode()
