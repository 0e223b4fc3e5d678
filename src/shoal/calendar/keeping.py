"""Nodes on which a waiting job may start, so that every window has what it was promised. Pure.

At each moment of a window a node owes its claims: to each tenant of a window the devices that are reserved, or what
that tenant uses there if that is more; to maintenance all of it. Beside that, jobs of others may use what is left. A
job may start on a node only if that holds at every moment until the job's time limit. What counts is the limit, for
nothing else is sure; a job without one counts as over after `lead_s`, for it is asked to leave before a window.

Usage is piecewise constant and only falls while nothing starts, and claims only rise when a window begins. So it is
enough to look at this moment, and at the beginnings of windows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shoal.calendar.windows import Window
from shoal.core import ANY

FOREVER = math.inf
_MOST_TIMES = 64
"""The maximum number of later times that are tried to say when a job may start."""

Amount = Mapping[str, int]
"""Devices by type, and `CPU` and `MEMORY`; of a request, also of the type `ANY`."""
CPU, MEMORY = "/cpu", "/memory"
"""No type of device has a slash."""


@dataclass(frozen=True, slots=True)
class Load:
    """A running job: what it holds on each node, and when it is over at the latest (FOREVER: it has no limit)."""

    job_id: str
    tenant: str
    holds: Mapping[str, Amount]
    end: float = FOREVER


@dataclass(frozen=True, slots=True)
class Ask:
    """A waiting job: what each of its ranks takes, and how long it runs at most (None: it has no limit). `places` are
    the nodes that its own labels and taints leave; None: all."""

    job_id: str
    tenant: str
    rank: Amount
    ranks: int
    length_s: float | None = None
    places: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The nodes that a job is kept off, by the window that does so; `held` where none is left, until `until` (None: it
    cannot be said). `contended`: another waiting job may take what is left."""

    off: Mapping[str, Window]
    held: bool = False
    until: float | None = None
    contended: bool = False


@dataclass(frozen=True, slots=True)
class Claims:
    """What one window claims, by node; a node in `whole` is claimed with all that it has."""

    window: Window
    amounts: Mapping[str, Amount]
    whole: frozenset[str] = frozenset()

    def on(self, node: str, capacity: Amount) -> Amount:
        return capacity if node in self.whole else self.amounts.get(node, {})


