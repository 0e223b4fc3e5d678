"""Nexus' model of a shared server (Shen et al., SOSP '19): every model is executed once per cycle, as one batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shoal.core import Reason
from shoal.measure.planning.feasibility import Fit, milliseconds, static_limits
from shoal.measure.planning.profiles import Demand, ModelProfile, ServerType
from shoal.measure.types import Floats


class DutyCycle:
    """Nexus' duty cycle: in each cycle of D seconds every model runs once, with what arrived since its last turn.

    A request waits at most one cycle for its turn, so D plus its model's own execution must not exceed the objective.
    On k slots the executions of a cycle end within their sum / c + (1 - 1/c) of the longest (Graham 1969; c as in
    `Queueing`), which must not exceed D. Executions take the demand's quantile of their time.

    Nexus counts on regular arrivals: a cycle has room for as many requests as come in the mean.
    """

    name = "duty-cycle"
    asks = 50_000
    trusted = False

    def __init__(self) -> None:
        self._tables: dict[tuple[ModelProfile, float, float], Floats] = {}

    def judge(self, demands: Sequence[Demand], server: ServerType) -> Fit:
        least = sum(self.least_share(demand, server) for demand in demands)
        broken = static_limits(demands, server)
        if broken is not None:
            return Fit(False, least, broken)
        longest = [self._longest_cycle(demand, server.speed) for demand in demands]
        cycle_s = min(longest)
        if cycle_s <= 0:
            demand = demands[longest.index(cycle_s)]
            text = f"{demand.name} cannot be answered in {milliseconds(demand.slo_s)} even alone on {server.name}"
            return Fit(False, least, Reason("objective", text, {"model": demand.name, "slo_s": demand.slo_s}))
        # A cycle just long enough for a whole number of requests wastes no execution on a part of one.
        whole = (math.floor(demand.rate_per_s * cycle_s) / demand.rate_per_s for demand in demands if demand.rate_per_s)
        lengths = sorted({cycle_s, *whole} - {0.0}, reverse=True)
        cycle_s = min(lengths, key=lambda one: self._fullness(demands, server, one))
        fullness = self._fullness(demands, server, cycle_s)
        tight = min(range(len(demands)), key=lambda at: longest[at])
        facts = {"cycle_s": cycle_s, "full": fullness, "model": demands[tight].name}
        if fullness > 1:
            text = f"the {milliseconds(cycle_s)} cycle that {demands[tight].name} needs would be {fullness:.0%} full"
            return Fit(False, fullness, Reason("load", text, facts))
        counts = [max(1, _requests(demand, cycle_s)) for demand in demands]
        return Fit(
            True,
            fullness,
            Reason("holds", f"a cycle of {milliseconds(cycle_s)} is {fullness:.0%} full", facts),
            tuple(min(count, demand.profile.max_batch) for count, demand in zip(counts, demands, strict=True)),
            tuple(
                cycle_s + self._execution(demand, server.speed, count)
                for count, demand in zip(counts, demands, strict=True)
            ),
        )

    def least_share(self, demand: Demand, server: ServerType) -> float:
        table = self._table(demand, server.speed)
        best_s = float((table[1:] / np.arange(1, len(table))).min())
        return demand.rate_per_s * best_s * demand.profile.slots / server.slots

    def _fullness(self, demands: Sequence[Demand], server: ServerType, cycle_s: float) -> float:
        """The share of the cycle that its executions take at most."""
        busy = server.slots - max(demand.profile.slots for demand in demands) + 1
        work = longest = 0.0
        for demand in demands:
            took_s = self._execution(demand, server.speed, _requests(demand, cycle_s))
            work += took_s * demand.profile.slots
            longest = max(longest, took_s)
        return (work / busy + (1 - 1 / busy) * longest) / cycle_s

    def _longest_cycle(self, demand: Demand, speed: float) -> float:
        """The largest D with D + execution(requests(D)) within the objective; 0 if there is none."""
        low, high = 0.0, demand.slo_s
        for _ in range(40):
            middle = (low + high) / 2
            took_s = self._execution(demand, speed, max(1, _requests(demand, middle)))
            low, high = (middle, high) if middle + took_s <= demand.slo_s else (low, middle)
        return low if low > 1e-9 * demand.slo_s else 0.0

    def _execution(self, demand: Demand, speed: float, requests: int) -> float:
        """Seconds for this number of requests: full batches and the rest."""
        table = self._table(demand, speed)
        full, rest = divmod(requests, len(table) - 1)
        return float(full * table[-1] + table[rest])

    def _table(self, demand: Demand, speed: float) -> Floats:
        """Seconds by batch size, (max_batch + 1,), from 0 on."""
        key = (demand.profile, demand.quantile, speed)
        if key not in self._tables:
            times = [
                demand.profile.time(batch).quantile(demand.quantile) for batch in range(1, demand.profile.max_batch + 1)
            ]
            self._tables[key] = np.array([0.0, *times]) / speed
        return self._tables[key]


def _requests(demand: Demand, cycle_s: float) -> int:
    return math.ceil(demand.rate_per_s * cycle_s - 1e-9)
