"""A proven bound on the share of late requests on a shared server."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shoal.core import Reason
from shoal.measure.planning.feasibility import Fit, milliseconds, static_limits
from shoal.measure.planning.profiles import Demand, ServerType
from shoal.measure.types import Floats


class Queueing:
    """Kingman's and Lundberg's exponential bound, for bursts, several slots and any bounded execution time.

    Work arrives in Poisson bursts; burst B of model i holds a geometric number of executions of S_i on m_i slots.
    With k slots and m = max m_i, at least c = k - m + 1 slots are busy whenever a request waits, so a request waits at
    most (V + U) / c: V the work before its burst, U that of its burst in front of it. V exceeds the work of one server
    of speed c by at most d = (k - m) s_max, left from when no request waited. That server's work has
    P(V > x) <= exp(-t x) for each t > 0 with sum_i v_i (E exp(t B_i) - 1) <= c t, v_i the rate of bursts (Kingman
    1970; Asmussen, "Applied Probability and Queues", XIII). Hence, for each such t,

        P(late_i) <= exp(t (d - c L_i)) E exp(t U_i) E exp(t c min(S_i, L_i)),        L_i the objective,

    and the best t of a grid is taken. Where nothing comes in bursts and everything takes one slot, neither can a share
    of late requests exceed P(a request waits) + P(S_i > L_i), and a request waits only if k are there, for which see
    `_crowded`. All are upper bounds, so a set that holds does hold, if requests arrive and execute as described; taking
    a model away can only lower them.
    """

    name = "queueing"
    asks = 300_000

    _GRID = np.geomspace(1e-2, 1e6, 480)

    def __init__(self) -> None:
        self._rows: dict[tuple[Demand, float, int], tuple[Floats, Floats, Floats]] = {}

    def judge(self, demands: Sequence[Demand], server: ServerType) -> Fit:
        occupancy = sum(self.least_share(demand, server) for demand in demands)
        broken = static_limits(demands, server)
        if broken is not None:
            return Fit(False, occupancy, broken)
        widest = max(demand.profile.slots for demand in demands)
        busy = server.slots - widest + 1
        longest_s = max(demand.profile.times[0].longest_s for demand in demands) / server.speed
        rows = [self._row(demand, server.speed, busy) for demand in demands]
        grid = self._GRID
        with np.errstate(over="ignore"):
            usable = np.sum([row[0] for row in rows], axis=0) <= busy * grid
        if not usable.any():
            return Fit(
                False,
                occupancy,
                Reason(
                    "load",
                    f"{occupancy:.0%} of the slots would be in use, too much for any bound on the wait",
                    {"occupancy": occupancy, "busy_slots": busy},
                ),
            )
        shift = grid[usable] * ((server.slots - widest) * longest_s)
        late = [float(np.exp(np.minimum(0.0, (row[1][usable] + shift).min()))) for row in rows]
        waits = 1.0
        if widest == 1 and any(share > 1 - one.quantile for share, one in zip(late, demands, strict=True)):
            waits = self._crowded(demands, server, rows)
            kinds = [demand.profile.times[0] for demand in demands]
            slow = [kind.above(one.slo_s * server.speed) for kind, one in zip(kinds, demands, strict=True)]
            late = [min(share, waits + part) for share, part in zip(late, slow, strict=True)]
        part = [share / (1 - demand.quantile) for share, demand in zip(late, demands, strict=True)]
        tight = max(range(len(demands)), key=lambda at: part[at])
        demand = demands[tight]
        facts = {"model": demand.name, "late_at_most": late[tight], "allowed": 1 - demand.quantile}
        if part[tight] > 1:
            text = (
                f"up to {late[tight]:.2%} of {demand.name} could take longer than {milliseconds(demand.slo_s)}, "
                f"{1 - demand.quantile:.2%} may"
            )
            return Fit(False, occupancy, Reason("objective", text, facts))
        text = f"tightest is {demand.name}: at most {late[tight]:.2%} late of {1 - demand.quantile:.2%} allowed"
        promised = []
        for one, row in zip(demands, rows, strict=True):
            bound = (row[2][usable] + shift - math.log(1 - one.quantile)) / grid[usable]
            times = [one.slo_s, float(bound.min()) / busy]
            if one.quantile + waits < 1:
                times.append(one.profile.times[0].quantile(one.quantile + waits) / server.speed)
            promised.append(min(times))
        return Fit(True, occupancy, Reason("holds", text, facts), (1,) * len(demands), tuple(promised))

    def _crowded(
        self, demands: Sequence[Demand], server: ServerType, rows: Sequence[tuple[Floats, Floats, Floats]]
    ) -> float:
        """An upper bound of the share of requests that find k others there, without bursts and with one slot each.

        Served in order, no more are there than if each request chose one of k queues blindly (Wolff 1977): k
        independent M/G/1 queues of arrival rate r = rate / k. Their number N has the generating function
        E z^N = (1 - rho)(z - 1) M / (z - M) with M = E exp(r (z - 1) S) (Pollaczek and Khinchine), and by Markov's
        inequality P(N_1 + .. + N_k >= k) <= (E z^N / z)^k for each z > 1. With t = r (z - 1), M is known on the grid.
        """
        rate = sum(demand.rate_per_s for demand in demands)
        if any(demand.burst > 1 for demand in demands):
            return 1.0
        if rate == 0:
            return 0.0
        rho = rate * sum(demand.rate_per_s / rate * demand.profile.times[0].mean_s for demand in demands)
        rho /= server.speed * server.slots
        z = 1 + self._GRID * server.slots / rate
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            moment = 1 + np.sum([row[0] for row in rows], axis=0) / rate
            stable = moment < z
            each = np.where(stable, (1 - rho) * (z - 1) * moment / ((z - moment) * z), 1.0)
        return float(min(1.0, each.min()) ** server.slots)

    def least_share(self, demand: Demand, server: ServerType) -> float:
        profile = demand.profile
        return demand.rate_per_s * profile.times[0].mean_s * profile.slots / (server.speed * server.slots)

    def _row(self, demand: Demand, speed: float, busy: int) -> tuple[Floats, Floats, Floats]:
        """Over the grid of t, each (grid,): the demand's part of the sum; the log of its bound with the objective, and
        of what the objective is compared with, both without d."""
        key = (demand, speed, busy)
        if key not in self._rows:
            grid = self._GRID
            profile = demand.profile
            again = 1 - 1 / demand.burst
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                one = _moments(demand, grid * profile.slots, speed)
                finite = again * one < 1
                before = np.where(finite, (1 - again) / (1 - again * one), np.inf)
                burst = np.where(finite, before * one, np.inf)
                clipped = _moments(demand, grid * busy, speed, cut_s=demand.slo_s)
                whole = _moments(demand, grid * busy, speed)
                self._rows[key] = (
                    np.where(np.isfinite(burst), demand.rate_per_s / demand.burst * (burst - 1), np.inf),
                    _settled(np.log(before) + np.log(clipped)),
                    _settled(np.log(before) + np.log(whole)),
                )
        return self._rows[key]


def _moments(demand: Demand, at: Floats, speed: float, *, cut_s: float = math.inf) -> Floats:
    """E exp(at * S), of shape (grid,); with a cut, E exp(at * (min(S, cut) - cut)), which cannot overflow.

    The execution time is a mix of uniform pieces; what lies above the cut is moved onto it.
    """
    weights, low, high = demand.profile.times[0].pieces
    low, high = low / speed, high / speed
    inside = np.where(high > cut_s, np.clip((cut_s - low) / np.where(high > low, high - low, 1.0), 0, 1), 1.0)
    low, high = np.minimum(low, cut_s), np.minimum(high, cut_s)
    origin = cut_s if math.isfinite(cut_s) else 0.0
    first, last = np.exp(np.outer(at, low - origin)), np.exp(np.outer(at, high - origin))
    stretch = np.outer(at, high - low)
    flat = stretch < 1e-6
    uniform = np.where(flat, (first + last) / 2, (last - first) / np.where(flat, 1.0, stretch))
    return np.asarray(uniform @ (weights * inside) + float(weights @ (1 - inside)))


def _settled(logs: Floats) -> Floats:
    """inf - inf, where a moment does not exist, bounds nothing."""
    return np.where(np.isnan(logs), np.inf, logs)
