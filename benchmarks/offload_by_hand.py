"""Capture against the best backend by hand, for each of the papers' programs over its sizes, after the first run.

By hand means a program that its author wrote for that backend, conversions included: see `offload_programs.py`. All
sides of a program run in turns, each in a process of its own, which stays for all sizes. Each row is told as it comes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from common import Row, parser, report
from offload_programs import programs

from shoal.core import ShoalError
from shoal.offload.bench import Side, environments, geometric_mean, same, side
from shoal.offload.workloads import WORKLOADS

EXPONENTS = (12, 15, 18, 20, 22, 25)
PROGRAMS = str(Path(__file__).with_name("offload_programs.py"))


def sizes_of(name: str, exponents: Sequence[int]) -> list[tuple[int, int]]:
    workload = WORKLOADS[name]
    some = [(each, workload.elements(1 << each)) for each in exponents if 1 << each <= workload.largest]
    return [(exponent, size) for exponent, size in some if size >= 16]


def rows_of(name: str, exponents: Sequence[int], rounds: int) -> Iterator[Row]:
    plain, captured = environments({})
    backends = list(programs(name))
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(side(["-m", "shoal.offload.workloads", name], captured))]
        sides += [stack.enter_context(side([PROGRAMS, name, each], plain)) for each in backends]
        for exponent, size in sizes_of(name, exponents):
            yield from row_of(f"{name}, 2^{exponent} elements", size, sides, backends, rounds)


def row_of(text: str, size: int, sides: Sequence[Side], backends: Sequence[str], rounds: int) -> Iterator[Row]:
    for each in sides:
        each.ask(str(size))
    runs = [[each.ask("many" if number else "run") for each in sides] for number in range(rounds + 1)]
    captured, *others = (min(float(run[number]["seconds"]) for run in runs[1:]) for number in range(len(sides)))
    best = min(range(len(others)), key=others.__getitem__)
    ratio = others[best] / captured
    load = os.getloadavg()[0]
    text = f"{text}, {others[0] / captured:.2f} x over plain" if best else text
    yield Row(f"{text}: over {backends[best]}, load {load:.1f}", ratio, "x", "0.75 x", ratio >= 0.75)
    if not same(runs[0][0]["digest"], runs[0][1]["digest"]):
        yield Row(f"{text}: results are equal", 0.0, "", "1", False)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--only", default=",".join(WORKLOADS))
    arguments.add_argument("--exponents", default=",".join(map(str, EXPONENTS)), help="of 2: elements")
    told = arguments.parse_args()
    rows: list[Row] = []
    for name in told.only.split(","):
        try:
            for row in rows_of(name, [int(each) for each in told.exponents.split(",")], told.rounds):
                rows.append(row)
                print(f"{row.measure}: {row.value:.2f} {row.unit}", file=sys.stderr, flush=True)
        except ShoalError as error:  # one program that ends takes no other with it
            rows.append(Row(f"{name}: {error}", 0.0, "", "", False))
    ratios = [row.value for row in rows if row.unit == "x"]
    mean = geometric_mean(ratios)
    rows.append(Row("all: geometric mean", mean, "x", "0.9 x", mean >= 0.9))
    rows.append(Row("all: the worst", min(ratios), "x", "0.75 x", min(ratios) >= 0.75))
    return report("offload: against the backends by hand", rows, as_json=told.json)


if __name__ == "__main__":
    raise SystemExit(main())
