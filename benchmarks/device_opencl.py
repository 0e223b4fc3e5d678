"""Two plain OpenCL programs on one device: an inference server in an open loop, and a training with long kernels.

    python benchmarks/device_opencl.py [--json] [--seconds 8] [--repeats 3]

The inference server's latency, from arrival to answer, is measured alone, beside the training without a gate, and
behind the gate with the training's kernels whole and in slices, of a fixed size and as the profile says. The training's
steps a second are told as a part of those it makes alone. Each repeat runs all of them; ratios are within a repeat, and
the table has their medians.

The device is the CPU, through PoCL. The operating system preempts PoCL's threads, which no GPU does with kernels, and
the programs themselves need the same CPU: this is what the layer and the gate do here, not a model of a GPU.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from common import Row, median, parser, report

from shoal.core import Unavailable
from shoal.device import opencl
from shoal.device.demo import RATE, ROUNDS, RULES, SLICE_BLOCKS, Program, environment, slot_of
from shoal.device.page import Page

FIXED = f"gate, slices of {SLICE_BLOCKS} groups"
CHOSEN = "gate, slices by profile"
PLAIN: Mapping[str, str] = {"PYOPENCL_NO_CACHE": "1"}


def p99(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=100, method="inclusive")[98] if len(latencies) > 1 else 0.0


def one(
    seconds: float, inference: Mapping[str, str] | None, training: Mapping[str, str] | None, page: Page | None = None
) -> dict[str, float]:
    """What the programs did beside each other; None: without it."""
    with contextlib.ExitStack() as stack:
        batch = stack.enter_context(Program("training", ROUNDS, training)) if training is not None else None
        service = stack.enter_context(Program("inference", RATE, inference)) if inference is not None else None
        slot = slot_of(page, batch) if page is not None and batch is not None else None
        for program in (batch, service):
            if program is not None:
                program.take()
        before, began = slot.pieces if slot is not None else 0, time.monotonic()
        time.sleep(seconds)
        latencies = [float(line) for line in service.take()] if service is not None else []
        steps = len(batch.take()) if batch is not None else 0
        elapsed = time.monotonic() - began
        found = {"p50": statistics.median(latencies), "p99": p99(latencies)} if latencies else {}
        found["steps"] = steps / elapsed
        if slot is not None:
            found["pieces"] = (slot.pieces - before) / max(steps, 1)
        return found


def gated(seconds: float, page: Page, ways: str, slice_blocks: int = 0) -> dict[str, float]:
    batch = environment(page, "best-effort", ways=ways, slice_blocks=slice_blocks)
    return one(seconds, environment(page, "guaranteed"), batch, page)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    said = opencl.capability()
    if not said.available:
        print(f"device_opencl: {said.detail}")
        return 0
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(options.repeats):
        with (
            tempfile.TemporaryDirectory() as folder,
            Page.create(Path(folder) / "page", device="benchmark", rules=RULES) as page,
        ):
            runs = {
                "training alone": one(options.seconds, None, PLAIN),
                "alone": one(options.seconds, PLAIN, None),
                "alone, counted": one(options.seconds, environment(page, "guaranteed"), None),
                "no gate": one(options.seconds, PLAIN, PLAIN),
                "gate, whole": gated(options.seconds, page, "whole"),
                FIXED: gated(options.seconds, page, "slice", SLICE_BLOCKS),
                CHOSEN: gated(options.seconds, page, "slice"),
            }
        for name, run in runs.items():
            for key in ("p50", "p99"):
                if key in run:
                    found[name, key].append(run[key])
                    found[name, f"{key} to alone"].append(run[key] / runs["alone"][key])
            found[name, "steps"].append(run["steps"] / runs["training alone"]["steps"])
            found[name, "pieces"].append(run.get("pieces", 0.0))
    rows = []
    for name in ("alone", "alone, counted", "no gate", "gate, whole", FIXED, CHOSEN):
        for key in ("p50", "p99"):
            rows.append(Row(f"{name}: latency from arrival, {key}", median(found[name, key]), "ms"))
            if name != "alone":
                rows.append(Row(f"{name}: {key} to alone", median(found[name, f"{key} to alone"]), "x"))
        if name.startswith(("no", "gate")):
            rows.append(Row(f"{name}: training, steps to alone", median(found[name, "steps"]), "x"))
        if name.startswith("gate"):
            rows.append(Row(f"{name}: launches a kernel of the training", median(found[name, "pieces"]), ""))
    return report("device_opencl: PoCL on this CPU, not a model of a GPU", rows, as_json=options.json)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unavailable as problem:
        sys.exit(f"device_opencl: {problem}")
