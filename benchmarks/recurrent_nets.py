"""Whole networks, and what a compiled layer reaches of what this machine has.

    python benchmarks/recurrent_nets.py [--seconds 2] [--part all | nets | kernels] [--vad FILE] [--json]

`--vad`: silero-vad's own file (`silero_vad_16k_op15.onnx` or `silero_vad_openvino_16k.onnx` of its wheel); else a
network of the same shapes with noise for weights. All contenders of a row run in turns; the least time counts.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from common import Row, parser, report
from onnx import TensorProto, helper, numpy_helper, save
from recurrent_common import module, tuned_net, write_onnx

from shoal.recurrent.bench import compare, onnxruntime_run, torch_run
from shoal.recurrent.layers.kernel import compile_kernel
from shoal.recurrent.layers.make import best_target
from shoal.recurrent.llvm.cache import user_cache
from shoal.recurrent.loading import load
from shoal.recurrent.network.artefact import layers_of
from shoal.recurrent.numbers import NumberType
from shoal.recurrent.search.machine import measured
from shoal.recurrent.search.model import roofline_s
from shoal.recurrent.search.tune import Search

FRAME = {"input": (1, 576), "state": (2, 1, 128)}


def voice_detector(path: Path) -> Path:
    """As silero-vad is built: a spectrum by a convolution, four convolutions, an LSTM of one step, one output."""
    noise, nodes, weights = np.random.default_rng(0), [], []

    def const(values: Any) -> str:
        weights.append(numpy_helper.from_array(np.asarray(values), f"k{len(weights)}"))
        return str(weights[-1].name)

    def random(*shape: int) -> str:
        return const(noise.uniform(-0.1, 0.1, shape).astype(np.float32))

    def add(op: str, *inputs: str, out: tuple[str, ...] = (), **attributes: Any) -> str:
        made = out or (f"t{len(nodes)}",)
        nodes.append(helper.make_node(op, list(inputs), list(made), **attributes))
        return made[0]

    def one(at: int) -> str:
        return const(np.array([at]))

    x = add("Unsqueeze", add("Pad", "input", const(np.array([0, 0, 0, 64])), mode="reflect"), one(1))
    spectrum = add("Conv", x, random(258, 1, 256), strides=[128])
    two = const(np.array(2.0, np.float32))
    parts = [add("Pow", add("Slice", spectrum, one(a), one(b), one(1), one(1)), two) for a, b in ((0, 129), (129, 999))]
    x = add("Sqrt", add("Add", *parts))
    for units, channels, stride in ((128, 129, 1), (64, 128, 2), (64, 64, 2), (128, 64, 1)):
        made = add("Conv", x, random(units, channels, 3), random(units), strides=[stride], pads=[1, 1])
        x = add("Relu", made)
    first = [add("Unsqueeze", add("Gather", "state", const(np.array(at)), axis=0), one(0)) for at in (0, 1)]
    names = [add("Transpose", x, perm=[2, 0, 1]), random(1, 512, 128), random(1, 512, 128), random(1, 1024), "", *first]
    add("LSTM", *names, out=("y", "hn", "cn"), hidden_size=128)
    add("Concat", "hn", "cn", out=("stateN",), axis=0)
    last = add("Relu", add("Transpose", add("Squeeze", "y", one(1)), perm=[1, 2, 0]))
    score = add("Sigmoid", add("Conv", last, random(1, 128, 1), random(1)))
    add("Squeeze", score, one(2), out=("output",))
    graph = helper.make_graph(
        nodes, "vad", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in FRAME.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("output", "stateN")], weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    save(model, path)
    return path


def frame_rows(path: Path, seconds: float, *, own: bool) -> list[Row]:
    """One frame of a voice detector, from arrays of Python to arrays of Python."""
    import onnx

    fixed = {"sr": 16000.0} if any(one.name == "sr" for one in onnx.load(path).graph.input) else {}
    noise = np.random.default_rng(0)
    frame = {name: noise.uniform(-1, 1, shape).astype(np.float32) for name, shape in FRAME.items()}
    theirs = onnxruntime_run(path, {**frame, **{name: np.array(int(one)) for name, one in fixed.items()}})
    runs: dict[str, Any] = {"onnxruntime": theirs}
    for number in ("fp32", "bf16"):
        net = load(path, set=fixed, shape=FRAME, state={"state": "stateN"}, type=number)
        session, x = net.session(), {"input": frame["input"]}
        runs[number] = lambda net=net: net.run(frame)
        runs[f"{number} session"] = lambda session=session, x=x: session.step(x, ("output",))
    found = {one.name: one for one in compare(runs, theirs(), seconds=seconds)}
    peer = found.pop("onnxruntime").seconds
    head = "silero-vad" if own else "a network as silero-vad"
    return [
        Row(f"{head}, one frame, {name}: {one.seconds * 1e6:.1f} us, ONNX Runtime {peer * 1e6:.1f} us"
            + ("" if "session" in name else f", error {one.error:.0e}"), peer / one.seconds, "x",
            *((">= 1.5x", peer / one.seconds >= 1.5) if name == "fp32" else ()))
        for name, one in found.items()
    ]  # fmt: skip


def speaker_rows(folder: Path, seconds: float) -> list[Row]:
    """Three LSTMs of 256 units over 160 frames, as Resemblyzer has."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    layer = torch.nn.LSTM(40, 256, 3).eval()
    path = folder / "speaker.safetensors"
    save_file(layer.state_dict(), path)
    x = np.random.default_rng(0).uniform(-1, 1, (160, 1, 40)).astype(np.float32)
    runs: dict[str, Any] = {}
    for number in ("fp32", "int8"):
        net = tuned_net(path, number, steps=160)
        runs[number] = lambda net=net: net.run({"x": x}, ("y",))
    runs["torch fp32"] = torch_run(layer, x, ["y"])
    runs["torch int8"] = torch_run(torch.nn.LSTM(40, 256, 3).eval(), x, ["y"], quantised=True)
    found = {one.name: one for one in compare(runs, runs["torch fp32"](), seconds=seconds)}
    peer = found["torch int8"].seconds
    return [
        Row(f"3 x LSTM 256, 160 frames, {name}: {found[name].seconds * 1e3:.2f} ms, error {found[name].error:.0e}; "
            f"PyTorch int8 {peer * 1e3:.2f} ms", peer / found[name].seconds, "x",
            *((">= 2x", peer / found[name].seconds >= 2) if name == "int8" else ()))
        for name in ("fp32", "int8")
    ]  # fmt: skip


