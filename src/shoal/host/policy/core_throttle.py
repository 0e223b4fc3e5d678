"""`core-throttle`: whole cores are taken from best-effort work while guaranteed work is too slow, and given back one
by one (after the core and memory controller of Heracles, Lo et al., ISCA'15; the prior work that Kelp compares with).

All best-effort groups are one to it: each loses cores, whichever of them disturbs.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core import PriorityClass, Reason
from shoal.host.policy.coarse import ALL, CoarseState, Kept, fewer_cores, more_cores
from shoal.host.policy.violation import look, lowest
from shoal.host.types import Plan, Snapshot

_HIGH, _LOW = 1.0, 0.5
_FAR = 3.0
"""A violation at which half of the cores go at once."""


@dataclass(frozen=True, slots=True)
class CoreThrottle:
    name: str = "core-throttle"

    def start(self) -> CoarseState:
        return CoarseState()

    def step(self, snapshot: Snapshot, state: CoarseState) -> tuple[Plan, CoarseState]:
        quiet = lowest(state.quiet, snapshot)
        seen = look(snapshot, state.watch, quiet)
        kept: dict[str, Kept] = {}
        reasons: dict[str, Reason] = {}
        for one in snapshot.of(PriorityClass.BEST_EFFORT):
            name = one.group.name
            before = state.kept.get(name, ALL)
            if seen.worst is None:
                kept[name] = before if seen.hold else ALL
                reasons[name] = Reason("blind", "nothing tells how guaranteed work fares: " + (
                    "limits are held" if seen.hold else "limits are lifted"
                ))  # fmt: skip
                continue
            violation = seen.worst.value
            facts = {"violation": round(violation, 3), "by": seen.worst.sensor.value, "of": seen.worst.group}
            if violation > _HIGH:
                take = max(1, (before.cores or one.cores) // 2) if violation > _FAR else 1
                kept[name] = fewer_cores(before, one, snapshot, take=take)
                reasons[name] = Reason("too-slow", f"{seen.worst.group} is too slow: fewer cores", facts)
            elif violation < _LOW and not seen.hold:
                kept[name] = more_cores(before, one)
                reasons[name] = Reason("has-room", f"{seen.worst.group} has room: a core more", facts)
            else:
                kept[name] = before
                reasons[name] = Reason("in-band", f"{seen.worst.group} is within what is allowed", facts)
        settings = {name: one.setting() for name, one in kept.items() if not one.whole}
        remembered = {name: one for name, one in kept.items() if not one.whole}
        return Plan(settings, reasons), CoarseState(remembered, seen.watch, quiet)
