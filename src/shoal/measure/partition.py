"""Packing at least cost, exactly where that can be done: set partitioning over columns.

A column is a set of pieces on a type of server on which it holds; wanted are columns that cover every piece at least
cost. If all columns can be listed, HiGHS finds the optimum. Else columns are generated as the prices of the linear
relaxation ask for them (Gilmore and Gomory 1961), beginning with squishy's, and the packing found is then improved by
taking a few servers apart and packing their pieces anew, exactly (large neighbourhood search: Shaw 1998).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from shoal.core import Money
from shoal.measure.feasibility import Feasibility, static_limits
from shoal.measure.packing import Bin, Members, Oracle, Packing, best, downsized, squishy
from shoal.measure.profiles import Demand, ServerType

Floats = NDArray[np.float64]

_NODES = 300
"""Branches after which HiGHS hands over the best it has."""
_STARTS = 12
_APART = 14
"""So many pieces are packed anew at once."""
_APART_COLUMNS = 4_000


def pack(oracle: Oracle, *, columns: int = 10_000, rounds: int = 40, seed: int = 0) -> Packing:
    """Never worse than `squishy`. Lists at most so many `columns`; if there are more, generates and improves for so
    many `rounds` each, or until the oracle was asked enough."""
    if not oracle.pieces:
        return Packing((), optimal=True)
    first = squishy(oracle)
    whole = _Part(oracle, tuple(range(len(oracle.pieces))), {one: one.limit for one in oracle.servers})
    listed = whole.every_column(columns)
    if listed is not None:
        found, proven = whole.solve(listed)
        return replace(best((found, first)), optimal=proven)
    rng = np.random.default_rng(seed)
    found, _ = whole.solve(whole.generated(first, rounds, rng))
    return _improved(oracle, best((found, first)), rounds, rng)


def _improved(oracle: Oracle, packing: Packing, rounds: int, rng: np.random.Generator) -> Packing:
    """Take servers apart, again and again, and keep what became cheaper."""
    for _ in range(rounds):
        if len(packing.bins) < 2 or oracle.spent:
            break
        apart: list[Bin] = []
        pieces = packing.unplaced
        for number in rng.permutation(len(packing.bins)).tolist():
            one = packing.bins[number]
            if not apart or len(pieces) + len(one.members) <= _APART:
                apart.append(one)
                pieces |= one.members
        kept = [one for one in packing.bins if one not in apart]
        used = Counter(one.server for one in kept)
        room = {one: None if one.limit is None else one.limit - used[one] for one in oracle.servers}
        part = _Part(oracle, tuple(sorted(pieces)), room)
        columns = part.every_column(_APART_COLUMNS)
        if columns is not None:
            again, _ = part.solve(columns)
            packing = best((packing, Packing((*kept, *again.bins), again.unplaced)))
    return packing


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the pieces, and how many servers of each type they may have (None: any number)."""

    oracle: Oracle
    pieces: tuple[int, ...]
    room: Mapping[ServerType, int | None]

    def every_column(self, most: int) -> list[Bin] | None:
        """Every set that holds, by growing size: one larger can hold only if all sets one smaller do (Apriori: Agrawal
        and Srikant 1994). None if there are too many."""
        found: list[Bin] = []
        level = {Members({at}): self.oracle.choices(Members({at})) for at in self.pieces}
        while level:
            level = {members: servers for members, servers in level.items() if servers}
            found += [Bin(server, members) for members, servers in level.items() for server in servers]
            grown: dict[Members, list[ServerType]] = {}
            for members in level:
                last = max(members)
                for at in self.pieces:
                    larger = members | {at}
                    if at > last and all(larger - {one} in level for one in members):
                        if self.oracle.spent or len(found) + len(grown) > most:
                            return None
                        grown[larger] = self.oracle.choices(larger)
            level = grown
        return found

    def generated(self, first: Packing, rounds: int, rng: np.random.Generator) -> list[Bin]:
        """Columns that the linear relaxation found worth having."""
        columns = dict.fromkeys(first.bins)
        for at in self.pieces:
            columns.update((Bin(server, Members({at})), None) for server in self.oracle.choices(Members({at})))
        for _ in range(rounds):
            prices, rents = self._prices(list(columns))
            new = [one for one in self._promising(prices, rents, rng) if one not in columns]
            if not new or self.oracle.spent:
                break
            columns.update(dict.fromkeys(new))
        return list(columns)

    def solve(self, columns: Sequence[Bin]) -> tuple[Packing, bool]:
        """The best choice among these columns, and whether it is proven to be. Pieces that are covered twice are taken
        out of one of their servers."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        nothing = Packing((), Members(self.pieces))
        if not columns:
            return nothing, True
        costs, rows, most = self._program(columns)
        solved = milp(
            costs,
            integrality=np.ones(len(costs)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(rows, ub=most),
            options={"mip_rel_gap": 0.0, "node_limit": _NODES},
        )
        if solved.x is None:
            return nothing, False
        taken = [one for one, part in zip(columns, solved.x, strict=False) if part > 0.5]
        bins, covered = [], Members()
        for one in sorted(taken, key=lambda one: (-len(one.members), sorted(one.members))):
            if rest := one.members - covered:
                bins.append(replace(one, members=rest))
                covered |= rest
        packing = downsized(self.oracle, Packing(tuple(bins), Members(self.pieces) - covered), self.room)
        if not all(self.oracle.holds(one.server, one.members) for one in packing.bins):
            return nothing, False  # the model is not monotone here: a part of a set that holds does not
        return packing, solved.status == 0

    def _program(self, columns: Sequence[Bin]) -> tuple[Floats, Floats, Floats]:
        """Costs (columns + pieces,) in dollars per hour, rows and their upper bounds. The variables after the columns
        leave a piece out, which costs more than any packing; the first rows cover the pieces, the others are limits."""
        count, limited = len(self.pieces), [one for one, room in self.room.items() if room is not None]
        row_of = {at: row for row, at in enumerate(self.pieces)}
        rows = np.zeros((count + len(limited), len(columns) + count))
        for number, one in enumerate(columns):
            rows[[row_of[at] for at in one.members], number] = -1.0
            if one.server in limited:
                rows[count + limited.index(one.server), number] = 1.0
        rows[:count, len(columns) :] = -np.eye(count)
        prices = np.array([_usd(one.server.per_hour) for one in columns])
        despair = 1.0 + 2 * count * max(_usd(one.per_hour) for one in self.room)
        most = np.concatenate([-np.ones(count), [float(self.room[one] or 0) for one in limited]])
        return np.concatenate([prices, np.full(count, despair)]), rows, most

    def _prices(self, columns: Sequence[Bin]) -> tuple[Floats, dict[ServerType, float]]:
        """Of the linear relaxation over these columns: what covering each piece is worth, (pieces,), in dollars per
        hour, and what a server of each limited type is worth beyond its price."""
        from scipy.optimize import linprog

        costs, rows, most = self._program(columns)
        duals = -np.asarray(linprog(costs, A_ub=rows, b_ub=most, method="highs").ineqlin.marginals)
        limited = [one for one, room in self.room.items() if room is not None]
        rents = zip(limited, duals[len(self.pieces) :].tolist(), strict=True)
        return duals[: len(self.pieces)], dict(rents)

    def _promising(self, prices: Floats, rents: Mapping[ServerType, float], rng: np.random.Generator) -> list[Bin]:
        """Sets whose pieces are together worth more than their server, filled greedily: by worth, by worth per share
        taken, and by that with noise."""
        found: dict[Bin, None] = {}
        for server in self.room:
            cost = _usd(server.per_hour) + rents.get(server, 0.0)
            worth = prices / np.array([max(self.oracle.weight(server, at), 1e-9) for at in self.pieces])
            noisy = (worth * rng.lognormal(0.0, 0.5, len(prices)) for _ in range(_STARTS))
            for ranking in (prices, worth, *noisy):
                members, sum_usd = Members(), 0.0
                for row in np.argsort(-ranking, kind="stable").tolist():
                    if prices[row] <= 0 or self.oracle.spent:
                        continue
                    if self.oracle.holds(server, members | {self.pieces[row]}):
                        members |= {self.pieces[row]}
                        sum_usd += float(prices[row])
                if members and sum_usd > cost + 1e-9:
                    found[Bin(server, members)] = None
        return list(found)


def least_cost(demands: Sequence[Demand], servers: Sequence[ServerType], model: Feasibility) -> Money:
    """A lower bound of what any placement of all demands costs, however they are cut, from slots and memory alone:
    servers are whole, demands need not be. Nothing if even so not all can be placed."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    kinds, count = len(servers), len(demands)
    if not count:
        return Money()
    # Variables: servers of each kind, then the part of each demand on each kind.
    rows = np.zeros((2 * kinds + count, kinds + kinds * count))
    for kind, server in enumerate(servers):
        block = slice(kinds + kind * count, kinds + (kind + 1) * count)
        rows[2 * kind : 2 * kind + 2, kind] = -1.0
        rows[2 * kind, block] = [model.least_share(one, server) for one in demands]
        rows[2 * kind + 1, block] = [one.profile.memory_bytes / max(1, server.memory_bytes) for one in demands]
        rows[2 * kinds :, block] = -np.eye(count)
    possible = [float(static_limits([one], server) is None) for server in servers for one in demands]
    limits = [inf if server.limit is None else float(server.limit) for server in servers]
    solved = milp(
        np.concatenate([[_usd(server.per_hour) for server in servers], np.zeros(kinds * count)]),
        integrality=np.concatenate([np.ones(kinds), np.zeros(kinds * count)]),
        bounds=Bounds(0.0, np.array([*limits, *possible])),
        constraints=LinearConstraint(rows, ub=np.concatenate([np.zeros(2 * kinds), -np.ones(count)])),
        options={"node_limit": 10 * _NODES},
    )
    if solved.x is None or solved.status != 0:
        return Money()
    return sum((one.per_hour * round(number) for one, number in zip(servers, solved.x, strict=False)), Money())


def _usd(money: Money) -> float:
    return money.micro_usd / 1e6
