"""A noisy neighbour: one tenant's load bursts to ten times its rate, and the other's answers stay in time, or do not.

Tenant `steady` asks the orientation CNN at random moments (Poisson) at an even rate, tenant `bursty` the file-type
network magika, whose call takes several times as long; in the middle third of each run its rate is ten times what it is
before and after, which is more than the server can do. Both have an objective and the same weight, and one slot to
share. What counts is the share of steady's admitted requests that are answered within its objective. Not admitted, and
shown beside, are those that the server refuses (HTTP 429 or 503) at once: within a fifth of the objective. One that is
kept waiting and then refused was admitted, and is a miss.

The same requests at the same moments go to two gateways in turn (A B B A): one with the default scheduler, one with
Perseus' `all-share`, a single queue in order of arrival, as the baseline.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np
from common import Row, parser, report
from serving_common import Gateway, doubt, gateway, options_of, rows, service

from shoal.base.arrivals import modulated, poisson
from shoal.base.statistics import quantile
from shoal.measure.load.generator import Settings
from shoal.measure.search.concurrent import ConcurrentLoad
from shoal.measure.statistics import proportion
from shoal.measure.types import Floats, LoadResult

MODELS = {"steady": "orientation", "bursty": "magika"}
SLO_S = {"steady": 0.05, "bursty": 0.1}
LOAD = {"steady": 0.3, "bursty": 0.1}
"""What each takes of the slot, outside of the burst."""
OURS, BASELINE = "deadline", "all-share"
BURST, TARGET = 10.0, 0.999
WARMUP_S = 0.5
REFUSED, AT_ONCE = (429, 503), 0.2

Arrivals = dict[str, Floats]


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=4, help="runs with each scheduler")
    arguments.add_argument("--duration", type=float, default=8.0, metavar="S", help="of a run")
    options = options_of(arguments)
    services = [service(tenant, model, slo_s=SLO_S[tenant]) for tenant, model in MODELS.items()]
    found: dict[str, list[dict[str, LoadResult]]] = {OURS: [], BASELINE: []}
    with gateway(services, scheduler=OURS) as ours, gateway(services, scheduler=BASELINE) as baseline:
        sides = {OURS: tenants(ours), BASELINE: tenants(baseline)}
        rates = {tenant: LOAD[tenant] * full for tenant, full in saturated(sides[OURS]).items()}
        for number in range(options.rounds):
            arrivals = moments(rates, options.duration, seed=number)
            for name in (OURS, BASELINE) if number % 2 else (BASELINE, OURS):
                found[name].append(sides[name].replay(arrivals, duration_s=options.duration))
        alone = sides[OURS].run({"steady": rates["steady"]}, duration_s=options.duration / 2)
    for name, side in sides.items():
        doubt(name, side.warnings())
    table = [*(row for name in found for row in side_rows(name, found[name])), *inputs(rates, alone["steady"])]
    return report("noisy neighbour: bursts of 10 times the rate beside a steady tenant", table, as_json=options.json)


def tenants(server: Gateway) -> ConcurrentLoad:
    targets = {tenant: server.target(model, tenant) for tenant, model in MODELS.items()}
    return ConcurrentLoad(targets, settings=Settings(warmup_s=WARMUP_S, timeout_s=10.0, give_up_s=10.0))


def saturated(side: ConcurrentLoad) -> dict[str, float]:
    """About how many requests per second each tenant's network takes, alone."""
    return {tenant: guess / 0.7 for tenant, guess in side.guesses().items()}


def moments(rates: dict[str, float], duration_s: float, *, seed: int) -> Arrivals:
    begin_s, end_s = WARMUP_S + duration_s / 3, WARMUP_S + duration_s * 2 / 3
    calm, whole_s = rates["bursty"], WARMUP_S + duration_s

    def rate(at_s: Floats) -> Floats:
        return np.where((at_s >= begin_s) & (at_s < end_s), BURST * calm, calm)

    return {
        "steady": poisson(rates["steady"], whole_s, seed=2 * seed),
        "bursty": modulated(rate, BURST * calm, whole_s, seed=2 * seed + 1),
    }


def side_rows(scheduler: str, runs: Sequence[dict[str, LoadResult]]) -> Iterator[Row]:
    for tenant, slo_s in SLO_S.items():
        results = [run[tenant] for run in runs]
        requests = sum(one.count() for one in results)
        refused = sum(refused_at_once(one, slo_s) for one in results)
        latencies = np.concatenate([one.latencies_s() for one in results])
        within = proportion(int((latencies <= slo_s).sum()), requests - refused)
        judged = scheduler == OURS and tenant == "steady"
        yield from rows(
            f"{scheduler}: {tenant}'s admitted, within {slo_s * 1e3:g} ms", within, "%",
            f">= {TARGET:.1%}" if judged else "", within.value >= TARGET if judged else None, scale=100,
        )  # fmt: skip
        yield Row("  admitted", requests - refused, "")
        yield Row("  refused at once, of all", refused / requests * 100, "%")
        yield Row("  p99 of the answers", quantile(latencies.tolist(), 0.99) * 1e3, "ms")


def refused_at_once(result: LoadResult, slo_s: float) -> int:
    refused = result.measured() & np.isin(result.status, REFUSED)
    return int((result.done_s - result.sent_s <= AT_ONCE * slo_s)[refused].sum())


def inputs(rates: dict[str, float], alone: LoadResult) -> Iterator[Row]:
    yield Row("steady alone: p99", alone.quantile(0.99).value * 1e3, "ms")
    for tenant, rate in rates.items():
        yield Row(f"rate of {tenant} outside of the burst", rate, "/s")


if __name__ == "__main__":
    sys.exit(main())
