"""The gRPC messages of `inference.GRPCInferenceService`, built when first needed from the table below.

They live in a descriptor pool of their own: the default pool holds one definition per name, and in a process that also
loads Triton's client (a test, a proxy) both would claim `inference.*`.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

_MESSAGES = """
ServerLiveRequest:
ServerLiveResponse: bool live 1
ServerReadyRequest:
ServerReadyResponse: bool ready 1
ModelReadyRequest: string name 1, string version 2
ModelReadyResponse: bool ready 1
ServerMetadataRequest:
ServerMetadataResponse: string name 1, string version 2, [string] extensions 3
ModelMetadataRequest: string name 1, string version 2
ModelMetadataResponse: string name 1, [string] versions 2, string platform 3,
  [ModelMetadataResponse.TensorMetadata] inputs 4, [ModelMetadataResponse.TensorMetadata] outputs 5
ModelMetadataResponse.TensorMetadata: string name 1, string datatype 2, [int64] shape 3

InferParameter: bool? bool_param 1, int64? int64_param 2, string? string_param 3, double? double_param 4,
  uint64? uint64_param 5
InferTensorContents: [bool] bool_contents 1, [int32] int_contents 2, [int64] int64_contents 3,
  [uint32] uint_contents 4, [uint64] uint64_contents 5, [float] fp32_contents 6, [double] fp64_contents 7,
  [bytes] bytes_contents 8
ModelInferRequest: string model_name 1, string model_version 2, string id 3, {InferParameter} parameters 4,
  [ModelInferRequest.InferInputTensor] inputs 5, [ModelInferRequest.InferRequestedOutputTensor] outputs 6,
  [bytes] raw_input_contents 7
ModelInferRequest.InferInputTensor: string name 1, string datatype 2, [int64] shape 3, {InferParameter} parameters 4,
  InferTensorContents contents 5
ModelInferRequest.InferRequestedOutputTensor: string name 1, {InferParameter} parameters 2
ModelInferResponse: string model_name 1, string model_version 2, string id 3, {InferParameter} parameters 4,
  [ModelInferResponse.InferOutputTensor] outputs 5, [bytes] raw_output_contents 6
ModelInferResponse.InferOutputTensor: string name 1, string datatype 2, [int64] shape 3,
  {InferParameter} parameters 4, InferTensorContents contents 5
ModelStreamInferResponse: string error_message 1, ModelInferResponse infer_response 2

ModelConfigRequest: string name 1, string version 2
ModelConfigResponse: ModelConfig config 1
ModelConfig: string name 1, string platform 2, int32 max_batch_size 4, [ModelInput] input 5, [ModelOutput] output 6,
  string backend 17
ModelInput: string name 1, DataType data_type 2, [int64] dims 4
ModelOutput: string name 1, DataType data_type 2, [int64] dims 3

ModelStatisticsRequest: string name 1, string version 2
ModelStatisticsResponse: [ModelStatistics] model_stats 1
ModelStatistics: string name 1, string version 2, uint64 last_inference 3, uint64 inference_count 4,
  uint64 execution_count 5, InferStatistics inference_stats 6, [InferBatchStatistics] batch_stats 7
InferStatistics: StatisticDuration success 1, StatisticDuration fail 2, StatisticDuration queue 3,
  StatisticDuration compute_input 4, StatisticDuration compute_infer 5, StatisticDuration compute_output 6
InferBatchStatistics: uint64 batch_size 1, StatisticDuration compute_input 2, StatisticDuration compute_infer 3,
  StatisticDuration compute_output 4
StatisticDuration: uint64 count 1, uint64 ns 2

ModelRepositoryParameter: bool? bool_param 1, int64? int64_param 2, string? string_param 3, bytes? bytes_param 4
RepositoryIndexRequest: string repository_name 1, bool ready 2
RepositoryIndexResponse: [RepositoryIndexResponse.ModelIndex] models 1
RepositoryIndexResponse.ModelIndex: string name 1, string version 2, string state 3, string reason 4
RepositoryModelLoadRequest: string repository_name 1, string model_name 2, {ModelRepositoryParameter} parameters 3
RepositoryModelLoadResponse:
RepositoryModelUnloadRequest: string repository_name 1, string model_name 2, {ModelRepositoryParameter} parameters 3
RepositoryModelUnloadResponse:

SystemSharedMemoryStatusRequest: string name 1
SystemSharedMemoryStatusResponse: {SystemSharedMemoryStatusResponse.RegionStatus} regions 1
SystemSharedMemoryStatusResponse.RegionStatus: string name 1, string key 2, uint64 offset 3, uint64 byte_size 4
SystemSharedMemoryRegisterRequest: string name 1, string key 2, uint64 offset 3, uint64 byte_size 4
SystemSharedMemoryRegisterResponse:
SystemSharedMemoryUnregisterRequest: string name 1
SystemSharedMemoryUnregisterResponse:
"""
"""A line per message, its fields as TYPE NAME NUMBER: `[T]` is a list, `{T}` a map from strings, and all the `T?` of a
message are its oneof `parameter_choice`. Names and numbers are the wire's; fields that no server of ours fills are
left out, and what a caller puts into them is skipped."""

_DATA_TYPES = (
    "INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32",
    "FP64", "STRING", "BF16",
)  # fmt: skip
"""The enum `DataType` of model configurations, from 0."""


@cache
def messages() -> Any:
    """The message classes as attributes, `messages().ModelInferRequest`; nested ones hang on their outer class.

    Raises ImportError without protobuf, of the extra `serve`.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="open_inference.proto", package=PACKAGE, syntax="proto3")
    values = file.enum_type.add(name="DataType").value
    for number, name in enumerate(_DATA_TYPES):
        values.add(name=f"TYPE_{name}", number=number)
    declared: dict[str, Any] = {}
    for line in _MESSAGES.replace(",\n", ",").split("\n"):
        if line:
            name, _, fields = line.partition(":")
            outer, _, inner = name.rpartition(".")
            message = declared[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=inner)
            declared[name] = message
            for field in filter(None, fields.split(",")):
                _declare(message, f".{PACKAGE}.{name}", *field.split())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = message_factory.GetMessageClassesForFiles([file.name], pool)
    return SimpleNamespace(**{name.removeprefix(f"{PACKAGE}."): kind for name, kind in found.items()})


def _declare(message: Any, path: str, kind: str, name: str, number: str) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    field = message.field.add(name=name, number=int(number), label=Field.LABEL_OPTIONAL)
    if kind.endswith("?"):
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    elif kind[0] in "[{":
        field.label = Field.LABEL_REPEATED
    element = kind.strip("[]{}?")
    if kind[0] == "{":
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _declare(entry, f"{path}.{entry.name}", "string", "key", "1")
        _declare(entry, f"{path}.{entry.name}", element, "value", "2")
        field.type, field.type_name = Field.TYPE_MESSAGE, f"{path}.{entry.name}"
    elif element[0].isupper():
        field.type = Field.TYPE_ENUM if element == "DataType" else Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{element}"
    else:
        field.type = Field.Type.Value(f"TYPE_{element.upper()}")
