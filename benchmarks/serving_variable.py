"""Models whose time depends on what they are asked: how many requests are refused although they could have been in
time (simulated).

    python benchmarks/serving_variable.py [--seconds 120] [--seeds 3] [--json]

The real scheduler (`deadline`) decides in virtual time about one service on one slot. Its times vary by the length of
a text (linear, and quadratic as in attention), between two modes, with a heavy tail, or because other processes of a
shared machine hold it up now and then.

Each load runs a second time with the same arrivals and times on a server that refuses nothing (`fair`). The row
"in time" is how many times as many requests are in time with refusals as without. Three rows count wrong refusals. All
use the times that are known afterwards, which no scheduler knows before.

- *idle*: the slot stood idle for as long as the request's execution takes, between its arrival and its deadline, beside
  everything that was executed. No other request would have been later for it. An idle moment counts for one refused
  request only. This is work that was lost. It means the same at every load, also above 1, where most refusals are
  right: another request was served in that time. The bar: at most 1 % of what was or could have been in time.
- *no refusals*: the server that refuses nothing answers the request in time; a part of what that server has in time.
  The same bar at loads up to 0.7. Beyond them nearly everything is late on that server, so the part says little.
- *queued*: the request would have been in time behind everything that was accepted before it. Later requests would have
  found the slot taken. This is what a scheduler that knows all times would have taken at that moment, so it counts each
  error of a prediction, although another request was mostly served in that time. It has no bar.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable
from math import inf, nan
from operator import itemgetter
from random import Random
from typing import NamedTuple

from common import Row, parser, report
from simulated import Simulation, affine, simulate

from shoal.base.arrivals import poisson
from shoal.serve import QueueSpec, Stream, make_scheduler

Work = tuple[float, float]
"""Bytes and seconds of one request."""
LOADS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.3)
FAIR_UNTIL = 0.7
MOST_WRONG = 0.01


def text(random: Random, at: float) -> Work:  # noqa: ARG001
    length = min(4000.0, random.lognormvariate(5.0, 0.8))
    return length, (0.001 + 0.00005 * length) * random.lognormvariate(0.0, 0.1)


def attention(random: Random, at: float) -> Work:  # noqa: ARG001
    length = min(2000.0, random.lognormvariate(5.0, 0.8))
    return length, (0.001 + 2e-7 * length * length) * random.lognormvariate(0.0, 0.1)


def bimodal(random: Random, at: float) -> Work:  # noqa: ARG001
    return 100.0, 0.1 if random.random() < 0.05 else 0.002


def heavy_tail(random: Random, at: float) -> Work:  # noqa: ARG001
    return 100.0, min(1.0, 0.002 * random.paretovariate(1.5))


def shared(random: Random, at: float) -> Work:
    """For two seconds of twenty other processes hold half of the executions up, three to eight times their time."""
    noisy = at % 20.0 > 18.0 and random.random() < 0.5
    return 100.0, 0.002 * random.lognormvariate(0.0, 0.1) * (random.uniform(3, 8) if noisy else 1.0)


KINDS: dict[str, tuple[Callable[[Random, float], Work], float]] = {
    "text": (text, 0.1),
    "attention": (attention, 0.2),
    "bimodal": (bimodal, 0.15),
    "heavy tail": (heavy_tail, 0.1),
    "shared machine": (shared, 0.02),
}
"""How each kind is drawn, and its objective in seconds."""


def stream(kind: str, load: float, seed: int, horizon_s: float) -> Stream:
    draw, slo_s = KINDS[kind]
    random = Random(f"{kind} {seed}")
    mean_s = sum(draw(random, nan)[1] for _ in range(20_000)) / 20_000
    arrivals = poisson(load / mean_s, horizon_s, seed=[*kind.encode(), seed]).tolist()
    works = [draw(random, at) for at in arrivals]
    return Stream(QueueSpec("a/m", "a", slo_s=slo_s, steady=False), arrivals, affine(0.0, 0.0), works=works)


def answered_in_time(result: Simulation, one: Stream) -> list[bool]:
    ends = result.ended_s["a/m"]
    return [end - at <= one.wanted_within_s for end, at in zip(ends, one.arrivals, strict=True)]


def fit_idle(result: Simulation, one: Stream) -> int:
    """How many of the requests without an answer fit into the idle moments, first come, first placed."""
    idle: list[tuple[float, float]] = []
    free_from = 0.0
    for span in result.timeline:
        idle.append((free_from, span.start_s))
        free_from = span.end_s
    idle.append((free_from, inf))
    wrong = 0
    for end, arrived, (_, took_s) in zip(result.ended_s["a/m"], one.arrivals, one.works, strict=True):
        if end == end:
            continue
        deadline = arrived + one.wanted_within_s
        for place in range(bisect_right(idle, arrived, key=itemgetter(1)), len(idle)):
            start, until = idle[place]
            begins = max(start, arrived)
            if begins + took_s > deadline:
                break
            if begins + took_s <= until:
                idle[place : place + 1] = [(start, begins), (begins + took_s, until)]
                wrong += 1
                break
    return wrong


def fit_queue(result: Simulation, one: Stream) -> int:
    """How many of the requests without an answer would have been in time behind what was accepted before them."""
    ends, starts = result.ended_s["a/m"], [span.start_s for span in result.timeline]
    wrong, accepted = 0, list[int]()
    for number, (end, arrived) in enumerate(zip(ends, one.arrivals, strict=True)):
        if end == end:
            accepted.append(number)
            continue
        accepted = [earlier for earlier in accepted if ends[earlier] > arrived]
        running = bisect_right(starts, arrived) - 1
        free_from = max(arrived, result.timeline[running].end_s) if running >= 0 else arrived
        ahead_s = sum(one.works[earlier][1] for earlier in accepted if ends[earlier] > free_from)
        wrong += free_from + ahead_s + one.works[number][1] <= arrived + one.wanted_within_s
    return wrong


class Counts(NamedTuple):
    """Requests in time on a server that refuses nothing, and with refusals; and those refused wrongly, three ways."""

    without: int
    kept: int
    idle: int
    no_refusals: int
    queued: int


def compare(kind: str, load: float, seed: int, horizon_s: float) -> Counts:
    one = stream(kind, load, seed, horizon_s)
    without, kept = (simulate(make_scheduler(name, slots=1), [one], seed=seed) for name in ("fair", "deadline"))
    fine, ends = answered_in_time(without, one), kept.ended_s["a/m"]
    refused_fine = sum(was_fine and end != end for was_fine, end in zip(fine, ends, strict=True))
    return Counts(
        sum(fine), sum(answered_in_time(kept, one)), fit_idle(kept, one), refused_fine, fit_queue(kept, one)
    )  # fmt: skip


def outage(seed: int) -> tuple[int, int]:
    """300 quick requests, two slow ones that are in time, then quick ones on an idle server: how many of those were
    refused, of how many."""
    random = Random(seed)
    arrivals = [at / 100 for at in range(300)] + [3.5, 4.0] + [4.5 + at / 20 for at in range(600)]
    works = [(100.0, 0.0003 * random.lognormvariate(0.0, 0.2)) for _ in arrivals]
    works[300] = works[301] = (100.0, 0.28)
    spec = QueueSpec("a/m", "a", slo_s=0.3, steady=False)
    one = Stream(spec, arrivals, affine(0.0, 0.0), works=works)
    ends = simulate(make_scheduler(slots=1), [one]).ended_s["a/m"][302:]
    return sum(end != end for end in ends), len(ends)


def judged(name: str, part: float) -> Row:
    return Row(name, 100 * part, "%", f"<= {MOST_WRONG:.0%}", part <= MOST_WRONG)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=120.0, help="of virtual time for each load [120]")
    arguments.add_argument("--seeds", type=int, default=3, help="runs of each load [3]")
    options = arguments.parse_args()
    rows = []
    refused, of = outage(0)
    rows.append(judged("after two slow answers: refused of the quick ones", refused / of))
    for kind in KINDS:
        for load in LOADS:
            runs = [compare(kind, load, seed, options.seconds) for seed in range(options.seeds)]
            found = Counts(*(sum(each) for each in zip(*runs, strict=True)))
            name = f"{kind}, load {load:g}: refused wrongly"
            rows.append(judged(f"{name}, idle", found.idle / (found.kept + found.idle)))
            part = found.no_refusals / found.without
            of_none = f"{name}, no refusals"
            rows.append(judged(of_none, part) if load <= FAIR_UNTIL else Row(of_none, 100 * part, "%"))
            rows.append(Row(f"{name}, queued", 100 * found.queued / (found.kept + found.queued), "%"))
            rows.append(Row(f"{kind}, load {load:g}: in time, against no refusals", found.kept / found.without, "x"))
    return report("Serving models of variable time (simulated)", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
