"""Cells: what the tracer takes and refuses, and the cells of PyTorch against PyTorch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import shoal.recurrent as rnn
from shoal.recurrent import BadNetwork, NotPure
from shoal.recurrent.cells import library
from shoal.recurrent.cells.cell import Cell
from shoal.recurrent.nest.ir import Sizes
from tests.recurrent.support import distance, reference, spec_for, states_for


def gated(x: Any, h: Any) -> Any:
    """A minimal gated unit."""
    f = rnn.sigmoid(rnn.linear("f", x, h))
    n = rnn.tanh(rnn.linear("n", x, f * h))
    return (1 - f) * h + f * n


def test_a_cell_of_a_user_is_compiled_and_keeps_its_state(tmp_path: Path) -> None:
    made = rnn.cell(gated)
    spec = spec_for(made, Sizes(6, 21))
    path = tmp_path / "weights.safetensors"
    save_file({**spec.weights.matrices, **spec.weights.parameters}, path)
    net = rnn.load(path, cell=made)
    x = np.random.default_rng(2).uniform(-1, 1, (8, 1, 6)).astype(np.float32)
    wanted, _ = reference(spec, x, {"h": np.zeros((1, 21), np.float32)}, spec.kind)
    assert distance(net.run({"x": x})["y"], wanted) < 2e-6
    with net.session() as session:
        steps = [session.step({"x": x[at : at + 1]})["y"] for at in range(8)]
    assert distance(np.concatenate(steps), wanted) < 2e-6


@pytest.mark.parametrize("name", library.CELLS)
def test_a_cell_survives_json(name: str) -> None:
    made = library.CELLS[name]()
    assert Cell.of_json(made.as_json()).updates == dict(made.updates)


def chooses(x: Any, h: Any) -> Any:
    total = rnn.linear("a", x, h)
    if total > 0:
        return total
    return h


def draws(x: Any, h: Any) -> Any:
    return rnn.tanh(rnn.linear("a", x, h)) * random.random()


def calls_numpy(x: Any, h: Any) -> Any:
    return np.tanh(rnn.linear("a", x, h))


def reuses_a_weight(x: Any, h: Any) -> Any:
    return rnn.dot("w", x) + rnn.dot("w", h)


@pytest.mark.parametrize(
    ("function", "line", "text"),
    [
        (chooses, 2, "a symbol has no value"),
        (draws, 0, "two traces of the cell differ"),
        (calls_numpy, 1, "calls_numpy is not a pure expression"),
        (reuses_a_weight, None, "two different parts use the weight 'w'"),
        (lambda x: x, None, "takes the input and at least one state"),
    ],
)
def test_what_is_no_pure_expression_is_refused_with_its_line(function: Any, line: int | None, text: str) -> None:
    with pytest.raises(NotPure) as caught:
        rnn.cell(function)
    assert text in str(caught.value)
    if line is not None:
        assert str(caught.value).startswith(f"{__file__}:{function.__code__.co_firstlineno + line}")


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"nodes": [], "roots": {}},
        {"nodes": [["dot", [3], "", 0, ""]], "roots": {}},
        {"nodes": [["system", [], "rm", 0, ""]], "roots": {"h": 0}},
    ],
)
def test_json_that_is_no_cell_is_refused(data: Any) -> None:
    with pytest.raises(NotPure):
        Cell.of_json(data)


MODULES = ["LSTM", "GRU", "RNN", "LSTM-projection", "LSTM-both", "GRU-stack"]


@pytest.mark.parametrize("name", MODULES)
def test_a_state_dict_gives_what_pytorch_gives_in_64_bits(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save

    torch.manual_seed(0)
    kind, _, more = name.partition("-")
    options = {"projection": {"proj_size": 9}, "both": {"bidirectional": True}, "stack": {"num_layers": 3}}.get(
        more, {}
    )
    module = getattr(torch.nn, kind)(11, 26, **options)
    path = tmp_path / "m.safetensors"
    save({f"encoder.{key}": value for key, value in module.state_dict().items()}, path)
    x = torch.rand(7, 3, 11) * 2 - 1
    wanted, _ = module.double()(x.double())
    assert distance(rnn.load(path).run({"x": x.numpy()})["y"], wanted.detach().numpy()) < 2e-6


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        ({"other": np.zeros(3, np.float32)}, "it has no weight_ih_l0"),
        ({"weight_ih_l0": np.zeros((8, 2), np.float32)}, "needs matrices weight_ih and weight_hh"),
        ({"weight_ih_l0": np.zeros((8, 2), np.float32), "weight_hh_l0": np.zeros((8, 3), np.float32)}, "fit no cell"),
        ({"weight_ih_l0": np.zeros((8, 2), np.float32), "weight_hh_l0": np.zeros((8, 2), np.float32),
          "bias_ih_l0": np.zeros(3, np.float32)}, "a bias has not 8 numbers"),
    ],
)  # fmt: skip
def test_a_state_dict_of_something_else_is_refused(tensors: dict[str, Any], text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file(tensors, path)
    with pytest.raises(BadNetwork) as caught:
        rnn.load(path)
    assert text in str(caught.value)


def test_random_bytes_are_no_state_dict(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(BadNetwork, match="no safetensors file"):
        rnn.load(path)


def test_the_stabiliser_keeps_large_exponential_gates_finite() -> None:
    spec = spec_for(library.slstm(), Sizes(4, 12))
    noise = np.random.default_rng(0)
    x = noise.uniform(-1, 1, (60, 1, 4)).astype(np.float32) * 1000
    states = {name: np.zeros_like(one) for name, one in states_for(spec, 1, noise).items()}
    found, _ = reference(spec, x, states, spec.kind)
    assert np.isfinite(found).all()
