"""Layers of DeepBench and of sizes that nothing was tuned on, against PyTorch, ONNX Runtime and, where it is installed,
OpenVINO, batch 1, one thread.

    python benchmarks/recurrent_layers.py [--seconds 2] [--part all | deepbench | others | small] [--json]

Ours are tuned first; what a search found is kept, so a second run is the one to read. All contenders of a row run in
turns in this process; the least time counts. Errors are relative, against PyTorch in 64
bits, of all outputs. A row is the time of the best other runtime of that precision or better over ours.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from common import Row, parser, report
from recurrent_common import module, openvino_run, torch_half_run, tuned_net, write_onnx

from shoal.recurrent.bench import Timed, compare, onnxruntime_run, torch_run

DEEPBENCH = [("LSTM", 256, 150), ("LSTM", 512, 25), ("LSTM", 1024, 25), ("LSTM", 1536, 50), ("GRU", 512, 1),
             ("LSTM", 2048, 25), ("GRU", 1024, 100), ("GRU", 1536, 50), ("GRU", 2048, 25)]  # fmt: skip
"""The longest are cut: a step takes as long in a sequence of 100 as in one of 1,500."""
OTHERS = [("LSTM", 384, 50), ("LSTM", 640, 25), ("LSTM", 1280, 25), ("LSTM", 1792, 10), ("GRU", 384, 50),
          ("GRU", 640, 25), ("GRU", 1280, 25), ("GRU", 1792, 10)]  # fmt: skip
USABLE = 0.05
"""A runtime with a larger error is none of that precision: ONNX Runtime's int8 saturates on processors without VNNI."""
NUMBERS = ("fp32", "bf16", "int8", "int4")
"""Of more and more precision lost; int4 is no peer of the others, and is held against the best int8."""
SMALL = [("LSTM", 256, 50), ("GRU", 256, 50)]


def timed(kind: str, hidden: int, steps: int, seconds: float) -> Mapping[str, Timed]:
    """Each contender by its name."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        layer = module(kind, hidden)
        path = write_onnx(kind, layer, Path(folder) / "m.onnx")
        x = np.random.default_rng(0).uniform(-1, 1, (steps, 1, hidden)).astype(np.float32)
        inputs = {"X": x}
        runs: dict[str, Any] = {}
        for number in NUMBERS:
            net = tuned_net(path, number, steps=steps)
            runs[f"ours {number}"] = lambda net=net: net.run(inputs)
        runs["onnxruntime fp32"] = onnxruntime_run(path, inputs)
        if kind == "LSTM":
            runs["onnxruntime int8"] = onnxruntime_run(path, inputs, quantised=True)
        runs["torch fp32"] = torch_run(layer, x, ["Y"])
        runs["torch int8"] = torch_run(module(kind, hidden), x, ["Y"], quantised=True)
        runs["torch bf16"] = torch_half_run(module(kind, hidden), x)
        if importlib.util.find_spec("openvino"):
            for number, precision in (("fp32", "f32"), ("bf16", "bf16")):
                runs[f"openvino {number}"] = openvino_run(path, inputs, precision)
        with torch.inference_mode():
            exact = module(kind, hidden).double()(torch.from_numpy(x).double())[0].numpy()
        return {one.name: one for one in compare(runs, {"Y": exact}, seconds=seconds)}


def rows_of(kind: str, hidden: int, steps: int, found: Mapping[str, Timed]) -> list[Row]:
    """A row for each number type: how much faster than the best peer of that precision or better."""
    rows = []
    for at, number in enumerate(NUMBERS):
        others = [one for one in found.values() if not one.name.startswith("ours") and one.error < USABLE]
        peers = [one for one in others if one.name.partition(" ")[2] in NUMBERS[: at + 1]]
        best, ours = min(peers, key=lambda one: one.seconds), found[f"ours {number}"]
        text = (
            f"{kind} {hidden} x {steps} {number}: {ours.seconds * 1e3:.3f} ms, error {ours.error:.0e}; {best.name} "
            f"{best.seconds * 1e3:.3f} ms, error {best.error:.0e}"
        )
        rows.append(Row(text, best.seconds / ours.seconds, "x"))
    for one in found.values():
        if one.error >= USABLE:
            rows.append(Row(f"{kind} {hidden} x {steps}: relative error of {one.name}, not counted", one.error, ""))
    return rows


def main() -> int:
    warnings.simplefilter("ignore")
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=2.0, help="for each row")
    arguments.add_argument(
        "--part", choices=("all", "deepbench", "others", "small"), default="all", help="which layers"
    )
    given = arguments.parse_args()
    rows: list[Row] = []
    gains: dict[str, list[float]] = {number: [] for number in NUMBERS}
    parts = {"all": [*DEEPBENCH, *OTHERS], "deepbench": DEEPBENCH, "others": OTHERS, "small": SMALL}
    for shape in parts[given.part]:
        made = rows_of(*shape, timed(*shape, given.seconds))
        rows += made
        if shape in DEEPBENCH:
            for number, row in zip(gains, made, strict=False):  # what is not counted comes last
                gains[number].append(row.value)
    for number, values in gains.items():
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            rows.append(Row(f"DeepBench rows, {number}, geometric mean over the best peer", mean, "x"))
    return report("recurrent layers over the best other runtime", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
