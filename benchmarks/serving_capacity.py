"""The SLO capacity of a live server: found by the search, and by the fine ramp that it is to replace.

Both look for the highest rate of independent (Poisson) requests at which 99 % of them are answered in time. The ramp
raises the rate from half of the saturated throughput in steps of 2 %, each with the same number of requests, until the
measured 99th percentile breaks the objective. A machine's speed changes within such a time, so searches and ramp take
turns: one search, the ramp, another search, and so on; compared are the geometric means, each ramp with the searches
before and after it. Then MLPerf LoadGen, with its own schedule and its own early stopping, judges a rate below the
answer and one above.

The service has no objective of its own here, lest the server refuse what would be late: late is what is counted.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from common import Row, parser, report
from serving_common import Gateway, gateway, note, options_of, rows, service

from shoal.core import ShoalError
from shoal.measure.arrivals import poisson
from shoal.measure.capacity import Capacity, Effort, Goal, ramp
from shoal.measure.generator import OpenLoad, Settings, drive, run
from shoal.measure.live import measure_capacity
from shoal.measure.loadgen import oip_system, run_loadgen
from shoal.measure.oip import prepare
from shoal.measure.paired import geometric_mean
from shoal.measure.types import Floats, Target

STEP, AGREE_PERCENT, FEWER = 0.02, 3.0, 5.0
WARMUP_S = 0.3


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--model", default="orientation")
    arguments.add_argument("--slo-ms", type=float, default=30.0)
    arguments.add_argument("--ramps", type=int, default=1)
    arguments.add_argument("--requests", type=int, default=2000, help="in each step of a ramp")
    arguments.add_argument("--queries", type=int, default=2000, help="in each run of LoadGen")
    options = options_of(arguments)
    goal = Goal(options.slo_ms / 1e3)
    with gateway([service("bench", options.model)]) as server:
        bench = Bench(server.target(options.model), goal, options.requests)
        bench.search()
        for _ in range(options.ramps):
            bench.ramp()
            bench.search()
        found = list(bench.table())
        found += referee(bench, options.queries)
    title = f"SLO capacity, {options.model}, p99 within {options.slo_ms:g} ms"
    return report(title, found, as_json=options.json)
