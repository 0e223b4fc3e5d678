"""Whether a best-effort group is better off in memory domains without guaranteed work than throttled where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shoal.core import PriorityClass
from shoal.host.types import Control, GroupState, Snapshot

_WORTH = 1.2
"""Moving a group costs it its caches and nearness to its memory: there it must keep at least this multiple of its
share."""
_RETURN_S = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """`domains` None: where it was found. `keeps` is the part of its cores that it has there; a move that cost cores is
    undone after a while to see whether it is still needed, each time after twice as long."""

    domains: frozenset[int] | None = None
    keeps: float = 1.0
    since: float = 0.0
    moves: int = 0


def outside(snapshot: Snapshot) -> frozenset[int]:
    """Domains in which no guaranteed group runs."""
    homes = frozenset().union(*(one.domains for one in snapshot.of(PriorityClass.GUARANTEED)))
    return frozenset(one.domain.id for one in snapshot.domains) - homes


def better_place(
    share: float, state: GroupState, snapshot: Snapshot, places: Mapping[str, Place], place: Place
) -> Place | None:
    """Where else it keeps more than `share`; None if nowhere."""
    away = outside(snapshot)
    if place.domains is not None or Control.DOMAINS not in snapshot.controls or not away:
        return None
    if state.domains <= away:
        return None
    room = sum(len(one.domain.cpus) for one in snapshot.domains if one.domain.id in away)
    for other in snapshot.of(PriorityClass.BEST_EFFORT):
        if other.group.name != state.group.name:
            there = places.get(other.group.name, Place()).domains or other.domains
            room -= other.cores if there <= away else 0
    keeps = min(1.0, room / state.cores)
    if keeps < share * _WORTH:
        return None
    return Place(away, keeps, snapshot.at, place.moves + 1)


def may_return(place: Place, now: float) -> Place | None:
    """Back to where it was found, if its move cost it cores and was long ago."""
    if place.domains is None or place.keeps >= 1 or now - place.since < _RETURN_S * 2 ** min(place.moves - 1, 6):
        return None
    return replace(place, domains=None, keeps=1.0, since=now)
