"""Cutting demands that fill whole servers: full servers, and a rest that can share one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from shoal.core import Money, Reason
from shoal.measure.planning.feasibility import Feasibility
from shoal.measure.planning.profiles import Demand, ServerType

_BISECTIONS = 12
_NOTHING = 1e-9
"""Of a demand's rate: what is left of it by rounding."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A demand (or a part of one) that no server takes; `reasons` are the binding constraints by type of server."""

    demand: Demand
    reasons: tuple[tuple[str, Reason], ...]

    @property
    def text(self) -> str:
        types: dict[str, list[str]] = {}
        for name, reason in self.reasons:
            types.setdefault(reason.text, []).append(name)
        return "; ".join(f"on {' and '.join(names)}: {text}" for text, names in types.items())


@dataclass(frozen=True, slots=True)
class Full:
    """`count` servers of a type that this piece of a demand fills, each."""

    server: ServerType
    piece: Demand
    count: int


@dataclass(slots=True)
class Parts:
    """All demands, cut: `rests` are to be packed on `left`, the types of which some may still be had. `alone` is what
    each demand would cost without sharing, as far as it can be placed."""

    left: list[ServerType]
    full: list[Full] = field(default_factory=list)
    rests: list[Demand] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    alone: dict[str, Money] = field(default_factory=dict)

    def add(self, cut: _Cut, name: str) -> None:
        self.left = cut.left
        self.full += cut.full
        self.rests += [cut.rest] if cut.rest is not None else []
        self.refused += [cut.refused] if cut.refused is not None else []
        self.alone[name] = cut.alone

    @property
    def filled_per_hour(self) -> Money:
        return sum((one.server.per_hour * one.count for one in self.full), Money())


@dataclass(frozen=True, slots=True)
class _Cut:
    left: list[ServerType]
    full: list[Full]
    rest: Demand | None
    refused: Refusal | None
    alone: Money


def splits(demands: Sequence[Demand], servers: Sequence[ServerType], model: Feasibility) -> Iterator[Parts]:
    """Ways to cut worth trying, different ones only: no demand before it must be; each as soon as full servers of a
    type that is cheap for its load are cheaper than one large one; and each as it costs least alone."""
    made: list[Parts] = []
    for wanted in ("late", "early", "cheaper"):
        parts = Parts(list(servers))
        for demand in demands:
            late = _cut(demand, parts.left, model, early=False)
            cut = late
            if wanted != "late" and (early := _cut(demand, parts.left, model, early=True)) != late:
                better = (early.refused is not None, early.alone) < (late.refused is not None, late.alone)
                cut = early if wanted == "early" or better else late
            parts.add(cut, demand.name)
        if parts not in made:
            made.append(parts)
            yield parts


def _cut(demand: Demand, servers: Sequence[ServerType], model: Feasibility, *, early: bool) -> _Cut:
    left, full, rest, spent = list(servers), list[Full](), demand, Money()
    while True:
        whole = _cheapest(rest, left, model)
        filling = _filling(rest, left, model, whole) if early or whole is None else None
        if filling is None:
            if whole is None:
                return _Cut(left, full, None, refusal(rest, left, model), spent)
            return _Cut(left, full, rest, None, spent + whole.per_hour)
        full.append(filling)
        spent += filling.server.per_hour * filling.count
        if filling.server.limit is not None:
            some = replace(filling.server, limit=filling.server.limit - filling.count)
            left[left.index(filling.server)] = some
        rest = replace(rest, rate_per_s=max(0.0, rest.rate_per_s - filling.count * filling.piece.rate_per_s))
        if rest.rate_per_s <= _NOTHING * demand.rate_per_s:
            return _Cut(left, full, None, None, spent)


def _cheapest(demand: Demand, servers: Sequence[ServerType], model: Feasibility) -> ServerType | None:
    """The cheapest type that carries all of it."""
    ordered = sorted((one for one in servers if one.limit != 0), key=lambda one: (one.per_hour, one.name))
    return next((one for one in ordered if model.judge([demand], one).holds), None)


def _filling(
    demand: Demand, servers: Sequence[ServerType], model: Feasibility, whole: ServerType | None
) -> Full | None:
    """Full servers of the type that is cheapest for its load; None if none is cheaper for it than `whole` is."""
    best: tuple[float, str, Full] | None = None
    for one in servers:
        # Even if it carried all that its slots can do, would this number of them cost less?
        hopeless = whole is not None and one.per_hour * int(model.least_share(demand, one)) >= whole.per_hour
        if one.limit == 0 or one == whole or hopeless:
            continue
        carried = _capacity(demand, one, model)
        count = int(demand.rate_per_s / carried) if carried > 0 else 0
        if one.limit is not None:
            count = min(count, one.limit)
        if count < 1:
            continue
        per_load = one.per_hour.micro_usd / carried
        if whole is not None and per_load * demand.rate_per_s >= whole.per_hour.micro_usd:
            continue
        if best is None or (per_load, one.name) < best[:2]:
            best = (per_load, one.name, Full(one, replace(demand, rate_per_s=carried), count))
    return best[2] if best is not None else None


def _capacity(demand: Demand, server: ServerType, model: Feasibility) -> float:
    """The highest rate of the demand's kind that the server carries, but not more than its own; 0 if there is none."""
    low, high = 0.0, demand.rate_per_s
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if model.judge([replace(demand, rate_per_s=middle)], server).holds else (low, middle)
    return low


def refusal(demand: Demand, servers: Sequence[ServerType], model: Feasibility) -> Refusal:
    """Why not even a part of the demand can be placed."""
    part = replace(demand, rate_per_s=demand.rate_per_s / 2**_BISECTIONS)
    return Refusal(demand, tuple((one.name, taken(one) or model.judge([part], one).reason) for one in servers))


def taken(server: ServerType) -> Reason | None:
    """That none of this type is left, if so."""
    return Reason("limit", f"no {server.name} is left", {"type": server.name}) if server.limit == 0 else None
