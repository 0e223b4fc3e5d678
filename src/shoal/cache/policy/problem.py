"""The question that a cache policy answers, and the shape of the answer.

N tenants, M data sets. A tenant's utility is additive: `benefit[i, j]` is what it saves when all of set j is held
already, and a part of the set saves that part of it. What is not held yet has to be loaded, which costs `loading[j]`
for the whole set, shared by the tenants in proportion to `use[i, j]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from shoal.core import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

TINY = 1e-12
"""Below this share of the largest, a benefit, a size or a fraction is nothing: what floating point leaves over."""


class Mode(StrEnum):
    """How a set may be held: any part of it, or all of it with some probability."""

    FRACTION = "fraction"
    LOTTERY = "lottery"


@dataclass(frozen=True, slots=True)
class Problem:
    """Shapes: weight (N,); size, held and loading (M,); benefit and use (N, M). `size` and `capacity` share a unit, and
    so do `benefit` and `loading`. `held` is the part of each set that is cached now; 0 or 1 for a lottery."""

    mode: Mode
    capacity: float
    tenants: tuple[str, ...]
    weight: Array
    sets: tuple[str, ...]
    size: Array
    benefit: Array
    held: Array
    loading: Array
    use: Array

    @classmethod
    def of(
        cls, mode: Mode, capacity: float, size: Sequence[float] | Array, benefit: Array, *,
        tenants: Sequence[str] = (), sets: Sequence[str] = (), weight: Sequence[float] | Array | None = None,
        held: Sequence[float] | Array | None = None, loading: Array | None = None, use: Array | None = None,
    ) -> Problem:  # fmt: skip
        """From arrays; what is left out: equal weights, nothing held, loading free, use as the benefit is.
        Raises Invalid for numbers that mean nothing."""
        benefit = np.asarray(benefit, np.float64)
        count, width = benefit.shape
        made = cls(
            mode, float(capacity), tuple(tenants) or tuple(f"t{at}" for at in range(count)),
            np.ones(count) if weight is None else np.asarray(weight, np.float64),
            tuple(sets) or tuple(f"s{at}" for at in range(width)), np.asarray(size, np.float64), benefit,
            np.zeros(width) if held is None else np.asarray(held, np.float64),
            np.zeros(width) if loading is None else loading, benefit if use is None else use,
        )  # fmt: skip
        made.check()
        return made

    def check(self) -> None:
        """Raises Invalid for a negative, infinite or undefined number."""
        for name, values in (
            ("capacity", np.array([self.capacity])), ("weight", self.weight), ("size", self.size),
            ("benefit", self.benefit), ("loading", self.loading), ("use", self.use),
        ):  # fmt: skip
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise Invalid(f"a {name} is negative, infinite or not a number", where=name)
        if not ((self.held >= 0) & (self.held <= 1)).all():
            raise Invalid("a cached part lies outside 0 to 1", where="cached")

    @property
    def fresh(self) -> Array:
        """(N, M): what each tenant saves by a set that has to be loaded first. Never negative: it may do without."""
        if not self.loading.any():
            return self.benefit
        total = self.use.sum(0)
        share = np.divide(self.use, total, out=np.zeros_like(self.use), where=total > 0)
        found: Array = np.maximum(self.benefit - share * self.loading, 0.0)
        return found

    def items(self) -> Items:
        """What a solver chooses from: the held and the new part of each set, or for a lottery whole sets."""
        everything = np.arange(len(self.size))
        if self.mode is Mode.LOTTERY:
            value = np.where(self.held > 0, self.benefit, self.fresh)
            return Items(everything, np.ones(len(self.size)), np.maximum(self.size, TINY * self.capacity), value)
        old, new = np.flatnonzero(self.held > 0), np.flatnonzero(self.held < 1)
        of = np.concatenate([old, new])
        part = np.concatenate([self.held[old], 1.0 - self.held[new]])
        value = np.concatenate([self.benefit[:, old], self.fresh[:, new]], axis=1) * part
        return Items(of, part, np.maximum(self.size[of] * part, TINY * self.capacity), value)


@dataclass(frozen=True, slots=True)
class Items:
    """K parts of sets: item k is the part `part[k]` of the set `of[k]`; its `size` (K,) and `value` (N, K) are those of
    all of that part."""

    of: NDArray[np.intp]
    part: Array
    size: Array
    value: Array


@dataclass(frozen=True, slots=True)
class Configuration:
    """One possible content of the cache and its probability; `fractions` (M,) are the parts of the sets."""

    probability: float
    fractions: Array


@dataclass(frozen=True, slots=True)
class Allocation:
    """The content of the cache: one configuration for sure, or a lottery over several. Probabilities add up to 1."""

    configurations: tuple[Configuration, ...]

    @classmethod
    def certain(cls, fractions: Array) -> Allocation:
        return cls((Configuration(1.0, fractions),))

    @property
    def fractions(self) -> Array:
        """(M,): the expected part of each set."""
        found: Array = np.sum([one.probability * one.fractions for one in self.configurations], axis=0)
        return found

    def utility(self, problem: Problem) -> Array:
        """(N,): what each tenant is expected to save."""
        contents = np.array([one.fractions for one in self.configurations])
        kept = np.minimum(contents, problem.held)
        chances = np.array([one.probability for one in self.configurations])
        found: Array = problem.benefit @ (chances @ kept) + problem.fresh @ (chances @ (contents - kept))
        return found

    def draw(self, number: float) -> Configuration:
        """The configuration at `number`, from 0 up to 1, of the cumulated probabilities."""
        total = 0.0
        for one in self.configurations:
            total += one.probability
            if number < total:
                return one
        return self.configurations[-1]
