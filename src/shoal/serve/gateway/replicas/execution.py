"""One execution as the gateway sees it: what is sent to the replica, and what its answer comes to. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shoal.core import ShoalError
from shoal.inference.errors import ModelFailed
from shoal.inference.tensors import Stacked, outputs_for
from shoal.inference.types import Buffer, InferRequest, InferResponse, ModelMetadata, Tensor
from shoal.serve.replica.arena import ALIGNMENT
from shoal.serve.replica.messages import ExecutionResponse, Placed, Times, contents_of
from shoal.serve.replica.wire import WireError
from shoal.serve.types import StepWork

_GUESSED_BYTES = 16 << 10
"""Of outputs per sample, where the metadata do not tell."""


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """What came of each request, in order: its response, or the error that the model has with it (ModelFailed,
    BadRequest; Unavailable if it lacks something, NotReady if it was not loaded any more). `times` are the replica's,
    and so is `work`, of a model that works in steps."""

    responses: tuple[InferResponse | ShoalError, ...]
    times: Times
    work: StepWork | None = None


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


def wanted_outputs(requests: Sequence[InferRequest], metadata: ModelMetadata) -> tuple[str, ...]:
    """The outputs that the requests need between them; none for all."""
    names: dict[str, None] = {}
    for request in requests:
        own = outputs_for(request, metadata)
        if not own:
            return ()
        names.update(dict.fromkeys(own))
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
    answer: ExecutionResponse, data: memoryview, version: str, metadata: ModelMetadata,
    requests: Sequence[InferRequest],
) -> tuple[ExecutionResult, int]:  # fmt: skip
    """The answer with the contents of its tensors copied out of `data`, and how many bytes they are. Raises WireError
    if it is no answer to these requests, or claims more than there is."""
    if len(answer.outcomes) != len(requests):
        raise WireError(f"{len(answer.outcomes)} outcomes for {len(requests)} requests")
    used = sum([tensor.nbytes for outcome in answer.outcomes if isinstance(outcome, list) for tensor in outcome])
    if used > len(data):
        raise WireError("the tensors of the answer overlap")
    responses = tuple(
        outcome if isinstance(outcome, ShoalError) else _response(outcome, data, version, metadata, request)
        for outcome, request in zip(answer.outcomes, requests, strict=True)
    )
    return ExecutionResult(responses, answer.times, answer.work), used


def _response(
    placed: Sequence[Placed], data: memoryview, version: str, metadata: ModelMetadata, request: InferRequest
) -> InferResponse | ModelFailed:
    outputs = [Tensor(each.name, each.datatype, each.shape, bytes(contents_of(each, data))) for each in placed]
    wanted = outputs_for(request, metadata)
    if wanted:
        by_name = {tensor.name: tensor for tensor in outputs}
        missing = [name for name in wanted if name not in by_name]
        if missing:
            return ModelFailed(f"it gave no output {', '.join(missing)}", where=f"model {request.model!r}")
        outputs = [by_name[name] for name in wanted]
    return InferResponse(request.model, version, outputs, request.id)
