"""ONNX Runtime: on the CPU, and on CUDA where the installed onnxruntime has it.

Its threads are as many as the specification says, and they sleep when there is nothing to do: by default they spin
for work, which takes from neighbours the cores that all share. Inputs are used in place, without a copy. Only operators
that onnxruntime itself has can run, and external data must lie in the model's own directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

# onnxruntime reports its use to its makers, and keeps a file for it, unless told before it is loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort

from shoal.inference.checks import ModelFile, describe, first_line, place, read_model
from shoal.inference.errors import BadModel, ModelFailed
from shoal.inference.runtime import Array
from shoal.inference.tensors import as_text
from shoal.inference.types import DataType, ModelMetadata, ModelSpec, TensorSpec
from shoal.serve.runtimes.onnxfile import refuse_foreign_files

_TYPES = {
    "tensor(bool)": DataType.BOOL,
    "tensor(uint8)": DataType.UINT8, "tensor(uint16)": DataType.UINT16,
    "tensor(uint32)": DataType.UINT32, "tensor(uint64)": DataType.UINT64,
    "tensor(int8)": DataType.INT8, "tensor(int16)": DataType.INT16,
    "tensor(int32)": DataType.INT32, "tensor(int64)": DataType.INT64,
    "tensor(float16)": DataType.FP16, "tensor(float)": DataType.FP32, "tensor(double)": DataType.FP64,
    "tensor(string)": DataType.BYTES,
}  # fmt: skip

_ERRORS_ONLY = 3


class OnnxRuntime:
    """A session of onnxruntime. Raises BadModel for a file that it cannot or must not load."""

    def __init__(self, spec: ModelSpec) -> None:
        file = read_model(spec, spec.source, ".onnx")
        refuse_foreign_files(file, spec)
        try:
            self._session = ort.InferenceSession(file.data, _options(file, spec), providers=_providers())
        except Exception as error:  # its exceptions have no common base of their own
            raise BadModel(
                f"onnxruntime cannot load {file.path.name}: {first_line(error)}",
                where=place(spec),
                hint="check it with onnx.checker, or export it again",
            ) from error
        self._session.disable_fallback()
        self._session._model_bytes = None  # kept for the fallback only, and as large as the model
        self.metadata = _metadata(self._session, spec)
        self._outputs = [spec.name for spec in self.metadata.outputs]
        self._strings = frozenset(spec.name for spec in self.metadata.inputs if spec.datatype is DataType.BYTES)

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        feeds = dict(inputs)
        for name in self._strings:
            feeds[name] = as_text(feeds[name], f"input {name!r}")
        wanted = list(outputs) or self._outputs
        try:
            return dict(zip(wanted, self._session.run(wanted, feeds), strict=True))
        except Exception as error:
            raise ModelFailed(first_line(error), where=f"model {self.metadata.name!r}") from error

    def close(self) -> None:
        del self._session


def _options(file: ModelFile, spec: ModelSpec) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = max(1, spec.threads)
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.add_session_config_entry("session.load_model_format", "ONNX")
    folder = str(file.path.resolve().parent)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return options


def _providers() -> list[str]:
    wanted = ("CUDAExecutionProvider", "CPUExecutionProvider")
    available = ort.get_available_providers()
    return [name for name in wanted if name in available]


def _metadata(session: Any, spec: ModelSpec) -> ModelMetadata:
    inputs = tuple(_tensor_spec(each, spec) for each in session.get_inputs())
    outputs = tuple(_tensor_spec(each, spec) for each in session.get_outputs())
    return describe(spec, "onnxruntime_onnx", inputs, outputs)


def _tensor_spec(node: Any, spec: ModelSpec) -> TensorSpec:
    datatype = _TYPES.get(node.type)
    if datatype is None:
        raise BadModel(
            f"{node.name!r} is of type {node.type}, which the protocol cannot carry",
            where=place(spec),
            hint="export it with tensors only (skl2onnx: options={'zipmap': False}) and cast bfloat16 to float",
        )
    return TensorSpec(node.name, datatype, tuple(side if isinstance(side, int) else -1 for side in node.shape))
