"""Real servers under the loads of several tenants at once: the probe of frontiers, interference and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from shoal.base.arrivals import poisson
from shoal.core import Invalid, Reason, Unavailable
from shoal.measure.load.generator import ClosedLoad, OpenLoad, Settings, drive, run
from shoal.measure.load.oip import Prepared, prepare
from shoal.measure.progress import OnProgress, silent
from shoal.measure.search.judge import Effort, Goal
from shoal.measure.types import Floats, LoadResult, Target, bottlenecks

SATURATED_S = 1.0
CLIENTS = 32
"""Enough to keep a batching server's workers busy."""
FIRST_GUESS = 0.7
"""Of the saturated throughput: about where a queue's latency begins to matter."""
SPARE = 1.1
"""Arrivals are made for somewhat more requests than a trial takes: their number is random."""
_FEWEST = 6.0
"""Without a single miss, this number over the share allowed proves an objective to be kept (600 for a 99th
percentile)."""


class ConcurrentLoad:
    """Targets by tenant, prepared once and loaded at the same time. `loads` keeps the results of each run.

    Raises what `prepare` does, and Unavailable from then on if a server stops answering.
    """

    def __init__(
        self, targets: Mapping[str, Target], *, settings: Settings | None = None, on_progress: OnProgress = silent
    ) -> None:
        if not targets:
            raise Invalid("there is no target to measure", where="targets")
        self.targets = dict(targets)
        self.settings = settings or Settings(warmup_s=0.5)
        self.loads: list[dict[str, LoadResult]] = []
        self._on_progress = on_progress
        self._prepared = {
            name: run(prepare(target, encoding=self.settings.encoding, seed=self.settings.seed,
                              timeout_s=self.settings.timeout_s))
            for name, target in self.targets.items()
        }  # fmt: skip

    def guesses(self) -> dict[str, float]:
        """A rate for each tenant that it can about take alone, in requests per second: from a short closed loop."""
        found = {}
        for name, prepared in self._prepared.items():
            result = closed(prepared, CLIENTS, SATURATED_S, self.settings, self._on_progress)
            found[name] = FIRST_GUESS * result.completed_per_s()
        return found

    def run(self, rates_per_s: Mapping[str, float], *, duration_s: float, seed: int = 0) -> dict[str, LoadResult]:
        """Poisson requests of these tenants at the same time. A tenant's arrivals depend on its rate and the seed only,
        so that it can be compared alone and beside others, request by request."""
        whole_s = self.settings.warmup_s + duration_s
        return self.replay(
            {name: poisson(rate, whole_s, seed=self._seed(name, seed)) for name, rate in rates_per_s.items()},
            duration_s=duration_s,
        )

    def replay(self, arrivals_s: Mapping[str, Floats], *, duration_s: float) -> dict[str, LoadResult]:
        """Requests at these moments, ascending seconds from the start, the warm-up included."""
        names = list(arrivals_s)
        return self._drive(names, [arrivals_s[name] for name in names], self.settings.warmup_s + duration_s, None, 0.0)

    def warnings(self) -> tuple[Reason, ...]:
        """Where the generator was the bottleneck."""
        return bottlenecks(named for loads in self.loads for named in loads.items())

    def _seed(self, name: str, seed: int) -> int:
        return (self.settings.seed * 1009 + seed) * 1009 + list(self.targets).index(name)

    def _drive(
        self,
        names: Sequence[str],
        arrivals: Sequence[Floats],
        duration_s: float,
        watch: Callable[[Sequence[Floats]], bool] | None,
        late_s: float,
    ) -> dict[str, LoadResult]:
        loads = [OpenLoad(self.targets[name], each, duration_s) for name, each in zip(names, arrivals, strict=True)]
        prepared = [self._prepared[name] for name in names]
        results = run(
            drive(loads, self.settings, watch=watch, late_s=late_s or float("inf"), prepared=prepared,
                  on_progress=self._on_progress)
        )  # fmt: skip
        for result in results:
            check(result)
        found = dict(zip(names, results, strict=True))
        self.loads.append(found)
        return found


class ConcurrentProbe:
    """The probe that `find_frontier` needs. A trial lasts `most_s` at most, longer only where a tenant had too few
    requests in that time to prove anything."""

    def __init__(
        self,
        load: ConcurrentLoad,
        goals: Mapping[str, Goal],
        effort: Effort | None = None,
        *,
        most_s: float = 120.0,
    ) -> None:
        self._load = load
        self._goals = goals
        self._most = (effort or Effort()).most_requests
        self._most_s = most_s
        self._trials = 0

    def __call__(self, rates_per_s: Mapping[str, float], enough: Callable[[Mapping[str, Floats]], bool]) -> None:
        self._trials += 1
        load, names = self._load, list(rates_per_s)
        warmup_s = load.settings.warmup_s
        needed_s = max(_FEWEST / self._goals[name].misses_allowed / rate for name, rate in rates_per_s.items())
        most_s = max(self._most_s, needed_s)
        duration_s = warmup_s + min(most_s, SPARE * self._most / min(rates_per_s.values()))
        arrivals = [poisson(rates_per_s[name], duration_s, seed=load._seed(name, self._trials)) for name in names]
        to_skip = [int(np.searchsorted(each, warmup_s)) for each in arrivals]

        def watch(samples: Sequence[Floats]) -> bool:
            told = {}
            for at, latencies in enumerate(samples):
                skipped = min(to_skip[at], len(latencies))
                to_skip[at] -= skipped
                told[names[at]] = latencies[skipped:]
            return enough(told)

        # One patience for all: a tenant with a tighter objective is judged by its latency, only somewhat later.
        load._drive(names, arrivals, duration_s, watch, max(self._goals[name].slo_s for name in names))


def closed(
    prepared: Prepared, clients: int, duration_s: float, settings: Settings, on_progress: OnProgress
) -> LoadResult:
    """Run this number of clients that send without a pause, from the start. Raises Unavailable where nothing is
    answered well."""
    load = ClosedLoad(prepared.target, clients, duration_s)
    cold = replace(settings, warmup_s=0.0)
    (result,) = run(drive([load], cold, prepared=[prepared], on_progress=on_progress))
    check(result)
    if result.completed_per_s() == 0:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in result.errors().items()) or "no answer in time"
        raise Unavailable(f"not one request was answered well: {kinds}", where=prepared.target.label)
    return result


def check(result: LoadResult) -> None:
    """Raises Unavailable if the load was aborted."""
    if result.aborted is not None:
        raise Unavailable(f"the load was aborted: {result.aborted.text}", hint="look at the server's log")
