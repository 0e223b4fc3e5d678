"""Simulated: the guard's policies against each other, and against the best setting that never changes (`oracle`).

    python benchmarks/guard_policies.py [--json] [--policy model ...] [--scenario pair-nt ...] [--seed 1]   # a minute

Efficiency is what guaranteed work gains against `none`, per unit that best-effort work loses, summed over scenarios. Of
each scenario and policy: guaranteed work's speed, its slowest steps (both against undisturbed), the part of its time in
which it was slower than promised, and the work that best-effort groups do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

from common import Row, parser, report
from host.simulate import NAMES, Comparison, compare, workload_set


def rows(found: Comparison) -> Iterator[Row]:
    for policy in found.policies():
        if (efficiency := found.efficiency(policy)) is not None:
            yield Row(f"efficiency of {policy}", efficiency, "gained per lost")
    for scenario, outcomes in found.outcomes.items():
        for policy, outcome in outcomes.items():
            worst = min(outcome.guaranteed, key=lambda one: one.speed)
            yield Row(f"{scenario}: {policy}: guaranteed work's speed", outcome.speed, "x")
            yield Row("  its p99 step", worst.p99, "x")
            yield Row("  slower than promised", 100 * worst.violated, "% of its time")
            yield Row("  best-effort work", outcome.work, "x")


def main() -> int:
    arguments = parser(__doc__)
    scenarios = {one.name: one for one in workload_set()}
    arguments.add_argument("--policy", nargs="+", choices=NAMES, default=NAMES)
    arguments.add_argument("--scenario", nargs="+", choices=scenarios, default=tuple(scenarios))
    arguments.add_argument("--seed", type=int, default=1, help="of the simulated noise")
    told = arguments.parse_args()
    found = compare(told.policy, [replace(scenarios[name], seed=told.seed) for name in told.scenario])
    return report("guard_policies (simulated)", list(rows(found)), as_json=told.json)


if __name__ == "__main__":
    sys.exit(main())
