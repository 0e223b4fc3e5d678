"""Policies that remember nothing.

`none` limits no group: what every other policy is compared with. `static` gives every best-effort group the same share,
always: it protects, and pays for it when nothing contends.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core import Invalid, PriorityClass, Reason
from shoal.host.types import Plan, Setting, Snapshot


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


@dataclass(frozen=True, slots=True)
class Static:
    share: float = 0.1
    name: str = "static"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise Invalid(f"a share of {self.share} is not possible", where="share", hint="between 0 and 1")

    def start(self) -> Nothing:
        return Nothing()

    def step(self, snapshot: Snapshot, state: Nothing) -> tuple[Plan, Nothing]:
        settings, reasons = {}, {}
        for one in snapshot.of(PriorityClass.BEST_EFFORT):
            share = max(self.share, one.group.min_share, snapshot.least_share)
            settings[one.group.name] = Setting(share=min(1.0, share))
            reasons[one.group.name] = Reason(
                "fixed-share", f"always {share:.0%} of its cores' access to memory", {"share": share}
            )
        return Plan(settings, reasons), state
