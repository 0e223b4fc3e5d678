"""`kelp`: after Kelp (Zhu et al., HPCA'19): own memory domains for best-effort work, prefetchers off first, then fewer
cores, back in the opposite order; and *backfill*: it may use free cores of the guaranteed domain while that has room.

"After": the watermarks are fixed instead of profiled, and the period is a tick instead of ten seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shoal.core import PriorityClass, Reason
from shoal.host.policy.coarse import (
    ALL,
    CoarseState,
    Kept,
    fewer_cores,
    fewer_prefetchers,
    more_cores,
    more_prefetchers,
)
from shoal.host.policy.placing import outside
from shoal.host.policy.violation import look, lowest
from shoal.host.policy.watermarks import Pressure, pressure
from shoal.host.types import Control, GroupState, Plan, Setting, Snapshot


@dataclass(frozen=True, slots=True)
class KelpState(CoarseState):
    """`lent` is how many cores of guaranteed domains each group may use."""

    lent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kelp:
    name: str = "kelp"

    def start(self) -> KelpState:
        return KelpState()

    def step(self, snapshot: Snapshot, state: KelpState) -> tuple[Plan, KelpState]:
        quiet = lowest(state.quiet, snapshot)
        seen = look(snapshot, state.watch, quiet)
        found = pressure(snapshot, seen, quiet)
        if seen.worst is not None and found is Pressure.LOW and seen.hold:
            found = Pressure.MIDDLE
        groups = snapshot.of(PriorityClass.BEST_EFFORT)
        if found is Pressure.UNKNOWN and not seen.hold:
            reason = Reason("blind", "nothing tells how memory or guaranteed work fares: limits are lifted")
            return Plan({}, {one.group.name: reason for one in groups}), KelpState({}, seen.watch, quiet)
        away = outside(snapshot)
        separate = bool(away) and Control.DOMAINS in snapshot.controls and Control.CORES in snapshot.controls
        lent = _lend(groups, state.lent, found) if separate else {}
        settings: dict[str, Setting] = {}
        reasons: dict[str, Reason] = {}
        remembered: dict[str, Kept] = {}
        for one in groups:
            name = one.group.name
            kept, done = _turn(state.kept.get(name, ALL), one, snapshot, found, backfilled=bool(state.lent))
            if not kept.whole:
                remembered[name] = kept
            setting = kept.setting()
            if separate:
                setting = _placed(setting, one, groups, snapshot, away, lent.get(name, 0))
            if setting != Setting():
                settings[name] = setting
            text = f"memory pressure is {found.value}: {done}"
            reasons[name] = Reason("watermarks", text, {"pressure": found.value, "lent_cores": lent.get(name, 0)})
        return Plan(settings, reasons), KelpState(remembered, seen.watch, quiet, lent)


def _turn(kept: Kept, one: GroupState, snapshot: Snapshot, found: Pressure, *, backfilled: bool) -> tuple[Kept, str]:
    """One escalation level up or down. Lent cores go back before anything of its own is taken."""
    if found is Pressure.HIGH:
        if backfilled:
            return kept, "lent cores go back"
        fewer = fewer_prefetchers(kept, one, snapshot)
        if fewer is not None:
            return fewer, f"prefetchers on for {fewer.prefetching} of {one.cores} cores"
        return fewer_cores(kept, one, snapshot), "fewer cores"
    if found is Pressure.LOW:
        if kept.cores is not None or kept.share < 1:
            return more_cores(kept, one), "more cores"
        return more_prefetchers(kept, one), "prefetchers of one core more"
    return kept, "held"


def _lend(groups: tuple[GroupState, ...], lent: Mapping[str, int], found: Pressure) -> dict[str, int]:
    """One core more to the group with the fewest for its size, or one back from the group with most."""
    now = {name: count for name, count in lent.items() if count > 0}
    if found is Pressure.LOW and groups:
        name = min(groups, key=lambda one: now.get(one.group.name, 0) / one.cores).group.name
        most = {one.group.name: one.cores for one in groups}[name]
        now[name] = min(most, now.get(name, 0) + 1)
    elif found is Pressure.HIGH and now:
        name = max(now, key=lambda one: now[one])
        now[name] -= 1
    return {name: count for name, count in now.items() if count > 0}


def _placed(
    setting: Setting,
    one: GroupState,
    groups: tuple[GroupState, ...],
    snapshot: Snapshot,
    away: frozenset[int],
    lent: int,
) -> Setting:
    """Its part of the cores outside, and the lent ones."""
    room = sum(len(home.domain.cpus) for home in snapshot.domains if home.domain.id in away)
    part = max(1, room * one.cores // max(1, sum(other.cores for other in groups)))
    if not lent or part >= one.cores:
        return replace(setting, domains=away)
    cores = min(one.cores if setting.cores is None else setting.cores, part + lent)
    everywhere = frozenset(home.domain.id for home in snapshot.domains)
    return replace(setting, domains=everywhere, cores=cores)
