"""The SLO capacity of a live server: found by the search, and by the fine ramp that it is to replace.

Both look for the highest rate of independent (Poisson) requests at which 99 % of them are answered in time. The ramp
raises the rate from half of the saturated throughput in steps of 2 %, each with the same number of requests, until the
measured 99th percentile breaks the objective twice at a step (once may be a hiccup of the machine).

A shared machine's speed changes by a third within a minute, so a rate alone says little: a ramp that takes half a
minute would be compared with a search on another machine. So right before each trial the network is called in
this process for a moment (`--reference` calls), and searches and ramps choose their rates as parts of the rate at which
it could be called just then. There is a search before each ramp and one after it, and the ramp is compared with their
geometric mean. Then MLPerf LoadGen, with its own schedule and its own early stopping, judges a rate below the answer
and one above.

Even so the live answers move with the machine, searches and ramps among themselves. So both are also run, with many
seeds, against a server in virtual time whose executions take what those in this process took just before: that one
keeps its speed, and a ramp can afford steps that are long against its queue's memory (which at 96 % of a slot is some
thousand requests; a step of a thousand hides an overload). Those rows are called simulated.

The service has no objective of its own here, lest the server refuse what would be late: late is what is counted.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle

import numpy as np
from common import Row, parser, report
from loadgen import LoadGenRun, oip_system, run_loadgen
from models import samples
from ramps import in_chunks, ramp
from serving_common import VARIETY, gateway, note, options_of, rows, service
from serving_overhead import in_process

from shoal.base.arrivals import poisson
from shoal.core import ShoalError
from shoal.measure.live import live_trial
from shoal.measure.load.generator import ClosedLoad, OpenLoad, Settings, drive, run
from shoal.measure.load.oip import Prepared, prepare
from shoal.measure.search.capacity import Capacity, find_capacity
from shoal.measure.search.judge import Effort, Goal
from shoal.measure.statistics import geometric_mean, quantile_of
from shoal.measure.types import Floats, Target

STEP, FROM = 0.02, 0.5
AGREE, FEWER = 0.03, 5.0
BELOW, ABOVE = 0.85, 1.15
WARMUP_S = 0.3
SATURATING, SATURATED_S, GUESS = 8, 0.5, 0.7
SIMULATED_CALLS, SIMULATED_STEP, SIMULATED_WARMUP = 500, 200_000, 500


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--model", default="orientation")
    arguments.add_argument("--slo-ms", type=float, default=50.0)
    arguments.add_argument("--ramps", type=int, default=3)
    arguments.add_argument("--requests", type=int, default=1200, help="in each step of a ramp")
    arguments.add_argument("--search", type=float, default=7.0, metavar="S", help="no trial begins later in a search")
    arguments.add_argument("--reference", type=int, default=60, metavar="N", help="calls in process beside a trial")
    arguments.add_argument("--queries", type=int, default=2000, help="in each run of LoadGen")
    arguments.add_argument("--simulated", type=int, default=20, metavar="N", help="pairs in virtual time")
    options = options_of(arguments)
    goal = Goal(options.slo_ms / 1e3)
    with gateway([service("bench", options.model)]) as server:
        calls = calls_in_process(options.model)
        side = Side(run(prepare(server.target(options.model))), goal, lambda: 1 / np.median(calls(options.reference)))
        searches, ramps = [side.search(options.search, 0)], []
        for number in range(options.ramps):
            ramps.append(side.climb(options.requests, number))
            searches.append(side.search(options.search, number + 1))
        judged = list(
            referee(side.prepared.target, goal, searches[-1].rate_per_s.value * side.speed(), options.queries)
        )
    title = f"SLO capacity, {options.model}, p99 within {options.slo_ms:g} ms"
    found = [*compared(searches, ramps), *speeds(side.speeds), *judged]
    found += simulated(calls(SIMULATED_CALLS), goal, options.simulated)
    return report(title, found, as_json=options.json)


def calls_in_process(model: str) -> Callable[[int], Floats]:
    """How many seconds each of so many calls of the network takes in this process, now."""
    session, inputs = in_process(model), cycle([sample.inputs for sample in samples(model, VARIETY)])

    def calls(count: int) -> Floats:
        seconds = np.empty(count)
        for number in range(count):
            given = next(inputs)
            began = time.perf_counter()
            session.run(None, given)
            seconds[number] = time.perf_counter() - began
        return seconds

    return calls


class Side:
    """The server, asked at rates that are parts of the machine's `speed`. `speeds` are all that were measured."""

    def __init__(self, prepared: Prepared, goal: Goal, speed: Callable[[], float]) -> None:
        self.prepared = prepared
        self.goal = goal
        self.speeds: list[float] = []
        self._measure = speed

    def speed(self) -> float:
        self.speeds.append(self._measure())
        return self.speeds[-1]

    def saturated(self) -> float:
        load = ClosedLoad(self.prepared.target, SATURATING, SATURATED_S)
        (result,) = run(drive([load], Settings(warmup_s=0.0), prepared=[self.prepared]))
        return result.completed_per_s() / self.speed()

    def search(self, budget_s: float, number: int) -> Capacity:
        effort, settings = Effort(most_requests=3000), Settings(warmup_s=WARMUP_S, seed=number)
        until, trials = time.monotonic() + budget_s, 0

        def probe(part: float, enough: Callable[[Floats], bool]) -> None:
            nonlocal trials
            trials += 1
            live_trial(self.prepared, part * self.speed(), enough, self.goal, effort, settings, 30.0, trials)

        return find_capacity(
            probe, self.goal, start_per_s=GUESS * self.saturated(), effort=effort,
            go_on=lambda: time.monotonic() < until,
        )  # fmt: skip

    def climb(self, requests: int, number: int) -> tuple[float, int]:
        """The part that a ramp finds, and the requests that it takes."""
        rng = np.random.default_rng(number)
        spent = 0

        def sample(part: float, count: int) -> Floats:
            nonlocal spent
            for _ in range(2):
                found = latencies(self.prepared, part * self.speed(), count, int(rng.integers(1 << 31)))
                spent += len(found)
                if quantile_of(found, self.goal.p) <= self.goal.slo_s:
                    break
            return found

        return ramp(sample, self.goal, start_per_s=FROM * self.saturated(), step=STEP, requests=requests)[0], spent


