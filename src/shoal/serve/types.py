"""What moves through a server: tensors, requests and responses, and what is deployed.

Tensor contents travel as raw bytes in the Open Inference Protocol's binary layout (little-endian, row-major, no
padding; `BYTES` elements each with a 4-byte length in front), so that the gateway never needs to look into them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import prod

from shoal.core import PriorityClass

Buffer = bytes | bytearray | memoryview

Parameter = bool | int | float | str

LOAD_TIMEOUT_S = 300.0


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


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """`platform` names the runtime, as in `onnxruntime_onnx`; `max_batch` 0 means that the model takes no batches."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int = 0


PICKLES = frozenset({".pkl", ".pickle", ".joblib", ".p", ".dill", ".cloudpickle"})
"""Suffixes of files that run any code in them when they are opened: no model is loaded from one."""
WITHOUT_PICKLE = "convert it where you trust it: skl2onnx.to_onnx(...), or skops.io.dump(model, 'model.skops')"


def is_callable(source: str) -> bool:
    """Whether a model's source is `package.module:attribute`."""
    module, colon, attribute = source.partition(":")
    return bool(colon) and all(word.isidentifier() for word in (*module.split("."), *attribute.split(".")))


class RuntimeKind(StrEnum):
    ONNX = "onnx"
    CALLABLE = "callable"
    SKLEARN = "sklearn"
    TORCH = "torch"


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One version of a model: where it is and how it is run.

    `source` is a path, or `package.module:attribute` for a callable. `threads` are those of one execution, and the
    compute slots it occupies. `max_batch` 0 or 1 means that requests are never put together.
    """

    name: str
    source: str
    runtime: RuntimeKind = RuntimeKind.ONNX
    version: str = "1"
    threads: int = 1
    max_batch: int = 1
    warmup: int = 2
    sha256: str | None = None
    inputs: tuple[TensorSpec, ...] = ()
    """Only where the runtime cannot tell by itself (a callable), or to fix a free dimension for the warm-up."""
    outputs: tuple[TensorSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """How a model's requests are shared among its versions: `shares` by version (canary; they sum to 1), and what
    part of them is copied to `shadow`, whose answers are thrown away."""

    shares: tuple[tuple[str, float], ...]
    shadow: str | None = None
    shadow_share: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A tenant's deployed service. `slo_p99_s` is its latency objective and the default deadline of its requests;
    `rate_limit` is in compute-seconds per second, `burst_s` how many compute-seconds may be saved up. A replica that
    needs longer than `load_timeout_s` to load one model is taken for stuck, and is replaced."""

    name: str
    tenant: str
    models: tuple[ModelSpec, ...]
    routes: tuple[tuple[str, Route], ...] = ()
    replicas: int = 1
    priority_class: PriorityClass = PriorityClass.GUARANTEED
    slo_p99_s: float | None = None
    rate_limit: float | None = None
    burst_s: float = 1.0
    memory_bytes: int = 0
    load_timeout_s: float = LOAD_TIMEOUT_S
