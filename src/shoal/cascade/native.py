"""libshoalcascade, bound: fused text features and flat trees.

It is built from `native/cascade` when Shoal is installed, where there is a compiler. Without it every step has a form
in Python, with the same results and many times slower; `capability` says so. Nothing here fails at import. Calls let go
of the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.core import Capability

DIRECTORY = Path(__file__).parent / "_native"
ABI = 1
WORD, SPACE = 1, 2
"""Bits of the kinds of characters."""
_BUILD_IT = "install a C++17 compiler (apt-get install g++), then install Shoal again"
_CONSEQUENCE = "pipelines are evaluated in Python: the same predictions, many times slower"

i32, i64, u32 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32
pointer = ctypes.c_void_p
Array = NDArray[Any]
Floats = NDArray[np.float64]
_Ends = ctypes.c_int64 * 2


class _Strings(ctypes.Structure):
    _fields_ = [("characters", pointer), ("offsets", pointer), ("count", i64)]


class _Text(ctypes.Structure):
    _fields_ = [
        *((name, i32) for name in (
            "analyzer", "lowest", "highest", "shortest_token", "sublinear", "binary", "norm", "hashed",
            "alternate_sign",
        )),
        ("width", i64), ("outputs", i64), ("character_kinds", pointer), ("idf", pointer), ("weights", pointer),
        ("vocabulary", _Strings), ("stop_words", _Strings),
    ]  # fmt: skip


class _Forest(ctypes.Structure):
    _fields_ = [
        *((name, i32) for name in ("features", "outputs", "strict", "single")),
        ("trees", i64), ("nodes", i64),
        *((name, pointer) for name in (
            "roots", "output_of", "kind", "feature", "threshold", "left", "right", "missing_left", "zero_missing",
            "set_begin", "set_words", "sets",
        )),
        ("leaf_width", i64), ("leaf", pointer),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings as UTF-32, one after the other. `offsets` has one entry more than there are strings."""

    characters: NDArray[np.uint32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[str]) -> Strings:
        joined = "".join(texts).encode("utf-32-le", "surrogatepass")
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
        return cls(np.frombuffer(joined or b"\0\0\0\0", np.uint32), offsets)

    def texts(self) -> list[str]:
        whole = self.characters[: self.offsets[-1]].tobytes().decode("utf-32-le", "surrogatepass")
        ends = self.offsets.tolist()
        return [whole[begin:end] for begin, end in itertools.pairwise(ends)]

    def bound(self) -> _Strings:
        return _Strings(self.characters.ctypes.data, self.offsets.ctypes.data, len(self.offsets) - 1)


@dataclass(frozen=True, slots=True)
class TextSettings:
    """`ShoalText` without weights. `shortest_token` counts characters; `width` counts columns."""

    analyzer: int
    lowest: int
    highest: int
    shortest_token: int
    sublinear: bool
    binary: bool
    norm: int
    hashed: bool
    alternate_sign: bool
    width: int


class TextKernel:
    """Texts to features, or to features times weights. `weights`: width x outputs, or None for features only."""

    def __init__(
        self, settings: TextSettings, vocabulary: Strings, stop_words: Strings, idf: Floats | None,
        weights: Floats | None,
    ) -> None:  # fmt: skip
        self._library = library()
        if self._library is None:
            raise RuntimeError(f"the native part is not there: {_BUILD_IT}")
        self._outputs = 0 if weights is None else weights.shape[1]
        made = _Text(
            **{name: int(getattr(settings, name)) for name in settings.__slots__},
            outputs=self._outputs,
            character_kinds=character_kinds().ctypes.data,
            idf=None if idf is None else idf.ctypes.data,
            weights=None if weights is None else weights.ctypes.data,
            vocabulary=vocabulary.bound(),
            stop_words=stop_words.bound(),
        )
        self._handle = self._library.shoal_text_new(ctypes.byref(made))
        self._row = ctypes.c_double * self._outputs
        self.probes = 0

    def project(self, texts: Sequence[str]) -> Floats:
        """rows x outputs. Raises UnicodeEncodeError where a term that is hashed has a lone surrogate."""
        out, rows = np.empty((len(texts), self._outputs)), Strings.of(texts)
        self.probes = self._library.shoal_text_project(
            self._handle, rows.characters.ctypes.data, rows.offsets.ctypes.data, len(texts), out.ctypes.data
        )
        if self.probes < 0:
            _refuse_surrogates(texts)
        return out

    def project_one(self, text: str) -> Sequence[float]:
        """The same of one text, without arrays: making one takes longer than a short text."""
        encoded, out = text.encode("utf-32-le", "surrogatepass"), self._row()
        self.probes = self._library.shoal_text_project(self._handle, encoded, _Ends(0, len(text)), 1, out)
        if self.probes < 0:
            _refuse_surrogates([text])
        return out[:]

    def features(self, texts: Sequence[str]) -> tuple[Floats, NDArray[np.int32], NDArray[np.int64]]:
        """Values, columns and row ends, as a sparse matrix by rows has them; columns ascend in a row."""
        rows, ends = Strings.of(texts), np.zeros(len(texts) + 1, np.int64)
        found = self._library.shoal_text_features(
            self._handle, rows.characters.ctypes.data, rows.offsets.ctypes.data, len(texts), ends.ctypes.data
        )
        if not found:
            _refuse_surrogates(texts)
        try:
            columns, values = np.empty(ends[-1], np.int32), np.empty(ends[-1])
            self._library.shoal_features_copy(found, columns.ctypes.data, values.ctypes.data)
        finally:
            self._library.shoal_features_free(found)
        return values, columns, ends

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.shoal_text_free(self._handle)
            self._handle = None


