"""The middle of all that an objective leaves open: what an interior point method decides.

A linear program often has many optima. Our policies go on where the objective is indifferent (who can still rise
does, short jobs come first); Gavel (OSDI'20) takes what its solver happens to return, and that is a predictor-corrector
interior point method, which ends in the middle of all optima (Mehrotra, SIAM J. Optim. 2(4), 1992). Who compares
with Gavel has to decide as it does, and this is such a method for the one program that policies share. Each job is a
block of its own in the equations of a step, and few limits couple them: a step takes time in proportion to the jobs.
"""

from __future__ import annotations

import numpy as np

from shoal.schedule.errors import SolverFailed
from shoal.schedule.policy.solving import Outcome
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.types import Array

TOLERANCE = 1e-8
STEPS = 60
LITTLE = 1e-14
"""Added to diagonals that vanish at the optimum."""


def highest_level(sub: Subproblem, floor: Array, per_level: Array, *, rate: Array | None = None) -> Outcome:
    """The middle of all shares at the highest level t at which everybody has the rate floor + t * per_level, both (k,).
    `rate` (n, k) are those that the policy believes; columns at which a job has none are given out as well, as Gavel
    does. Raises `SolverFailed`."""
    rate = sub.market.rate if rate is None else rate
    fastest = rate.max(axis=0)
    program = _Program(sub, rate / fastest, floor / fastest, per_level / fastest, sub.market.limits, rising=True)
    return _outcome(sub, *program.solved())


def reaching(sub: Subproblem, floor: Array) -> Outcome:
    """The middle of all shares that give rates of at least the floor (k,), which must be possible. With no objective
    to draw it to one point, where the method ends depends on units: they are Gavel's, steps a second and accelerators.
    Raises `SolverFailed`."""
    rate = sub.market.rate
    program = _Program(sub, rate, floor, np.zeros_like(floor), np.ones(len(sub.market.limits)), rising=False)
    return _outcome(sub, *program.solved())


def _outcome(sub: Subproblem, shares: Array, level: float, prices: Array) -> Outcome:
    shares = np.clip(shares, 0.0, 1.0)
    return Outcome(shares, sub.market.rates_of(shares), prices, level, level, facts={"method": "interior point"})