@dataclass
class Book:
    """Nodes with their capacity, what runs, and the claims of windows: what may start beside them."""

    now: float
    nodes: Mapping[str, Amount]
    loads: Sequence[Load]
    windows: Sequence[Window]
    lead_s: float = 0.0
    claims: list[Claims] = field(init=False)

    def __post_init__(self) -> None:
        self._on: dict[str, list[Load]] = {}
        for load in self.loads:
            for node in load.holds:
                self._on.setdefault(node, []).append(load)
        self.claims = []
        coming = [window for window in self.windows if window.end > self.now]
        # What can lie anywhere is placed last, beside what cannot.
        for window in sorted(coming, key=lambda one: (one.plan.accelerators is not None, not one.plan.nodes)):
            self.claims.append(self._pinned(window))
        self.claims.sort(key=lambda one: (one.window.begin, one.window.plan.id))

    # --- where a window lies ---

    def _pinned(self, window: Window) -> Claims:
        """Most room first: so the claim is met wherever it can be met at all, and on as few nodes as that takes. What
        others still have is claimed after that."""
        plan = window.plan
        names = [name for name in (plan.nodes or self.nodes) if name in self.nodes]
        if plan.accelerators is None:
            return Claims(window, {}, frozenset(names))
        kinds = sorted({kind for name in names for kind in self.nodes[name] if kind[0] != "/"})
        kinds = kinds if plan.kind == ANY else [plan.kind]
        room = {kind: {name: self._room(name, kind, window) for name in names} for kind in kinds}
        wanted = plan.accelerators
        best = max(kinds, key=lambda kind: min(wanted, sum(room[kind].values())), default=plan.kind)
        counts = dict.fromkeys(names, 0)
        for limit in (room.get(best, {}), {name: self.nodes[name].get(best, 0) for name in names}):
            for name in sorted(names, key=lambda each: (-room.get(best, {}).get(each, 0), each)):
                more = max(0, min(wanted - sum(counts.values()), limit.get(name, 0) - counts[name]))
                counts[name] += more
        return Claims(window, {name: self._part(name, best, count) for name, count in counts.items() if count})

    def _room(self, name: str, kind: str, window: Window) -> int:
        """How many of its devices neither another tenant has for longer, nor another window claims."""
        capacity, at = self.nodes[name], max(self.now, window.begin)
        used = sum(
            load.holds[name].get(kind, 0)
            for load in self._on.get(name, ())
            if load.tenant != window.plan.tenant and self._lasts(load, at)
        )
        claimed = sum(
            one.on(name, capacity).get(kind, 0)
            for one in self.claims
            if one.window.begin < window.end and window.begin < one.window.end
        )
        return max(0, capacity.get(kind, 0) - used - claimed)

    def _part(self, name: str, kind: str, count: int) -> Amount:
        """Devices, with as large a part of the node's cores and memory."""
        capacity = self.nodes[name]
        devices = sum(number for each, number in capacity.items() if each[0] != "/") or 1
        return {kind: count, **{each: capacity.get(each, 0) * count // devices for each in (CPU, MEMORY)}}

    # --- what may start ---

    def _lasts(self, load: Load, at: float) -> bool:
        """Whether a running job counts at that moment. One without a limit leaves before a window that is far off."""
        return load.end > at if load.end != FOREVER else at <= self.now + self.lead_s

    def _end(self, ask: Ask, begin: float) -> float:
        return begin + (self.lead_s if ask.length_s is None else ask.length_s)

    def refuser(self, ask: Ask, node: str, granted: Iterable[Ask] = (), begin: float | None = None) -> Window | None:
        """The first window because of which the job may not start on this node at `begin` (now); None: it may."""
        start = self.now if begin is None else begin
        end, capacity = self._end(ask, start), self.nodes[node]
        here = [claim for claim in self.claims if node in claim.whole or node in claim.amounts]
        times = sorted({start, *(claim.window.begin for claim in here if start < claim.window.begin < end)})
        more = _taken(ask, capacity)
        for at in times:
            active = [one for one in here if one.window.begin <= at < one.window.end]
            if not active:
                continue
            for claim in active:
                if node in claim.whole and claim.window.plan.tenant != ask.tenant:
                    return claim.window
            used: dict[str, dict[str, int]] = {}
            for load in self._on.get(node, ()):
                if self._lasts(load, at):
                    _add(used.setdefault(load.tenant, {}), load.holds[node])
            for other in granted:
                if self._end(other, self.now) > at:
                    _add(used.setdefault(other.tenant, {}), _taken(other, capacity))
            before = owed(active, node, capacity, used)
            _add(used.setdefault(ask.tenant, {}), more)
            after = owed(active, node, capacity, used)
            if any(after.get(k, 0) > max(capacity.get(k, 0), before.get(k, 0)) for k in more):
                others = [one.window for one in active if one.window.plan.tenant != ask.tenant]
                return others[0] if others else active[0].window
        return None

    def verdicts(self, asks: Iterable[Ask]) -> dict[str, Verdict]:
        """Of each job that is kept off some node. The first ones are granted what is left before the others are."""
        found: dict[str, Verdict] = {}
        granted: dict[str, list[Ask]] = {}
        settled: dict[tuple[object, ...], Verdict] = {}
        """Of jobs that are alike, where it does not matter what is granted to others."""
        begins, shared = self._begins()
        for ask in asks:
            alike = (ask.tenant, ask.ranks, ask.length_s, ask.places, *ask.rank.items())
            if (known := settled.get(alike)) is None:
                places = self.nodes.keys() if ask.places is None else ask.places & self.nodes.keys()
                end = self._end(ask, self.now)
                near = [name for name, begin in begins.items() if begin < end and name in places]
                known = self._verdict(ask, places, near, granted)
                divided = [name for name in near if name in shared and name not in known.off]
                if known.held or not divided:
                    settled[alike] = known
                else:
                    for name in divided:
                        granted.setdefault(name, []).append(ask)
            if known.off:
                found[ask.job_id] = known
        return found

    def _begins(self) -> tuple[dict[str, float], set[str]]:
        """When the first window of each node begins, and the nodes that windows do not take whole."""
        begins: dict[str, float] = {}
        shared: set[str] = set()
        for claim in self.claims:
            for name in (*claim.whole, *claim.amounts):
                begins[name] = min(begins.get(name, FOREVER), claim.window.begin)
            shared.update(claim.amounts)
        return begins, shared

    def _verdict(
        self, ask: Ask, places: Collection[str], near: Iterable[str], granted: Mapping[str, Sequence[Ask]]
    ) -> Verdict:
        refusers = ((name, self.refuser(ask, name, granted.get(name, ()))) for name in near)
        off = {name: window for name, window in refusers if window is not None}
        held = bool(places) and all(name in off for name in places)
        contended = any(granted.get(name) and self.refuser(ask, name) is None for name in off)
        return Verdict(off, held, self.starts_at(ask, places) if held else None, contended)

    def starts_at(self, ask: Ask, places: Iterable[str]) -> float | None:
        """When the calendar first lets the job start on one of these nodes, if nothing else starts before."""
        names = sorted(places)
        ends = {claim.window.end for claim in self.claims} | {load.end for load in self.loads if load.end != FOREVER}
        for at in sorted(end for end in ends if end > self.now)[:_MOST_TIMES]:
            if any(self.refuser(ask, name, begin=at) is None for name in names):
                return at
        return None

    # --- what has to leave ---

    def leaving(self, notice_s: float, losses: Mapping[str, float]) -> dict[str, Window]:
        """The running jobs that must be asked to leave now, by the window that needs their place: those that would
        still run `notice_s` from now, when it has begun. `losses` says what ends first: the least."""
        found: dict[str, Window] = {}
        for claim in sorted(self.claims, key=lambda one: one.window.begin):
            window = claim.window
            at = max(self.now, window.begin)
            if window.begin > self.now + notice_s:
                break
            active = [one for one in self.claims if one.window.begin <= at < one.window.end]
            for node in sorted(claim.whole | claim.amounts.keys()):
                for job_id in self._excess(node, active, at, found, losses):
                    found[job_id] = window
        return found

    def _excess(
        self, node: str, active: Sequence[Claims], at: float, gone: Mapping[str, Window], losses: Mapping[str, float]
    ) -> list[str]:
        """Jobs on a node that the claims leave no room for: those first that lose the least, and none that can stay."""
        capacity = self.nodes[node]
        owners = {one.window.plan.tenant for one in active if node in one.whole}
        here = [load for load in self._on.get(node, ()) if load.end > at and load.job_id not in gone]
        leaving = [load for load in here if owners - {load.tenant}]
        forced = len(leaving)

        def total() -> dict[str, int]:
            used: dict[str, dict[str, int]] = {}
            for load in here:
                if load not in leaving:
                    _add(used.setdefault(load.tenant, {}), load.holds[node])
            return owed(active, node, capacity, used)

        for load in sorted(here, key=lambda one: (losses.get(one.job_id, 0.0), one.job_id)):
            before = total()
            over = [kind for kind, number in capacity.items() if before.get(kind, 0) > number]
            if over and load not in leaving:
                leaving.append(load)
                after = total()
                if all(after.get(kind, 0) >= before[kind] for kind in over):
                    leaving.remove(load)
        for load in reversed(leaving[forced:]):
            before = total()
            leaving.remove(load)
            after = total()
            if any(after.get(kind, 0) > max(number, before.get(kind, 0)) for kind, number in capacity.items()):
                leaving.append(load)
        return [load.job_id for load in leaving]


def owed(active: Iterable[Claims], node: str, capacity: Amount, used: Mapping[str, Amount]) -> dict[str, int]:
    """What a node owes at a moment: to each tenant of a window its claims or what it uses, the greater; and what all
    others use."""
    claimed: dict[str | None, dict[str, int]] = {}
    for one in active:
        _add(claimed.setdefault(one.window.plan.tenant, {}), one.on(node, capacity))
    total: dict[str, int] = {}
    for tenant in {*claimed, *used}:
        mine, own = claimed.get(tenant, {}), used.get(tenant or "", {}) if tenant is not None else {}
        _add(total, {kind: max(mine.get(kind, 0), own.get(kind, 0)) for kind in {*mine, *own}})
    return total


def _taken(ask: Ask, capacity: Amount) -> dict[str, int]:
    """What a job takes on one node at most. Where it takes any type of device, that may be each type."""
    kinds = [kind for kind in capacity if kind[0] != "/"]
    rank = {kind: number for kind, number in ask.rank.items() if kind != ANY}
    fits = [capacity.get(kind, 0) // number for kind, number in rank.items() if number > 0]
    if anything := ask.rank.get(ANY, 0):
        fits.append(max((capacity[kind] // anything for kind in kinds), default=0))
        rank |= {kind: rank.get(kind, 0) + anything for kind in kinds}
    return {kind: number * min([ask.ranks, *fits]) for kind, number in rank.items()}


def _add(to: dict[str, int], amount: Amount) -> None:
    for kind, number in amount.items():
        to[kind] = to.get(kind, 0) + number
