"""Multi-layer perceptrons against scikit-learn's own, by both evaluators."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from shoal.cascade import optimize
from shoal.cascade.costs import choose_evaluator
from shoal.cascade.frontend.models import lower_model
from shoal.cascade.frontend.pipelines import lower_pipeline
from shoal.cascade.models.network import Evaluator, Network
from shoal.cascade.table import Table

pytestmark = pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
X = np.random.default_rng(0).normal(size=(300, 5))
TARGETS: dict[str, Any] = {
    "two": (X[:, 0] * X[:, 1] > 0).astype(int),
    "three": np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])],
    "value": X[:, 0] - X[:, 1] ** 2,
}


def fitted(target: str, **settings: Any) -> Any:
    made = (MLPRegressor if target == "value" else MLPClassifier)(max_iter=20, random_state=0, **settings)
    return made.fit(X, TARGETS[target])


@pytest.mark.parametrize("evaluator", list(Evaluator))
@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
@pytest.mark.parametrize("target", list(TARGETS))
def test_a_network_gives_what_scikit_learn_gives(target: str, activation: str, evaluator: Evaluator) -> None:
    if evaluator is Evaluator.ONNX:
        pytest.importorskip("onnxruntime")
    original = fitted(target, activation=activation, hidden_layer_sizes=(8, 4))
    model = lower_model(original)
    assert isinstance(model, Network)
    model = replace(model, evaluator=evaluator)
    scores = model.scores(X)
    np.testing.assert_allclose(np.vstack([model.scores(row[None]) for row in X[:5]]), scores[:5], rtol=1e-9)
    if target == "value":
        np.testing.assert_allclose(scores[:, 0], original.predict(X), rtol=1e-9)
        return
    np.testing.assert_allclose(model.output.probabilities(scores), original.predict_proba(X), rtol=1e-9)
    assert model.output.named(model.output.labels(scores)).tolist() == original.predict(X).tolist()


def test_several_labels_or_values_a_row_stay_python() -> None:
    labels = np.stack([TARGETS["two"], 1 - TARGETS["two"]], axis=1)
    assert lower_model(MLPRegressor(max_iter=5).fit(X, labels)).kind == "opaque"


def test_the_evaluator_is_chosen_by_measurement_and_said() -> None:
    pytest.importorskip("onnxruntime")
    pipeline = make_pipeline(StandardScaler(), fitted("two", hidden_layer_sizes=(8,)))
    pipeline.steps[0][1].fit(X)
    program, _ = lower_pipeline(pipeline, Table.of(X))
    for slow in (0, 1):  # the evaluators are measured in turn: a warm-up each, then rounds of both
        ticks = [0.0]
        turn = [0]

        def clock(slow: int = slow, ticks: list[float] = ticks, turn: list[int] = turn) -> float:
            """Each second reading ends a call; every second call is the slow one's."""
            if turn[0] % 2:
                ticks[0] += 5.0 if turn[0] // 2 % 2 == slow else 1.0
            turn[0] += 1
            return ticks[0]

        chosen, measured = choose_evaluator(program, Table.of(X), "batch", clock)
        model = chosen.stages[-1].model
        assert isinstance(model, Network)
        assert model.evaluator is list(Evaluator)[1 - slow]
        assert set(measured) == set(Evaluator)


def test_a_cascade_of_networks_over_texts_and_numbers_is_written_and_read(tmp_path: Path) -> None:
    label = np.random.default_rng(1).integers(0, 2, 500)
    texts = [f"{'good' if one else 'bad'} thing {number}" for number, one in enumerate(label.tolist())]
    rows = pd.DataFrame({"text": texts, "size": np.linspace(0, 1, 500)})
    words = ("words", TfidfVectorizer(max_features=40), "text")
    network = MLPClassifier((6,), max_iter=10, learning_rate_init=0.05, random_state=0)
    pipeline = make_pipeline(ColumnTransformer([words, ("size", "passthrough", ["size"])]), network)
    cascade = optimize(pipeline, rows, label, seed=1)
    told = cascade.explain()
    assert told["model"] == "network"
    assert told["evaluator"]["chosen"] in list(Evaluator)
    assert "runs as Python" not in str(told["remarks"])
    found = cascade.predict(rows)
    np.testing.assert_array_equal(cascade.original.predict(rows), found)
    assert len(set(found[:50].tolist())) == 2
    cascade.save(tmp_path / "one.cascade")
    script = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import numpy as np\nfrom shoal.cascade import Cascade\nc = Cascade.load('one.cascade')\n"
        f"print(c.predict({{'text': {texts[:50]}, 'size': np.linspace(0, 1, 500)[:50]}}).tolist())\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stdout == f"{found[:50].tolist()}\n", ran.stderr


def test_layers_that_do_not_fit_are_refused() -> None:
    model = lower_model(fitted("three", hidden_layer_sizes=(4,)))
    parameters, arrays = model.state()
    for wrong in ({"w1": arrays["w0"]}, {"b0": arrays["b1"]}, {"w0": arrays["w0"][0]}):
        with pytest.raises(ValueError, match="layer"):
            Network.restore(parameters, {**arrays, **wrong})
    with pytest.raises(ValueError, match="not a network"):
        Network.restore({**parameters, "activation": "eval"}, arrays)
