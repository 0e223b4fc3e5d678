"""Perseus' two-model experiment again, with two real networks: what both can have of a server at once, and the saving.

As in the paper (LeMay et al., IC2E '20), two tenants with one model each share a server, a mix of their rates counts as
the sum of its throughputs over what each tenant gets alone, and sharing saves 1 - 1/sum of the servers. The objective
is on the 95th percentile, as there. Unlike there, requests are Poisson and their latency counts from when they were
due, a rate that breaks its objective does not count, each point is found by a search with proven ends instead of a
ramp, and the interval is part of the result: a sum (and a saving) lies between the largest that was proven to be kept
and the smallest that was proven to be broken.

The server is a gateway with one slot and a replica for each tenant, so that neither gains a core by sharing. The
cost table is at a price per server-hour, for the mix at which the first tenant has half of the sum.
"""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from common import Row, parser, report
from serving_common import doubt, gateway, note, options_of, rows, service

from shoal.base.report import Report, write_html
from shoal.core import Money
from shoal.measure import report as pages
from shoal.measure.cost import MixCost, mix_cost
from shoal.measure.load.generator import Settings
from shoal.measure.search.concurrent import ConcurrentLoad, ConcurrentProbe
from shoal.measure.search.frontier import find_frontier
from shoal.measure.search.judge import Effort, Goal
from shoal.measure.search.pareto import Frontier, VectorTrial
from shoal.measure.statistics import Estimate

SLO_S = {"orientation": 0.05, "page-rotation": 0.1, "magika": 0.1, "silero-vad": 0.02}
P = 0.95


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--models", nargs=2, default=["orientation", "magika"], choices=SLO_S, metavar="NAME")
    arguments.add_argument("--mixes", type=int, default=3, help="to be searched, evenly spread")
    arguments.add_argument(
        "--trial", type=float, default=8.0, metavar="S", help="a trial at one pair of rates, at most"
    )
    arguments.add_argument("--price", default="1.00", metavar="USD", help="of a server-hour")
    arguments.add_argument("--html", type=Path, metavar="FILE", help="write the figure and the table as one page")
    options = options_of(arguments)
    goals = {name: Goal(SLO_S[name], P) for name in options.models}
    effort = Effort(tolerance=0.1, most_requests=4000)
    services = [service(name, name, slo_s=SLO_S[name]) for name in options.models]
    began = time.monotonic()
    with gateway(services) as server:
        together = ConcurrentLoad(
            {name: server.target(name, name) for name in options.models}, settings=Settings(warmup_s=0.2)
        )
        guesses = together.guesses()
        found = find_frontier(
            ConcurrentProbe(together, goals, effort, most_s=options.trial), goals, start_per_s=guesses, effort=effort,
            rays=options.mixes, mixes=mixes(guesses, options.mixes), on_trial=told,
        )  # fmt: skip
    doubt("the search", together.warnings())
    wanted = {name: one.value / 2 for name, one in found.dedicated.items()}
    cost = mix_cost(
        wanted,
        {name: one.value for name, one in found.dedicated.items()},
        found.total(wanted),
        Money.usd(options.price),
    )
    if options.html is not None:
        page = Report.of(
            "Two real networks on one server", [pages.frontier(found), pages.mix_costs(cost)],
            facts={"command": shlex.join(["python", *sys.argv])},
        )  # fmt: skip
        write_html(page, options.html)
        note(f"written: {options.html}")
    table = [*front_rows(found), *cost_rows(cost), Row("seconds", time.monotonic() - began, "s")]
    return report(f"two networks on one server: {' and '.join(options.models)}", table, as_json=options.json)


def mixes(guesses: Mapping[str, float], count: int) -> list[dict[str, float]]:
    """Rates whose shares of the guessed capacities are evenly spread."""
    first, second = guesses
    shares = [(at + 1) / (count + 1) for at in range(count)]
    return [{first: share * guesses[first], second: (1 - share) * guesses[second]} for share in shares]


def told(trial: VectorTrial) -> None:
    rates = ", ".join(f"{name} {rate:.4g}/s" for name, rate in trial.rates_per_s.items())
    note(f"  {rates}: {trial.verdict} after {trial.requests} requests")


def front_rows(found: Frontier) -> Iterator[Row]:
    first, second = found.tenants
    for name in found.tenants:
        yield from known(f"{name} alone, p95 within {found.goals[name].slo_s * 1e3:g} ms", found.dedicated[name], "/s")
    points = sorted((one for one in found.points if max(one.mix.values()) < 1), key=lambda one: one.mix[first])
    for point in points:
        yield from known(f"sum at {point.mix[first]:.0%} {first}, {point.mix[second]:.0%} {second}", point.total, "")
        for name in found.tenants:
            yield Row(f"  {name}", point.rates_per_s[name], "/s")
        total = point.total
        saving = Estimate(1 - 1 / total.value, 1 - 1 / total.low if total.low else -math.inf, 1 - 1 / total.high)
        yield from known("  saving", saving, "%", scale=100)
    yield Row("requests of the whole search", found.requests, "")
    yield Row("trials of two tenants", len(found.trials), "")


def known(measure: str, estimate: Estimate, unit: str, *, scale: float = 1.0) -> list[Row]:
    """With its proven ends, which are no interval of an estimator."""
    first, *ends = rows(measure, estimate, unit, scale=scale)
    words = {f"  {estimate.confidence:.0%} interval, from": "  proven to be at least", "  to": "  and at most"}
    return [first, *(Row(words[end.measure], end.value, end.unit) for end in ends)]


def cost_rows(cost: MixCost) -> Iterator[Row]:
    yield from known(f"saving at half of each one's capacity, a server at {cost.per_server_hour} an hour", cost.saving,
                     "%", scale=100)  # fmt: skip
    yield Row("  servers apart, if they could be cut", cost.dedicated.value, "")
    yield Row("  servers shared", cost.shared.value, "")
    yield Row("  servers apart, whole", cost.whole_dedicated, "")
    yield Row("  servers shared, whole", cost.whole_shared, "")


if __name__ == "__main__":
    sys.exit(main())
