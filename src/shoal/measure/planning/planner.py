"""Planner of models on shared servers, so that every objective holds at least cost: profiles and rates in, a plan out.

A demand that no single server can carry, or that is cheaper so, is split first: as many full servers as it fills, and
the rest (`splitting.splits`). The rests are packed (`partition.pack`); Nexus' squishy bin packing and servers for each
demand alone are worked out beside it, so the plan says what it saves. Unless told otherwise every planned server is
simulated; a set that fails there is forbidden, and the rests are packed anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from shoal.core import Invalid, Money, Reason
from shoal.measure.planning.feasibility import Check, Feasibility, contradiction, limited, simulate
from shoal.measure.planning.packing import Bin, Members, Oracle, Packing, fill, squishy
from shoal.measure.planning.partition import least_cost, pack
from shoal.measure.planning.profiles import Demand, ServerType
from shoal.measure.planning.queueing import Queueing
from shoal.measure.planning.simulated import Serve
from shoal.measure.planning.splitting import Parts, Refusal, splits, taken

Simulate = Callable[[ServerType, tuple[Demand, ...]], tuple[Check, ...]]
"""Simulates one server of this type with these demands on it."""

_ROUNDS = 10
"""Sets that fail in simulation are packed anew so often; then their models get servers of their own."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A demand, or a part of one (`demand.rate_per_s` is this part's, `share` of the whole), on a planned server. It
    shall be deployed with batches up to `batch`; `latency_s` is what the model promises for its quantile."""

    demand: Demand
    share: float
    batch: int
    latency_s: float


@dataclass(frozen=True, slots=True)
class PlannedServer:
    """`occupancy` is the mean share of its slots in use; `reason` names the constraint that is tightest here; `checks`
    is empty unless the plan was simulated."""

    name: str
    server: ServerType
    placements: tuple[Placement, ...]
    occupancy: float
    reason: Reason
    checks: tuple[Check, ...] = ()

    @property
    def memory_bytes(self) -> int:
        return sum(one.demand.profile.memory_bytes for one in self.placements)

    @property
    def load_s(self) -> float:
        """Until everything on it is loaded, one after the other."""
        return sum(one.demand.profile.load_s for one in self.placements)


@dataclass(frozen=True, slots=True)
class Plan:
    """`dedicated_per_hour` is the cost without sharing, `squishy_per_hour` that of Nexus' packing. Both are under the
    same model and for the same demands (None if it places others). No plan can cost less than `least_per_hour` (None
    if some are placed in part). `optimal`: there was one way to cut the demands, and no other packing of the
    rests is cheaper, as far as the model tells. `repaired` says which sets failed in simulation on the way."""

    servers: tuple[PlannedServer, ...]
    refused: tuple[Refusal, ...]
    dedicated_per_hour: Money
    squishy_per_hour: Money | None
    least_per_hour: Money | None
    optimal: bool
    model: str
    repaired: tuple[Reason, ...] = ()

    @property
    def per_hour(self) -> Money:
        return sum((one.server.per_hour for one in self.servers), Money())

    @property
    def saving(self) -> float:
        """Part of the dedicated servers' cost; 0 where there is none."""
        dedicated = self.dedicated_per_hour.micro_usd
        return 1 - self.per_hour.micro_usd / dedicated if dedicated else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "per_hour_micro_usd": self.per_hour.micro_usd,
            "dedicated_per_hour_micro_usd": self.dedicated_per_hour.micro_usd,
            "squishy_per_hour_micro_usd": self.squishy_per_hour.micro_usd if self.squishy_per_hour else None,
            "least_per_hour_micro_usd": self.least_per_hour.micro_usd if self.least_per_hour else None,
            "saving": self.saving,
            "optimal": self.optimal,
            "model": self.model,
            "servers": [
                {
                    "name": one.name,
                    "type": one.server.name,
                    "per_hour_micro_usd": one.server.per_hour.micro_usd,
                    "occupancy": one.occupancy,
                    "memory_bytes": one.memory_bytes,
                    "load_s": one.load_s,
                    "reason": one.reason.as_json(),
                    "placements": [
                        {
                            "demand": each.demand.name,
                            "model": each.demand.profile.name,
                            "tenant": each.demand.tenant,
                            "rate_per_s": each.demand.rate_per_s,
                            "share": each.share,
                            "batch": each.batch,
                            "latency_s": each.latency_s,
                            "slo_s": each.demand.slo_s,
                        }
                        for each in one.placements
                    ],
                    "checks": [check.as_json() for check in one.checks],
                }
                for one in self.servers
            ],
            "refused": [
                {
                    "demand": one.demand.name,
                    "rate_per_s": one.demand.rate_per_s,
                    "reasons": {name: reason.as_json() for name, reason in one.reasons},
                }
                for one in self.refused
            ],
            "repaired": [reason.as_json() for reason in self.repaired],
        }


