"""Policies on real traces of spot availability: cost over the offline optimum, and deadlines missed.

    python benchmarks/market_spot.py TRACES [--starts 12] [--json]

TRACES is a folder of skypilot-org/spot-traces (NSDI'24). One job of 24 hours; a launch takes ten minutes; on demand
costs three times spot. Our policy learned from TUNED zones only, each alone, and was tuned on them and on their
combinations; figures are of all other V100 zones, and of combinations of these.
Starts that no schedule could end in time are left out. Simulated: no instance was rented.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import numpy as np
from common import Row, parser, report
from market.budget import Task, reserve, simulate_shared

from shoal.market.compare import Start, compared, run, starts_of
from shoal.market.feeds import read
from shoal.market.history import History
from shoal.market.optimum import optimum
from shoal.market.policy.beliefs import Rates
from shoal.market.policy.markov import Markov, prior_of
from shoal.market.policy.names import policy_named
from shoal.market.simulate import view_at
from shoal.market.ticks import Job, Ticks, cut

TUNED = ("us-east-1a", "us-east-1c", "us-west-2a")
"""Of February 2023."""
DEADLINES = (1.1, 1.3, 1.6, 2.0)
NAMES = ("markov", "uniform-progress", "greedy", "ucb", "ross", "failover", "cheapest")
WORK_S, ON_DEMAND, SPOT = 24 * 3600.0, 3.0, 1.0


def market_of(histories: Iterable[History], deadline: float, nodes: int = 1) -> Ticks:
    job = Job(WORK_S, WORK_S * deadline, nodes=nodes)
    return cut(History({}).joined(histories), job, on_demand_usd=ON_DEMAND, spot_usd=SPOT)


def rows_of(title: str, runs: list[Start], reach: float | None) -> list[Row]:
    found = {one.policy: one for one in compared(runs, NAMES)}
    ours, rows = found["markov"], []
    for name in NAMES:
        one = found[name]
        bar = reach is not None and name == "markov"
        rows.append(
            Row(f"{title}: {name} [{one.low:.3f}, {one.high:.3f}]", one.ratio, "x optimum",
                f"<= {reach}" if bar else "", one.ratio <= reach if bar and reach is not None else None)
        )  # fmt: skip
    best = min(one.ratio for name, one in found.items() if name != "markov")
    missed = float(ours.missed)
    if reach is not None:
        rows.append(Row(f"{title}: markov over the best other", ours.ratio / best, "x", "< 1", ours.ratio < best))
        rows.append(Row(f"{title}: deadlines missed by markov of {ours.starts}", missed, "", "0", missed == 0))
    return rows


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("traces", type=Path)
    arguments.add_argument("--starts", type=int, default=12, help="by zone and deadline")
    given = arguments.parse_args()

    def files(pattern: str) -> list[History]:
        return [read(path) for path in sorted(given.traces.glob(pattern))]

    single = files("availability_1-node_*_v100_1.json") + files("preemption_1-node_*_v100_1.json")
    tuned = [one for one in files("availability_1-node_aws-02-15-2023_*") if _zone(one) in TUNED]
    learnt = {(_zone(one), _first(one)) for one in tuned}
    held = [one for one in single if (_zone(one), _first(one)) not in learnt]
    past = [market_of([one], 1.1) for one in tuned]
    rows: list[Row] = []
    everything: list[Start] = []
    for deadline in DEADLINES:
        runs: list[Start] = []
        for number, one in enumerate(held):
            market = market_of([one], deadline)
            runs += run(market, NAMES, starts_of(market, given.starts, number), past)
        everything += runs
        rows += rows_of(f"{deadline} x work, one zone", runs, None)
    rows += rows_of("all, one zone", everything, 1.05)

    others = [one for one in files("availability_1-node_aws-02-15-2023_*_v100_1.json") if _zone(one) not in TUNED]
    several: list[Start] = []
    for zones in (others, *(list(pair) for pair in combinations(others, 2))):
        runs = []
        for deadline in DEADLINES:
            market = market_of(zones, deadline)
            runs += run(market, NAMES, starts_of(market, given.starts, 99), past)
        several += runs
        rows += rows_of(f"all, {' and '.join(map(_zone, zones))}", runs, None)
    rows += rows_of(f"all, two and three of {len(others)} zones", several, 1.05)

    failing: list[Start] = []
    for deadline in DEADLINES:
        market = market_of(others, deadline).refusing(0.3, 0.3, retries=2, seed=7)
        failing += run(market, NAMES, starts_of(market, given.starts, 99), past)
    rows += rows_of("three zones, 30 % of launches fail", failing, 1.05)
    rows += shared([market_of([one], 1.6) for one in others], past, given.starts)

    for nodes in (4, 16):
        runs = []
        for number, one in enumerate(files(f"*_{nodes}-node_*_v100_1.json")):
            market = market_of([one], 1.6, nodes)
            if len(market.up) > market.deadline:
                runs += run(market, NAMES, starts_of(market, given.starts, number), past)
        if runs:
            rows += rows_of(f"1.6 x work, gang of {nodes}", runs, None)
    rows += speed(market_of(others, 2.0), prior_of(past))
    return report("A job with a deadline on spot traces (simulated)", rows, as_json=given.json)


def speed(market: Ticks, prior: Rates) -> list[Row]:
    """A decision by a plan that is there, and a plan over 14 days of 30 offers."""
    policy = Markov(prior)
    policy.decide(view_at(market, 0, market.work, None, 0, 0))
    began = time.perf_counter()
    for tick in range(1, 21):
        policy.decide(view_at(market, tick, market.work, None, 0, 0))
    each = (time.perf_counter() - began) / 20
    offers = [market.offers[0]] * 30
    wide = Ticks(
        (*offers, market.offers[-1]), market.usd[:1].repeat(2016, 0)[:, [0] * 30 + [-1]],
        market.up[:1].repeat(2016, 0)[:, [0] * 30 + [-1]], market.speed[[0] * 30 + [-1]],
        market.launch_usd[[0] * 30 + [-1]], market.tick_s, 144.0, 2016, 1, 0.0,
    )  # fmt: skip
    view = view_at(wide, 0, 144.0, None, 0, 0)
    began = time.perf_counter()
    Markov(prior).decide(view)
    planned = time.perf_counter() - began
    return [
        Row("a decision", each * 1e3, "ms", "<= 5", each <= 5e-3),
        Row("a plan over 14 days of 30 offers", planned, "s", "<= 1", planned <= 1),
    ]


def shared(markets: list[Ticks], past: list[Ticks], starts: int) -> list[Row]:
    """Six jobs, two in each zone, with one and a half times the money that one of them costs on demand."""
    rows, ends = [], min(len(market.up) for market in markets)
    for name in ("markov", "greedy"):
        done = least = most = 0
        spent: list[float] = []
        for at in starts_of(markets[0], starts, 5):
            windows = [market.window(min(at, ends - market.deadline)) for market in markets * 2]
            budget = sum(reserve(window, window.work, None, 0) for window in windows) / len(windows) * 1.5
            tasks = [Task(str(n), window, policy_named(name, window, past)) for n, window in enumerate(windows)]
            found = simulate_shared(tasks, budget)
            costs = np.cumsum(sorted(optimum(window).lower for window in windows))
            done, least, most = done + found.done, least + 1, most + int((costs <= budget).sum())
            spent.append(found.usd / budget)
        rows += [
            Row(f"six jobs, one budget: done with {name}, of what the optimum does", done / most, "", ""),
            Row(f"six jobs, one budget: done with {name}, for one that is surely paid", done / least, "x", ""),
            Row(
                f"six jobs, one budget: most spent with {name}, of the budget", max(spent), "", "<= 1", max(spent) <= 1
            ),
        ]
    return rows


def _zone(one: History) -> str:
    return next(iter(one.tracks)).zone


def _first(one: History) -> float:
    [track] = one.tracks.values()
    assert track.availability is not None
    return track.availability.start_s


if __name__ == "__main__":
    sys.exit(main())
