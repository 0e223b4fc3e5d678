"""Beliefs about how long spot capacity stays and stays away: hazards by age, learned from other zones and from what the
job sees.

Ages fall into classes. Inside a class the hazard is constant, so that a class is a state of a Markov chain; capacity
that has been there for long tends to stay, which one rate for all ages misses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.market.history import Floats, Integers
from shoal.market.ticks import Bools

CLASSES_S = (1_200.0, 3_600.0, 4 * 3_600.0, 12 * 3_600.0)
"""Where age classes end; the last is open."""
COUNT = len(CLASSES_S) + 1


def classes(tick_s: float) -> Floats:
    """The mean number of ticks that an instance of this age spends in each class, the last without end."""
    widths = np.diff(np.concatenate([[0.0], CLASSES_S])) / tick_s
    return np.concatenate([np.maximum(widths, 1.0), [np.inf]])


def class_of(age: int, tick_s: float) -> int:
    return int(np.searchsorted(CLASSES_S, age * tick_s, side="right"))


@dataclass(frozen=True)
class Rates:
    """Counts by age class: ticks seen and ends seen, of capacity that was there (row 1) and that was not (row 0).
    `moves` of `together` ticks ended the instance of one zone while another had some."""

    seen: Floats
    ended: Floats
    moves: float = 0.0
    together: float = 0.0

    @classmethod
    def none(cls) -> Rates:
        return cls(np.zeros((2, COUNT)), np.zeros((2, COUNT)))

    def __add__(self, other: Rates) -> Rates:
        return Rates(
            self.seen + other.seen, self.ended + other.ended, self.moves + other.moves, self.together + other.together
        )

    def weighed(self, most: float) -> Rates:
        """The same rates, worth at most this number of ticks of each class: observations of others count less than
        one's own."""
        factor = np.minimum(1.0, most / np.maximum(self.seen, 1e-9))
        share = min(1.0, most / max(self.together, 1e-9))
        return Rates(self.seen * factor, self.ended * factor, self.moves * share, self.together * share)

    @property
    def hazards(self) -> Floats:
        """Ends per tick; a class that was never seen has that of the class before it."""
        found = np.empty((2, COUNT))
        for row in range(2):
            before = float((self.ended[row].sum() + 0.5) / (self.seen[row].sum() + 10.0))
            for at in range(COUNT):
                before = (self.ended[row, at] + 4 * before) / (self.seen[row, at] + 4)
                found[row, at] = before
        return np.clip(found, 1e-5, 1 - 1e-5)

    @property
    def switch(self) -> float:
        """The part of ticks in which an instance ends although another zone has some."""
        return (self.moves + 0.02) / (self.together + 2.0) if self.together else 0.0


def learn(up: Bools, tick_s: float) -> Rates:
    """From which zones (columns) had capacity at each tick; several zones count as one that has some if any has."""
    rates = Rates.none()
    if len(up) < 2 or not up.shape[1]:
        return rates
    some: Bools = np.asarray(up.any(axis=1))
    ages = age_of(some)
    state = some[:-1].astype(int)
    group = np.searchsorted(CLASSES_S, ages[:-1] * tick_s, side="right")
    np.add.at(rates.seen, (state, group), 1.0)
    np.add.at(rates.ended, (state, group), (some[1:] != some[:-1]).astype(float))
    if up.shape[1] == 1:
        return rates
    kept = some[1:]
    each = (up[:-1] & ~up[1:])[kept].sum() / max(up[:-1][kept].sum(), 1)
    return Rates(rates.seen, rates.ended, float(each * kept.sum()), float(kept.sum()))


def age_of(some: Bools) -> Integers:
    """For each tick, for how many ticks before it the state was the same."""
    ticks = np.arange(len(some))
    changed = np.concatenate([[True], some[1:] != some[:-1]])
    return np.asarray(ticks - np.maximum.accumulate(np.where(changed, ticks, 0)), dtype=np.int64)
