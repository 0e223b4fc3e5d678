"""Models whose time depends on what they are asked: how many requests that would be in time are refused (simulated).

The real scheduler (`deadline`) decides in virtual time about one service on one slot. Its times vary by the length of
a text (linear, and quadratic as in attention), between two modes, with a heavy tail, or because other processes of a
shared machine hold it up now and then. Each load runs twice with the same arrivals and times: once with refusals, and
once on a server that refuses nothing. A request was refused wrongly if it was not answered, although the server that
refuses nothing answered it in time. The row "in time" compares how many were answered in time (goodput) by both.

At a load up to 0.7 of the slot at most 1 % of what would be in time may be refused wrongly. Beyond that a server must
refuse, and those that it refuses make room for others: there the goodput says what is better.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import nan
from random import Random

from common import Row, parser, report

from shoal.base.arrivals import poisson
from shoal.serve.scheduling import make_scheduler
from shoal.serve.scheduling.interface import QueueSpec
from shoal.serve.scheduling.simulate import Simulation, Stream, affine, simulate

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


def compare(kind: str, load: float, seed: int, horizon_s: float) -> tuple[int, int, int, int]:
    """Requests; those that are in time without and with refusals; and those refused wrongly."""
    one = stream(kind, load, seed, horizon_s)
    results = [simulate(make_scheduler(name, slots=1), [one], seed=seed) for name in ("fair", "deadline")]
    without, with_refusals = (answered_in_time(result, one) for result in results)
    ends = results[1].ended_s["a/m"]
    wrong = sum(fine and end != end for fine, end in zip(without, ends, strict=True))
    return len(one.arrivals), sum(without), sum(with_refusals), wrong


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
            _, without, kept, wrong = (sum(each) for each in zip(*runs, strict=True))
            name, part = f"{kind}, load {load:g}: refused wrongly", wrong / without
            rows.append(judged(name, part) if load <= FAIR_UNTIL else Row(name, 100 * part, "%"))
            rows.append(Row(f"{kind}, load {load:g}: in time, against no refusals", kept / without, "x"))
    return report("Serving models of variable time (simulated)", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
