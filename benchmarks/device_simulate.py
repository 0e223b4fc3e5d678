"""Ways of sharing a device against each other, SIMULATED: no device takes part.

    python benchmarks/device_simulate.py [--json] [--all] [--loads 0.1 0.3 0.5 0.7 0.9] [--seeds 2 3] [--requests 300]

Services of which the P99 counts (from arrival, in an open loop) beside training, on a model of a device that does not
preempt kernels. Workloads are synthetic, with the names of Tally's evaluation. By default six pairs at three loads;
--all takes all 36 pairs, for most of an hour. Rules and choice of slices were tuned at load 0.5 with seed 1, on four
pairs (bert with gpt2-large and with whisper-v3, resnet50 with resnet50, yolov6m with pegasus-x); the figures are of
other seeds. Kernel profiles are those of an earlier run of the same training, as the file of profiles keeps them.

Bars, means over the pairs at load 0.5: the order of the paper by overhead of the service time (gate+slice, gate, then
TGS, then MPS; gate before time slicing), P99 overhead of gate+slice at most 5 %, and half of training's throughput.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import fmean

from common import Row, parser, report

from shoal.device.simulate import DIAGONAL, MIXES, SYSTEMS, Outcome, System, compare


def rows(found: Sequence[Outcome], loads: Sequence[float]) -> list[Row]:
    made: list[Row] = []
    for load in loads:
        for system in SYSTEMS:
            here = [one for one in found if one.system is system and one.load == load]
            if not here or system is System.ALONE:
                continue
            judged = system is System.GATE_SLICE and load == 0.5
            where = f"{system}, load {load:g}"
            p99, service, training = (
                fmean(getattr(one, name) for one in here)
                for name in ("p99_overhead", "p99_service_overhead", "throughput")
            )
            made += [
                Row(f"{where}: P99 overhead from arrival", 100 * p99, "%", *(("<= 5", p99 <= 0.05) if judged else ())),
                Row(f"{where}: P99 overhead of service time", 100 * service, "%"),
                Row(f"{where}: training's throughput", training, "", *((">= 0.50", training >= 0.5) if judged else ())),
            ]
    half = {one: fmean(it.p99_service_overhead for it in found if it.system is one and it.load == 0.5)
            for one in SYSTEMS if 0.5 in loads}  # fmt: skip
    if half:
        order = half[System.GATE_SLICE] < half[System.GATE] < half[System.TGS] < half[System.MPS]
        order = order and half[System.GATE] < half[System.TIME_SLICING]
        made.append(Row("order of systems as in the paper, load 0.5", float(order), "", "1", order))
    return made


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--all", action="store_true", help="all 36 pairs")
    arguments.add_argument("--loads", type=float, nargs="+", default=[0.1, 0.5, 0.8])
    arguments.add_argument("--seeds", type=int, nargs="+", default=[2])
    arguments.add_argument("--requests", type=int, default=300)
    options = arguments.parse_args()
    found: list[Outcome] = []
    for seed in options.seeds:
        for one in compare(
            MIXES if options.all else DIAGONAL, loads=options.loads, seed=seed, requests=options.requests
        ):
            found.append(one)
            print(
                f"simulated: {one.service:>16} {one.training:<16} load {one.load:g} seed {seed} {one.system:<12} "
                f"P99 {one.p99_ms:9.2f} ms {100 * one.p99_overhead:8.1f} % "
                f"service {100 * one.p99_service_overhead:8.1f} % training {one.throughput:.3f}",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    return report("device_simulate (simulated)", rows(found, options.loads), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
