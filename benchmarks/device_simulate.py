"""Ways of sharing a device against each other, SIMULATED: no device takes part.

    python benchmarks/device_simulate.py [--json] [--all] [--loads 0.1 0.3 0.5 0.7 0.9] [--seeds 2 3] [--requests 100]

Services of which the P99 counts (from arrival, in an open loop) beside training, on a model of a device that does not
preempt kernels. Workloads are synthetic, with the names of Tally's evaluation. Every system runs on six pairs at load
0.5. The judged one, gate+slice, runs at every load, on the same pairs or with --all on all 36.

Rules and choice of slices were tuned at load 0.5 with seed 1, on four pairs (bert with gpt2-large and with whisper-v3,
resnet50 with resnet50, yolov6m with pegasus-x); the figures are of other seeds. Kernel profiles are those of an earlier
run of the same training, as the file of profiles keeps them.

Bars, means over the pairs: P99 overhead of gate+slice at most 5 % at every load; at load 0.5 half of training's
throughput, and the order of the paper by overhead of the service time (gate+slice, gate, then TGS, then MPS; gate
before time slicing). The means are also taken over the pairs that were not tuned on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product
from statistics import fmean

from common import Row, parser, report
from device.simulate import DIAGONAL, MIXES, SYSTEMS, Outcome, System, compare

TUNED = {
    ("bert", "gpt2-large-train"), ("bert", "whisper-v3-train"), ("resnet50", "resnet50-train"),
    ("yolov6m", "pegasus-x-train"),
}  # fmt: skip


def rows(found: Sequence[Outcome]) -> list[Row]:
    made: list[Row] = []
    for load in sorted({one.load for one in found}):
        for system in SYSTEMS:
            here = [one for one in found if one.system is system and one.load == load]
            if not here or system is System.ALONE:
                continue
            made += judged(f"{system}, load {load:g}", here)
    half = [one for one in found if one.load == 0.5]
    others = [one for one in half if (one.service, one.training) not in TUNED]
    if others and len(others) < len(half):
        made += judged("gate+slice, load 0.5, pairs that were not tuned on", [
            one for one in others if one.system is System.GATE_SLICE
        ])  # fmt: skip
    if half:
        six = [one for one in half if (one.service, one.training) in DIAGONAL]
        made.append(ordered("order of systems as in the paper, load 0.5, six pairs", six))
    return made


def judged(where: str, here: Sequence[Outcome]) -> list[Row]:
    p99, service, training = (
        fmean(getattr(one, name) for one in here) for name in ("p99_overhead", "p99_service_overhead", "throughput")
    )
    judged = here[0].system is System.GATE_SLICE
    half = judged and here[0].load == 0.5
    made = [
        Row(f"{where}: P99 overhead from arrival", 100 * p99, "%", *(("<= 5", p99 <= 0.05) if judged else ())),
        Row(f"{where}: P99 overhead of service time", 100 * service, "%"),
        Row(f"{where}: training's throughput", training, "", *((">= 0.50", training >= 0.5) if half else ())),
    ]
    if judged:
        made.append(Row(f"{where}: worst pair's P99 overhead", 100 * max(one.p99_overhead for one in here), "%"))
        made.append(Row(f"{where}: worst pair's throughput", min(one.throughput for one in here), ""))
    return made


def ordered(what: str, half: Sequence[Outcome]) -> Row:
    mean = {one: fmean(it.p99_service_overhead for it in half if it.system is one) for one in SYSTEMS}
    order = mean[System.GATE_SLICE] < mean[System.GATE] < mean[System.TGS] < mean[System.MPS]
    order = order and mean[System.GATE] < mean[System.TIME_SLICING]
    return Row(what, float(order), "", "1", order)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--all", action="store_true", help="all 36 pairs")
    arguments.add_argument("--loads", type=float, nargs="+", default=[0.1, 0.3, 0.5, 0.7, 0.9])
    arguments.add_argument("--seeds", type=int, nargs="+", default=[2])
    arguments.add_argument("--requests", type=int, default=100)
    options = arguments.parse_args()
    found: list[Outcome] = []
    beside = [one for one in SYSTEMS if one is not System.GATE_SLICE]
    plans: list[tuple[Sequence[tuple[str, str]], Sequence[System], Sequence[float]]] = [
        (MIXES if options.all else DIAGONAL, (System.GATE_SLICE,), options.loads),
        (DIAGONAL, beside, [one for one in options.loads if one == 0.5]),
    ]
    for seed, (mixes, systems, loads) in product(options.seeds, plans):
        for one in compare(mixes, loads=loads, systems=systems, seed=seed, requests=options.requests):
            found.append(one)
            print(
                f"simulated: {one.service:>16} {one.training:<16} load {one.load:g} seed {seed} {one.system:<12} "
                f"P99 {one.p99_ms:9.2f} ms {100 * one.p99_overhead:8.1f} % "
                f"service {100 * one.p99_service_overhead:8.1f} % training {one.throughput:.3f}",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    return report("device_simulate (simulated)", rows(found), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
