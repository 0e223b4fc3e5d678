"""This compiler and others on one network: the same inputs in the same run, in turns, the least time of each."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core import Invalid
from shoal.recurrent.layers.layer import Array
from shoal.recurrent.numbers import relative_error

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

PEERS = ("onnxruntime", "onnxruntime-int8", "torch", "torch-int8")

Run = Callable[[], Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class Timed:
    """One of the compared: its least time, and how far its outputs are from those of the reference."""

    name: str
    seconds: float
    error: float


def onnxruntime_run(path: Path, inputs: Mapping[str, Array], *, quantised: bool = False) -> Run:
    """The whole file in ONNX Runtime with one thread; `quantised`: its LSTMs dynamically to int8."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    data = quantised_model(path) if quantised else path.read_bytes()
    session: Any = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    feeds = {one.name: inputs[one.name] for one in session.get_inputs()}
    return lambda: dict(zip(names, session.run(names, feeds), strict=True))


def quantised_model(path: Path) -> bytes:
    """The file with its LSTMs as DynamicQuantizeLSTM, which is what ONNX Runtime has for int8."""
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)  # it advises on steps that change nothing here
    with tempfile.TemporaryDirectory(prefix="shoal-recurrent-") as folder:
        made = Path(folder) / "int8.onnx"
        quantize_dynamic(path, made, op_types_to_quantize=["LSTM"], weight_type=QuantType.QInt8, per_channel=True)
        return made.read_bytes()


def torch_run(module: Any, x: Array, names: Sequence[str], *, quantised: bool = False) -> Run:
    """A `torch.nn.LSTM`, `GRU` or `RNN` with one thread; its output alone is compared."""
    import torch

    torch.set_num_threads(1)
    held: Any = module.eval()
    if quantised:
        quantise: Any = torch.ao.quantization.quantize_dynamic
        held = quantise(torch.nn.Sequential(module), {torch.nn.LSTM, torch.nn.GRU}, dtype=torch.qint8)
    given = torch.from_numpy(np.ascontiguousarray(x))

    def run() -> Mapping[str, Array]:
        with torch.inference_mode():
            return {names[0]: held(given)[0].numpy()}

    return run


def check_peers(peers: Sequence[str]) -> None:
    """Raises Invalid for one that is not known or not installed."""
    for peer in peers:
        if peer not in PEERS:
            raise Invalid(f"{peer!r} is not known", where="--against", hint=f"one of {', '.join(PEERS)}")
        if importlib.util.find_spec(peer.partition("-")[0]) is None:
            raise Invalid(f"{peer} is not installed", where="--against", hint=f"pip install {peer.partition('-')[0]}")


def compare(
    runs: Mapping[str, Run], reference: Mapping[str, Array], *, seconds: float = 2.0,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Timed]:  # fmt: skip
    """Time the contenders in turns until `seconds` have passed, three turns at least."""
    errors = {name: _error(run(), reference) for name, run in runs.items()}
    least = dict.fromkeys(runs, float("inf"))
    began, turns = clock(), 0
    while turns < 3 or clock() - began < seconds:
        turns += 1
        for name, run in runs.items():
            start = clock()
            run()
            least[name] = min(least[name], clock() - start)
    return [Timed(name, least[name], errors[name]) for name in runs]


def _error(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> float:
    """Of the outputs that both have, the worst."""
    both = [(found[name], wanted[name]) for name in found.keys() & wanted.keys()]
    return max((relative_error(one, other) for one, other in both if one.size == other.size), default=0.0)
