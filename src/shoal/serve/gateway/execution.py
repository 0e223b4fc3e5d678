"""One execution as the gateway sees it: what is sent to the replica, and what its answer comes to. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shoal.core import ShoalError
from shoal.serve.errors import ModelFailed
from shoal.serve.replica.arena import ALIGNMENT
from shoal.serve.replica.messages import ExecutionResponse, Placed, Times, contents_of
from shoal.serve.replica.wire import WireError
from shoal.serve.tensors import Stacked
from shoal.serve.types import Buffer, InferRequest, InferResponse, ModelMetadata, Tensor

_GUESSED_BYTES = 16 << 10
"""Of outputs per sample, where the metadata do not tell."""


@dataclass(frozen=True, slots=True)
class Execution:
    """What came of each request, in order: its response, or the error that the model has with it (ModelFailed,
    BadRequest; NotReady if it was not loaded any more). `times` are the replica's."""

    responses: tuple[InferResponse | ShoalError, ...]
    times: Times


def lay_out(stacked: Sequence[Stacked], offset: int) -> tuple[list[Placed], int]:
    """Where the inputs lie from `offset` on, each on a cache line of its own; and where the last one ends."""
    placed = []
    for each in stacked:
        placed.append(Placed(each.name, each.datatype, each.shape, offset, each.nbytes))
        offset += each.nbytes + -each.nbytes % ALIGNMENT
    return placed, offset


def laid_out_bytes(stacked: Sequence[Stacked]) -> int:
    """How much of the arena they take."""
    return sum([each.nbytes + -each.nbytes % ALIGNMENT for each in stacked])


def payload_of(stacked: Sequence[Stacked]) -> list[Buffer]:
    """The inputs as they are laid out from offset 0, in parts."""
    parts: list[Buffer] = []
    for each in stacked:
        parts += each.parts
        parts.append(bytes(-each.nbytes % ALIGNMENT))
    return parts


def wanted_outputs(requests: Sequence[InferRequest]) -> tuple[str, ...]:
    """The outputs that the requests need between them; none for all."""
    names: dict[str, None] = {}
    for request in requests:
        if not request.outputs:
            return ()
        names.update((output.name, None) for output in request.outputs)
    return tuple(names)


def expected_bytes(metadata: ModelMetadata) -> int:
    """How much one sample's outputs will need, exactly if the metadata tell."""
    total = 0
    for output in metadata.outputs:
        sides = output.shape[1:] if metadata.max_batch > 1 else output.shape
        if output.datatype.size is None or -1 in sides:
            return _GUESSED_BYTES
        total += prod(sides) * output.datatype.size
    return total


def execution_of(
    answer: ExecutionResponse, data: memoryview, version: str, requests: Sequence[InferRequest]
) -> tuple[Execution, int]:
    """The answer with the contents of its tensors copied out of `data`, and how many bytes they are. Raises WireError
    if it is no answer to these requests, or claims more than there is."""
    if len(answer.outcomes) != len(requests):
        raise WireError(f"{len(answer.outcomes)} outcomes for {len(requests)} requests")
    used = sum([tensor.nbytes for outcome in answer.outcomes if isinstance(outcome, list) for tensor in outcome])
    if used > len(data):
        raise WireError("the tensors of the answer overlap")
    responses = tuple(
        outcome if isinstance(outcome, ShoalError) else _response(outcome, data, version, request)
        for outcome, request in zip(answer.outcomes, requests, strict=True)
    )
    return Execution(responses, answer.times), used


def _response(
    placed: Sequence[Placed], data: memoryview, version: str, request: InferRequest
) -> InferResponse | ModelFailed:
    outputs = [Tensor(each.name, each.datatype, each.shape, bytes(contents_of(each, data))) for each in placed]
    if request.outputs:
        by_name = {tensor.name: tensor for tensor in outputs}
        missing = [output.name for output in request.outputs if output.name not in by_name]
        if missing:
            return ModelFailed(f"it gave no output {', '.join(missing)}", where=f"model {request.model!r}")
        outputs = [by_name[output.name] for output in request.outputs]
    return InferResponse(request.model, version, outputs, request.id)
