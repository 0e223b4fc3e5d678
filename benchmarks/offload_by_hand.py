"""Capture against the best backend by hand, for each of the papers' programs over its sizes, after the first run.

By hand means a program that its author wrote for that backend, conversions included: see
`shoal.offload.baselines.by_hand`. All sides of a size run in turns, each in a process of its own.
"""

from __future__ import annotations

from common import Row, parser, report

from shoal.offload.bench import geometric_mean, measure_by_hand
from shoal.offload.workloads import WORKLOADS

EXPONENTS = (12, 15, 18, 20, 22, 25)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--only", default=",".join(WORKLOADS))
    arguments.add_argument("--exponents", default=",".join(map(str, EXPONENTS)), help="of 2: elements")
    told = arguments.parse_args()
    rows: list[Row] = []
    ratios = []
    for name in told.only.split(","):
        workload = WORKLOADS[name]
        for exponent in map(int, told.exponents.split(",")):
            size = workload.elements(1 << exponent)
            if 1 << exponent > workload.largest or size < 16:
                continue
            one = measure_by_hand(name, size, told.rounds)
            ratios.append(one.ratio)
            text = f"{name}, 2^{exponent} elements: over {one.best}, load {one.load:.1f}"
            rows.append(Row(text, one.ratio, "x", "0.75 x", one.ratio >= 0.75))
            if not one.equal:
                rows.append(Row(f"{name}, 2^{exponent}: results are equal", 0.0, "", "1", False))
    mean = geometric_mean(ratios)
    rows.append(Row("all: geometric mean", mean, "x", "0.9 x", mean >= 0.9))
    rows.append(Row("all: the worst", min(ratios), "x", "0.75 x", min(ratios) >= 0.75))
    return report("offload: against the backends by hand", rows, as_json=told.json)


if __name__ == "__main__":
    raise SystemExit(main())
