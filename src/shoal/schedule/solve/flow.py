"""Speed of each row while the water rises: what its entity pours into it, fairly or first come first served.

Amounts are counted in units of each row's own norm (rate = norm * amount). Between two freezes an entity pours
weight * (level - since) into its rows: fairly, so that they stand equally high in units of their own parts, or into
one row after the other. A row that is full takes no more, and the others of its entity take its part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from shoal.schedule.types import Array, Index, Mask

CLOSE = 1e-9
"""Relative differences that are taken for rounding."""

STEPS, TIGHT = 100, 1e-13
"""Steps of a search for a level, and the part of what may be spent to which it is exact."""


@dataclass(frozen=True)
class Entities:
    """Who pours into the rows: `of` (m,) is each row's entity; entities have a `weight` and may serve `in_order`.

    `part` (m,) is a row's weight within its entity, `rank` (m,) its place where rows are served in order; such rows
    are single, not classes. `single` says that every row is an entity.
    """

    of: Index
    weight: Array
    in_order: Mask
    part: Array
    rank: Array
    single: bool = False

    @classmethod
    def each(cls, weight: Array) -> Entities:
        """Every row its own entity, with the weights (m,)."""
        rows, none = np.arange(len(weight)), np.zeros(len(weight))
        return cls(rows, weight, none > 0.0, np.ones(len(weight)), none, single=True)

    def take(self, rows: Index, copies: Array) -> Entities:
        """The entities of classes, `rows` (c,) being one row of each."""
        if self.single:
            each = Entities.each(self.weight[rows])
            return replace(each, weight=each.weight * copies)
        return replace(self, of=self.of[rows], part=self.part[rows], rank=self.rank[rows])


class Flow:
    """The state of the filling: `level` reached, what each row has, and which rows are frozen."""

    _asked: float
    _answer: tuple[Array, Array]

    def __init__(self, entities: Entities, *, norm: Array, most: Array, copies: Array) -> None:
        """`norm` (m,) is a row's rate per unit, `most` (m,) the rate at which it is full, `copies` its multiplicity."""
        self._entities, self._norm, self._copies = entities, norm, copies
        self._most = most / norm
        self._amount = np.zeros(len(norm))
        self._live = self._most > 0.0
        self.level = 0.0
        self._plan()

    @property
    def rates(self) -> Array:
        """(m,) the rates at the last freeze."""
        return self._norm * self._amount

    @property
    def end(self) -> float:
        """The level at which every row would be full."""
        return float(self._full[self._live].max())

    def next_top(self) -> float:
        """The level at which the next row is full."""
        return float(self._full[self._live].min())

    def demand(self, level: float) -> Array:
        """(m,) the rates at a level, were nothing to be frozen before."""
        return self._norm * self._at(level)[0]

    def rising(self, level: float) -> Array:
        """(m,) how much rate each row gains per level there."""
        return self._norm * self._at(level)[1]

    def highest(self, costs: Array, room: float, at_most: float = math.inf) -> float:
        """The highest level, up to one, at which costs (m,) @ demand stays within the room."""
        worth = costs * self._norm
        low, high = self.level, min(self.end, at_most)
        if worth @ self._at(high)[0] <= room:
            return high
        level = low
        for _ in range(STEPS):  # Newton's method, within bounds, on a rising and piecewise linear function
            amount, speed = self._at(level)
            over, slope = float(worth @ amount) - room, float(worth @ speed)
            if abs(over) <= TIGHT * room:
                return level
            low, high = (low, level) if over > 0.0 else (level, high)
            step = level - over / slope if slope > 0.0 else np.inf
            level = step if low < step < high else 0.5 * (low + high)
        return low

    def freeze(self, level: float, reach: Array, granted: Array) -> None:
        """Stop at a level, after which no row can rise above its reach (m,). Rows at theirs, and full ones, are done,
        and keep what was granted (m,) if rounding made that a little less."""
        self._amount = self._at(level)[0]
        self._most = np.minimum(self._most, reach / self._norm)
        self._live &= (self._full > level * (1.0 + CLOSE)) & (self._most > self._amount * (1.0 + CLOSE))
        self._amount = np.where(self._live, self._amount, np.minimum(self._amount, granted / self._norm))
        self.level = level
        self._plan()

    @property
    def live(self) -> int:
        """How many rows still rise."""
        return int(self._live.sum())

    def _plan(self) -> None:
        """The levels at which each row starts to rise and is full."""
        self._asked = math.nan
        who = self._entities
        room = np.where(self._live, self._most - self._amount, 0.0)
        part = np.where(self._live, who.part, 0.0) * self._copies
        self._room, self._part = room, part
        if who.single:
            self._own = np.where(self._live, who.weight / self._copies, 0.0)
            self._start = np.full(len(room), self.level)
            self._full = self.level + room * self._copies / who.weight
            return
        ordered = who.in_order[who.of]
        order = np.lexsort((np.where(ordered, who.rank, room / who.part), who.of))
        of = who.of[order]
        whole = np.bincount(who.of, part, minlength=len(who.weight))
        filled = _before((room * self._copies)[order], of)
        others = whole[of] - _before(part[order], of)
        poured = np.where(ordered[order], filled + room[order], filled + (room / who.part)[order] * others)
        self._start, self._full = np.empty(len(of)), np.empty(len(of))
        self._start[order] = self.level + np.where(ordered[order], filled, 0.0) / who.weight[of]
        self._full[order] = self.level + poured / who.weight[of]

    def _at(self, level: float) -> tuple[Array, Array]:
        """The amounts at a level and how fast they rise; the last level is remembered."""
        if level != self._asked:
            self._asked, self._answer = level, self._moved(level)
        return self._answer

    def _moved(self, level: float) -> tuple[Array, Array]:
        who = self._entities
        full = self._full <= level * (1.0 + CLOSE)
        if who.single:
            gained = np.minimum(self._own * (level - self.level), self._room)
            return self._amount + np.where(full, self._room, gained), np.where(full, 0.0, self._own)
        count = len(who.weight)
        poured = who.weight * (level - self.level)
        taken = np.bincount(who.of, np.where(full, self._room * self._copies, 0.0), minlength=count)
        parts = np.bincount(who.of, np.where(full, 0.0, self._part), minlength=count)
        share = 1.0 / np.maximum(parts, 1e-300)
        height = (np.maximum(poured - taken, 0.0) * share)[who.of]
        speed = (who.weight * share)[who.of]
        rising = self._live & ~full
        ordered = who.in_order[who.of]
        started = self._start <= level * (1.0 + CLOSE)
        in_order = (level - self._start) * who.weight[who.of]
        gained = np.where(ordered, np.where(started, in_order, 0.0), who.part * height)
        gains = np.where(ordered, np.where(started, who.weight[who.of], 0.0), who.part * speed)
        amount = self._amount + np.where(full, self._room, np.clip(gained, 0.0, self._room))
        return amount, np.where(rising, gains, 0.0)


def _before(amounts: Array, of: Index) -> Array:
    """For rows sorted by entity, the sum of the amounts before each one in its own entity."""
    total = np.cumsum(amounts) - amounts
    new = np.r_[True, of[1:] != of[:-1]] if len(of) else np.zeros(0, np.bool_)
    first = np.maximum.accumulate(np.where(new, np.arange(len(of)), 0))
    result: Array = total - total[first]
    return result
