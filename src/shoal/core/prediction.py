"""Predictions as values: what the components that plan take from the one that predicts, without knowing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted number: the truth lies between `low` and `high` in a part `level` of all cases, below `median` in
    half of them. `source` is a sentence that says what it was inferred from."""

    median: float
    low: float
    high: float
    level: float
    source: str

    def __post_init__(self) -> None:
        if not self.low <= self.median <= self.high:
            raise ValueError(f"an estimate of {self.median:g} lies outside its interval {self.low:g} to {self.high:g}")
        if not 0 < self.level < 1:
            raise ValueError(f"the level of an interval lies between 0 and 1, not {self.level:g}")

    def inverse(self) -> Estimate:
        """Of one over the number, as steps per second from seconds per step. The number must be positive."""
        return Estimate(1 / self.median, 1 / self.high, 1 / self.low, self.level, self.source)

    def scaled(self, factor: float) -> Estimate:
        """Of the number times something positive that is known."""
        return Estimate(self.median * factor, self.low * factor, self.high * factor, self.level, self.source)

    def later(self, seconds: float) -> Estimate:
        """Of the number plus something that is known, as a time from how long it is until then."""
        return Estimate(self.median + seconds, self.low + seconds, self.high + seconds, self.level, self.source)

    def as_json(self) -> dict[str, Any]:
        return {"median": self.median, "low": self.low, "high": self.high, "level": self.level, "source": self.source}


class Lifetimes(Protocol):
    """How long transient servers live."""

    def survival(self, kind: str, region: str, age_s: float, ahead_s: float) -> float:
        """The probability that a server of this kind of accelerator, of this age, is still there `ahead_s` later."""
        ...


class Speeds(Protocol):
    """How fast jobs run where they have not run yet."""

    def steps_per_s(self, job: str, kind: str, workers: int = 1) -> Estimate | None:
        """Steps of a kind of job per second of the whole gang; None where nothing is known of either kind."""
        ...
