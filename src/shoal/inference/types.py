"""Tensors, requests and responses of an inference server, and the models that it runs.

Tensor contents travel as raw bytes in the Open Inference Protocol's binary layout (little-endian, row-major, no
padding; `BYTES` elements each with a 4-byte length in front), so that the gateway never needs to look into them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import Any

Buffer = bytes | bytearray | memoryview

Parameter = bool | int | float | str


READY = "READY"
"""The state of a model with which all is well."""


class DataType(StrEnum):
    """The protocol's data types."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"

    @property
    def size(self) -> int | None:
        """Bytes per element; None for `BYTES`, whose elements have a length of their own."""
        return _SIZES.get(self)


_SIZES = {
    DataType.BOOL: 1, DataType.UINT8: 1, DataType.UINT16: 2, DataType.UINT32: 4, DataType.UINT64: 8,
    DataType.INT8: 1, DataType.INT16: 2, DataType.INT32: 4, DataType.INT64: 8,
    DataType.FP16: 2, DataType.BF16: 2, DataType.FP32: 4, DataType.FP64: 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a model; -1 in `shape` stands for any length. The batch dimension, if the model has one,
    is the first and is -1."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]


@dataclass(slots=True)
class Tensor:
    """`data` holds the elements in the protocol's binary layout."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]
    data: Buffer

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """`classes` > 0 asks for the top classes as strings (the classification extension)."""

    name: str
    binary: bool = False
    classes: int = 0


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """The place of a request in a sequence of requests that share a state."""

    id: int | str
    start: bool = False
    end: bool = False


@dataclass(slots=True)
class InferRequest:
    """One call of one tenant. `timeout_s` is how long its answer is of use, None for the service's own objective.
    An empty `outputs` asks for all. `version` None leaves the choice to the traffic shares."""

    model: str
    inputs: list[Tensor]
    tenant: str = ""
    version: str | None = None
    id: str = ""
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: dict[str, Parameter] = field(default_factory=dict)
    timeout_s: float | None = None
    sequence: SequenceStep | None = None


@dataclass(slots=True)
class InferResponse:
    """`compute_s` is how long a replica was at it (at its whole batch), `queue_s` how long it was in the gateway beyond
    that; None where it was not measured."""

    model: str
    version: str
    outputs: list[Tensor]
    id: str = ""
    parameters: dict[str, Parameter] = field(default_factory=dict)
    queue_s: float | None = None
    compute_s: float | None = None


EXPLAIN = "explain"
"""The parameter of a request that asks for the outputs which say how an answer came about."""


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """`platform` names the runtime, as in `onnxruntime_onnx`; `max_batch` 0 means that the model takes no batches.
    `sequences_only`: each request must be a step of a sequence.

    Of the outputs, `on_request` are given only to a request that names them or has the parameter `explain`; `always`
    are given also to a request that names others."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int = 0
    sequences_only: bool = False
    on_request: tuple[str, ...] = ()
    always: tuple[str, ...] = ()


PICKLES = frozenset({".pkl", ".pickle", ".joblib", ".p", ".dill", ".cloudpickle"})
"""Suffixes of files that run any code in them when they are opened: no model is loaded from one."""
WITHOUT_PICKLE = "convert it where you trust it: skl2onnx.to_onnx(...), or skops.io.dump(model, 'model.skops')"


def is_callable(source: str) -> bool:
    """Whether a model's source is `package.module:attribute`."""
    module, colon, attribute = source.partition(":")
    return bool(colon) and all(word.isidentifier() for word in (*module.split("."), *attribute.split(".")))


@dataclass(frozen=True, slots=True)
class StatePair:
    """An input of a model that takes its state, and the output that gives the next one."""

    input: str
    output: str


MAX_SEQUENCES, SEQUENCE_IDLE_S = 1000, 60.0

DEFAULT_RUNTIME = "onnx"
"""Runs a model whose source does not say which runtime it is for."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One version of a model: where it is and how it is run.

    `source` is a path, or `package.module:attribute` for a callable. `runtime` is the name of a `RuntimeDeclaration`,
    and `options` are as its model of options takes them. `threads` are those of one execution, and the compute slots
    it occupies. `max_batch` 0 or 1 means that requests are never put together.
    """

    name: str
    source: str
    runtime: str = DEFAULT_RUNTIME
    version: str = "1"
    threads: int = 1
    max_batch: int = 1
    warmup: int = 2
    sha256: str | None = None
    inputs: tuple[TensorSpec, ...] = ()
    """Only where the runtime cannot tell by itself (a callable), or to fix a free dimension for the warm-up."""
    outputs: tuple[TensorSpec, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    state: tuple[StatePair, ...] = ()
    max_sequences: int = MAX_SEQUENCES
    sequence_idle_s: float = SEQUENCE_IDLE_S
    """A replica keeps the state of at most `max_sequences` sequences at once, and drops the state of a sequence
    without a request for `sequence_idle_s`."""
