"""Between a caller's arrays and the protocol's tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from shoal.serve.errors import BadRequest, ModelFailed
from shoal.serve.runtimes.base import Array
from shoal.serve.tensors import to_array, to_tensor
from shoal.serve.types import InferRequest, InferResponse, Parameter, RequestedOutput, Tensor


class Result(dict[str, Array]):
    """The outputs by name. Arrays are read-only views of what was received; strings are object arrays of `bytes`."""

    def __init__(self, response: InferResponse) -> None:
        super().__init__((tensor.name, to_array(tensor)) for tensor in response.outputs)
        self.model = response.model
        self.version = response.version
        """The version that answered."""
        self.id = response.id
        self.parameters = response.parameters


def question(
    model: str,
    inputs: Mapping[str, ArrayLike | Tensor],
    *,
    outputs: Sequence[str] = (),
    version: str | None = None,
    timeout_s: float | None = None,
    parameters: Mapping[str, Parameter] | None = None,
    id: str = "",  # the protocol's name
) -> InferRequest:
    """A request for these inputs. A `Tensor` is taken as it is, for types that arrays do not have (BF16).

    Raises BadRequest for an array that the protocol cannot carry.
    """
    given = dict(parameters or {})
    wanted = tuple(RequestedOutput(name, binary=True) for name in outputs)
    tensors = [_tensor(name, value) for name, value in inputs.items()]
    return InferRequest(model, tensors, "", version, id, wanted, given, timeout_s)


def _tensor(name: str, value: ArrayLike | Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return Tensor(name, value.datatype, value.shape, value.data)
    array = np.asarray(value)
    try:
        return to_tensor(name, array)
    except ModelFailed:
        raise BadRequest(
            f"the protocol has no datatype for an array of {array.dtype}", where=f"input {name!r:.80}", hint="cast it"
        ) from None
