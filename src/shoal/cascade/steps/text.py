"""scikit-learn's count, TF-IDF and hashing vectorisers, exact for all of Unicode.

Lower case and accents are Python's own functions, since `str.lower` may change a text's length; what is a letter or
white space is read from Python's `re` at run time. N-grams are counted in the native part, or in Python without it and
for patterns of tokens that are no plain runs of `\\w`.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from shoal.cascade import native
from shoal.cascade.steps.base import Array, Arrays, Floats

ANALYZERS = ("word", "char", "char_wb")
NORMS = (None, "l1", "l2")
ACCENTS = (None, "ascii", "unicode")
_RUNS = {
    r"(?u)\b\w\w+\b": 2, r"\b\w\w+\b": 2, r"(?u)\w\w+": 2, r"\w\w+": 2, r"\w{2,}": 2, r"(?u)\w{2,}": 2,
    r"(?u)\b\w+\b": 1, r"\b\w+\b": 1, r"(?u)\w+": 1, r"\w+": 1, r"\w{1,}": 1, r"(?u)\w{1,}": 1,
}  # fmt: skip
"""Patterns that find whole runs of letters, by the shortest run that they find."""
MOST_HASHED_GRAMS = 64
"""Lengths of hashed n-grams: no table of terms ends the search, so the work grows with the longest."""
_TWO_SPACES = re.compile(r"\s\s+")


@dataclass(frozen=True)
class TextStep:
    """`vocabulary` and `idf` are empty where there are none: hashed terms have no vocabulary."""

    kind: ClassVar[str] = "text"

    analyzer: str
    lowest: int
    highest: int
    token_pattern: str
    lowercase: bool
    strip_accents: str | None
    stop_words: tuple[str, ...]
    encoding: str
    decode_error: str
    binary: bool
    sublinear: bool
    norm: str | None
    hashed_columns: int
    alternate_sign: bool
    vocabulary: tuple[str, ...]
    idf: Floats | None

    def __post_init__(self) -> None:
        checks = {
            "analyzer": self.analyzer in ANALYZERS,
            "norm": self.norm in NORMS,
            "accents": self.strip_accents in ACCENTS,
            "range": 1 <= self.lowest <= self.highest,
            "pattern": bool(re.compile(self.token_pattern)),
            "columns": self.hashed_columns >= 0,
            "idf": self.idf is None or self.idf.shape == (self.width,),
        }
        if not all(checks.values()):
            raise ValueError(f"not a text step: {', '.join(name for name, holds in checks.items() if not holds)}")

    @property
    def width(self) -> int:
        return self.hashed_columns or len(self.vocabulary)

    @property
    def runs_natively(self) -> bool:
        """Whether the native part can count these terms."""
        if self.hashed_columns and self.highest > MOST_HASHED_GRAMS:
            return False
        return native.available() and (self.analyzer != "word" or self.token_pattern in _RUNS)

    def apply(self, block: Sequence[Any]) -> Any:
        """The features as a sparse matrix by rows."""
        from scipy.sparse import csr_matrix

        texts = self.prepare(block)
        if self.runs_natively:
            values, columns, ends = self._features.features(texts)
        else:
            rows = [self._weighted(text) for text in texts]
            ends = np.cumsum([0, *(len(row) for row in rows)])
            columns = np.fromiter((column for row in rows for column in row), np.int32, int(ends[-1]))
            values = np.fromiter((value for row in rows for value in row.values()), np.float64, int(ends[-1]))
        return csr_matrix((values, columns, ends), shape=(len(texts), self.width))

    def projection(self, weights: Floats) -> Callable[[Sequence[Any]], Floats]:
        weights = np.ascontiguousarray(weights, np.float64)
        if not self.runs_natively:
            return lambda block: np.asarray(self.apply(block) @ weights)
        return TextProjection(self, self._kernel(weights))

    def prepare(self, block: Sequence[Any]) -> list[str]:
        """Decoded, in lower case, without accents, as the settings say. Raises what the vectoriser raises."""
        fold = str.lower if self.lowercase else str
        strip = {"ascii": _without_accents_ascii, "unicode": _without_accents}.get(self.strip_accents or "")
        if strip is None and set(map(type, block)) <= {str}:
            return list(map(fold, block))
        texts = [fold(self._decode(text)) for text in block]
        return [strip(text) for text in texts] if strip else texts

    def _decode(self, text: Any) -> str:
        if isinstance(text, bytes):
            return text.decode(self.encoding, self.decode_error)
        if text is np.nan:
            raise ValueError("np.nan is an invalid document, expected byte or unicode string.")
        if not isinstance(text, str):
            raise AttributeError(f"{type(text).__name__!r} object has no attribute 'lower'")
        return text

    @functools.cached_property
    def _features(self) -> native.TextKernel:
        return self._kernel(None)

    def _kernel(self, weights: Floats | None) -> native.TextKernel:
        settings = native.TextSettings(
            ANALYZERS.index(self.analyzer), self.lowest, self.highest, _RUNS.get(self.token_pattern, 1), self.sublinear,
            self.binary, NORMS.index(self.norm), bool(self.hashed_columns), self.alternate_sign, self.width,
        )  # fmt: skip
        strings = native.Strings.of
        return native.TextKernel(settings, strings(self.vocabulary), strings(self.stop_words), self.idf, weights)

    # ---- the same in Python ----

    @functools.cached_property
    def _column_of(self) -> dict[str, int]:
        return {term: column for column, term in enumerate(self.vocabulary)}

    def _weighted(self, text: str) -> dict[int, float]:
        """Value by column of one prepared text, columns ascending."""
        counts: Counter[int] = Counter()
        for term in self._terms(text):
            if self.hashed_columns:
                column, sign = hash_term(term, self.hashed_columns)
                counts[column] += sign if self.alternate_sign else 1
            elif (column_of := self._column_of.get(term)) is not None:
                counts[column_of] += 1
        values: dict[int, float] = {}
        for column in sorted(counts):
            tf = 1.0 if self.binary else float(counts[column])
            value = np.log(tf) + 1.0 if self.sublinear else tf
            values[column] = float(value if self.idf is None else value * self.idf[column])
        norm = 0.0
        if self.norm is not None:
            norm = sum(map(abs, values.values())) if self.norm == "l1" else sum(v * v for v in values.values()) ** 0.5
        return {column: value / norm for column, value in values.items()} if norm else values

    def _terms(self, text: str) -> Iterator[str]:
        if self.analyzer == "word":
            yield from self._word_grams(re.findall(self.token_pattern, text))
        elif self.analyzer == "char":
            yield from self._grams(_TWO_SPACES.sub(" ", text))
        else:
            for word in text.split():
                padded = f" {word} "
                if len(padded) < self.lowest:
                    yield padded
                else:
                    yield from self._grams(padded)

    def _word_grams(self, tokens: list[str]) -> Iterator[str]:
        stops = frozenset(self.stop_words)
        kept = [token for token in tokens if token not in stops]
        for size in range(self.lowest, min(self.highest, len(kept)) + 1):
            for at in range(len(kept) - size + 1):
                yield " ".join(kept[at : at + size])

    def _grams(self, text: str) -> Iterator[str]:
        for size in range(self.lowest, min(self.highest, len(text)) + 1):
            for at in range(len(text) - size + 1):
                yield text[at : at + size]

    # ---- as an artefact holds it ----

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        terms, stops = native.Strings.of(self.vocabulary), native.Strings.of(self.stop_words)
        arrays: dict[str, Array] = {
            "terms": terms.characters, "term_ends": terms.offsets,
            "stops": stops.characters, "stop_ends": stops.offsets,
        }  # fmt: skip
        if self.idf is not None:
            arrays["idf"] = self.idf
        left_out = ("vocabulary", "stop_words", "idf")
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in left_out}, arrays

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> TextStep:
        terms, stops = (
            tuple(native.Strings(_checked(arrays[characters]), _ends(arrays[ends], arrays[characters])).texts())
            for characters, ends in (("terms", "term_ends"), ("stops", "stop_ends"))
        )
        idf = np.ascontiguousarray(arrays["idf"], np.float64) if "idf" in arrays else None
        known = {one.name: parameters[one.name] for one in fields(cls) if one.name in parameters}
        return cls(**known, vocabulary=terms, stop_words=stops, idf=idf)


@dataclass(frozen=True)
class TextProjection:
    """Texts to features times weights, in one step."""

    step: TextStep
    kernel: native.TextKernel

    def __call__(self, block: Sequence[Any]) -> Floats:
        return self.kernel.project(self.step.prepare(block))

    def one(self, block: Sequence[Any]) -> Sequence[float]:
        """Of one text."""
        (text,) = self.step.prepare(block)
        return self.kernel.project_one(text)


def hash_term(term: str, columns: int) -> tuple[int, int]:
    """The column of a term and its sign, by MurmurHash3 of its UTF-8, as scikit-learn's FeatureHasher has it."""
    hashed = _murmur3(term.encode("utf-8"))
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    column = (2**31 - 1 - (columns - 1)) % columns if signed == -(2**31) else abs(signed) % columns
    return column, 1 if signed >= 0 else -1


