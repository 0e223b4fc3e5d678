"""Whether a cascade still agrees with its full pipeline, from a sample of the rows that it answers.

A test that is valid at any time: for each of several larger rates a bet against "the rate is at most what was
certified" grows with every disagreement. Their mean is a test martingale, so it reaches 1 / alarm with probability
`alarm` at most, however long the service runs and however often it is looked at (Ville's inequality).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

ALARM = 0.01
"""The probability that a service which never drifts is ever called drifted."""
TIMES = (2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
"""How many times the certified rate the alternatives are: the first find slow drifts, the last sudden ones."""


@dataclass(frozen=True)
class DriftTest:
    """`rate`: of disagreement that was certified, or for regression the mean distance in units of the clip."""

    rate: float
    rows: int = 0
    differing: float = 0.0
    wealth: tuple[float, ...] = (0.0,) * len(TIMES)
    """The logarithm of each bet's."""
    found_at: int | None = None
    """After how many rows the test rejected."""

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ValueError(f"a rate lies between 0 and 1: {self.rate}")

    @property
    def drifted(self) -> bool:
        return self.found_at is not None

    @property
    def evidence(self) -> float:
        """1 for none; the test rejects at 1 / alarm."""
        return math.exp(min(float(np.logaddexp.reduce(self.wealth)) - math.log(len(TIMES)), 700.0))

    def seen(self, distance: float) -> DriftTest:
        """After one more row: 0 where cascade and full pipeline agree, 1 where they do not. Pure."""
        rates = np.minimum(np.array(TIMES) * self.rate, 0.5 + 0.5 * self.rate)
        stakes = (rates - self.rate) / (self.rate * (1.0 - self.rate))
        wealth = np.array(self.wealth) + np.log1p(stakes * (distance - self.rate))
        after = replace(self, rows=self.rows + 1, differing=self.differing + distance, wealth=tuple(wealth.tolist()))
        if self.found_at is None and after.evidence >= 1.0 / ALARM:
            return replace(after, found_at=after.rows)
        return after

    def as_json(self) -> dict[str, Any]:
        return {"rate": self.rate, "rows": self.rows, "differing": self.differing, "wealth": list(self.wealth),
                "found_at": self.found_at}  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DriftTest:
        """Raises ValueError, KeyError or TypeError for what is no test."""
        wealth = tuple(float(one) for one in data["wealth"])
        if len(wealth) != len(TIMES):
            raise ValueError("another number of bets")
        found = data["found_at"]
        made = cls(float(data["rate"]), int(data["rows"]), float(data["differing"]), wealth)
        return replace(made, found_at=None if found is None else int(found))
