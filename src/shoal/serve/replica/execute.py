"""One execution in the replica: run requests that were put together, and put what comes out in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.core import ShoalError, Unavailable
from shoal.inference.errors import ModelFailed
from shoal.inference.runtime import Array, Runtime
from shoal.inference.tensors import split, to_tensor
from shoal.inference.types import Buffer, Tensor, TensorSpec
from shoal.serve.replica.messages import Outcome, Placed

_DECLARE = "declare `outputs` as the model gives them (-1 for any length), or have it give what is declared"

Result = Mapping[str, Array] | ShoalError


def run_batch(
    runtime: Runtime, inputs: Mapping[str, Array], outputs: Sequence[str], sizes: Sequence[int]
) -> list[Result]:
    """Run requests of `sizes` samples that were put together. If that fails they are run one by one, so that one
    request that the model cannot digest does not spoil the others. What the model lacks, they all lack: to wait for it
    once is enough."""
    try:
        return [*split(runtime.run(inputs, outputs), sizes)]
    except Unavailable as error:
        return [error] * len(sizes)
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
    results: Sequence[Result], declared: Mapping[str, TensorSpec], room: memoryview, longest_payload: int
) -> tuple[list[Outcome], list[Buffer]]:
    """Put the outputs one after the other into `room`; if they need more, they are the parts of a payload. `declared`
    are the outputs as the model's metadata say: what differs from that is the model's error."""
    outcomes: list[Outcome] = []
    parts: list[Buffer] = []
    total = 0
    for result in results:
        try:
            tensors = _tensors(result, declared)
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


def _tensors(result: Result, declared: Mapping[str, TensorSpec]) -> list[Tensor]:
    if isinstance(result, ShoalError):
        raise result
    tensors = []
    for name, array in result.items():
        spec = declared.get(name)
        if spec is None:
            raise ModelFailed(f"it gave an output {name!r} that is not declared", hint=_DECLARE)
        tensor = to_tensor(name, array, spec.datatype)
        if tensor.datatype is not spec.datatype or not _fits(tensor.shape, spec.shape):
            raise ModelFailed(
                f"its output {name!r} is {tensor.datatype} {list(tensor.shape)}, declared is {spec.datatype} "
                f"{list(spec.shape)}",
                hint=_DECLARE,
            )
        tensors.append(tensor)
    return tensors


def _fits(shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    return len(shape) == len(declared) and all(want in (-1, side) for side, want in zip(shape, declared, strict=True))