def memory_rows(path: Path) -> list[Row]:
    """The memory of 200 sessions over that of one."""
    net = load(path, state={"state": "stateN"})
    x = {"input": np.zeros(FRAME["input"], np.float32)}
    sessions = [net.session()]
    sessions[0].step(x)
    before = psutil.Process().memory_info().rss
    sessions += [net.session() for _ in range(199)]
    for one in sessions:
        one.step(x)
    more = (psutil.Process().memory_info().rss - before) / 1e6
    return [Row("memory of 200 sessions over one", more, "MB", "<= 20 MB", more <= 20)]


def kernel_rows(folder: Path) -> list[Row]:
    """Shares of the roofline and of the peak, and how long a search takes."""
    target, cache = best_target(), user_cache()
    assert target is not None
    machine = measured(target, cache.folder)
    rows = []
    for hidden in (512, 1024):
        for number in ("fp32", "int8"):
            path = write_onnx("LSTM", module("LSTM", hidden), folder / "m.onnx")
            (spec,) = layers_of(load(path, type=number).graph)
            began = time.perf_counter(), time.process_time()
            found = Search(target, machine, cache, steps=25, rows=16, timed=16).run(spec)
            wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
            best = next(one for one in found.tried if one.steps > 1)
            share = roofline_s(spec, target, machine, 25) / best.measured_s
            rows.append(Row(f"LSTM {hidden} x 25 {number}: share of the roofline", share, ""))
            batch = next(one for one in found.tried if one.steps == 1)
            ops = 2 * 16 * spec.weights.count / batch.measured_s
            rows.append(Row(f"  16 rows, share of the peak of {number}", ops / machine.peak[NumberType(number)], ""))
            rows.append(Row(f"  search of one layer: {wall:.1f} s, CPU", cpu, "s", "<= 10 s", cpu <= 10))
            began_again = time.process_time()
            for schedule in (found.schedules.sequence, found.schedules.step):
                compile_kernel(spec.cell, spec.sizes, spec.kind, schedule, target, cache)
            again = (time.process_time() - began_again) * 1e3
            rows.append(Row("  both kernels from the cache, CPU", again, "ms", "<= 50 ms", again <= 50))
    return rows


def main() -> int:
    warnings.simplefilter("ignore")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=2.0, help="for each network")
    arguments.add_argument("--part", choices=("all", "nets", "kernels"), default="all", help="what is measured")
    arguments.add_argument("--vad", type=Path, help="silero-vad's file")
    given = arguments.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made = voice_detector(folder / "vad.onnx")
        if given.part != "kernels":
            rows += memory_rows(made)
            rows += frame_rows(given.vad or made, given.seconds, own=given.vad is not None)
            rows += speaker_rows(folder, given.seconds)
        if given.part != "nets":
            rows += kernel_rows(folder)
    return report("recurrent networks, whole", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
