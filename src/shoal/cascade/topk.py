"""The best k of many rows: a cheap stage keeps r times k of them, and the full pipeline ranks those.

How large r must be is chosen on queries of select rows, and certified on queries of certify rows. A query is a number
of rows drawn from them with replacement: without, queries of a few thousand rows are so alike that the next ones fall
short far more often. All queries share the certify rows, so the rows themselves are redrawn too (the bootstrap): r must
be enough in all but a few of the redrawings. What is certified: with the stated confidence, at least a share of the
queries have a precision at k of at least `precision` against the full ranking. Of more rows than a query had, as many
more are kept, in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.cascade.models.base import Output
from shoal.cascade.steps.base import Floats

RATIOS = (
    1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 16.0, 24.0, 32.0,
)  # fmt: skip
"""A nested sequence costs nothing more for being fine."""
QUERIES = 600
REDRAWINGS, QUERIES_EACH = 60, 200
"""To certify with: of the rows, and queries of each."""
MOST_TOGETHER = 1 << 20
"""Rows of queries that are drawn and ranked at once."""
QUERY_SHARE = 0.25
"""Of the rows, in a query, as in Willump's evaluation."""


@dataclass(frozen=True)
class TopK:
    """A certified filter. `ratio`: how many times k rows the cheap stage keeps."""

    k: int
    ratio: float
    precision: float
    share: float
    confidence: float
    query_rows: int
    redrawings: int

    def kept(self, rows: int) -> int:
        return min(rows, math.ceil(self.ratio * self.k * max(1.0, rows / self.query_rows)))

    @property
    def statement(self) -> str:
        return (
            f"precision at {self.k} of at least {self.precision:g} in {self.share * 100:g} % of queries of "
            f"{self.query_rows:,} rows drawn with replacement, with {self.confidence * 100:g} % confidence "
            f"(by {self.redrawings} redrawings of the rows)"
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TopK:
        found = cls(**data)
        if found.k < 1 or found.ratio < 1:
            raise ValueError("a filter keeps at least k rows")
        return found


def best(scores: Floats, k: int) -> NDArray[np.intp]:
    """The places of the k largest, the largest first; of equal ones the first."""
    if k >= len(scores):
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    chosen = np.flatnonzero(scores >= least)
    return chosen[np.argsort(-scores[chosen], kind="stable")][:k]


@dataclass(frozen=True)
class Beaten:
    """The rule of the cheap stage: it answers all rows but those that it keeps for the full pipeline."""

    filter: TopK

    def sure(self, scores: Floats, output: Output) -> NDArray[np.bool_]:  # noqa: ARG002
        beaten = np.ones(len(scores), bool)
        beaten[best(scores[:, 0], self.filter.kept(len(scores)))] = False
        return beaten

    def sure_of(self, scores: Sequence[float], output: Output) -> bool:  # noqa: ARG002
        return False

    def as_json(self) -> dict[str, Any]:
        return self.filter.as_json()


def needed(
    small: Floats, full: Floats, k: int, precision: float, size: int, queries: int, draw: np.random.Generator
) -> NDArray[np.intp]:
    """By query, how many rows the cheap stage must keep. small, full: scores of the rows to draw queries from."""
    of_small, of_full = _places(small), _places(full)
    k = min(k, size)
    least, together = math.ceil(precision * k - 1e-9), max(1, MOST_TOGETHER // size)
    found = []
    for begin in range(0, queries, together):
        rows = draw.integers(0, len(small), (min(together, queries - begin), size))
        place, order = np.empty(rows.shape, np.intp), np.argsort(of_small[rows], axis=1, kind="stable")
        np.put_along_axis(place, order, np.arange(size)[None, :], axis=1)
        # The full ranking keeps every wanted row that the cheap stage keeps.
        wanted = np.argsort(of_full[rows], axis=1, kind="stable")[:, :k]
        found.append(np.sort(np.take_along_axis(place, wanted, axis=1), axis=1)[:, least - 1] + 1)
    return np.concatenate(found)


def _places(scores: Floats) -> NDArray[Any]:
    """Of each row, the largest score first: narrow numbers, since they are sorted sooner."""
    places = np.empty(len(scores), np.uint16 if len(scores) < 1 << 16 else np.uint32)
    places[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return places


def shortfalls(
    small: Floats, full: Floats, k: int, precision: float, ratios: Sequence[float], seed: int, queries: int = QUERIES,
    size: int | None = None,
) -> dict[float, int]:  # fmt: skip
    """By ratio, how many queries of `size` rows have a lower precision."""
    draw = np.random.default_rng(seed)
    need = needed(small, full, k, precision, size or query_size(len(small), k), queries, draw)
    return {ratio: int((need > math.ceil(ratio * k)).sum()) for ratio in ratios}


def query_size(rows: int, k: int) -> int:
    return min(rows, max(int(rows * QUERY_SHARE), 2 * k))


def least_ratio(small: Floats, full: Floats, k: int, precision: float, share: float, seed: int) -> float | None:
    """The smallest ratio with which a share of the select queries is precise enough; None where none is."""
    failed = shortfalls(small, full, k, precision, RATIOS, seed)
    return next((ratio for ratio in RATIOS if failed[ratio] <= (1 - share) * QUERIES), None)


def certify(
    small: Floats, full: Floats, k: int, first: float, precision: float, share: float, confidence: float, seed: int
) -> TopK | None:
    """The smallest ratio that passes, from the largest down to the one that was chosen: fixed sequence testing, strict
    to bold. None where the largest fails."""
    draw, size = np.random.default_rng(seed), query_size(len(small), k)
    short = int((1 - share) * QUERIES_EACH)  # queries that may be
    enough = []
    for _ in range(REDRAWINGS):
        rows = draw.integers(0, len(small), len(small))
        need = np.sort(needed(small[rows], full[rows], k, precision, size, QUERIES_EACH, draw))
        enough.append(int(need[QUERIES_EACH - 1 - short]))
    bound = sorted(enough)[math.ceil(confidence * REDRAWINGS) - 1]
    passing = [ratio for ratio in RATIOS if ratio >= first and math.ceil(ratio * k) >= bound]
    return TopK(k, passing[0], precision, share, confidence, size, REDRAWINGS) if passing else None
