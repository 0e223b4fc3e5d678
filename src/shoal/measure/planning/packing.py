"""Packing of demands on servers: its types, what packers may ask, and Nexus' squishy bin packing.

A demand here is a *piece* that one server can carry; the planner splits larger ones first. Whether a set of pieces
holds on a type of server is a `Feasibility`'s business; packers only ask, and the answer is remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shoal.core import Money
from shoal.measure.planning.feasibility import Feasibility, Fit
from shoal.measure.planning.profiles import Demand, ServerType

Members = frozenset[int]
"""Positions of pieces."""


@dataclass(frozen=True, slots=True)
class Bin:
    server: ServerType
    members: Members


@dataclass(frozen=True, slots=True)
class Packing:
    """Every piece is in one bin or `unplaced`. `optimal`: no packing of these pieces leaves fewer unplaced, or as few
    at less cost, as far as the feasibility model tells."""

    bins: tuple[Bin, ...]
    unplaced: Members = frozenset()
    optimal: bool = False

    @property
    def per_hour(self) -> Money:
        return sum((one.server.per_hour for one in self.bins), Money())


class Oracle:
    """A feasibility model that remembers. `asked` counts the sets it looked at; `most` ends a search that asks more.

    Sets in `forbid` do not hold whatever the model says, nor does any that includes one of them.
    """

    def __init__(
        self, pieces: Sequence[Demand], servers: Sequence[ServerType], model: Feasibility, *, most: int = 100_000
    ) -> None:
        self.pieces = pieces
        self.servers = sorted(servers, key=lambda server: (server.per_hour, server.name))
        self.asked = 0
        self._model = model
        self._most = most
        self._forbidden: list[tuple[ServerType, Members]] = []
        self._known: dict[tuple[str, Members], Fit] = {}
        self._weights = {
            server.name: [
                max(model.least_share(piece, server), piece.profile.memory_bytes / max(1, server.memory_bytes))
                for piece in pieces
            ]
            for server in servers
        }

    def fit(self, server: ServerType, members: Members) -> Fit:
        key = (server.name, members)
        if key not in self._known:
            self.asked += 1
            self._known[key] = self._model.judge([self.pieces[at] for at in sorted(members)], server)
        return self._known[key]

    def holds(self, server: ServerType, members: Members) -> bool:
        if any(server == kind and members >= banned for kind, banned in self._forbidden):
            return False
        return self.fit(server, members).holds

    def forbid(self, server: ServerType, members: Members) -> None:
        self._forbidden.append((server, members))

    @property
    def spent(self) -> bool:
        return self.asked >= self._most

    def weight(self, server: ServerType, at: int) -> float:
        """The larger of the shares that the piece takes of the server's slots (at least) and of its memory."""
        return self._weights[server.name][at]

    def choices(self, members: Members) -> list[ServerType]:
        """The types worth considering for a set that holds on them, cheapest first: none beyond the first that can be
        had in any number."""
        found = []
        for server in self.servers:
            if server.limit != 0 and self.holds(server, members):
                found.append(server)
                if server.limit is None:
                    break
        return found


def squishy(oracle: Oracle) -> Packing:
    """Nexus' merging of residual loads (Shen et al., SOSP '19, algorithm 1), the baseline.

    Pieces in falling order of the share they take; each joins the server that is then fullest, if the set holds on it,
    else gets one of its own. Nexus knows one type of server: every type is tried, each finished server then moves to
    the cheapest type on which its pieces hold, and the cheapest of the packings is taken.
    """
    room = {one: one.limit for one in oracle.servers}
    return best(downsized(oracle, _merged(oracle, server), room) for server in oracle.servers)


def _merged(oracle: Oracle, server: ServerType) -> Packing:
    order = sorted(range(len(oracle.pieces)), key=lambda at: -oracle.weight(server, at))
    bins: list[Members] = []
    left: set[int] = set()
    for at in order:
        joined = [(oracle.fit(server, one | {at}).occupancy, number) for number, one in enumerate(bins)
                  if oracle.holds(server, one | {at})]  # fmt: skip
        if joined:
            bins[max(joined)[1]] |= {at}
        elif oracle.holds(server, Members({at})) and _is_left(server.limit, len(bins)):
            bins.append(Members({at}))
        else:
            left.add(at)
    return fill(oracle, Packing(tuple(Bin(server, one) for one in bins), Members(left)))


def fill(oracle: Oracle, packing: Packing) -> Packing:
    """Give each unplaced piece a server of its own, of the cheapest type of which one is left."""
    bins, left = list(packing.bins), set()
    for at in sorted(packing.unplaced):
        used = Counter(one.server for one in bins)
        choices = (one for one in oracle.choices(Members({at})) if _is_left(one.limit, used[one]))
        server = next(choices, None)
        if server is None:
            left.add(at)
        else:
            bins.append(Bin(server, Members({at})))
    return Packing(tuple(bins), Members(left))


def downsized(oracle: Oracle, packing: Packing, room: Mapping[ServerType, int | None]) -> Packing:
    """Move each server to the cheapest type that holds its pieces and of which one is left."""
    used = Counter(one.server for one in packing.bins)
    bins = []
    for one in packing.bins:
        used[one.server] -= 1
        left = (kind for kind in oracle.choices(one.members) if _is_left(room[kind], used[kind]))
        server = next(left, one.server)
        used[server] += 1
        bins.append(replace(one, server=server))
    return replace(packing, bins=tuple(bins))


def best(packings: Iterable[Packing]) -> Packing:
    """The first of those that leave the fewest pieces unplaced and, among them, cost least."""
    return min(packings, key=lambda one: (len(one.unplaced), one.per_hour))


def _is_left(limit: int | None, used: int) -> bool:
    return limit is None or used < limit
