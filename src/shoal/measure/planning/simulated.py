"""A shared server in virtual time: arrivals of demands in, `LoadResult`s out, labelled as simulated.

It stands in for a real server wherever something takes loads and gives `LoadResult`s: as the probe of a search, and to
check what a planner thinks. The order of service is not decided here: that is a `Serve`, given by the program that
composes the two. The command line gives the scheduler that the server runs (`shoal.cli.serving`), so a plan is
checked against the very server that will carry it out.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from shoal.base.arrivals import clustered
from shoal.measure.planning.profiles import Demand, ServerType
from shoal.measure.types import Floats, LoadResult

_FIRST = 1_000
"""Requests of all models together in a trial's first run."""
_WARM_UP = 200
"""And before it, while the empty server fills."""
_GROWTH = 1.5
"""Of each next run: long enough to show a queue that grows slowly, and not much longer than is needed."""

Serve = Callable[[Sequence[Demand], Sequence[Floats], ServerType, Sequence[int]], Sequence[Floats]]
"""When each request of each demand is answered, in seconds, not a number for one that is refused; of the demands, their
arrivals (ascending seconds), the server that they share, and a seed. The same arguments give the same answer."""


@dataclass(frozen=True)
class SimulatedServer:
    """One server with these models on it. `run` is a pure function of its arguments.

    A model's arrivals depend on the seed, its own name, rate and burstiness only, so that a load alone and the same
    load beside others can be compared request by request.
    """

    demands: tuple[Demand, ...]
    server: ServerType
    serve: Serve
    seed: int = 0

    def run(
        self,
        rates: Mapping[str, float] | None = None,
        *,
        duration_s: float,
        warmup_s: float = 0.0,
        seed: Sequence[int] = (),
    ) -> dict[str, LoadResult]:
        """Loads by `Demand.name`, in requests per second; None takes the demands' own."""
        known = {demand.name: demand for demand in self.demands}
        loads = {name: demand.rate_per_s for name, demand in known.items()} if rates is None else rates
        streams = {
            name: arrivals(known[name], rate, warmup_s + duration_s, [self.seed, *seed]) for name, rate in loads.items()
        }
        demands = [known[name] for name in streams]
        done = self.serve(demands, list(streams.values()), self.server, [self.seed, *seed])
        return {
            demand.name: LoadResult(
                tenant=f"simulated {demand.tenant}".strip(),
                model=demand.profile.name,
                scheduled_s=times,
                sent_s=times,
                done_s=np.where(np.isnan(ended), times, ended),
                status=np.where(np.isnan(ended), 503, 200).astype(np.int64),
                duration_s=duration_s,
                warmup_s=warmup_s,
            )
            for demand, times, ended in zip(demands, streams.values(), done, strict=True)
        }

    def probe(self) -> Callable[[Mapping[str, float], Callable[[Mapping[str, Floats]], bool]], None]:
        """For `find_frontier`, and whatever else judges loads from as few requests as will do.

        It hands over the latencies of independent runs (Law and Kelton's replications), each longer than the one
        before, until it is enough. No run's first part is handed over: the server is empty then, which none in use is.
        """
        trials = count(1)

        def probe(rates_per_s: Mapping[str, float], enough: Callable[[Mapping[str, Floats]], bool]) -> None:
            trial, total = next(trials), sum(rates_per_s.values())
            for run in count():
                duration_s, warmup_s = _FIRST * _GROWTH**run / total, _WARM_UP * _GROWTH**run / total
                found = self.run(rates_per_s, duration_s=duration_s, warmup_s=warmup_s, seed=[trial, run])
                if enough({name: result.latencies_or_inf_s() for name, result in found.items()}):
                    return

        return probe


def arrivals(demand: Demand, rate_per_s: float, duration_s: float, seed: Sequence[int]) -> Floats:
    """Of a demand at this rate, as bursty as it is; shape (requests,), ascending, in seconds."""
    if not rate_per_s > 0:
        return np.empty(0)
    return clustered(rate_per_s, duration_s, size=demand.burst, seed=[*seed, zlib.crc32(demand.name.encode())])