class _Program:
    """The highest t, if it is `rising`, where G z + s = h and s >= 0. z is the shares (n, k) and t; the rows are, in
    this order, the signs of shares, the time of each job, the limits in these `units` (r,), and the jobs' demands."""

    def __init__(
        self, sub: Subproblem, rate: Array, floor: Array, per_level: Array, units: Array, *, rising: bool
    ) -> None:
        market = sub.market
        self._rate, self._per_level, self._rising = rate, per_level, rising
        self._n, self._k, self._r = *rate.shape, len(units)
        loads = np.concatenate([each.load[:, :, None] * each.weight for each in market.constraints])
        self._loads = loads / units[:, None, None]
        self._cuts = np.cumsum([rate.size, self._k, self._r])
        self._h = np.concatenate([np.zeros(rate.size), np.ones(self._k), market.limits / units, -floor])
        self._units = units

    def solved(self) -> tuple[Array, float, Array]:
        """Shares (n, k), the level, and the limits' prices (r,)."""
        wanted, none = float(self._rising), np.zeros((self._n, self._k))
        self._factor(np.ones(len(self._h)))
        x, t, y = self._step(none, 0.0, self._h)
        s = _positive(-y)
        z = _positive(self._step(none, wanted, np.zeros(len(self._h)))[2])
        for _ in range(STEPS):
            missed, slope = self._columns(z)
            slope = slope - wanted if self._rising else 0.0
            over = self._rows(x, t) + s - self._h
            gap = float(s @ z)
            if np.abs(over).max() < TOLERANCE and gap < TOLERANCE * max(1.0, abs(t)):
                return x, t, self._parts(z)[2] / self._units
            self._factor(s / z)
            toward = s * z
            for corrected in (False, True):
                dx, dt, dz = self._step(-missed, -slope, -over + toward / z)
                ds = -(toward + s * dz) / z
                far = min(_reach(s, ds), _reach(z, dz))
                if not corrected:
                    centring = (1.0 - min(far, 1.0)) ** 3 * gap / len(s)
                    toward = s * z + ds * dz - centring
            far = min(1.0, 0.99 * far)
            x, t, s, z = x + far * dx, t + far * dt, s + far * ds, z + far * dz
        raise SolverFailed("the interior point method did not converge", jobs=self._k, gap=gap, steps=STEPS)

    def _parts(self, rows: Array) -> tuple[Array, Array, Array, Array]:
        signs, time, limits, demands = np.split(rows, self._cuts)
        return signs.reshape(self._n, self._k), time, limits, demands

    def _rows(self, x: Array, t: float) -> Array:
        """G z."""
        used = np.einsum("rnk,nk->r", self._loads, x)
        return np.concatenate(
            [-x.ravel(), x.sum(axis=0), used, self._per_level * t - np.einsum("nk,nk->k", self._rate, x)]
        )

    def _columns(self, rows: Array) -> tuple[Array, float]:
        """G' of the rows, for shares and for t."""
        signs, time, limits, demands = self._parts(rows)
        share = time - signs + np.einsum("rnk,r->nk", self._loads, limits) - self._rate * demands
        return share, float(self._per_level @ demands)

    def _factor(self, ratio: Array) -> None:
        """Ready for steps in which G dz - ratio * dy = b: each job's block of its shares, time and demand is inverted,
        and what couples them (limits, and t) is left as a small system."""
        signs, time, limits, demands = self._parts(ratio)
        n, r, coupled = self._n, self._r, self._r + self._rising
        blocks = np.zeros((self._k, n + 2, n + 2))
        blocks[:, range(n), range(n)] = 1.0 / signs.T
        blocks[:, :n, n] = blocks[:, n, :n] = 1.0
        blocks[:, :n, n + 1] = blocks[:, n + 1, :n] = -self._rate.T
        blocks[:, n, n], blocks[:, n + 1, n + 1] = -time - LITTLE, -demands - LITTLE
        self._inverse = np.linalg.inv(blocks)
        self._coupling = np.zeros((self._k, n + 2, coupled))
        self._coupling[:, :n, :r] = self._loads.transpose(2, 1, 0)
        if self._rising:
            self._coupling[:, n + 1, r] = self._per_level
        self._moved = self._inverse @ self._coupling
        self._rest = -np.einsum("kar,kas->rs", self._coupling, self._moved)
        self._rest[range(r), range(r)] -= limits + LITTLE
        self._signs = signs

    def _step(self, share: Array, level: float, rows: Array) -> tuple[Array, float, Array]:
        """dx, dt, dy with G' dy = (share, level) and G (dx, dt) - ratio * dy = rows."""
        signs, time, limits, demands = self._parts(rows)
        n, r = self._n, self._r
        right = np.concatenate([(share - signs / self._signs).T, time[:, None], demands[:, None]], axis=1)
        alone = np.einsum("kab,kb->ka", self._inverse, right)
        wanted = np.append(limits, level) if self._rising else limits
        together = np.linalg.solve(self._rest, wanted - np.einsum("kar,ka->r", self._coupling, alone))
        found = alone - self._moved @ together
        dx = found[:, :n].T
        dy = np.concatenate([(-(dx + signs) / self._signs).ravel(), found[:, n], together[:r], found[:, n + 1]])
        return dx, float(together[r]) if self._rising else 0.0, dy


def _positive(values: Array) -> Array:
    """Shifted until all are."""
    least = float(values.min())
    return values if least > 0.0 else values + 1.0 - least


def _reach(values: Array, change: Array) -> float:
    """How many times the change can be made before a value is zero."""
    falls = change < 0.0
    return float((-values[falls] / change[falls]).min(initial=np.inf))
