"""Tree ensembles of scikit-learn, LightGBM and XGBoost as flat trees.

Each library has its own rule for missing values, zeros, categories and rounding; what they come to is written into the
nodes here, so that one evaluator has them all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shoal.cascade.models.base import Link, Model, Output, output_of
from shoal.cascade.models.trees import CATEGORY, LEAF, NUMBER, Accepts, Combine, Trees
from shoal.cascade.steps.base import Array, Floats


def lower_trees(estimator: Any) -> Model | None:
    """None where the estimator is not made of trees that are known here."""
    name, module = type(estimator).__name__, type(estimator).__module__
    if module.startswith("sklearn."):
        return _sklearn(estimator, name)
    if module.startswith("lightgbm."):
        booster = estimator if name == "Booster" else getattr(estimator, "booster_", None)
        return None if booster is None else _lightgbm(booster, getattr(estimator, "classes_", None))
    if module.startswith("xgboost."):
        booster = estimator if name == "Booster" else estimator.get_booster()
        return _xgboost(booster, getattr(estimator, "classes_", None))
    return None


class Builder:
    """Trees node by node, into the arrays of an evaluator."""

    def __init__(self, leaf_width: int = 1) -> None:
        self._leaf_width = leaf_width
        self._parts: dict[str, list[Array]] = {}
        self._roots, self._outputs = [0], list[int]()
        self._sets: list[int] = []

    def add(self, output: int, **nodes: Any) -> None:
        """One tree. Arrays by name, as `ShoalForest` has them; those left out are zeros. `leaf`: nodes x leaf width."""
        count = len(nodes["kind"])
        shapes: dict[str, Any] = {"leaf": (count, self._leaf_width)}
        for name, kind in _TYPES.items():
            given = nodes.get(name)
            made = np.zeros(shapes.get(name, count), kind) if given is None else np.asarray(given).astype(kind)
            self._parts.setdefault(name, []).append(made.reshape(shapes.get(name, count)))
        self._roots.append(self._roots[-1] + count)
        self._outputs.append(output)

    def categories(self, members: Iterable[int]) -> tuple[int, int]:
        """Where the words of a set begin, and how many there are."""
        bits = list(members)
        words = [0] * (max(bits, default=-1) // 32 + 1)
        for bit in bits:
            words[bit // 32] |= 1 << (bit % 32)
        self._sets += words
        return len(self._sets) - len(words), len(words)

    def arrays(self) -> dict[str, Array]:
        made = {name: np.ascontiguousarray(np.concatenate(parts)) for name, parts in self._parts.items()}
        made["roots"] = np.array(self._roots, np.int64)
        made["output_of"] = np.array(self._outputs, np.int32)
        made["sets"] = np.array(self._sets, np.uint32)
        return made


_TYPES: Mapping[str, Any] = {
    "kind": np.uint8, "feature": np.int32, "threshold": np.float64, "left": np.int32, "right": np.int32,
    "missing_left": np.uint8, "zero_missing": np.uint8, "set_begin": np.int64, "set_words": np.int32,
    "leaf": np.float64,
}  # fmt: skip


# ---- scikit-learn ----


def _sklearn(estimator: Any, name: str) -> Trees | None:
    if name in ("RandomForestClassifier", "ExtraTreesClassifier", "DecisionTreeClassifier"):
        return _forest(estimator, classes=True)
    if name in ("RandomForestRegressor", "ExtraTreesRegressor", "DecisionTreeRegressor"):
        return _forest(estimator, classes=False)
    if name in ("GradientBoostingClassifier", "GradientBoostingRegressor"):
        return _gradient_boosting(estimator)
    if name in ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"):
        return _histogram_boosting(estimator)
    return None


def _plain_tree(builder: Builder, tree: Any, output: int, leaf: Floats) -> None:
    inner = tree.children_left >= 0
    missing = getattr(tree, "missing_go_to_left", np.zeros(tree.node_count, np.uint8))
    builder.add(
        output, kind=np.where(inner, NUMBER, LEAF), feature=np.where(inner, tree.feature, 0),
        threshold=np.where(inner, tree.threshold, 0.0), left=np.where(inner, tree.children_left, 0),
        right=np.where(inner, tree.children_right, 0), missing_left=missing, leaf=leaf,
    )  # fmt: skip


def _forest(estimator: Any, *, classes: bool) -> Trees | None:
    if estimator.n_outputs_ != 1:
        return None
    trees = [one.tree_ for one in getattr(estimator, "estimators_", [estimator])]
    width = len(estimator.classes_) if classes else 1
    builder = Builder(width)
    for tree in trees:
        leaf = tree.value[:, 0, :]
        if classes:
            leaf = leaf / leaf.sum(axis=1, keepdims=True)
        _plain_tree(builder, tree, -1 if width > 1 else 0, leaf)
    output = output_of(Link.PROBABILITY, estimator.classes_) if classes else Output(Link.VALUE)
    features = int(estimator.n_features_in_)
    return Trees(features, np.zeros(width), False, True, Combine.MEAN, builder.arrays(), output, Accepts.MISSING)


def _gradient_boosting(estimator: Any) -> Trees | None:
    classifier = hasattr(estimator, "classes_")
    if classifier and estimator.loss != "log_loss":
        return None  # the exponential loss has probabilities of its own
    initial = estimator.init_
    if initial != "zero" and type(initial).__name__ != "DummyClassifier" and type(initial).__name__ != "DummyRegressor":
        return None
    features = int(estimator.n_features_in_)
    base = np.asarray(estimator._raw_predict_init(np.zeros((1, features), np.float32)))[0].astype(np.float64)
    builder = Builder()
    for stage in estimator.estimators_:
        for output, one in enumerate(stage):
            _plain_tree(builder, one.tree_, output, one.tree_.value[:, 0, :] * estimator.learning_rate)
    means = _boosted_output(estimator, len(base))
    return Trees(features, base, False, True, Combine.SUM, builder.arrays(), means, Accepts.NUMBERS)


def _boosted_output(estimator: Any, outputs: int) -> Output:
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return Output(Link.VALUE)
    return output_of(Link.LOGISTIC if outputs == 1 else Link.SOFTMAX, classes)


def _histogram_boosting(estimator: Any) -> Trees | None:
    if getattr(estimator, "is_categorical_", None) is not None and np.any(estimator.is_categorical_):
        return None  # its own encoder stands before the trees
    if not hasattr(estimator, "classes_") and type(estimator._loss.link).__name__ != "IdentityLink":
        return None
    base = np.asarray(estimator._baseline_prediction, np.float64).reshape(-1)
    builder = Builder()
    for stage in estimator._predictors:
        for output, one in enumerate(stage):
            nodes = one.nodes
            inner = nodes["is_leaf"] == 0
            builder.add(
                output, kind=np.where(inner, NUMBER, LEAF), feature=np.where(inner, nodes["feature_idx"], 0),
                threshold=np.where(inner, nodes["num_threshold"], 0.0), left=np.where(inner, nodes["left"], 0),
                right=np.where(inner, nodes["right"], 0), missing_left=nodes["missing_go_to_left"], leaf=nodes["value"],
            )  # fmt: skip
    features = int(estimator.n_features_in_)
    output_of_all = _boosted_output(estimator, len(base))
    return Trees(features, base, False, False, Combine.SUM, builder.arrays(), output_of_all)


# ---- LightGBM ----


def _lightgbm(booster: Any, classes: Sequence[Any] | None) -> Trees | None:
    model = booster.dump_model(num_iteration=booster.best_iteration)
    objective = str(model.get("objective", "")).split()
    outputs = int(model["num_tree_per_iteration"])
    link = _lightgbm_link(objective, outputs, classifier=classes is not None)
    if link is None or model.get("average_output"):
        return None
    builder = Builder()
    for number, tree in enumerate(model["tree_info"]):
        if not _lightgbm_tree(builder, tree["tree_structure"], number % outputs):
            return None
    if classes is None:
        classes = () if link is Link.VALUE else range(max(outputs, 2))
    output = Output(Link.VALUE) if link is Link.VALUE else output_of(link, np.asarray(classes))
    features = int(model["max_feature_idx"]) + 1
    return Trees(features, np.zeros(outputs), False, False, Combine.SUM, builder.arrays(), output)


def _lightgbm_link(objective: list[str], outputs: int, *, classifier: bool) -> Link | None:
    """None where raw scores are made into predictions in a way that is not known here."""
    name = objective[0] if objective else ""
    if name == "binary" and outputs == 1:
        return Link.LOGISTIC if "sigmoid:1" in objective else None
    if name in ("multiclass", "softmax"):
        return Link.SOFTMAX
    if not classifier and name in ("regression", "regression_l1", "huber", "fair", "quantile", "mape", "lambdarank"):
        return Link.VALUE if "sqrt" not in objective else None
    return None


LARGEST_WRITTEN = 1e300
"""LightGBM writes a threshold of infinity as this, and compares with infinity."""


def _lightgbm_tree(builder: Builder, root: Mapping[str, Any], output: int) -> bool:
    """Breadth first. False for a tree with linear leaves."""
    order: list[Mapping[str, Any]] = [root]
    nodes: dict[str, list[Any]] = {name: [] for name in _TYPES}
    at = 0
    while at < len(order):
        node = order[at]
        at += 1
        row: dict[str, Any] = dict.fromkeys(_TYPES, 0)
        if "leaf_value" in node:
            if node.get("leaf_coeff"):
                return False
            row |= {"kind": LEAF, "leaf": node["leaf_value"]}
        else:
            row |= {"feature": node["split_feature"], "left": len(order), "right": len(order) + 1}
            order += [node["left_child"], node["right_child"]]
            if node["decision_type"] == "==":
                begin, words = builder.categories(int(one) for one in str(node["threshold"]).split("||"))
                row |= {"kind": CATEGORY, "set_begin": begin, "set_words": words}
            else:
                threshold, default = float(node["threshold"]), bool(node["default_left"])
                if threshold >= LARGEST_WRITTEN:
                    threshold = float("inf")
                zero, none = node["missing_type"] == "Zero", node["missing_type"] == "None"
                # Without a missing type NaN is taken for zero, and compared.
                missing = threshold >= 0 if none else default
                row |= {"kind": NUMBER, "threshold": threshold, "missing_left": missing, "zero_missing": zero}
        for name, value in row.items():
            nodes[name].append(value)
    builder.add(output, **nodes)
    return True


# ---- XGBoost ----


_XGBOOST_LINKS = {
    "binary:logistic": Link.LOGISTIC, "multi:softprob": Link.SOFTMAX, "multi:softmax": Link.SOFTMAX,
    "reg:squarederror": Link.VALUE, "reg:absoluteerror": Link.VALUE, "reg:pseudohubererror": Link.VALUE,
}  # fmt: skip


def _xgboost(booster: Any, classes: Sequence[Any] | None) -> Trees | None:
    model = json.loads(bytes(booster.save_raw(raw_format="json")).decode())["learner"]
    objective = model["objective"]["name"]
    gradient = model["gradient_booster"]
    if gradient["name"] != "gbtree":
        return None
    link = _XGBOOST_LINKS.get(objective)
    outputs = max(int(model["learner_model_param"].get("num_class", 0)), 1)
    if (
        link is None
        or (classes is None) != (link is Link.VALUE)
        or int(model["learner_model_param"].get("num_target", 1)) > 1
    ):
        return None
    base = np.array(json.loads(f"[{model['learner_model_param']['base_score'].strip('[]')}]"), np.float64)
    if link is Link.LOGISTIC:
        base = np.log(base / (1 - base))
    builder = Builder()
    begin, end = _xgboost_rounds(booster, outputs, len(gradient["model"]["trees"]))
    for tree, output in list(zip(gradient["model"]["trees"], gradient["model"]["tree_info"], strict=True))[begin:end]:
        _xgboost_tree(builder, tree, int(output))
    output = Output(Link.VALUE) if classes is None else output_of(link, np.asarray(classes))
    features = int(model["learner_model_param"]["num_feature"])
    full_base = np.broadcast_to(base, (outputs,)).copy()
    return Trees(features, full_base, True, True, Combine.SUM, builder.arrays(), output)


def _xgboost_rounds(booster: Any, outputs: int, trees: int) -> tuple[int, int]:
    """Those that predictions use: with early stopping, up to the best."""
    best = booster.attr("best_iteration")
    return 0, trees if best is None else min(trees, (int(best) + 1) * outputs)


def _xgboost_tree(builder: Builder, tree: Mapping[str, Any], output: int) -> None:
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    order, place = [0], {0: 0}
    for node in order:  # breadth first, so that children come after their parents
        if left[node] >= 0:
            for child in (int(left[node]), int(right[node])):
                place[child] = len(order)
                order.append(child)
    kinds = np.array(tree["split_type"])
    conditions = np.array(tree["split_conditions"], np.float32).astype(np.float64)
    segments = zip(tree["categories_segments"], tree["categories_sizes"], strict=True)
    begins = dict(zip(tree["categories_nodes"], segments, strict=True))
    nodes: dict[str, list[Any]] = {name: [] for name in _TYPES}
    for node in order:
        row: dict[str, Any] = dict.fromkeys(_TYPES, 0)
        if left[node] < 0:
            row |= {"kind": LEAF, "leaf": conditions[node]}
        else:
            row |= {"feature": tree["split_indices"][node], "missing_left": tree["default_left"][node]}
            first, second = place[int(left[node])], place[int(right[node])]
            if kinds[node] == 1:  # its categories go right
                begin, size = begins[node]
                at, words = builder.categories(int(one) for one in tree["categories"][begin : begin + size])
                first, second = second, first
                missing = not tree["default_left"][node]
                row |= {"kind": CATEGORY, "set_begin": at, "set_words": words, "missing_left": missing}
            else:
                row |= {"kind": NUMBER, "threshold": conditions[node]}
            row |= {"left": first, "right": second}
        for name, value in row.items():
            nodes[name].append(value)
    builder.add(output, **nodes)