def plan(
    demands: Sequence[Demand],
    servers: Sequence[ServerType],
    *,
    serve: Serve,
    model: Feasibility | None = None,
    check: bool = True,
    asks: int | None = None,
    seed: int = 0,
    on_step: Callable[[str], None] = lambda _: None,
) -> Plan:
    """`serve` is the server that will carry the plan out: every planned server is simulated by it. `model` decides what
    may share (default: `Queueing`); `asks` limits how many sets it is asked about, None leaves that to the model.
    Demands that no server can take are refused by name, the others are planned.

    Raises Invalid for names that are given twice, and where there is nothing to plan or nothing to plan with.
    """
    _check_input(demands, servers)
    model = model or Queueing()
    on_step("looking at each model alone")

    @cache  # however many drafts contain it
    def simulated(server: ServerType, demands: tuple[Demand, ...]) -> tuple[Check, ...]:
        on_step(f"simulating {len(demands)} models on one {server.name}")
        return simulate(demands, server, serve=serve, seed=seed + 1)  # another seed than a model may have decided by

    drafts = [
        _draft(parts, model, asks or model.asks, check, simulated, seed, on_step)
        for parts in splits(demands, servers, model)
    ]
    chosen = min(drafts, key=lambda one: (one.refused, one.per_hour))
    on_step("working out what it saves")
    parts, packing = chosen.parts, chosen.packing
    whole = Oracle([one.piece for one in parts.full], servers, model)
    full = [Bin(one.server, Members({at})) for at, one in enumerate(parts.full)]
    naming = _Naming({one.name: one.rate_per_s for one in demands}, check)
    alike = (one.squishy_per_hour for one in drafts if one.refused == chosen.refused)
    away = chosen.refused_names
    cut = any(one.piece.name in away for one in parts.full)
    wholly = [one for one in demands if one.name not in away]
    return Plan(
        servers=(
            *naming.named(whole, _Trials(whole, simulated), full, [one.count for one in parts.full]),
            *naming.named(chosen.oracle, chosen.trials, packing.bins, [1] * len(packing.bins)),
        ),
        refused=(*parts.refused, *(_unplaced(chosen.oracle, at) for at in sorted(packing.unplaced))),
        dedicated_per_hour=_dedicated(chosen, drafts),
        squishy_per_hour=min((one for one in alike if one is not None), default=None),
        least_per_hour=None if cut else least_cost(wholly, servers, model),
        optimal=packing.optimal and len(drafts) == 1,
        model=model.name,
        repaired=tuple(chosen.repaired),
    )


@dataclass(frozen=True, slots=True)
class _Draft:
    """A way to cut the demands, and the best packing of its rests."""

    parts: Parts
    oracle: Oracle
    packing: Packing
    trials: _Trials
    repaired: list[Reason]
    squishy_per_hour: Money | None

    @property
    def per_hour(self) -> Money:
        return self.parts.filled_per_hour + self.packing.per_hour

    @property
    def refused(self) -> int:
        return len(self.parts.refused) + len(self.packing.unplaced)

    @property
    def refused_names(self) -> set[str]:
        """Of demands that are not placed, or not wholly."""
        unplaced = {self.oracle.pieces[at].name for at in self.packing.unplaced}
        return unplaced | {one.demand.name for one in self.parts.refused}


def _draft(
    parts: Parts,
    model: Feasibility,
    asks: int,
    check: bool,
    simulated: Simulate,
    seed: int,
    on_step: Callable[[str], None],
) -> _Draft:
    oracle = Oracle(parts.rests, parts.left, model, most=asks)
    trials = _Trials(oracle, simulated)
    on_step(f"packing {len(parts.rests)} models")
    packing = pack(oracle, seed=seed)
    repaired: list[Reason] = []
    for number in range(_ROUNDS if check else 0):
        failed = {one: reason for one in packing.bins if (reason := contradiction(trials.of(one))) is not None}
        if not failed:
            break
        repaired += failed.values()
        for one in failed:
            oracle.forbid(one.server, one.members)
        on_step(f"packing again: {len(failed)} servers failed in simulation")
        packing = pack(oracle, seed=seed) if number < _ROUNDS - 1 else trials.apart(packing, failed)
    baseline = squishy(oracle)
    rival = parts.filled_per_hour + baseline.per_hour if baseline.unplaced == packing.unplaced else None
    return _Draft(parts, oracle, packing, trials, repaired, rival)


def _dedicated(chosen: _Draft, drafts: Sequence[_Draft]) -> Money:
    """What the demands that are placed would cost without sharing, each cut as is best for it."""
    unplaced = chosen.refused_names
    alone = [min(one.parts.alone[name] for one in drafts) for name in chosen.parts.alone if name not in unplaced]
    # Of what is placed in part, the full servers.
    filled = [one.server.per_hour * one.count for one in chosen.parts.full if one.piece.name in unplaced]
    return sum([*alone, *filled], Money())


