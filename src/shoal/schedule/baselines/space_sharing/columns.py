"""Space sharing: two jobs with gangs of one size run beside each other. Best level and value by column generation.

There are about m^2/2 pairs, but an optimum uses few. Jobs that differ only in what they demand are first taken
together as a group that demands the sum. A job that would then need more than all of its time is taken out of its
group and the program solved again, so the result is an optimum for the jobs. The groups' program starts without pairs
and is given, by the duals of each solution, the pairs that would improve it most; it ends when there are none, or
when the bound that the duals prove is close.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from shoal.schedule.baselines.space_sharing.divide import divide, fold, match
from shoal.schedule.errors import SolverFailed
from shoal.schedule.policy.subproblem import Beside
from shoal.schedule.solve.aggregate import classes
from shoal.schedule.solve.lp import solve_program
from shoal.schedule.solve.market import Market
from shoal.schedule.solve.search import SLACK, Solution
from shoal.schedule.types import Array, Index, Mask, Pairs, no_pairs

GAP = 1e-7
ROUNDS = 200
TOLERANCE = 1e-9


@dataclass(frozen=True)
class LinearAim:
    """What is maximised: the level t of the rates floor + t * per_level, both (m,); or, where `per_level` is None, the
    sum over jobs and columns of gain (n, m) times the rate there less cost (n, m) times the share of time there."""

    floor: Array
    per_level: Array | None
    gain: Array
    cost: Array


class _Offers(NamedTuple):
    """Pairs that the program knows (k,): column, group and other group (a group's members may pair among themselves),
    and the rate of each beside the other."""

    column: Index
    one: Index
    other: Index
    rate: Array
    back: Array


@dataclass(frozen=True)
class _Point:
    """An optimum for groups: its value, and time in sum over members, alone (n, g) and for each pair (k,); the duals
    of the limits (r,), of the groups' time (g,) and of their rates (g,)."""

    value: float
    alone: Array
    together: Array
    prices: Array
    time_price: Array
    slope: Array


Kinds = frozenset[tuple[int, int, int]]


@dataclass(frozen=True)
class Known:
    """What an optimum taught, with which a program that differs a little begins: column and both kinds of the pairs
    that took part, and which jobs (m,) had to be taken apart from their groups."""

    pairs: Kinds = frozenset()
    apart: Array | None = None


NOTHING = Known()


def best_in_pairs(
    market: Market, beside: Beside, aim: LinearAim, known: Known = NOTHING
) -> tuple[Solution, Pairs, Known]:
    """The optimum for jobs (rows without copies) that may share, and what is known by then. The solution's
    shares are time alone; its rates count both."""
    keys = [beside.kind.astype(np.float64), beside.gang.astype(np.float64), *market.rate, *aim.gain, *aim.cost]
    keys += [constraint.weight for constraint in market.constraints]
    apart = np.zeros(market.rows) if known.apart is None else known.apart.copy()
    pairs = known.pairs
    while True:
        grouped = classes([*keys, apart])
        groups = _Groups(market.take(grouped.first), beside, aim, grouped.of, grouped.first, pairs)
        point, bound = groups.solve()
        pairs |= groups.kinds_in(point)
        parts, own = groups.divided(point)
        if not len(own):
            return *groups.jobs(market, point, bound, parts), Known(pairs, apart)
        apart[own] = apart.max() + 1.0 + grouped.of[own]


class _Groups:
    """The program of groups of jobs: `market` has a row per group, `of` (m,) is each job's group, `first` (g,) a job
    of each."""

    def __init__(self, market: Market, beside: Beside, aim: LinearAim, of: Index, first: Index, known: Kinds) -> None:
        count = len(first)
        self._market, self._aim, self._of = market, aim, of
        self._size = np.bincount(of, minlength=count).astype(np.float64)
        self._floor = np.bincount(of, aim.floor, minlength=count)
        self._rise = None if aim.per_level is None else np.bincount(of, aim.per_level, minlength=count)
        self._gain, self._cost = aim.gain[:, first], aim.cost[:, first]
        self._kind, self._table = beside.kind[first], beside.rate
        gang = beside.gang[first]
        self._fits = np.triu(gang[:, None] == gang)
        np.fill_diagonal(self._fits, self._size > 1.0)
        self._column, self._group = np.nonzero(market.rate)
        self._members = np.split(np.argsort(of, kind="stable"), np.cumsum(self._size).astype(np.intp)[:-1])
        self._pairs = self._of_known(known)
        self._rounds = 0

    def _of_known(self, known: Kinds) -> _Offers:
        """The pairs of groups whose kinds are known to go well together."""
        found = [np.empty((3, 0), np.intp)]
        able = {column: self._fits & (self._pair_rates(column) > 0.0) for column in {each[0] for each in known}}
        for column, one, other in sorted(known):
            fits = able[column]
            kinds = (self._kind[:, None] == one) & (self._kind == other)
            first, second = np.nonzero(fits & (kinds | kinds.T))
            found.append(np.stack([np.full(len(first), column), first, second]))
        column, first, second = np.concatenate(found, axis=1)
        one, other = self._kind[first], self._kind[second]
        return _Offers(column, first, second, self._table[one, other, column], self._table[other, one, column])

    def kinds_in(self, point: _Point) -> Kinds:
        """The kinds of the pairs that take part in the optimum."""
        used = np.flatnonzero(point.together > TOLERANCE)
        column, one, other, *_ = self._pairs
        kinds = zip(column[used], self._kind[one[used]], self._kind[other[used]], strict=True)
        return frozenset((int(where), int(first), int(second)) for where, first, second in kinds)

    def _pair_rates(self, column: int) -> Array:
        """(g, g) the rate of the first group's jobs beside the second's; zero where they cannot share the column."""
        rates = self._table[:, :, column][self._kind[:, None], self._kind]
        able = self._market.rate[column] > 0.0
        both: Array = np.where((rates > 0.0) & (rates.T > 0.0) & able & able[:, None], rates, 0.0)
        return both

    def solve(self) -> tuple[_Point, float]:
        """The optimum and a bound on it."""
        while self._rounds < ROUNDS:
            self._rounds += 1
            point = self._program()
            better, excess = self._price(point)
            bound = point.value + float(excess @ self._size)
            if not len(better.column) or bound - point.value <= GAP * max(abs(bound), abs(point.value)):
                return point, bound
            self._pairs = _Offers(*(np.concatenate(both) for both in zip(self._pairs, better, strict=True)))
        raise SolverFailed("the pairs that improve did not run out", rounds=ROUNDS, pairs=len(self._pairs.column))

    def _program(self) -> _Point:
        """Solve with the pairs there are. Rows: constraints, time of each group, rate of each group (negated, in units
        of its fastest)."""
        market, pairs, count, unit = self._market, self._pairs, len(self._size), self._market.fastest
        singles, every = len(self._column), len(self._column) + len(pairs.column)
        columns = np.concatenate([self._column, pairs.column])
        shared = [
            each.load[:, columns] * np.concatenate([each.weight[self._group], _mean(each.weight, pairs)])
            for each in market.constraints
        ]
        group = np.concatenate([self._group, pairs.one, pairs.other])
        at = np.concatenate([np.arange(every), np.arange(singles, every)])
        made = np.concatenate([market.rate[self._column, self._group], pairs.rate, pairs.back])
        time = sparse.csc_matrix((np.ones(len(at)), (group, at)), shape=(count, every))
        rate = sparse.csc_matrix((-made / unit[group], (group, at)), shape=(count, every))
        matrix = sparse.vstack([*map(sparse.csc_matrix, shared), time, rate], format="csc")
        limits = np.concatenate([market.limits, self._size, -self._floor / unit])
        if self._rise is not None:
            raised = np.concatenate([np.zeros(len(limits) - count), self._rise / unit])
            matrix = sparse.hstack([matrix, raised[:, None]], format="csc")
            worth = np.append(np.zeros(every), 1.0)
        else:
            alone = (self._gain * market.rate - self._cost)[self._column, self._group]
            gained = (
                self._gain[pairs.column, pairs.one] * pairs.rate + self._gain[pairs.column, pairs.other] * pairs.back
            )
            paid = 0.5 * (self._cost[pairs.column, pairs.one] + self._cost[pairs.column, pairs.other])
            worth = np.concatenate([alone, gained - paid])
        point, duals, value = solve_program(worth, matrix, limits)
        time_alone = np.zeros_like(market.rate)
        time_alone[self._column, self._group] = point[:singles]
        prices, time_price, slope = np.split(duals, [len(market.limits), len(market.limits) + count])
        return _Point(value, time_alone, point[singles:every], prices, time_price, slope / unit)

    def _price(self, point: _Point) -> tuple[_Offers, Array]:
        """For each group and column the pair that would improve most, if any would; and how much (g,) the prices of
        time must rise so that none does."""
        costs = self._market.cost(point.prices) + self._cost
        excess = np.zeros(len(self._size))
        found: list[_Offers] = []
        there = (self._pairs.column * len(excess) + self._pairs.one) * len(excess) + self._pairs.other
        least = TOLERANCE * max(abs(point.value), 1e-300) / float(self._size.sum())
        for column, cost in enumerate(costs):
            rates = self._pair_rates(column)
            half = (point.slope + self._gain[column])[:, None] * rates - (point.time_price + 0.5 * cost)[:, None]
            extra = np.where(self._fits & (rates > 0.0), half + half.T, -np.inf)
            excess = np.maximum(excess, 0.5 * np.maximum(extra.max(axis=0), extra.max(axis=1)))
            other = extra.argmax(axis=1)
            one = np.flatnonzero(extra[np.arange(len(other)), other] > least)
            other = other[one]
            new = ~np.isin((column * len(rates) + one) * len(rates) + other, there)
            one, other = one[new], other[new]
            found.append(_Offers(np.full(len(one), column), one, other, rates[one, other], rates[other, one]))
        return _Offers(*(np.concatenate(part) for part in zip(*found, strict=True))), excess

    def divided(self, point: _Point) -> tuple[list[tuple[Index, Array]], Index]:
        """For each group its ways to run (columns alone, then pairs by number) and the time (members, ways) that each
        member has in each; and the jobs that should be a group of their own first."""
        pairs, rise = self._pairs, self._aim.per_level
        demand = self._aim.floor if rise is None else self._aim.floor + point.value * rise
        width = len(point.alone)
        ways: list[list[int]] = [list(np.flatnonzero(alone > 0.0)) for alone in point.alone.T]
        for at in np.flatnonzero(point.together > TOLERANCE):
            for group in {pairs.one[at], pairs.other[at]}:
                ways[group].append(width + at)
        parts, own = [], [np.empty(0, np.intp)]
        for group, (members, used) in enumerate(zip(self._members, ways, strict=True)):
            way = np.array(used, np.intp)
            both = way[way >= width] - width
            itself = pairs.one[both] == pairs.other[both]
            rates = np.concatenate([
                self._market.rate[way[way < width], group],
                np.where(pairs.one[both] == group, pairs.rate[both], pairs.back[both]),
            ])  # fmt: skip
            times = np.concatenate([point.alone[way[way < width], group], point.together[both] * (1.0 + itself)])
            part = divide(rates, times, demand[members])
            if isinstance(part, int):
                own.append(members[np.argsort(-demand[members], kind="stable")[:part]])
                continue
            folded = np.flatnonzero(np.concatenate([np.zeros(len(way) - len(both)), itself]))
            most = part[:, folded] / (0.5 * times[folded])
            alone: Mask = most.max(axis=1, initial=0.0) > 1.0 + TOLERANCE
            if alone.all():  # each in another way: one out of the group is enough, and all would be the same group
                alone[demand[members].argmin()] = False
            own.append(members[alone])  # no job can run beside itself
            parts.append((way, part))
        return parts, np.concatenate(own)

    def jobs(
        self, market: Market, point: _Point, bound: float, parts: list[tuple[Index, Array]]
    ) -> tuple[Solution, Pairs]:
        """What the groups' optimum is for the jobs."""
        of, offers, width = self._of, self._pairs, len(point.alone)
        alone = np.zeros_like(market.rate)
        halves: dict[int, list[tuple[Index, Array]]] = {}
        for members, (way, part) in zip(self._members, parts, strict=True):
            single = way < width
            alone[np.ix_(way[single], members)] = part[:, single].T
            for at, times in zip(way[~single] - width, part[:, ~single].T, strict=True):
                halves.setdefault(int(at), []).append((members, times / times.sum()))
        rates = market.rates_of(alone)
        found = [no_pairs()]
        for at, sides in halves.items():
            first, second, portion = fold(*sides[0]) if len(sides) == 1 else match(*sides[0], *sides[1])
            if len(sides) == 2 and offers.one[at] != of[first[0]]:
                first, second = second, first
            time = portion * point.together[at]
            np.add.at(rates, first, time * offers.rate[at])
            np.add.at(rates, second, time * offers.back[at])
            found.append(Pairs(first, second, np.full(len(first), offers.column[at]), time))
        pairs = Pairs(*(np.concatenate(each) for each in zip(*found, strict=True)))
        slope = point.slope[of]
        rise = self._aim.per_level
        demand = self._aim.floor if rise is None else self._aim.floor + point.value * rise
        room = float(slope @ demand) + bound - point.value
        scarce = slope * market.fastest > SLACK * float((slope * market.fastest).max(initial=0.0))
        reach = np.where(scarce, rates, np.maximum(market.fastest, rates))
        return Solution(point.value, bound, point.prices, alone, rates, slope, room, self._rounds, reach), pairs


def _mean(weight: Array, pairs: _Offers) -> Array:
    """A pair holds one gang's accelerators; each of its jobs answers for half of them."""
    half: Array = 0.5 * (weight[pairs.one] + weight[pairs.other])
    return half
