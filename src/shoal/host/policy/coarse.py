"""Limits in whole cores, as hardware without finer means has them: what `core-throttle` and `kelp` turn.

Where a group has one core left (or cores cannot be taken), its share is halved and grows by an eighth instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shoal.host.policy.violation import Quiet, Watch
from shoal.host.types import Control, GroupState, Setting, Snapshot

_GROWTH = 0.125


@dataclass(frozen=True, slots=True)
class Kept:
    """What a group keeps; None: all of it."""

    cores: int | None = None
    share: float = 1.0
    prefetching: int | None = None

    @property
    def whole(self) -> bool:
        return self == Kept()

    def setting(self) -> Setting:
        return Setting(share=self.share, cores=self.cores, prefetching=self.prefetching)


ALL = Kept()


@dataclass(frozen=True, slots=True)
class CoarseState:
    """What each group keeps of which something was taken, and how guaranteed work fared so far."""

    kept: Mapping[str, Kept] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)
    quiet: Quiet = field(default_factory=Quiet)


def fewer_cores(kept: Kept, state: GroupState, snapshot: Snapshot, *, take: int = 1) -> Kept:
    have = state.cores if kept.cores is None else min(kept.cores, state.cores)
    if Control.CORES in snapshot.controls and have > 1:
        return Kept(max(1, have - take), kept.share, kept.prefetching)
    if Control.SHARE not in snapshot.controls:
        return kept
    floor = max(state.group.min_share, snapshot.least_share)
    return Kept(kept.cores, min(1.0, max(floor, kept.share / 2)), kept.prefetching)


def more_cores(kept: Kept, state: GroupState) -> Kept:
    """The share first, as it was taken last."""
    if kept.share < 1:
        return Kept(kept.cores, min(1.0, kept.share + _GROWTH), kept.prefetching)
    if kept.cores is not None:
        cores = kept.cores + 1
        return Kept(None if cores >= state.cores else cores, 1.0, kept.prefetching)
    return kept


def fewer_prefetchers(kept: Kept, state: GroupState, snapshot: Snapshot) -> Kept | None:
    """Half as many cores prefetch; None if none does, or nothing can switch prefetchers."""
    on = state.cores if kept.prefetching is None else kept.prefetching
    if Control.PREFETCHING not in snapshot.controls or on == 0:
        return None
    return Kept(kept.cores, kept.share, on // 2)


def more_prefetchers(kept: Kept, state: GroupState) -> Kept:
    if kept.prefetching is None:
        return kept
    on = kept.prefetching + 1
    return Kept(kept.cores, kept.share, None if on >= state.cores else on)
