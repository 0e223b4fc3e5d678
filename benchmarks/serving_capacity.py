"""The SLO capacity of a live server: found by the search, and by the fine ramp that it is to replace.

Both look for the highest rate of independent (Poisson) requests at which 99 % of them are answered in time. The ramp
raises the rate from half of the saturated throughput in steps of 2 %, each with the same number of requests, until the
measured 99th percentile breaks the objective twice at a step (once may be a hiccup of the machine). A machine's speed
changes in a minute, so there is a search before each ramp and one after it, and the ramp is compared with their
geometric mean. Then MLPerf LoadGen, with its own schedule and its own early stopping, judges a rate below the answer
and one above.

The service has no objective of its own here, lest the server refuse what would be late: late is what is counted.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import numpy as np
from common import Row, parser, report
from serving_common import doubt, gateway, note, options_of, rows, service

from shoal.core import ShoalError
from shoal.measure.arrivals import poisson
from shoal.measure.capacity import Capacity, Effort, Goal, ramp
from shoal.measure.generator import OpenLoad, Settings, drive, run
from shoal.measure.live import LiveCapacity, measure_capacity
from shoal.measure.loadgen import LoadGenRun, oip_system, run_loadgen
from shoal.measure.oip import Prepared, prepare
from shoal.measure.paired import geometric_mean
from shoal.measure.types import Floats, Target

STEP, FROM = 0.02, 0.5
AGREE, FEWER = 0.03, 5.0
BELOW, ABOVE = 0.85, 1.15
WARMUP_S = 0.3


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--model", default="orientation")
    arguments.add_argument("--slo-ms", type=float, default=50.0)
    arguments.add_argument("--ramps", type=int, default=3)
    arguments.add_argument("--requests", type=int, default=1200, help="in each step of a ramp")
    arguments.add_argument("--search", type=float, default=7.0, metavar="S", help="no trial begins later in a search")
    arguments.add_argument("--queries", type=int, default=2000, help="in each run of LoadGen")
    options = options_of(arguments)
    goal = Goal(options.slo_ms / 1e3)
    with gateway([service("bench", options.model)]) as server:
        target = server.target(options.model)
        searches, ramps = [search(target, goal, options.search, 0)], []
        for number in range(options.ramps):
            ramps.append(climb(target, goal, searches[-1], options.requests, number))
            searches.append(search(target, goal, options.search, number + 1))
        judged = list(referee(target, goal, searches, options.queries))
    title = f"SLO capacity, {options.model}, p99 within {options.slo_ms:g} ms"
    found = [*compared([one.capacity for one in searches], ramps), *judged]
    return report(title, found, as_json=options.json)


def search(target: Target, goal: Goal, budget_s: float, number: int) -> LiveCapacity:
    found = measure_capacity(
        target, goal, effort=Effort(most_requests=3000), settings=Settings(warmup_s=WARMUP_S, seed=number),
        budget_s=budget_s,
    )  # fmt: skip
    doubt(f"search {number + 1}", found.doubts)
    return found


def climb(target: Target, goal: Goal, before: LiveCapacity, requests: int, number: int) -> tuple[float, int]:
    """The rate that a ramp finds, and the requests that it takes."""
    assert before.saturated is not None
    prepared = run(prepare(target))
    rng = np.random.default_rng(number)
    spent = 0

    def sample(rate_per_s: float, count: int) -> Floats:
        nonlocal spent
        for _ in range(2):
            found = latencies(prepared, rate_per_s, count, int(rng.integers(1 << 31)))
            spent += len(found)
            if np.quantile(found, goal.p, method="inverted_cdf") <= goal.slo_s:
                break
        return found

    start_per_s = FROM * before.saturated.completed_per_s()
    return ramp(sample, goal, start_per_s=start_per_s, step=STEP, requests=requests)[0], spent


def latencies(prepared: Prepared, rate_per_s: float, count: int, seed: int) -> Floats:
    """Of about so many Poisson requests, after a warm-up."""
    duration_s = WARMUP_S + count / rate_per_s
    load = OpenLoad(prepared.target, poisson(rate_per_s, duration_s, seed=seed), duration_s)
    (result,) = run(drive([load], Settings(warmup_s=WARMUP_S), prepared=[prepared]))
    return result.latencies_or_inf_s()


def compared(searches: list[Capacity], ramps: list[tuple[float, int]]) -> Iterator[Row]:
    for number, found in enumerate(searches, 1):
        yield Row(f"search {number}", found.rate_per_s.value, "/s")
        for words, end in (("kept", found.rate_per_s.low), ("broken", found.rate_per_s.high)):
            if 0 < end < math.inf:
                yield Row(f"  proven to be {words} at", end, "/s")
        yield Row("  requests", found.requests, "")
    for number, (rate, spent) in enumerate(ramps, 1):
        yield Row(f"ramp {number}", rate, "/s")
        yield Row("  requests", spent, "")
    answers = np.array([found.rate_per_s.value for found in searches])
    ratio = geometric_mean(np.sqrt(answers[:-1] * answers[1:]) / [rate for rate, _ in ramps])
    found = rows("search over ramp", ratio, "x", f"within {AGREE:.0%}", abs(ratio.value - 1) <= AGREE)
    yield from found if len(ramps) > 1 else found[:1]
    fewer = np.mean([spent for _, spent in ramps]) / np.mean([found.requests for found in searches])
    yield Row("requests of a ramp over those of a search", float(fewer), "x", f">= {FEWER:g}", bool(fewer >= FEWER))


def referee(target: Target, goal: Goal, searches: list[LiveCapacity], queries: int) -> Iterator[Row]:
    """LoadGen's word on a rate that the last search finds too low, and on one that it finds too high."""
    answer = searches[-1].capacity.rate_per_s.value
    try:
        with oip_system(target) as issue:
            below, above = (
                run_loadgen(issue, goal, rate_per_s=answer * factor, queries=queries) for factor in (BELOW, ABOVE)
            )
    except ShoalError as error:
        note(f"no referee: {error}")
        return
    yield from verdict(f"LoadGen at {BELOW:.0%} of the last search's answer: valid", below, below.kept)
    yield from verdict(f"LoadGen at {ABOVE:.0%}: not valid", above, not above.kept)


def verdict(measure: str, found: LoadGenRun, agrees: bool) -> Iterator[Row]:
    yield Row(measure, agrees, "", "1", agrees)
    yield Row("  its 99th percentile", found.latency_s * 1e3, "ms")


if __name__ == "__main__":
    sys.exit(main())
