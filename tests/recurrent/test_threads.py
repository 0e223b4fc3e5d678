"""Several threads: the same numbers to the bit, whatever is split, and no more threads than are faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from shoal.recurrent import BadInput, Network, load
from shoal.recurrent.cells import library
from shoal.recurrent.compile import threads_for
from shoal.recurrent.nest.ir import Sizes
from shoal.recurrent.network import parallel
from shoal.recurrent.network.parallel import Threads, slices, waves
from tests.recurrent.support import spec_for


@pytest.fixture
def stacked(tmp_path: Path) -> Path:
    """Three LSTMs, one on the other."""
    tensors = {}
    for layer, size in enumerate((5, 18, 18)):
        weights = spec_for(library.lstm(), Sizes(size, 18), seed=layer).weights
        for part, table, suffix in (("weight_ih", weights.matrices, "x"), ("weight_hh", weights.matrices, "h"),
                                    ("bias_ih", weights.parameters, "b")):  # fmt: skip
            tensors[f"{part}_l{layer}"] = np.concatenate([table[f"{gate}.{suffix}"] for gate in "ifco"])
    save_file(tensors, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


@pytest.mark.slow
def test_rows_and_layers_on_threads_give_the_same_bits(stacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    run = Threads.run

    def watched(self: Threads, parts: Any) -> None:
        asked.append(len(parts))
        run(self, parts)

    monkeypatch.setattr(Threads, "run", watched)
    for kind in ("fp32", "int8"):
        alone = load(stacked, type=kind)
        for least, most_at_once in ((1, 3), (10**12, 1)):  # too little work is not split
            for module in (parallel, __import__("shoal.recurrent.network.network", fromlist=["_"])):
                monkeypatch.setattr(module, "LEAST_OPERATIONS", least)
            several = load(stacked, type=kind, threads=3)
            for rows in (1, 2, 7):
                x = np.random.default_rng(rows).uniform(-1, 1, (21, rows, 5)).astype(np.float32)
                asked.clear()
                found = several.run({"x": x})
                assert max(asked) == most_at_once
                for name, value in alone.run({"x": x}).items():
                    assert np.array_equal(found[name], value), (kind, rows, name)


def test_an_error_in_a_part_reaches_the_caller_after_all_parts() -> None:
    ended = []

    def fails() -> None:
        raise BadInput("wrong")

    with pytest.raises(BadInput, match="wrong"):
        Threads(2).run([lambda: ended.append(1), fails, lambda: ended.append(2)])
    assert sorted(ended) == [1, 2]


@pytest.mark.parametrize(("layers", "chunks"), [(1, 1), (3, 8), (4, 2)])
def test_a_chunk_runs_after_those_that_it_needs(layers: int, chunks: int) -> None:
    done: set[tuple[int, int]] = set()
    for wave in waves(layers, chunks):
        for layer, chunk in wave:
            assert layer == 0 or (layer - 1, chunk) in done
            assert chunk == 0 or (layer, chunk - 1) in done
        done.update(wave)
    assert len(done) == layers * chunks


def test_rows_are_split_evenly() -> None:
    assert slices(7, 3) == [slice(0, 2), slice(2, 4), slice(4, 7)]
    assert slices(2, 5) == [slice(0, 1), slice(1, 2)]


@pytest.mark.few
@pytest.mark.parametrize(
    ("seconds", "chosen"), [((1.0, 0.5, 0.4), 4), ((1.0, 0.97, 0.96), 1), ((1.0, 2.0, 0.9), 4), ((1.0, 0.5, 0.49), 2)]
)
def test_more_threads_are_chosen_only_where_they_are_faster(
    seconds: tuple[float, ...], chosen: int, stacked: Path
) -> None:
    readings = [0.0]
    for took in seconds * 5:
        readings += [readings[-1], readings[-1] + took]
    clock = iter([*readings, readings[-1]]).__next__
    nets: dict[int, Network] = {}

    def net(count: int) -> Network:
        nets[count] = load(stacked, threads=count)
        return nets[count]

    found = threads_for(net, 4, steps=2, rows=2, seconds=0.0, clock=clock)
    assert found["threads"] == chosen
    assert [*nets] == [1, 2, 4]
