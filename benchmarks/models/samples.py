"""Real calls for the two small networks, and what a right answer to each says.

A `Sample` is one call: inputs as the network wants them, and a check that turns the outputs into a sentence and a
judgement. Lines of text are rendered, so what they say is known; files are those of this package and of installed ones.
Everything follows from a seed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models import pictures

Values = Mapping[str, NDArray[Any]]
"""Arrays by the names of a model's inputs or outputs."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the network answered, in words, and whether that is right."""

    right: bool
    says: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One call. `what` describes what the network is shown; `inputs` have a batch axis of length 1."""

    what: str
    inputs: Values
    check: Callable[[Values], Verdict]


def only(outputs: Values) -> NDArray[Any]:
    """The one output of a network that has one, without its batch axis."""
    (values,) = outputs.values()
    return values[0]  # type: ignore[no-any-return]


def channels_first(pixels: NDArray[Any]) -> NDArray[np.float32]:
    """(height, width, 3) to (1, 3, height, width)."""
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], dtype=np.float32)


def signed(pixels: pictures.Pixels) -> NDArray[np.float32]:
    """Blue first and between -1 and 1, as PP-OCR's networks were trained."""
    return channels_first(pixels[:, :, ::-1].astype(np.float32) / 127.5 - 1)


# --- lines of text ---


def fitted_line(pixels: pictures.Pixels, width: int) -> NDArray[np.float32]:
    """48 pixels high, squeezed into the width if it is too long, else with nothing behind it."""
    wide = min(width, round(48 * pixels.shape[1] / pixels.shape[0]))
    fitted = np.zeros((1, 3, 48, width), np.float32)
    fitted[..., :wide] = signed(pictures.resized(pixels, wide, 48))
    return fitted


def line(rng: np.random.Generator) -> tuple[str, pictures.Pixels]:
    text = pictures.phrase(rng, 2)
    return text, pictures.text_line(text, size=int(rng.integers(24, 33)), ink=int(rng.integers(0, 90)))


def orientation(rng: np.random.Generator) -> Sample:
    text, pixels = line(rng)
    turned = bool(rng.integers(2))
    if turned:
        pixels = pixels[::-1, ::-1]

    def check(outputs: Values) -> Verdict:
        upright, upside_down = only(outputs)
        return Verdict((upside_down > upright) == turned, f"180° {upside_down:.2f}")

    return Sample(f"{text!r}{', upside down' if turned else ''}", {"x": fitted_line(pixels, 192)}, check)


# --- files ---

_TYPES = {32: "csv", 46: "elf", 64: "gzip", 86: "jpeg", 143: "python", 153: "rst"}
"""Some of magika's 214 labels (`config.min.json` in its wheel)."""
_EDGE, _BLOCK, _PADDING = 1024, 4096, 256


def magika(rng: np.random.Generator) -> Sample:
    kinds = _files()
    kind = str(rng.choice(sorted(kinds)))
    file = kinds[kind][int(rng.integers(len(kinds[kind])))]

    def check(outputs: Values) -> Verdict:
        scores = only(outputs)
        best = int(scores.argmax())
        says = _TYPES.get(best, f"type {best}")
        return Verdict(says == kind, f"{says} {scores.max():.2f}")

    return Sample(f"{file.name}, {kind}", {"bytes": file_features(file.read_bytes())[None]}, check)


def file_features(content: bytes) -> NDArray[np.int32]:
    """Magika's 2,048 features: the first and last 1,024 bytes without white space around them, padded with 256."""
    first, last = content[:_BLOCK].lstrip(), content[-_BLOCK:].rstrip()
    if len(content) <= _BLOCK:
        first = last = content.strip()
    first, last = first[:_EDGE], last[-_EDGE:]
    features = np.full(2 * _EDGE, _PADDING, np.int32)
    features[: len(first)] = np.frombuffer(first, np.uint8)
    features[2 * _EDGE - len(last) :] = np.frombuffer(last, np.uint8)
    return features


@cache
def _files() -> dict[str, list[Path]]:
    """Files of known types: this package's own sources, and what scikit-learn and NumPy brought along."""
    learn, numbers = _package("sklearn"), _package("numpy")
    found = {
        "python": [*_package("shoal").rglob("*.py")],
        "csv": [learn / "datasets" / "data" / name for name in ("iris.csv", "wine_data.csv", "breast_cancer.csv")],
        "gzip": [*(learn / "datasets" / "data").glob("*.csv.gz")],
        "jpeg": [*(learn / "datasets" / "images").glob("*.jpg")],
        "rst": [*(learn / "datasets" / "descr").glob("*.rst")],
        "elf": [*numbers.rglob("*.so")] if sys.platform == "linux" else [],
    }
    large = {kind: sorted(file for file in files if file.stat().st_size > 500) for kind, files in found.items()}
    return {kind: files for kind, files in large.items() if files}


def _package(name: str) -> Path:
    """Where an installed package is, without importing it."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{name} is not installed", name=name)
    return Path(spec.origin).parent
