"""Eight tenants with bursty loads on one server, against servers of their own: what sharing saves, with all in time.

Four real networks (speech, a line of text, a scanned page, files) serve two tenants each, every tenant with a service,
a replica and an objective for its 99th percentile. Loads are bursty: Poisson requests whose rate jumps to five times
the calm one for a second now and then, a tenth of the time (a Markov-modulated process), each tenant at its own
moments. With `--trace` each plays another part of a recorded trace at its own rate instead.

What servers of their own would cost is derived thus. First the SLO capacity C of each network is measured, alone on
this very server, by the search: the highest Poisson rate at which 99 % are in time. A server of a tenant's own must
carry the rate b within its bursts (of a trace: that of its busiest seconds, the 99th percentile). In a second of b
requests at a capacity c the wait grows to b / c - 1 seconds, which may not exceed the objective L; so the tenant needs
a server of capacity c = b / (1 + L), which is the part c / C of a server of this size, if servers could be cut to any
size at the same price per part. The tenants' rates are set from the measured capacities so that these parts add up to
`--total`. Then all eight run on this one server, and if every objective held, sharing saved 1 - 1 / total. (Of whole
servers, which nobody can cut, it saves seven of eight.) As a machine's speed changes, the capacities are measured again
afterwards, and the saving is counted with the geometric means of both. Batches are kept at one, so that a part of a
server's capacity is what it says.

Sharing has a price that grows the shorter executions are: alone and saturated, they follow each other without a pause
and with warm caches; between those of others the tiny networks take two to four times as long (the rows "beside others"
say how long), and each is followed by a handover. So tenants with tiny networks are small here, and `--even` makes all
eight equally large.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import Row, parser, report
from serving_common import Gateway, doubt, gateway, options_of, service

from shoal.base.arrivals import bursty
from shoal.measure.live import measure_capacity
from shoal.measure.load.generator import Settings
from shoal.measure.load.traces import Trace, read_trace
from shoal.measure.search.concurrent import ConcurrentLoad
from shoal.measure.search.judge import Effort, Goal
from shoal.measure.statistics import Estimate
from shoal.measure.types import Floats, LoadResult
from shoal.serve import DEFAULT_SCHEDULER, SCHEDULERS

SLO_S = {"silero-vad": 0.05, "orientation": 0.05, "page-rotation": 0.1, "magika": 0.15}
TENANTS = {f"{model}-{number}": model for model in SLO_S for number in (1, 2)}
SIZE = {"silero-vad": 0.1, "orientation": 0.3, "page-rotation": 1.6, "magika": 1.7}
P, TARGET = 0.99, 0.30
FACTOR, SHARE, BURST_S = 5.0, 0.1, 1.0
BURST_OVER_MEAN = FACTOR / (1 - SHARE + SHARE * FACTOR)
WARMUP_S = 1.0


@dataclass(frozen=True)
class Load:
    """A tenant's arrivals for a mean rate; `peak` is what of it a server of its own must carry, over the mean."""

    peak: float
    trace: Trace | None
    seed: int

    def arrivals(self, mean_per_s: float, duration_s: float) -> Floats:
        if self.trace is None:
            return bursty(mean_per_s, duration_s, seed=self.seed, factor=FACTOR, share=SHARE, burst_s=BURST_S)
        times = self.trace.at_rate(mean_per_s, seed=self.seed).times_s
        return times[times < duration_s]


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--total", type=float, default=1.45, help="servers that the tenants would need, if cut")
    arguments.add_argument("--even", action="store_true", help="tenants of one size, whatever their network")
    arguments.add_argument("--duration", type=float, default=30.0, metavar="S", help="of the shared run")
    arguments.add_argument("--search", type=float, default=6.0, metavar="S", help="no trial begins later in a search")
    arguments.add_argument("--trace", type=Path, metavar="FILE", help="recorded arrivals: Azure's CSV, or seconds")
    arguments.add_argument("--speed", type=float, default=1.0, help="play the trace so many times as fast")
    arguments.add_argument("--scheduler", default=DEFAULT_SCHEDULER, choices=SCHEDULERS, help=f"[{DEFAULT_SCHEDULER}]")
    options = options_of(arguments)
    whole_s = WARMUP_S + options.duration
    trace = read_trace(options.trace).faster(options.speed) if options.trace is not None else None
    loads = dict(zip(TENANTS, made(trace, whole_s), strict=True))
    services = [service(tenant, model, slo_s=SLO_S[model], max_batch=1) for tenant, model in TENANTS.items()]
    with gateway(services, scheduler=options.scheduler) as server:
        before = {model: capacity(server, model, options.search) for model in SLO_S}
        size = dict.fromkeys(SLO_S, 1.0) if options.even else SIZE
        part = options.total / sum(size[model] for model in TENANTS.values())
        means = {
            name: part * size[model] * before[model].rate.value * (1 + SLO_S[model] / BURST_S) / loads[name].peak
            for name, model in TENANTS.items()
        }
        together = ConcurrentLoad(
            {name: server.target(model, name) for name, model in TENANTS.items()},
            settings=Settings(warmup_s=WARMUP_S, give_up_s=15.0),
        )
        arrivals = {name: loads[name].arrivals(mean, whole_s) for name, mean in means.items()}
        shared = together.replay(arrivals, duration_s=options.duration)
        after = {model: capacity(server, model, options.search) for model in SLO_S}
    doubt("the shared run", together.warnings())
    drift = {model: math.sqrt(after[model].rate.value / before[model].rate.value) for model in SLO_S}
    total = sum(part * size[model] / drift[model] for model in TENANTS.values())
    table = [
        *alone_rows(before, after),
        *shared_rows(shared, means, total),
        Row("use of the shared server's slot, in the mean", use(shared) * 100, "%"),
    ]
    return report("eight tenants on one server, against servers of their own", table, as_json=options.json)


