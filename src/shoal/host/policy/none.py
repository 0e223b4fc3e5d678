"""`none`: limits no group. What every other policy is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core import Reason
from shoal.host.types import Plan, Snapshot


@dataclass(frozen=True, slots=True)
class Nothing:
    """The state of a policy that remembers nothing."""


@dataclass(frozen=True, slots=True)
class NoPolicy:
    name: str = "none"

    def start(self) -> Nothing:
        return Nothing()

    def step(self, snapshot: Snapshot, state: Nothing) -> tuple[Plan, Nothing]:  # noqa: ARG002
        return Plan({}, {"": Reason("no-policy", "no group is limited, whatever happens")}), state
