"""`subdomain`: best-effort work has its own memory domains, for good; what still leaks is met by switching its
prefetchers off (Kelp without backfill: it isolates well, and strands the guaranteed domain's free cores).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shoal.core import PriorityClass, Reason
from shoal.host.policy.coarse import ALL, CoarseState, Kept, fewer_prefetchers, more_prefetchers
from shoal.host.policy.placing import outside
from shoal.host.policy.violation import look, lowest
from shoal.host.policy.watermarks import Pressure, pressure
from shoal.host.types import Control, Plan, Setting, Snapshot


@dataclass(frozen=True, slots=True)
class Subdomain:
    name: str = "subdomain"

    def start(self) -> CoarseState:
        return CoarseState()

    def step(self, snapshot: Snapshot, state: CoarseState) -> tuple[Plan, CoarseState]:
        quiet = lowest(state.quiet, snapshot)
        seen = look(snapshot, state.watch, quiet)
        found = pressure(snapshot, seen, quiet)
        away = outside(snapshot)
        domains = away if away and Control.DOMAINS in snapshot.controls else None
        settings: dict[str, Setting] = {}
        reasons: dict[str, Reason] = {}
        remembered: dict[str, Kept] = {}
        for one in snapshot.of(PriorityClass.BEST_EFFORT):
            name = one.group.name
            kept = state.kept.get(name, ALL)
            if found is Pressure.HIGH:
                kept = fewer_prefetchers(kept, one, snapshot) or kept
            elif found is Pressure.LOW:
                kept = more_prefetchers(kept, one)
            elif found is Pressure.UNKNOWN and not seen.hold:
                kept = ALL
            if not kept.whole:
                remembered[name] = kept
            if not kept.whole or domains is not None:
                settings[name] = replace(kept.setting(), domains=domains)
            reasons[name] = Reason(
                "own-domains" if domains else "one-domain",
                f"runs where no guaranteed work does; memory pressure is {found.value}" if domains
                else f"there is no other memory domain; memory pressure is {found.value}",
                {"domains": sorted(away), "pressure": found.value},
            )  # fmt: skip
        return Plan(settings, reasons), CoarseState(remembered, seen.watch, quiet)
