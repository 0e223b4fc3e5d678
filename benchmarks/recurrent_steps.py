"""One step of an LSTM with its state in and out, and sixteen callers in one batch, against ONNX Runtime, one thread.

    python benchmarks/recurrent_steps.py [--seconds 2] [--hidden 512] [--json]

A step of ours is `session.step` in Python, of ONNX Runtime `run` with states as inputs and outputs. All run in turns in
this process; the least time counts. `alone`: sixteen callers one by one in ONNX Runtime. `batched`: as one batch of it,
with the states of all in one array, which its callers would have to gather and to share out.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import Row, parser, report
from recurrent_common import module, tuned_net, write_onnx

from shoal.recurrent.bench import compare, onnxruntime_run, torch_run

SIZES = (256, 512, 1024, 2048)
CALLERS = 16


def rows_of(hidden: int, seconds: float) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = write_onnx("LSTM", module("LSTM", hidden), Path(folder) / "m.onnx", states=True)
        noise = np.random.default_rng(0)
        one = {"X": noise.uniform(-1, 1, (1, 1, hidden)).astype(np.float32)}
        many = {"X": noise.uniform(-1, 1, (1, CALLERS, hidden)).astype(np.float32)}
        for given, count in ((one, 1), (many, CALLERS)):
            given |= {name: np.zeros((1, count, hidden), np.float32) for name in ("h0", "c0")}
        runs: dict[str, Any] = {}
        for number in ("fp32", "int8"):
            quantised = number == "int8"
            runs[f"theirs {number}"] = onnxruntime_run(path, one, quantised=quantised)
            runs[f"theirs batched {number}"] = onnxruntime_run(path, many, quantised=quantised)
            net = tuned_net(path, number, steps=25, rows=CALLERS)
            session, sessions = net.session(), [net.session() for _ in range(CALLERS)]
            x = {"X": one["X"]}
            each = [x] * CALLERS
            runs[f"ours {number}"] = lambda session=session, x=x: session.step(x, ("Y",))
            runs[f"ours batched {number}"] = lambda net=net, sessions=sessions, each=each: net.step(
                sessions, each, ("Y",)
            )[0]
        layer = module("LSTM", hidden)
        runs["torch fp32"] = torch_run(layer, one["X"], ["Y"])
        found = {timed.name: timed.seconds * 1e6 for timed in compare(runs, {}, seconds=seconds)}
    for number in ("fp32", "int8"):
        ours, theirs = found[f"ours {number}"], found[f"theirs {number}"]
        batch, batched = found[f"ours batched {number}"], found[f"theirs batched {number}"]
        head, torch = f"LSTM {hidden} {number}", found["torch fp32"]
        rows += [
            Row(f"{head}, one step: {ours:.1f} us, ONNX Runtime {theirs:.1f} us", theirs / ours, "x"),
            Row(f"{head}, one step: {ours:.1f} us, PyTorch fp32 {torch:.1f} us", torch / ours, "x"),
            Row(
                f"{head}, {CALLERS} callers: {batch:.1f} us, alone {CALLERS * theirs:.1f} us",
                CALLERS * theirs / batch,
                "x",
            ),
            Row(f"{head}, {CALLERS} callers: {batch:.1f} us, batched {batched:.1f} us", batched / batch, "x"),
        ]
    return rows


def main() -> int:
    warnings.simplefilter("ignore")
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=2.0, help="for each size")
    arguments.add_argument("--hidden", type=int, action="append", help="a size; may repeat [256, 512, 1024, 2048]")
    given = arguments.parse_args()
    rows = [row for hidden in given.hidden or SIZES for row in rows_of(hidden, given.seconds)]
    return report("steps of a recurrent network over ONNX Runtime", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
