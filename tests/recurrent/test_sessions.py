"""Sessions: each caller gets, to the bit, what it gets alone, whoever is in the batch and whenever they come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from shoal.core import Overloaded
from shoal.recurrent import BadInput, Network, load
from shoal.recurrent.cells import library
from shoal.recurrent.nest.ir import Sizes
from tests.recurrent.support import spec_for


def network(folder: Path, *, kind: str = "fp32", max_sessions: int = 8) -> Network:
    """Two LSTMs, one on the other."""
    tensors = {}
    for layer, size in enumerate((5, 18)):
        weights = spec_for(library.lstm(), Sizes(size, 18), seed=layer).weights
        for part, table, suffix in (("weight_ih", weights.matrices, "x"), ("weight_hh", weights.matrices, "h"),
                                    ("bias_ih", weights.parameters, "b")):  # fmt: skip
            tensors[f"{part}_l{layer}"] = np.concatenate([table[f"{gate}.{suffix}"] for gate in "ifco"])
    save_file(tensors, folder / "m.safetensors")
    return load(folder / "m.safetensors", type=kind, max_sessions=max_sessions)


def inputs(seed: int, steps: int) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, 1, 5)).astype(np.float32)


@pytest.mark.few
@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=12))
def test_a_batch_of_sessions_gives_each_what_it_gets_alone(kind: str, turns: list[set[int]], nets: Any) -> None:
    net = nets[kind]
    sessions = [net.session() for _ in range(5)]
    done = [0] * 5
    found: list[list[Any]] = [[] for _ in range(5)]
    for turn in turns:
        members = sorted(turn)
        given_inputs = [{"x": inputs(one, 20)[done[one] : done[one] + 1]} for one in members]
        for one, result in zip(members, net.step([sessions[m] for m in members], given_inputs), strict=True):
            found[one].append(result["y"])
            done[one] += 1
    for one in range(5):
        sessions[one].close()
        if done[one]:
            with net.session() as alone:
                wanted = [alone.step({"x": inputs(one, 20)[at : at + 1]})["y"] for at in range(done[one])]
            assert np.array_equal(np.concatenate(found[one]), np.concatenate(wanted))


@pytest.fixture(scope="module")
def nets(tmp_path_factory: Any) -> dict[str, Network]:
    return {
        kind: network(tmp_path_factory.mktemp(kind), kind=kind, max_sessions=16) for kind in ("fp32", "bf16", "int8")
    }


def test_steps_and_a_whole_sequence_are_the_same_to_the_bit(nets: dict[str, Network]) -> None:
    x = inputs(0, 9)
    for net in nets.values():
        with net.session() as session:
            steps = [session.step({"x": x[:1]}), session.step({"x": x[1:5]}), session.step({"x": x[5:]})]
        whole = net.run({"x": x})
        assert np.array_equal(np.concatenate([one["y"] for one in steps]), whole["y"])
        for name in ("h.0", "c.1"):
            assert np.array_equal(steps[-1][name], whole[name])


def test_a_step_that_is_refused_leaves_the_state(nets: dict[str, Network]) -> None:
    net, x = nets["fp32"], inputs(0, 3)
    with net.session() as session, net.session() as other:
        first = session.step({"x": x[:1]})["y"]
        for wrong in ({"x": x[:1, :, :4]}, {"x": x[:1].astype(np.float64)}, {}, {"x": x[:1], "y": x}):
            with pytest.raises(BadInput):
                session.step(wrong)
            with pytest.raises(BadInput):
                net.step([session, other], [{"x": x[:1]}, wrong])
        with pytest.raises(BadInput, match="takes part once"):
            net.step([session, session], [{"x": x[:1]}] * 2)
        second = session.step({"x": x[1:2]})["y"]
    assert np.array_equal(np.concatenate([first, second]), net.run({"x": x[:2]})["y"])


def test_sessions_have_a_limit_and_a_closed_one_makes_way(tmp_path: Path) -> None:
    net = network(tmp_path, max_sessions=2)
    first, second = net.session(), net.session()
    first.step({"x": inputs(0, 1)})
    with pytest.raises(Overloaded, match="2 sessions are open"):
        net.session()
    first.close()
    first.close()
    third = net.session()
    assert np.array_equal(third.step({"x": inputs(1, 1)})["y"], net.run({"x": inputs(1, 1)})["y"])
    second.close()
    with pytest.raises(BadInput, match="closed"):
        second.step({"x": inputs(0, 1)})


def test_only_the_outputs_that_are_wanted_are_made(nets: dict[str, Network]) -> None:
    with nets["fp32"].session() as session:
        assert set(session.step({"x": inputs(0, 1)}, ["h.1"])) == {"h.1"}
        with pytest.raises(BadInput, match="no output 'z'"):
            session.step({"x": inputs(0, 1)}, ["z"])
