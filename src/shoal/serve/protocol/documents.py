"""The protocol's JSON documents about servers and models, as plain dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal import __version__
from shoal.serve.gateway.backend import Duration, IndexEntry, ModelStatistics
from shoal.serve.types import DataType, ModelMetadata, TensorSpec

SERVER_NAME = "shoal"

EXTENSIONS = (
    "binary_tensor_data", "classification", "model_configuration", "model_repository", "parameters",
    "schedule_policy", "statistics",
)  # fmt: skip
SHARED_MEMORY = "system_shared_memory"

CONFIG_TYPES = {kind: f"TYPE_{'STRING' if kind is DataType.BYTES else kind}" for kind in DataType}
"""The datatypes in the words of a model configuration."""


def server(shared_memory: bool) -> dict[str, Any]:
    return {"name": SERVER_NAME, "version": __version__, "extensions": extensions(shared_memory)}


def extensions(shared_memory: bool) -> list[str]:
    return [*EXTENSIONS, SHARED_MEMORY] if shared_memory else [*EXTENSIONS]


def metadata(model: ModelMetadata) -> dict[str, Any]:
    return {
        "name": model.name,
        "versions": model.versions,
        "platform": model.platform,
        "inputs": [_spec(one) for one in model.inputs],
        "outputs": [_spec(one) for one in model.outputs],
    }


def config(model: ModelMetadata) -> dict[str, Any]:
    """A model configuration as far as it is known: what clients look up in it are the batch size and the dimensions."""
    batch = batch_size(model)
    return {
        "name": model.name,
        "platform": model.platform,
        "backend": backend(model),
        "max_batch_size": batch,
        "input": [_config_spec(one, batch) for one in model.inputs],
        "output": [_config_spec(one, batch) for one in model.outputs],
    }


def backend(model: ModelMetadata) -> str:
    """The runtime's name: `onnxruntime` of the platform `onnxruntime_onnx`."""
    return model.platform.partition("_")[0]


def batch_size(model: ModelMetadata) -> int:
    """The configuration's max_batch_size: not 0 only where every tensor begins with the batch dimension."""
    batched = all(one.shape[:1] == (-1,) for one in (*model.inputs, *model.outputs))
    return model.max_batch if batched else 0


def dims(spec: TensorSpec, batch: int) -> tuple[int, ...]:
    """A configuration leaves the batch dimension out of the shapes of models that take batches."""
    return spec.shape[1:] if batch else spec.shape


def statistics(models: Sequence[ModelStatistics]) -> dict[str, Any]:
    """Triton's statistics, and `rejected`: the requests that were refused before they were worked on."""
    return {"model_stats": [_statistics(one) for one in models]}


def index(entries: Sequence[IndexEntry]) -> list[dict[str, str]]:
    return [
        {"name": one.name, "version": one.version, "state": one.state} | ({"reason": one.reason} if one.reason else {})
        for one in entries
    ]


def nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def milliseconds(seconds: float) -> int:
    return round(seconds * 1e3)


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


def _config_spec(spec: TensorSpec, batch: int) -> dict[str, Any]:
    return {"name": spec.name, "data_type": CONFIG_TYPES[spec.datatype], "dims": dims(spec, batch)}


def _statistics(one: ModelStatistics) -> dict[str, Any]:
    return {
        "name": one.name,
        "version": one.version,
        "last_inference": milliseconds(one.last_at),
        "inference_count": one.inferences,
        "execution_count": one.executions,
        "inference_stats": {
            "success": _duration(one.success),
            "fail": _duration(one.fail),
            "rejected": _duration(one.rejected),
            "queue": _duration(one.queue),
            "compute_input": _duration(one.compute_input),
            "compute_infer": _duration(one.compute_infer),
            "compute_output": _duration(one.compute_output),
            "cache_hit": _duration(NEVER),
            "cache_miss": _duration(NEVER),
        },
        "batch_stats": [
            {
                "batch_size": size,
                "compute_input": _duration(NEVER),
                "compute_infer": _duration(infer),
                "compute_output": _duration(NEVER),
            }
            for size, infer in one.batches
        ],
    }


NEVER = Duration(0, 0.0)


def _duration(one: Duration) -> dict[str, int]:
    return {"count": one.count, "ns": nanoseconds(one.total_s)}
