"""The two networks that the demo serves, each in a wheel, with licence, shapes and digests.

Every figure was read off the downloaded wheel, and the shapes off the opened model. `max_batch` was measured on CPUs
(`python benchmarks/networks.py bench`): a convolutional network gains nothing from larger batches there, as one sample
keeps a core's vector units busy already.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from shoal.core import NotFound
from shoal.inference import DataType, ModelSpec, TensorSpec


class Modality(StrEnum):
    """What a network looks at or listens to."""

    DOCUMENT = "document"
    PHOTO = "photo"
    FILE = "file"
    SPEECH = "speech"
    MUSIC = "music"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A pure-Python wheel on PyPI, the same for every platform."""

    project: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"


@dataclass(frozen=True, slots=True)
class Model:
    """One network. `member` is its path inside the wheel, `source` and `paper` where it comes from.

    Shapes begin with -1 where several calls can be put together; all other lengths are fixed, also where the file
    itself would take any. `max_batch` is as large as it pays on a CPU. `served_by` names the callable that a server
    runs instead of the bare file, and whose inputs and outputs these then are.
    """

    name: str
    task: str
    modality: Modality
    network: str
    licence: str
    source: str
    paper: str | None
    wheel: Wheel
    member: str
    sha256: str
    size_bytes: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int = 1
    served_by: str | None = None

    @property
    def file(self) -> str:
        """Its name in the cache."""
        return f"{self.name}.onnx"

    @property
    def takes_batches(self) -> bool:
        return self.inputs[0].shape[0] == -1

    def spec(self, source: str | Path, *, threads: int = 1) -> ModelSpec:
        """As it is deployed from the file `source`, whose digest is checked again when a replica loads it.

        A model with a callable of its own is found by that in the cache, wherever `source` is.
        """
        return ModelSpec(
            name=self.name,
            source=self.served_by or str(source),
            runtime="callable" if self.served_by else "onnx",
            threads=threads,
            max_batch=self.max_batch,
            sha256=None if self.served_by else self.sha256,
            inputs=self.inputs,
            outputs=self.outputs,
        )


def floats(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, DataType.FP32, shape)


RAPIDOCR = Wheel(
    "rapidocr-onnxruntime", "1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf", 14_915_192
)
_MAGIKA = Wheel("magika", "1.0.3", "938d8e033953f2ddeb8c35dc423aa289ca116bfa7a71a778f6e77460f9025803", 2_969_548)

MODELS: tuple[Model, ...] = (
    Model(
        name="orientation",
        task="is a line of text upside down?",
        modality=Modality.DOCUMENT,
        network="MobileNetV3 CNN (PP-OCR mobile v2.0)",
        licence="Apache-2.0",
        source="https://github.com/PaddlePaddle/PaddleOCR",
        paper="https://arxiv.org/abs/2009.09941",
        wheel=RAPIDOCR,
        member="rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        sha256="e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        size_bytes=585_532,
        inputs=(floats("x", -1, 3, 48, 192),),
        outputs=(floats("save_infer_model/scale_0.tmp_1", -1, 2),),
    ),
    Model(
        name="magika",
        task="which of 214 types is a file of?",
        modality=Modality.FILE,
        network="embedding and 1-D CNN over 2,048 bytes (standard_v3_3)",
        licence="Apache-2.0",
        source="https://github.com/google/magika",
        paper="https://arxiv.org/abs/2409.13768",
        wheel=_MAGIKA,
        member="magika/models/standard_v3_3/model.onnx",
        sha256="fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        size_bytes=3_163_737,
        inputs=(TensorSpec("bytes", DataType.INT32, (-1, 2048)),),
        outputs=(floats("target_label", -1, 214),),
    ),
)
"""18 MB to fetch, loaded in a blink, and eight times apart in what a call costs, which is what makes sharing a core
between tenants hard. The wheel of another candidate, silero-vad, has four times the size of magika's."""

_BY_NAME = {model.name: model for model in MODELS}


def find(name: str) -> Model:
    """Raises NotFound."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise NotFound(f"there is no model {name!r}", where="model", hint=f"known: {', '.join(_BY_NAME)}") from None
