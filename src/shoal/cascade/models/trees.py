"""Tree ensembles as flat arrays, exact in double: LightGBM, XGBoost, and scikit-learn's forests and boosting."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from shoal.cascade import native
from shoal.cascade.models.base import Output
from shoal.cascade.steps.base import Array, Arrays, Floats
from shoal.cascade.steps.columns import finite

LEAF, NUMBER, CATEGORY = 0, 1, 2
_ARRAYS: Mapping[str, type[np.generic]] = {
    "roots": np.int64, "output_of": np.int32, "kind": np.uint8, "feature": np.int32, "threshold": np.float64,
    "left": np.int32, "right": np.int32, "missing_left": np.uint8, "zero_missing": np.uint8, "set_begin": np.int64,
    "set_words": np.int32, "sets": np.uint32, "leaf": np.float64,
}  # fmt: skip
"""As `ShoalForest` has them. A node is one place in `kind` to `set_words` and `leaf`; children count from their tree's
first node; `roots` has an end as well. `leaf`: nodes x 1, or nodes x outputs where a tree adds to all."""
KZERO = float(np.float32(1e-35))


class Combine(StrEnum):
    """What the sum of leaves comes to."""

    SUM = "sum"
    MEAN = "mean"  # of all trees


class Accepts(StrEnum):
    """What is no number, or too large for a float, may be refused by the library that the trees come from."""

    ANY = "any"
    MISSING = "missing"  # NaN only
    NUMBERS = "numbers"


@dataclass(frozen=True)
class Trees:
    """`base`: what each output begins with; `strict`: x < threshold goes left, not x <= threshold; `single`: values are
    rounded to float before they are compared."""

    kind: ClassVar[str] = "trees"

    features: int
    base: Floats
    strict: bool
    single: bool
    combine: Combine
    arrays: Mapping[str, Array]
    output: Output
    accepts: Accepts = Accepts.ANY

    def __post_init__(self) -> None:
        check(self)

    @property
    def outputs(self) -> int:
        return len(self.base)

    @property
    def trees(self) -> int:
        return len(self.arrays["output_of"])

    def scores(self, features: Any) -> Floats:
        if type(features) is np.ndarray and features.shape == (1, self.features) and self._kernel is not None:
            row = features if features.dtype == np.float64 else features.astype(np.float64)
            return np.array([self.score_packed(row.tobytes())])
        values = np.ascontiguousarray(features.toarray() if hasattr(features, "toarray") else features, np.float64)
        if values.ndim != 2 or values.shape[1] != self.features:
            raise ValueError(f"X has {values.shape[-1]} features, but the trees are expecting {self.features}")
        self._refuse(values)
        out = np.repeat(self.base[None, :], len(values), axis=0)
        kernel = self._kernel
        if kernel is not None:
            kernel.add(values, out)
        else:
            self._walk(values, out)
        return out / self.trees if self.combine is Combine.MEAN else out

    def score_packed(self, row: bytes) -> list[float]:
        """The scores of one row, the bytes of its doubles; only where there is a kernel. Raises ValueError for a row of
        another width."""
        assert self._kernel is not None
        if len(row) != 8 * self.features:
            raise ValueError(f"X has {len(row) // 8} features, but the trees are expecting {self.features}")
        if self.accepts is not Accepts.ANY:
            self._refuse(np.frombuffer(row))
        found = self._kernel.add_one(row, self._base)
        return [one / self.trees for one in found] if self.combine is Combine.MEAN else found

    def _refuse(self, values: Floats) -> None:
        """Raises ValueError for what the library refuses."""
        if self.accepts is not Accepts.ANY:
            with np.errstate(over="ignore"):
                finite(values.astype(np.float32), missing=self.accepts is Accepts.MISSING)

    @property
    def has_kernel(self) -> bool:
        return self._kernel is not None

    @functools.cached_property
    def _base(self) -> tuple[float, ...]:
        return tuple(self.base.tolist())

    @functools.cached_property
    def _kernel(self) -> native.ForestKernel | None:
        if not native.available():
            return None
        scalars = {
            "features": self.features, "outputs": self.outputs, "strict": int(self.strict), "single": int(self.single),
            "trees": self.trees, "nodes": len(self.arrays["kind"]), "leaf_width": self.arrays["leaf"].shape[1],
        }  # fmt: skip
        made = native.ForestKernel(scalars, dict(self.arrays))
        return made if made.fits else None

    def _walk(self, values: Floats, out: Floats) -> None:
        """All rows together, a level at a time."""
        of, rounded = self.arrays, values.astype(np.float32).astype(np.float64) if self.single else values
        rows = np.arange(len(values))
        for tree, output in enumerate(of["output_of"].tolist()):
            root = int(of["roots"][tree])
            at = np.full(len(values), root)
            while True:
                inner = of["kind"][at] != LEAF
                if not inner.any():
                    break
                node = at[inner]
                x = rounded[rows[inner], of["feature"][node]]
                left = x < of["threshold"][node] if self.strict else x <= of["threshold"][node]
                away = np.isnan(x) | ((of["zero_missing"][node] != 0) & (np.abs(x) <= KZERO))
                left = np.where(away, of["missing_left"][node] != 0, left)
                sets = of["kind"][node] == CATEGORY
                if sets.any():
                    left[sets] = [
                        self._in_set(int(one), v)
                        for one, v in zip(node[sets], values[rows[inner], of["feature"][node]][sets], strict=True)
                    ]
                at[inner] = root + np.where(left, of["left"][node], of["right"][node])
            if output >= 0:
                out[:, output] += of["leaf"][at, 0]
            else:
                out += of["leaf"][at]

    def _in_set(self, node: int, value: float) -> bool:
        if value != value:
            return bool(self.arrays["missing_left"][node])
        if not -1.0 < value < 32.0 * self.arrays["set_words"][node]:
            return False
        bit = int(value)
        return bool(self.arrays["sets"][self.arrays["set_begin"][node] + bit // 32] >> np.uint32(bit % 32) & 1)

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        parameters = {
            "features": self.features, "strict": self.strict, "single": self.single, "combine": self.combine.value,
            "output": self.output.as_json(), "accepts": self.accepts.value,
        }  # fmt: skip
        return parameters, {"base": self.base, **self.arrays}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> Trees:
        return cls(
            int(parameters["features"]), np.asarray(arrays["base"], np.float64), bool(parameters["strict"]),
            bool(parameters["single"]), Combine(parameters["combine"]),
            {name: np.ascontiguousarray(arrays[name], kind) for name, kind in _ARRAYS.items()},
            Output.from_json(parameters["output"]), Accepts(parameters["accepts"]),
        )  # fmt: skip


def check(trees: Trees) -> None:
    """Raises ValueError unless every walk from a root ends at a leaf and reads what is there."""
    of = trees.arrays
    nodes, roots = len(of["kind"]), of["roots"]
    if set(of) != set(_ARRAYS) or any(of[name].dtype != kind for name, kind in _ARRAYS.items()):
        raise ValueError("the trees' arrays are not of their types")
    per_node = (
        "feature",
        "threshold",
        "left",
        "right",
        "missing_left",
        "zero_missing",
        "set_begin",
        "set_words",
        "leaf",
    )
    if any(len(of[name]) != nodes for name in per_node) or len(roots) != trees.trees + 1:
        raise ValueError("the trees' arrays are not of one length")
    if not trees.trees or roots[0] != 0 or roots[-1] != nodes or (np.diff(roots) < 1).any():
        raise ValueError("the trees' roots do not ascend")
    size = np.repeat(np.diff(roots), np.diff(roots))
    place = np.arange(nodes) - np.repeat(roots[:-1], np.diff(roots))
    inner = of["kind"] != LEAF
    if (of["kind"] > CATEGORY).any():
        raise ValueError("a node of no known kind")
    for side in ("left", "right"):
        # Children come after their parent, so that no walk goes round.
        if (of[side][inner] <= place[inner]).any() or (of[side][inner] >= size[inner]).any():
            raise ValueError("a tree's children form a loop, or lie outside the tree")
    parents = np.bincount(
        (np.repeat(roots[:-1], np.diff(roots))[inner, None] + np.stack([of["left"], of["right"]], 1)[inner]).ravel(),
        minlength=nodes,
    )
    if (parents > 1).any():
        raise ValueError("a node has two parents")
    if ((of["feature"][inner] < 0) | (of["feature"][inner] >= trees.features)).any():
        raise ValueError("a tree reads a feature that is not there")
    if np.isnan(of["threshold"][of["kind"] == NUMBER]).any():
        raise ValueError("a threshold is no number")
    sets = of["kind"] == CATEGORY
    ends = of["set_begin"][sets] + of["set_words"][sets]
    if (of["set_begin"][sets] < 0).any() or (of["set_words"][sets] < 0).any() or (ends > len(of["sets"])).any():
        raise ValueError("a set of categories lies outside")
    width = of["leaf"].shape[1] if of["leaf"].ndim == 2 else 0
    vectors = of["output_of"] < 0
    if (of["output_of"] >= trees.outputs).any() or width != (trees.outputs if vectors.any() else 1):
        raise ValueError("leaves do not fit the outputs")
    if trees.base.ndim != 1:
        raise ValueError("the base has one number for each output")