def made(trace: Trace | None, whole_s: float) -> Iterator[Load]:
    """Eight loads; of a trace, eight parts that begin at different moments."""
    for seed in range(len(TENANTS)):
        if trace is None:
            yield Load(BURST_OVER_MEAN, None, seed)
            continue
        begin_s = seed * max(0.0, trace.duration_s - whole_s) / (len(TENANTS) - 1)
        kept = (trace.times_s >= begin_s) & (trace.times_s < begin_s + whole_s)
        window = Trace(trace.times_s[kept] - begin_s)
        counts = np.bincount(window.times_s.astype(np.int64), minlength=int(whole_s))
        yield Load(float(np.quantile(counts, 0.99) / counts.mean()), window, seed)


@dataclass(frozen=True)
class Alone:
    """A network's capacity, and for how long one execution of it takes the replica when it is asked all the time."""

    rate: Estimate
    compute_s: float


def capacity(server: Gateway, model: str, budget_s: float) -> Alone:
    tenant = next(name for name, one in TENANTS.items() if one == model)
    found = measure_capacity(
        server.target(model, tenant), Goal(SLO_S[model], P), effort=Effort(tolerance=0.1, most_requests=2000),
        settings=Settings(warmup_s=0.3), trial_s=4.0, budget_s=budget_s,
    )  # fmt: skip
    doubt(f"{model} alone", found.warnings)
    told = found.saturated.server if found.saturated is not None else None
    return Alone(found.capacity.rate_per_s, told.compute_s if told is not None else math.nan)


def alone_rows(before: Mapping[str, Alone], after: Mapping[str, Alone]) -> Iterator[Row]:
    for model in SLO_S:
        yield Row(f"{model} alone, p99 within {SLO_S[model] * 1e3:g} ms, before", before[model].rate.value, "/s")
        yield Row("  and after", after[model].rate.value, "/s")
        yield Row("  an execution, saturated", before[model].compute_s * 1e3, "ms")


def shared_rows(shared: Mapping[str, LoadResult], means: Mapping[str, float], total: float) -> Iterator[Row]:
    held = 0
    for name, result in shared.items():
        within = result.attainment(SLO_S[TENANTS[name]])
        held += within.value >= P
        yield Row(f"{name}, {means[name]:.3g}/s in the mean: in time", within.value * 100, "%")
        yield Row("  refused or failed", result.failures() / result.count() * 100, "%")
        yield Row("  p99 of the answers", result.quantile(P).value * 1e3, "ms")
        if result.server is not None:
            yield Row("  an execution, beside others", result.server.compute_s * 1e3, "ms")
    everybody = held == len(shared)
    saving = 1 - 1 / total
    yield Row("objectives held", held, "", f"{len(shared)}", everybody)
    yield Row("servers apart, if they could be cut", total, "")
    yield Row("servers apart, whole", len(shared), "")
    yield Row(
        "cost saved by sharing one, with all in time", saving * 100 if everybody else 0, "%", f">= {TARGET:.0%}",
        everybody and saving >= TARGET,
    )  # fmt: skip


def use(shared: Mapping[str, LoadResult]) -> float:
    """Of the server's one slot, by its own account."""
    seconds = WARMUP_S + max(one.duration_s for one in shared.values())
    busy_s = sum(one.server.compute_s * one.server.requests for one in shared.values() if one.server is not None)
    return busy_s / seconds


if __name__ == "__main__":
    sys.exit(main())
