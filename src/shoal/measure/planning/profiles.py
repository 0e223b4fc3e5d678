"""Profiles of models before they are placed: execution times by batch size, memory, load time, and what is asked.

A `ModelProfile` says how a model behaves, a `Demand` what one tenant wants of it, a `ServerType` what can be rented.
Planner and simulator read the same three, so a plan can be checked by simulating just what it was made from.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from shoal.core import Invalid, Money
from shoal.measure.types import Floats


@dataclass(frozen=True)
class ExecutionTime:
    """How long one execution of a batch takes, as a quantile function.

    `quantiles` are (share, seconds), rising in both; between two of them the function is linear, before the first and
    after the last it is constant. The last one is therefore the longest execution there is: give the maximum seen.
    Raises Invalid.
    """

    batch: int
    quantiles: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.quantiles]
        seconds = [value for _, value in self.quantiles]
        if self.batch < 1 or not self.quantiles:
            raise Invalid(
                f"a batch of {self.batch} with {len(shares)} quantiles", where="times", hint="at least 1 each"
            )
        if not all(0 <= share <= 1 for share in shares) or any(b <= a for a, b in pairwise(shares)):
            raise Invalid(f"shares must rise from 0 to 1: {shares}", where=f"times of batch {self.batch}")
        if not all(0 < value < math.inf for value in seconds) or any(b < a for a, b in pairwise(seconds)):
            raise Invalid(f"seconds must be positive and not fall: {seconds}", where=f"times of batch {self.batch}")

    @classmethod
    def constant(cls, seconds: float, *, batch: int = 1) -> ExecutionTime:
        return cls(batch, ((0.0, seconds), (1.0, seconds)))

    @classmethod
    def measured(cls, seconds: Sequence[float], *, batch: int = 1) -> ExecutionTime:
        """From single executions: 21 quantiles from the smallest to the largest."""
        shares = np.linspace(0.0, 1.0, 21)
        values = np.quantile(np.asarray(seconds, dtype=np.float64), shares)
        return cls(batch, tuple(zip(shares.tolist(), values.tolist(), strict=True)))

    @cached_property
    def pieces(self) -> tuple[Floats, Floats, Floats]:
        """The distribution as a mix of uniform ones: their weights, lower and upper ends, each of shape (pieces,)."""
        shares = [0.0, *(share for share, _ in self.quantiles), 1.0]
        seconds = [self.quantiles[0][1], *(value for _, value in self.quantiles), self.quantiles[-1][1]]
        weights = np.diff(shares)
        kept = weights > 0
        return weights[kept], np.array(seconds[:-1])[kept], np.array(seconds[1:])[kept]

    @cached_property
    def mean_s(self) -> float:
        weights, low, high = self.pieces
        return float(weights @ (low + high) / 2)

    @property
    def longest_s(self) -> float:
        return self.quantiles[-1][1]

    def quantile(self, share: float) -> float:
        return float(np.interp(share, [one for one, _ in self.quantiles], [value for _, value in self.quantiles]))

    def above(self, seconds: float) -> float:
        """The share of executions that take longer."""
        weights, low, high = self.pieces
        inside = np.clip((high - seconds) / np.where(high > low, high - low, 1.0), 0, 1)
        return float(weights @ np.where(high > low, inside, high > seconds))

    def sample(self, rng: np.random.Generator, count: int) -> Floats:
        """Shape (count,), in seconds."""
        shares, seconds = zip(*self.quantiles, strict=True)
        return np.asarray(np.interp(rng.random(count), shares, seconds))


@dataclass(frozen=True)
class ModelProfile:
    """A model as it was measured alone on the reference server.

    `times` rise by batch size, the first for a batch of 1. `slots` are the compute slots that one execution occupies;
    `load_s` is the time from nothing to the first answer.
    """

    name: str
    times: tuple[ExecutionTime, ...]
    memory_bytes: int = 0
    load_s: float = 0.0
    slots: int = 1

    def __post_init__(self) -> None:
        batches = [time.batch for time in self.times]
        if not batches or batches[0] != 1 or any(b <= a for a, b in pairwise(batches)):
            raise Invalid(f"batch sizes must rise from 1: {batches}", where=f"profile {self.name}")
        if self.memory_bytes < 0 or self.load_s < 0 or self.slots < 1:
            raise Invalid("memory and load time cannot be negative, and slots are at least 1", where=self.name)

    def __hash__(self) -> int:
        return hash(self.name)  # the rest, many numbers, only tells namesakes apart

    @property
    def max_batch(self) -> int:
        return self.times[-1].batch

    def up_to(self, batch: int) -> ModelProfile:
        """The same model with smaller batches."""
        if batch >= self.max_batch:
            return self
        return replace(self, times=(*(time for time in self.times if time.batch < batch), self.time(batch)))

    def time(self, batch: int = 1) -> ExecutionTime:
        """Between two profiled sizes the times are interpolated, quantile by quantile."""
        if not 1 <= batch <= self.max_batch:
            raise ValueError(f"{self.name} was profiled for batches of 1 to {self.max_batch}, not {batch}")
        at = bisect_left([time.batch for time in self.times], batch)
        above = self.times[at]
        if above.batch == batch:
            return above
        below = self.times[at - 1]
        part = (batch - below.batch) / (above.batch - below.batch)
        shares = sorted({share for time in (below, above) for share, _ in time.quantiles})
        return ExecutionTime(
            batch, tuple((share, below.quantile(share) * (1 - part) + above.quantile(share) * part) for share in shares)
        )

    @cached_property
    def best_item_s(self) -> float:
        """The least slot-seconds that one request can cost, at the most efficient batch size."""
        return self.slots * min(time.mean_s / time.batch for time in self.times)


@dataclass(frozen=True, slots=True)
class Demand:
    """What one tenant wants of a model: `rate_per_s` requests, of which a share `quantile` within `slo_s`.

    Requests arrive in bursts at Poisson times, `burst` of them in the mean (geometrically distributed). A burst of 1
    is a Poisson process. An index of dispersion I (variance over mean of a count) is matched by (I + 1) / 2.
    """

    profile: ModelProfile
    rate_per_s: float
    slo_s: float
    quantile: float = 0.99
    burst: float = 1.0
    tenant: str = ""

    def __post_init__(self) -> None:
        if not (0 <= self.rate_per_s < math.inf and 0 < self.slo_s < math.inf):
            raise Invalid("a rate must be finite and not negative, an objective positive", where=self.name)
        if not (0 < self.quantile < 1 and 1 <= self.burst < math.inf):
            raise Invalid("quantile must lie in (0, 1), burst be at least 1", where=self.name)

    @property
    def name(self) -> str:
        """`tenant/model`, or the model alone."""
        return f"{self.tenant}/{self.profile.name}" if self.tenant else self.profile.name


@dataclass(frozen=True, slots=True)
class ServerType:
    """A kind of server: `slots` executions of one slot run at once, each `speed` times as fast as on the reference.

    `limit` is how many can be had, None for any number.
    """

    name: str
    per_hour: Money
    slots: int = 1
    memory_bytes: int = 0
    speed: float = 1.0
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.slots < 1 or self.memory_bytes < 0 or not 0 < self.speed < math.inf or self.per_hour < Money():
            raise Invalid("slots are at least 1, speed is positive, memory and price not negative", where=self.name)
        if self.limit is not None and self.limit < 0:
            raise Invalid(f"a limit cannot be negative: {self.limit}", where=self.name)
