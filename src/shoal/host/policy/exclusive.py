"""Guaranteed and best-effort work on CPUs of their own, whichever policy decides the rest.

Where both may run on the same CPUs, they take those from each other, and no such CPU can be paced: what is left is a
CPU quota, which leaves the slowest steps of guaranteed work slow. So while both are there, guaranteed work has as many
CPUs as it was promised, and goes there before what is in no group; best-effort work has all others. Alone, each may run
where it could.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from shoal.core import PriorityClass, Reason
from shoal.host.linux import cpus
from shoal.host.types import UNLIMITED, Control, Domain, Plan, Policy, Snapshot

CPUs = frozenset[int]
WEIGHT = 20
"""How many times as much as ordinary work guaranteed work weighs on each CPU that it was promised: beside a busy
process of no group it keeps 95 % of it, as much as it is promised by default. Beside a core paced at 5 % and three such
processes it keeps 87 %; at 100 it kept 99 %, and all else waited for 0.3 s and more at times."""


@dataclass(frozen=True, slots=True)
class ExclusiveCpus:
    """A policy whose plans also say on which CPUs groups run."""

    policy: Policy[Any]

    @property
    def name(self) -> str:
        return self.policy.name

    def start(self) -> Any:
        return self.policy.start()

    def step(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        plan, state = self.policy.step(snapshot, state)
        plan = _weighed(snapshot, plan)
        if Control.CPUS not in snapshot.controls:
            return plan, state
        sets = exclusive_sets(snapshot)
        if not sets.own and sets.why is None:
            return plan, state
        settings, reasons = dict(plan.settings), dict(plan.reasons)
        for one in snapshot.groups:
            name = one.group.name
            if name in sets.own:
                settings[name] = replace(settings.get(name, UNLIMITED), cpus=sets.own[name])
            if one.group.priority_class is PriorityClass.GUARANTEED:
                if name in sets.own:
                    reasons[name] = Reason("exclusive-cpus", "best-effort work runs beside it: these CPUs are its own")
            elif sets.why is not None and name not in sets.own and name in reasons:
                known = reasons[name]
                text = f"{known.text}; not on CPUs of its own: {sets.why.text}"
                reasons[name] = replace(known, text=text, facts={**known.facts, "exclusive_cpus": sets.why.as_json()})
        return replace(plan, settings=settings, reasons=reasons), state


def _weighed(snapshot: Snapshot, plan: Plan) -> Plan:
    """What is in no group leaves paced cores for those of guaranteed work, which therefore goes before it there."""
    beside = any(one.free for one in snapshot.of(PriorityClass.BEST_EFFORT))
    if Control.WEIGHT not in snapshot.controls or not beside:
        return plan
    settings, reasons = dict(plan.settings), dict(plan.reasons)
    for one in snapshot.of(PriorityClass.GUARANTEED):
        if one.free and one.group.cpus:
            name, weight = one.group.name, float(WEIGHT * math.ceil(one.group.cpus))
            settings[name] = replace(settings.get(name, UNLIMITED), weight=weight)
            reasons[name] = Reason("weighed", "best-effort work runs beside it: it goes before what is in no group")
    return replace(plan, settings=settings, reasons=reasons)


@dataclass(frozen=True, slots=True)
class Sets:
    """The CPUs of each group that gets its own; `why` others do not, None where no group needs to be moved."""

    own: Mapping[str, CPUs]
    why: Reason | None = None


NOBODY_MOVES = Sets({})


def exclusive_sets(snapshot: Snapshot) -> Sets:
    """Which group runs where. What is in force stays as long as it does as well as anything else would."""
    promised = [one for one in snapshot.of(PriorityClass.GUARANTEED) if one.free]
    others = [one for one in snapshot.of(PriorityClass.BEST_EFFORT) if one.free]
    theirs = _union(one.free for one in promised)
    if not promised or all(theirs.isdisjoint(one.free) for one in others):
        return NOBODY_MOVES
    silent = [one.group.name for one in promised if not one.group.cpus]
    if silent:
        return _together("cpus-unknown", f"the number of CPUs that {' and '.join(silent)} needs is not given")
    everyone = theirs | _union(one.free for one in others)
    need = max(1, math.ceil(round(sum(one.group.cpus or 0.0 for one in promised), 6)))
    if need >= len(everyone):
        text = f"guaranteed work was promised {need} CPUs, and there are {len(everyone)}"
        return _together("too-few-cpus", text, need=need, cpus=len(everyone))
    if need > len(theirs):
        text = f"guaranteed work was promised {need} CPUs, and it may run on {cpus.render(theirs)} only"
        return _together("too-few-cpus", text, need=need, cpus=len(theirs))
    taken = _choose(need, theirs, everyone, snapshot, _union(one.applied.cpus or () for one in promised))
    stuck = [one.group.name for one in promised if not one.free & taken]
    if stuck:
        return _together("bound-elsewhere", f"{' and '.join(stuck)} is bound to other CPUs than the rest")
    own = {one.group.name: one.free & taken for one in promised}
    own |= {one.group.name: one.free - taken for one in others if one.free - taken}
    bound = [one.group.name for one in others if one.group.name not in own]
    if bound:
        text = f"it is bound to CPUs {cpus.render(taken)}, where guaranteed work runs"
        return Sets(own, Reason("bound-here", text, {"groups": bound}))
    return Sets(own)


def _together(code: str, text: str, **facts: int) -> Sets:
    return Sets({}, Reason(code, text, facts))


def _choose(need: int, theirs: CPUs, everyone: CPUs, snapshot: Snapshot, now: CPUs) -> CPUs:
    """CPUs for guaranteed work: whole cores, in as few memory domains as can be, so that others keep domains of their
    own. Those that it has now, unless others share fewer domains."""
    homes = [one.domain for one in snapshot.domains] or [Domain(0, everyone)]
    best = _pick(need, theirs, everyone, homes)
    enough = need <= len(now) <= len(best) and now <= theirs
    return now if enough and _shared(now, everyone, homes) <= _shared(best, everyone, homes) else best


def _pick(need: int, theirs: CPUs, everyone: CPUs, homes: Iterable[Domain]) -> CPUs:
    """From the smallest domain that holds all of it, else from the largest first. The rest of its last core comes along
    if something is left for others."""
    rooms = [(home, home.cpus & theirs) for home in homes]
    fitting = [one for one in rooms if len(one[1]) >= need]
    if fitting:
        rooms = [min(fitting, key=lambda one: (len(one[1]), not one[0].accelerators, one[0].id))]
    else:
        rooms.sort(key=lambda one: (-len(one[1]), one[0].id))
    taken: set[int] = set()
    for home, room in rooms:
        for core in _cores(home, room):
            if len(taken) >= need:
                return frozenset(taken)
            taken |= core if len(taken | core) < len(everyone) else frozenset(sorted(core)[: need - len(taken)])
    taken |= frozenset(sorted(theirs - taken)[: max(0, need - len(taken))])  # of CPUs in no domain that is known
    return frozenset(taken)


def _cores(home: Domain, room: CPUs) -> list[CPUs]:
    core_of = {cpu: core for core in home.siblings for cpu in core}
    return sorted({core_of.get(cpu, frozenset({cpu})) & room for cpu in room}, key=min)


def _shared(taken: CPUs, everyone: CPUs, homes: Iterable[Domain]) -> int:
    """Domains in which both would run."""
    return sum(bool(home.cpus & taken) and bool(home.cpus & everyone - taken) for home in homes)


def _union(sets: Iterable[Iterable[int]]) -> CPUs:
    return frozenset[int]().union(*sets)