@dataclass(frozen=True, slots=True)
class _Trials:
    """Simulations of planned servers."""

    oracle: Oracle
    simulated: Simulate

    def of(self, one: Bin) -> tuple[Check, ...]:
        fit = self.oracle.fit(one.server, one.members)
        demands = [self.oracle.pieces[at] for at in sorted(one.members)]
        return self.simulated(one.server, tuple(limited(demands, fit.batches)))

    def apart(self, packing: Packing, failed: Container[Bin]) -> Packing:
        """Models whose servers failed get servers of their own, of types on which they do not fail as well."""
        kept = tuple(one for one in packing.bins if one not in failed)
        lone = packing.unplaced.union(*(one.members for one in packing.bins if one in failed))
        for at in lone:
            while any(self._fails(Bin(server, Members({at}))) for server in self.oracle.choices(Members({at}))):
                pass
        return fill(self.oracle, Packing(kept, lone))

    def _fails(self, one: Bin) -> bool:
        """And is forbidden then."""
        if contradiction(self.of(one)) is None:
            return False
        self.oracle.forbid(one.server, one.members)
        return True


@dataclass(slots=True)
class _Naming:
    """Makes planned servers of bins and numbers them by type."""

    rates_per_s: Mapping[str, float]
    check: bool
    numbers: Counter[str] = field(default_factory=Counter)

    def named(
        self, oracle: Oracle, trials: _Trials, bins: Sequence[Bin], counts: Sequence[int]
    ) -> Iterator[PlannedServer]:
        """The dearest types first. `counts` are numbers of equal servers."""
        for one, count in sorted(zip(bins, counts, strict=True), key=lambda pair: -pair[0].server.per_hour.micro_usd):
            fit = oracle.fit(one.server, one.members)
            placements = tuple(
                Placement(piece, piece.rate_per_s / (self.rates_per_s[piece.name] or 1.0), batch, latency_s)
                for piece, batch, latency_s in zip(
                    (oracle.pieces[at] for at in sorted(one.members)), fit.batches, fit.latency_s, strict=True
                )
            )
            reason, checks = _why(oracle, one, bins), trials.of(one) if self.check else ()
            for _ in range(count):
                self.numbers[one.server.name] += 1
                name = f"{one.server.name}-{self.numbers[one.server.name]}"
                yield PlannedServer(name, one.server, placements, fit.occupancy, reason, checks)


def _why(oracle: Oracle, one: Bin, bins: Sequence[Bin]) -> Reason:
    """What is tightest on this server, and why it takes no more: what would break beside the emptiest of the others."""
    fit = oracle.fit(one.server, one.members)
    used = sum(oracle.pieces[at].profile.memory_bytes for at in one.members) / max(1, one.server.memory_bytes)
    text = f"{fit.reason.text}; slots {fit.occupancy:.0%} in use, memory {used:.0%}"
    others = [other for other in bins if other != one]
    facts = {**fit.reason.facts, "occupancy": fit.occupancy, "memory_used": used}
    if not others:
        return Reason(fit.reason.code, text, facts)
    emptiest = min(others, key=lambda other: (oracle.fit(other.server, other.members).occupancy, sorted(other.members)))
    smallest = min(emptiest.members, key=lambda at: (oracle.weight(one.server, at), at))
    more = oracle.fit(one.server, one.members | {smallest})
    if more.holds:
        return Reason(fit.reason.code, text, facts)
    text += f"; with {oracle.pieces[smallest].name} as well: {more.reason.text}"
    return Reason(fit.reason.code, text, {**facts, "refuses": more.reason.as_json()})


def _unplaced(oracle: Oracle, at: int) -> Refusal:
    demand, single = oracle.pieces[at], Members({at})
    reasons = []
    for one in oracle.servers:
        fit = oracle.fit(one, single)
        if one.limit is not None and fit.holds and oracle.holds(one, single):
            reasons.append((one.name, taken(replace(one, limit=0)) or fit.reason))
        elif fit.holds:
            reasons.append((one.name, Reason("simulation", "its objective is broken in simulation")))
        else:
            reasons.append((one.name, fit.reason))
    return Refusal(demand, tuple(reasons))


def _check_input(demands: Sequence[Demand], servers: Sequence[ServerType]) -> None:
    for what, names in (("demands", [one.name for one in demands]), ("servers", [one.name for one in servers])):
        if not names:
            raise Invalid(f"there are no {what}", where=what)
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise Invalid(f"given twice: {', '.join(twice)}", where=what, hint="names must be unique")
