"""Feasibility by simulation."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.core import Reason
from shoal.measure.planning.feasibility import Fit, simulate, static_limits
from shoal.measure.planning.profiles import Demand, ServerType
from shoal.measure.planning.simulated import Serve
from shoal.measure.search.judge import Effort

SEARCHING = Effort(most_requests=1_000)
"""For each demand of a set. A search asks about many sets, and what it chooses is simulated for longer."""


class Simulated:
    """Simulates the set: tighter and slower than a model on paper."""

    name = "simulated"
    asks = 100

    def __init__(self, serve: Serve, *, effort: Effort = SEARCHING, seed: int = 0) -> None:
        self._serve = serve
        self._effort = effort
        self._seed = seed

    def judge(self, demands: Sequence[Demand], server: ServerType) -> Fit:
        occupancy = sum(self.least_share(demand, server) for demand in demands)
        broken = static_limits(demands, server)
        if broken is not None:
            return Fit(False, occupancy, broken)
        if occupancy >= 1:
            text = f"{occupancy:.0%} of the slots would be in use even with the best batches"
            return Fit(False, occupancy, Reason("load", text, {"occupancy": occupancy}))
        batches = tuple(demand.profile.max_batch for demand in demands)
        found = simulate(demands, server, serve=self._serve, seed=self._seed, effort=self._effort)
        if not found:
            return Fit(True, occupancy, Reason("holds", "nothing is asked of it"), batches, (0.0,) * len(demands))
        tight = max(found, key=lambda one: (one.broken, not one.holds, one.late.high / one.allowed))
        facts = {
            "model": tight.name,
            "late": tight.late.value,
            "late_at_most": tight.late.high,
            "requests": tight.requests,
        }
        text = (
            f"{tight.late.value:.2%} of {tight.requests} simulated requests of {tight.name} were late "
            f"(at most {tight.late.high:.2%}), {tight.allowed:.2%} may"
        )
        if not tight.holds:
            return Fit(False, occupancy, Reason("objective", text, facts))
        latency_s = {one.name: one.latency_s for one in found}
        return Fit(
            True, occupancy, Reason("holds", text, facts), batches,
            tuple(latency_s.get(demand.name, 0.0) for demand in demands),
        )  # fmt: skip

    def least_share(self, demand: Demand, server: ServerType) -> float:
        return demand.rate_per_s * demand.profile.best_item_s / (server.speed * server.slots)
