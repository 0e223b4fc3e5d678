"""One execution in the replica: run requests that were put together, and put what comes out in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.core import ShoalError
from shoal.serve.errors import ModelFailed
from shoal.serve.replica.messages import Outcome, Placed
from shoal.serve.runtimes.base import Array, Runtime
from shoal.serve.tensors import split, to_tensor
from shoal.serve.types import Buffer, DataType, Tensor

Result = Mapping[str, Array] | ShoalError


def run_batch(
    runtime: Runtime, inputs: Mapping[str, Array], outputs: Sequence[str], sizes: Sequence[int]
) -> list[Result]:
    """Run requests of `sizes` samples that were put together. If that fails they are run one by one, so that one
    request that the model cannot digest does not spoil the others."""
    try:
        return [*split(runtime.run(inputs, outputs), sizes)]
    except BaseException as error:  # a model's code can raise anything, SystemExit as well
        if len(sizes) == 1:
            return [error if isinstance(error, ShoalError) else ModelFailed(f"{type(error).__name__}: {error}")]
    results: list[Result] = []
    start = 0
    for size in sizes:
        alone = {name: array[start : start + size] for name, array in inputs.items()}
        results += run_batch(runtime, alone, outputs, [size])
        start += size
    return results


def place_outputs(
    results: Sequence[Result], kinds: Mapping[str, DataType], room: memoryview, longest_payload: int
) -> tuple[list[Outcome], list[Buffer]]:
    """Put the outputs one after the other into `room`; if they need more, they are the parts of a payload. `kinds` are
    the outputs' declared types."""
    outcomes: list[Outcome] = []
    parts: list[Buffer] = []
    total = 0
    for result in results:
        try:
            tensors = _tensors(result, kinds)
        except ShoalError as error:
            outcomes.append(error)
            continue
        except Exception as error:  # objects that are neither bytes nor text can fail in any way when made so
            outcomes.append(ModelFailed(f"its output cannot be sent: {type(error).__name__}: {error}"))
            continue
        placed = []
        for tensor in tensors:
            size = len(tensor.data)
            placed.append(Placed(tensor.name, tensor.datatype, tensor.shape, total, size))
            parts.append(tensor.data)
            total += size
        outcomes.append(placed)
    if total > longest_payload:
        too_long = ModelFailed(f"{total} bytes of outputs are more than can be sent", hint="ask for fewer at once")
        return [too_long] * len(results), []
    if total > len(room):
        return outcomes, parts
    at = 0
    for part in parts:
        room[at : at + len(part)] = part
        at += len(part)
    return outcomes, []


def _tensors(result: Result, kinds: Mapping[str, DataType]) -> list[Tensor]:
    if isinstance(result, ShoalError):
        raise result
    return [to_tensor(name, array, kinds.get(name)) for name, array in result.items()]
