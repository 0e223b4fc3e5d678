"""State pairs: each sequence gets what it would get alone, to the bit, in whatever company and order its steps run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import ShoalError
from shoal.inference import BadModel, DataType, ModelSpec, Sessions, TensorSpec, open_runtime, open_warm
from shoal.inference.pairs import PairedState
from shoal.inference.types import StatePair
from shoal.serve.replica.sequences import OpenSequences
from tests.serve.models import SUMS, running_sum


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    path = running_sum(tmp_path_factory.mktemp("pairs") / "sum.onnx")
    return ModelSpec("sum", str(path), max_batch=8, state=SUMS)


def row(*values: float) -> dict[str, Any]:
    return {"x": np.array([[value] for value in values], np.float32)}


def texts(results: Sequence[Mapping[str, Any] | ShoalError]) -> list[Any]:
    return [one.what if isinstance(one, ShoalError) else one["y"].item() for one in results]


def test_callers_see_neither_side_of_a_pair(spec: ModelSpec) -> None:
    runtime, report = open_warm(spec)
    assert [one.name for one in report.metadata.inputs] == ["x"]
    assert [one.name for one in report.metadata.outputs] == ["y", "z"]
    assert report.metadata.sequences_only
    assert report.abilities == ("sessions",)
    assert report.session_bytes == 2 * (4 + 8)
    assert [runs.batch for runs in report.runs] == [1, 8]
    assert isinstance(runtime, Sessions)
    runtime.close()


@settings(max_examples=40, deadline=None)
@given(
    rounds=st.lists(st.sets(st.integers(0, 4), min_size=1), max_size=12),
    seed=st.integers(0, 1000),
)
def test_a_sequence_gets_in_company_what_it_gets_alone(spec: ModelSpec, rounds: list[set[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    runtime = open_runtime(spec)
    assert isinstance(runtime, Sessions)
    company = OpenSequences(runtime)
    steps: dict[int, list[float]] = {}
    for members in rounds:
        order = [int(one) for one in rng.permutation(sorted(members))]
        values = rng.standard_normal(len(order)).astype(np.float32)
        asked = [(number, len(steps.get(number, []))) for number in order]
        found = company.advance(asked, row(*values), ())
        for number, value, result in zip(order, values, found, strict=True):
            steps.setdefault(number, []).append(value)
            alone, total = OpenSequences(runtime), np.float32(0)
            for at, one in enumerate(steps[number]):
                (last,) = alone.advance([(99, at)], row(one), ())
                total = np.float32(total + one)
            assert isinstance(last, Mapping)
            assert isinstance(result, Mapping)
            assert result["y"].item() == last["y"].item() == total
            assert result["z"].item() == last["z"].item()
    runtime.close()


def test_a_step_asked_for_again_is_taken_back_first(spec: ModelSpec) -> None:
    runtime = open_runtime(spec)
    assert isinstance(runtime, Sessions)
    company = OpenSequences(runtime)
    assert texts(company.advance([(1, 0)], row(1), ())) == [1]
    assert texts(company.advance([(1, 1)], row(10), ())) == [11]
    assert texts(company.advance([(1, 1)], row(20), ())) == [21]
    assert texts(company.advance([(1, 1)], row(30), ())) == [31]
    assert texts(company.advance([(1, 2)], row(1), ())) == [32]
    assert texts(company.advance([(1, 0)], row(5), ())) == ["this replica does not have the state of the sequence"]
    assert texts(company.advance([(2, 3)], row(5), ())) == ["this replica does not have the state of the sequence"]
    company.end([1, 7])
    assert len(company) == 0
    assert texts(company.advance([(1, 0)], row(5), ())) == [5]
    company.clear()
    assert len(company) == 0


class Picky:
    """y = h + x, but for negative x."""

    def __init__(self) -> None:
        one = (DataType.FP32, (-1, 1))
        known = open_runtime(
            ModelSpec("e", "tests.serve.models:echo", "callable", inputs=_specs("x"), outputs=_specs("y"))
        )
        self.metadata = replace(
            known.metadata, max_batch=8, inputs=(TensorSpec("x", *one), TensorSpec("h", *one)),
            outputs=(TensorSpec("y", *one), TensorSpec("hn", *one)),
        )  # fmt: skip
        self.bad_shape = False

    def run(self, inputs: Mapping[str, Any], outputs: Sequence[str]) -> Mapping[str, Any]:
        if (inputs["x"] < 0).any():
            raise ValueError("a negative number")
        y = inputs["h"] + inputs["x"]
        return {"y": y, "hn": y[:, :0] if self.bad_shape else y}

    def close(self) -> None:
        pass


def _specs(name: str) -> tuple[TensorSpec, ...]:
    return (TensorSpec(name, DataType.FP32, (-1, 1)),)


def test_a_step_that_fails_spoils_neither_the_others_nor_its_own_sequence() -> None:
    picky = Picky()
    company = OpenSequences(PairedState(picky, ModelSpec("p", "p", max_batch=8, state=(StatePair("h", "hn"),))))
    assert texts(company.advance([(1, 0), (2, 0)], row(1, 2), ())) == [1, 2]
    assert texts(company.advance([(1, 1), (2, 1)], row(-1, 2), ())) == ["ValueError: a negative number", 4]
    assert texts(company.advance([(1, 1), (2, 2)], row(5, 2), ())) == [6, 6]
    picky.bad_shape = True
    (told,) = texts(company.advance([(1, 2)], row(1), ()))
    assert "the state 'hn' is float32 [1, 0], and 'h' takes FP32 [1, 1]" in told
    picky.bad_shape = False
    assert texts(company.advance([(1, 2)], row(1), ())) == [7]


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"max_batch": 1, "state": (StatePair("q", "hn"),)}, "the model has no input 'q'"),
        ({"max_batch": 1, "state": (StatePair("h", "q"),)}, "the model has no output 'q'"),
        ({"max_batch": 1, "state": (StatePair("h", "kn"),)}, "'h' is FP32 [-1, 1], 'kn' FP32 [2, -1, 1]"),
        ({"state": (*SUMS, StatePair("x", "y"))}, "all inputs are state"),
        ({"inputs": (TensorSpec("k", DataType.FP32, (1, 2)),)}, "declared with 2 dimensions and has 3"),
        ({"inputs": (TensorSpec("h", DataType.FP32, (4, 1)),)}, "which dimension is the batch's?"),
    ],
)
def test_pairs_that_the_model_does_not_have_are_refused(spec: ModelSpec, more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadModel) as caught:
        open_runtime(replace(spec, **more))
    assert complaint in str(caught.value)


def test_without_batches_each_sequence_runs_alone(spec: ModelSpec) -> None:
    runtime, report = open_warm(replace(spec, max_batch=1))
    assert isinstance(runtime, Sessions)
    assert report.metadata.max_batch == 0
    company = OpenSequences(runtime)
    assert [texts(company.advance([(1, at)], row(2), ()))[0] for at in range(3)] == [2, 4, 6]
