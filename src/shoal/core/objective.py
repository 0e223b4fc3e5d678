"""What a workload's owner wants kept. `None` stands for no objective."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core.money import Money


@dataclass(frozen=True, slots=True)
class P99Latency:
    latency_s: float

    def __post_init__(self) -> None:
        if not self.latency_s > 0:
            raise ValueError(f"a latency objective must be positive: {self.latency_s}")


@dataclass(frozen=True, slots=True)
class Deadline:
    at: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class CostCap:
    cap: Money


Objective = P99Latency | Deadline | CostCap
