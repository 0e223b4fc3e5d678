"""The protocol's JSON documents about servers and models, as plain dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from shoal import __version__
from shoal.inference.types import DataType, ModelMetadata, TensorSpec
from shoal.serve.contract import VersionStatus
from shoal.serve.gateway.shared_memory import Region
from shoal.serve.gateway.stats import Stats, Total

_EXTENSIONS = (
    "binary_tensor_data", "classification", "model_configuration", "model_repository", "parameters",
    "schedule_policy", "sequence", "statistics", "system_shared_memory",
)  # fmt: skip


def server() -> dict[str, Any]:
    return {"name": "shoal", "version": __version__, "extensions": _EXTENSIONS}


def metadata(model: ModelMetadata) -> dict[str, Any]:
    return {
        "name": model.name,
        "versions": model.versions,
        "platform": model.platform,
        "inputs": [_spec(one) for one in model.inputs],
        "outputs": [_spec(one) for one in model.outputs],
    }


def config(model: ModelMetadata) -> dict[str, Any]:
    """A model configuration as far as it is known: what clients look up in it are the batch size and the dimensions.

    max_batch_size is not 0 only where every tensor begins with the batch dimension, which `dims` then leave out.
    """
    batched = all(one.shape[:1] == (-1,) for one in (*model.inputs, *model.outputs))
    batch = model.max_batch if batched else 0
    return {
        "name": model.name,
        "platform": model.platform,
        "backend": model.platform.partition("_")[0],  # `onnxruntime` of the platform `onnxruntime_onnx`
        "max_batch_size": batch,
        "input": [_config_spec(one, batch) for one in model.inputs],
        "output": [_config_spec(one, batch) for one in model.outputs],
    }


def statistics(models: Sequence[Stats]) -> dict[str, Any]:
    """Triton's statistics, and `rejected`: the requests that were refused before they were worked on."""
    return {"model_stats": [_statistics(one) for one in models]}


def index(versions: Sequence[VersionStatus]) -> list[dict[str, str]]:
    return [
        {"name": one.model, "version": one.version, "state": one.state} | ({"reason": one.reason} if one.reason else {})
        for one in versions
    ]


def regions(registered: Iterable[Region]) -> list[dict[str, Any]]:
    return [{"name": one.name, "key": one.key, "offset": one.offset, "byte_size": one.size} for one in registered]


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


def _config_spec(spec: TensorSpec, batch: int) -> dict[str, Any]:
    kind = "STRING" if spec.datatype is DataType.BYTES else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": spec.shape[1:] if batch else spec.shape}


def _statistics(one: Stats) -> dict[str, Any]:
    return {
        "name": one.name,
        "version": one.version,
        "last_inference": round(one.last_at * 1e3),
        "inference_count": one.inferences,
        "execution_count": one.executions,
        "inference_stats": {name: _duration(getattr(one, name)) for name in _TIMES} | _NO_CACHE,
        "batch_stats": [
            {"batch_size": size, "compute_input": _NEVER, "compute_infer": _duration(infer), "compute_output": _NEVER}
            for size, infer in sorted(one.batches.items())
        ],
    }


def _duration(one: Total) -> dict[str, int]:
    return {"count": one.count, "ns": round(one.total_s * 1e9)}


_TIMES = ("success", "fail", "rejected", "queue", "compute_input", "compute_infer", "compute_output")
_NEVER = {"count": 0, "ns": 0}
_NO_CACHE = {"cache_hit": _NEVER, "cache_miss": _NEVER}
