"""A network of a file, timed against other runtimes that read the same file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.core import Invalid
from shoal.recurrent.bench import Run, check_peers, compare, onnxruntime_run, torch_run
from shoal.recurrent.compile import noise_for, typed
from shoal.recurrent.layers.layer import Array
from shoal.recurrent.layers.make import best_target
from shoal.recurrent.llvm.cache import user_cache
from shoal.recurrent.loading import maker, read
from shoal.recurrent.network.network import Network
from shoal.recurrent.numbers import NumberType
from shoal.recurrent.search.model import first_schedules


def benchmark(
    path: Path,
    peers: Sequence[str],
    fixed: Mapping[str, float],
    shape: Mapping[str, Sequence[int]],
    cell: str | None,
    kind: NumberType,
    steps: int,
    rows: int,
    seconds: float,
) -> dict[str, Any]:
    """The times as JSON can hold them, ours first. The errors are against our own fp32. Raises Invalid."""
    check_peers(peers)
    target = best_target()
    graph = read(path, fixed=fixed, shape=shape, cell=cell, kind=kind)
    make = maker(target, user_cache(), first_schedules)
    inputs = noise_for(graph, rows=rows, steps=steps)
    exact = Network(typed(graph, NumberType.FP32), make).run(inputs)
    net = Network(graph, make)
    runs: dict[str, Run] = {f"shoal {kind}": lambda: net.run(inputs)}
    for peer in peers:
        runs[peer] = _peer(peer, path, graph.inputs[0].name, inputs, fixed, [one.name for one in graph.outputs])
    return {
        "model": str(path), "target": "interpreted" if target is None else target.name, "steps": steps, "batch": rows,
        "load": os.getloadavg()[0],
        "rows": [
            {"runtime": one.name, "ms": one.seconds * 1e3, "error": one.error}
            for one in compare(runs, exact, seconds=seconds)
        ],
    }  # fmt: skip


def _peer(
    peer: str, path: Path, x: str, inputs: Mapping[str, Array], fixed: Mapping[str, float], outputs: Sequence[str]
) -> Run:
    quantised = peer.endswith("-int8")
    if peer.startswith("onnxruntime"):
        if path.suffix != ".onnx":
            raise Invalid("ONNX Runtime reads .onnx files alone", where="--against", hint="compare with torch")
        return onnxruntime_run(path, {**inputs, **_fixed(path, fixed)}, quantised=quantised)
    if path.suffix != ".safetensors":
        raise Invalid("PyTorch reads a state dict alone", where="--against", hint="give the .safetensors file")
    return torch_run(_module(path), inputs[x], outputs, quantised=quantised)


def _fixed(path: Path, fixed: Mapping[str, float]) -> dict[str, Array]:
    import numpy as np
    import onnx

    found: dict[str, Array] = {}
    for one in onnx.load(path, load_external_data=False).graph.input if fixed else []:
        if one.name in fixed:
            kind = one.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            found[one.name] = np.full([1] * len(kind.shape.dim), fixed[one.name], dtype)
    return found


def _module(path: Path) -> Any:
    """The PyTorch module of a state dict, by the shapes of its tensors."""
    import torch
    from safetensors.torch import load_file

    state = {key.rpartition(".")[2]: value for key, value in load_file(path).items()}
    hidden = state["weight_hh_l0"].shape[1] if "weight_hr_l0" not in state else state["weight_hr_l0"].shape[1]
    kind = {4: torch.nn.LSTM, 3: torch.nn.GRU, 1: torch.nn.RNN}[state["weight_hh_l0"].shape[0] // hidden]
    more = {"proj_size": state["weight_hr_l0"].shape[0]} if "weight_hr_l0" in state else {}
    layers = sum(key.startswith("weight_ih_l") and not key.endswith("_reverse") for key in state)
    module = kind(
        state["weight_ih_l0"].shape[1], hidden, layers, bias="bias_ih_l0" in state,
        bidirectional="weight_ih_l0_reverse" in state, **more,
    )  # fmt: skip
    module.load_state_dict(state)
    return module
