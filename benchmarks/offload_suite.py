"""The papers' programs, captured, against the plain libraries: two processes for each program that run in turns.

The first suite is that of Offload Annotations (ATC'20), the second has programs of Mozart (SOSP'19) and two more.
Inputs are random and the formulas true; results are compared. Processor seconds are beside those of the clock: other
programs on the machine change them less, and threads gain nothing in them.
"""

from __future__ import annotations

from common import Row, parser, report

from shoal.offload.bench import geometric_mean, measure, workloads_of
from shoal.offload.workloads import WORKLOADS

GOALS = {"oa": 2.8, "extra": 1.5}


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--suite", default="oa,extra")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--scale", type=float, default=1.0, help="of the usual sizes")
    arguments.add_argument("--small", action="store_true", help="sizes at which nothing is to be gained")
    told = arguments.parse_args()
    rows: list[Row] = []
    for suite in told.suite.split(","):
        found = []
        for name in workloads_of([suite]):
            small, usual = WORKLOADS[name].sizes
            one = measure(name, small if told.small else max(small, int(usual * told.scale)), told.rounds)
            found.append(one)
            rows.append(Row(f"{name}, {one.size}: plain, load {one.load:.1f}", one.plain_s * 1e3, "ms"))
            rows.append(Row(f"{name}: captured over plain", one.speedup, "x", "0.95 x", one.speedup >= 0.95))
            rows.append(Row(f"{name}: the first run", one.first_speedup, "x", "0.95 x", one.first_speedup >= 0.95))
            rows.append(Row(f"{name}: by processor seconds", one.cpu_speedup, "x"))
            rows.append(Row(f"{name}: results are equal", float(one.equal), "", "1", one.equal))
        mean = geometric_mean([each.speedup for each in found])
        goal = 0.95 if told.small else GOALS[suite]
        rows.append(Row(f"suite {suite}: geometric mean", mean, "x", f"{goal} x", mean >= goal))
        rows.append(Row(f"suite {suite}: by processor seconds", geometric_mean([e.cpu_speedup for e in found]), "x"))
    return report("offload: the papers' programs", rows, as_json=told.json)


if __name__ == "__main__":
    raise SystemExit(main())
