"""Models, tensors and runtimes: what serving, measuring and every runtime have in common.

A component that runs models declares a `RuntimeDeclaration` and writes a `Runtime`; `read_model`, `describe` and `need`
are its checks. `tensors` and `protocol` (the Open Inference Protocol, over REST and gRPC) are modules of the face.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.inference.checks import ModelFile, describe, need, place, read_model
    from shoal.inference.errors import BadModel, BadRequest, ModelFailed
    from shoal.inference.opening import LoadReport, open_runtime, open_warm
    from shoal.inference.registry import RuntimeDeclaration, installed, runtime_named, runtime_of
    from shoal.inference.runtime import (
        Array,
        HasFigures,
        HasState,
        IdleWork,
        Keeps,
        Runtime,
        RuntimeState,
        Sessions,
        Steps,
        WarmUp,
    )
    from shoal.inference.types import DataType, ModelMetadata, ModelSpec, TensorSpec

__all__ = [
    "Array", "BadModel", "BadRequest", "DataType", "HasFigures", "HasState", "IdleWork", "Keeps", "LoadReport",
    "ModelFailed", "ModelFile", "ModelMetadata", "ModelSpec", "Runtime", "RuntimeDeclaration", "RuntimeState",
    "Sessions", "Steps", "TensorSpec", "WarmUp", "describe", "installed", "need", "open_runtime", "open_warm",
    "place", "read_model", "runtime_named", "runtime_of",
]  # fmt: skip

__getattr__ = on_first_use(globals(), {
    "checks": "ModelFile describe need place read_model",
    "errors": "BadModel BadRequest ModelFailed",
    "opening": "LoadReport open_runtime open_warm",
    "registry": "RuntimeDeclaration installed runtime_named runtime_of",
    "runtime": "Array HasFigures HasState IdleWork Keeps Runtime RuntimeState Sessions Steps WarmUp",
    "types": "DataType ModelMetadata ModelSpec TensorSpec",
})  # fmt: skip