def _murmur3(data: bytes) -> int:
    c1, c2, mask = 0xCC9E2D51, 0x1B873593, 0xFFFFFFFF

    def rotate(x: int, r: int) -> int:
        return ((x << r) | (x >> (32 - r))) & mask

    hashed, whole = 0, len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * c1 & mask
        hashed = (rotate(hashed ^ (rotate(k, 15) * c2 & mask), 13) * 5 + 0xE6546B64) & mask
    if data[whole:]:
        k = int.from_bytes(data[whole:], "little") * c1 & mask
        hashed ^= rotate(k, 15) * c2 & mask
    hashed ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed = (hashed ^ (hashed >> shift)) * factor & mask
    return hashed ^ (hashed >> 16)


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    return "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))


def _without_accents_ascii(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ASCII", "ignore").decode("ASCII")


def _checked(characters: Array) -> Any:
    if characters.dtype != np.uint32 or characters.ndim != 1 or (characters > 0x10FFFF).any():
        raise ValueError("terms are no code points")
    return characters


def _ends(offsets: Array, characters: Array) -> Any:
    if offsets.dtype != np.int64 or offsets.ndim != 1 or not len(offsets) or offsets[0] or (np.diff(offsets) < 0).any():
        raise ValueError("the ends of terms do not ascend")
    if offsets[-1] > len(characters):
        raise ValueError("terms end behind their characters")
    return offsets