def latencies(prepared: Prepared, rate_per_s: float, count: int, seed: int) -> Floats:
    """Of about so many Poisson requests, after a warm-up."""
    duration_s = WARMUP_S + count / rate_per_s
    load = OpenLoad(prepared.target, poisson(rate_per_s, duration_s, seed=seed), duration_s)
    (result,) = run(drive([load], Settings(warmup_s=WARMUP_S), prepared=[prepared]))
    return result.latencies_or_inf_s()


def speeds(found: list[float]) -> Iterator[Row]:
    """What the units were in requests per second."""
    yield Row("calls in process, median", float(np.median(found)), "/s")
    for words, value in (("slowest moment", min(found)), ("fastest", max(found))):
        yield Row(f"  {words}", value, "/s")


def compared(searches: list[Capacity], ramps: list[tuple[float, int]]) -> Iterator[Row]:
    for number, found in enumerate(searches, 1):
        yield Row(f"search {number}", found.rate_per_s.value, "of the calls in process")
        for words, end in (("kept", found.rate_per_s.low), ("broken", found.rate_per_s.high)):
            if 0 < end < math.inf:
                yield Row(f"  proven to be {words} at", end, "")
        yield Row("  requests", found.requests, "")
    for number, (rate, spent) in enumerate(ramps, 1):
        yield Row(f"ramp {number}", rate, "of the calls in process")
        yield Row("  requests", spent, "")
    answers = np.array([found.rate_per_s.value for found in searches])
    ratio = geometric_mean(np.sqrt(answers[:-1] * answers[1:]) / [rate for rate, _ in ramps])
    found = rows("search over ramp", ratio, "x", f"within {AGREE:.0%}", abs(ratio.value - 1) <= AGREE)
    yield from found if len(ramps) > 1 else found[:1]
    fewer = np.mean([spent for _, spent in ramps]) / np.mean([found.requests for found in searches])
    yield Row("requests of a ramp over those of a search", float(fewer), "x", f">= {FEWER:g}", bool(fewer >= FEWER))


def simulated(seconds: Floats, goal: Goal, pairs: int) -> Iterator[Row]:
    """Both, in virtual time, on one slot whose executions take one of these `seconds` each."""
    saturated = 1 / float(seconds.mean())
    ratios, searched, climbed = [], [], []
    for seed in range(pairs):
        search = find_capacity(
            in_chunks(queue(seconds, 2 * seed), warmup=SIMULATED_WARMUP), goal, start_per_s=GUESS * saturated
        )
        rate, spent = ramp(
            queue(seconds, 2 * seed + 1), goal, start_per_s=FROM * saturated, step=STEP, requests=SIMULATED_STEP
        )
        ratios.append(search.rate_per_s.value / rate)
        searched.append(search.requests)
        climbed.append(spent)
    ratio = geometric_mean(ratios)
    yield from rows("simulated: search over ramp", ratio, "x", f"within {AGREE:.0%}", abs(ratio.value - 1) <= AGREE)
    fewer = float(np.sum(climbed) / np.sum(searched))
    yield Row("simulated: requests of a ramp over those of a search", fewer, "x", f">= {FEWER:g}", fewer >= FEWER)


def queue(seconds: Floats, seed: int) -> Callable[[float, int], Floats]:
    """The latencies of the next requests at a rate, first come first served; each rate finds the server idle."""
    rng = np.random.default_rng(seed)
    rate_now, arrived, free_at = 0.0, 0.0, 0.0

    def sample(rate_per_s: float, count: int) -> Floats:
        nonlocal rate_now, arrived, free_at
        if rate_per_s != rate_now:
            rate_now, arrived, free_at = rate_per_s, 0.0, 0.0
        arrivals = arrived + np.cumsum(rng.exponential(1 / rate_per_s, count))
        work = np.cumsum(rng.choice(seconds, count))
        ends = work + np.maximum(np.maximum.accumulate(arrivals - np.append(0.0, work[:-1])), free_at)
        arrived, free_at = float(arrivals[-1]), float(ends[-1])
        latencies: Floats = ends - arrivals
        return latencies

    return sample


def referee(target: Target, goal: Goal, answer: float, queries: int) -> Iterator[Row]:
    """LoadGen's word on a rate that the last search (`answer`, per second) finds too low, and on one too high."""
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