class ForestKernel:
    """Trees, flat. `arrays` are those of `ShoalForest` by name; `scalars` its numbers."""

    def __init__(self, scalars: dict[str, int], arrays: dict[str, Array]) -> None:
        self._library = library()
        if self._library is None:
            raise RuntimeError(f"the native part is not there: {_BUILD_IT}")
        made = _Forest(**scalars, **{name: array.ctypes.data for name, array in arrays.items()})
        self._row = ctypes.c_double * scalars["outputs"]
        self._handle = self._library.shoal_forest_new(ctypes.byref(made))
        self.fits = bool(self._handle)
        """False: one feature has more thresholds than ranks have room for."""

    def add(self, values: Floats, out: Floats) -> None:
        """Add the trees' leaves to `out` (rows x outputs). Both arrays are contiguous doubles."""
        self._library.shoal_forest_add(self._handle, values.ctypes.data, len(values), out.ctypes.data)

    def add_one(self, row: bytes, base: Sequence[float]) -> list[float]:
        """`base` and the trees' leaves of one row, which comes as the bytes of its doubles: to find an array's address
        takes longer than a hundred trees."""
        out = self._row(*base)
        self._library.shoal_forest_add(self._handle, row, 1, out)
        return out[:]

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.shoal_forest_free(self._handle)
            self._handle = None


@functools.cache
def character_kinds() -> NDArray[np.uint8]:
    """What Python's own `re` takes each code point for: bits `WORD` and `SPACE`."""
    every = "".join(map(chr, range(0x110000)))
    kinds = np.zeros(0x110000, np.uint8)
    for pattern, bit in ((r"\w+", WORD), (r"\s+", SPACE)):
        for found in re.finditer(pattern, every):
            kinds[found.start() : found.end()] |= bit
    return kinds


def available() -> bool:
    return library() is not None


def capability(directory: Path = DIRECTORY) -> Capability:
    found = _load(directory)
    if isinstance(found, str):
        return Capability("native cascade", False, f"{found}; {_BUILD_IT}", _CONSEQUENCE)
    return Capability("native cascade", True, str(directory / "libshoalcascade.so"))


def library() -> Any:
    """The loaded library, or None."""
    found = _load(DIRECTORY)
    return None if isinstance(found, str) else found


@functools.cache
def _load(directory: Path) -> ctypes.CDLL | str:
    path = directory / "libshoalcascade.so"
    if not path.exists():
        return f"{path.name} was not built"
    try:
        found = ctypes.CDLL(str(path))
        found.shoal_cascade_abi.restype = u32
        abi = found.shoal_cascade_abi()
    except (OSError, AttributeError) as problem:
        return f"{path} cannot be loaded: {problem}"
    if abi != ABI:
        return f"{path} has interface {abi}, not {ABI}: it is another version's"
    signatures: dict[str, tuple[object, tuple[object, ...]]] = {
        "shoal_text_new": (pointer, (pointer,)),
        "shoal_text_free": (None, (pointer,)),
        "shoal_text_project": (i64, (pointer, pointer, pointer, i64, pointer)),
        "shoal_text_features": (pointer, (pointer, pointer, pointer, i64, pointer)),
        "shoal_features_copy": (None, (pointer, pointer, pointer)),
        "shoal_features_free": (None, (pointer,)),
        "shoal_forest_new": (pointer, (pointer,)),
        "shoal_forest_free": (None, (pointer,)),
        "shoal_forest_add": (None, (pointer, pointer, i64, pointer)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def _refuse_surrogates(texts: Sequence[str]) -> None:
    """Raise what encoding the text raises, as the original does."""
    for text in texts:
        text.encode("utf-8")
    raise RuntimeError("a term could not be hashed")
