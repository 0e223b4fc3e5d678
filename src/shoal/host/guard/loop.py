"""One tick of the guard: snapshot, policy, plan, difference, apply. It never raises what a sensor, policy or actuator
raises: that is written into the tick, and the tick goes on with what is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from shoal.core import LeaseLost, PriorityClass, Reason
from shoal.host.types import (
    TICK_S,
    UNLIMITED,
    Applied,
    DomainState,
    GroupState,
    Plan,
    Policy,
    Reading,
    Setting,
    Snapshot,
)

POLICY_FAULTS = 20
"""The number of failures in a row after which the policy starts anew, and limits are lifted."""
CHANGES_PER_MINUTE = 240
_MINUTE_S = 60.0


class Act(Protocol):
    def apply(self, plan: Plan) -> Applied:
        """Make the plan so; called at every tick, whether it has changed or not. Raises LeaseLost when everything
        was taken back because the guard was thought dead; may raise anything."""
        ...


class Machine(Act, Protocol):
    """What a guard works on."""

    def sense(self, now: float) -> Snapshot:
        """The host since the last call. Its groups' `applied` need not be filled in. May raise anything."""
        ...


@dataclass(frozen=True, slots=True)
class Record:
    """What one tick saw, decided and did. `changed` are the groups whose limits were to change, `withheld` those whose
    loosening waits for the limit on changes, `faults` what went wrong."""

    number: int
    at: float
    snapshot: Snapshot
    plan: Plan
    applied: Mapping[str, Setting] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    dry_run: bool = False
    by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tick(Record):
    """`state` is the policy's before this tick."""

    state: Any = None


class Loop:
    """Holds what must outlive a tick: the policy's state, the limits as planned last and as they are in force (hardware
    rounds), the changes of the last minute."""

    def __init__(
        self,
        policy: Policy[Any],
        sense: Callable[[float], Snapshot],
        act: Act | None,
        *,
        changes_per_minute: int = CHANGES_PER_MINUTE,
        tick_s: float = TICK_S,
        record: Callable[[Tick], None] | None = None,
    ) -> None:
        """Without `act` it is a dry run: plans are made, and nothing is done. `record` gets every tick."""
        self.policy = policy
        self._sense, self._act, self._record = sense, act, record
        self._allowed = changes_per_minute
        self._tick_s = tick_s
        self._state: Any = policy.start()
        self._planned: dict[str, Setting] = {}
        self._applied: dict[str, Setting] = {}
        self._by: Mapping[str, tuple[str, ...]] = {}
        self._changes: deque[float] = deque()
        self._last: Snapshot | None = None
        self._failed = 0
        self._ticks = 0

    def tick(self, now: float) -> Tick:
        """The next one is wanted after `plan.next_in_s`."""
        faults: list[str] = []
        snapshot = self._look(now, faults)
        before = self._state
        plan = self._decide(snapshot, faults)
        plan, changed, withheld = self._limit(plan, snapshot)
        self._do(plan, faults)
        tick = Tick(
            self._ticks, now, snapshot, plan, dict(self._applied), changed, withheld, tuple(faults),
            self._act is None, self._by, before,
        )  # fmt: skip
        self._ticks += 1
        if self._record is not None:
            self._record(tick)
        return tick

    def _look(self, now: float, faults: list[str]) -> Snapshot:
        try:
            snapshot = self._sense(now)
        except Exception as problem:
            faults.append(f"sensing: {_said(problem)}")
            snapshot = Snapshot(now, (), ()) if self._last is None else aged(self._last, now)
        else:
            self._last = snapshot
        limits = [self._applied.get(one.group.name, UNLIMITED) for one in snapshot.groups]
        if all(one.applied == limit for one, limit in zip(snapshot.groups, limits, strict=True)):
            return snapshot
        groups = tuple(replace(one, applied=limit) for one, limit in zip(snapshot.groups, limits, strict=True))
        return replace(snapshot, groups=groups)

    def _decide(self, snapshot: Snapshot, faults: list[str]) -> Plan:
        try:
            plan, self._state = self.policy.step(snapshot, self._state)
        except Exception as problem:
            faults.append(f"policy {self.policy.name}: {_said(problem)}")
            self._failed += 1
            if self._failed < POLICY_FAULTS:
                reason = Reason("policy-failed", "the policy failed: limits are held")
                return Plan(dict(self._planned), dict.fromkeys(self._planned, reason), self._tick_s)
            self._failed = 0
            self._state = self.policy.start()
            reason = Reason("policy-failed", "the policy fails again and again: limits are lifted, and it starts anew")
            return Plan({}, {one.group.name: reason for one in snapshot.groups}, self._tick_s)
        self._failed = 0
        guaranteed = {one.group.name for one in snapshot.of(PriorityClass.GUARANTEED)}
        settings = {
            name: Setting(cpus=one.cpus, weight=one.weight) if name in guaranteed else one
            for name, one in plan.settings.items()
        }
        settings = {name: one for name, one in settings.items() if one != UNLIMITED}
        next_in_s = self._tick_s if plan.next_in_s == TICK_S else plan.next_in_s
        return Plan(settings, plan.reasons, next_in_s)

    def _limit(self, plan: Plan, snapshot: Snapshot) -> tuple[Plan, tuple[str, ...], tuple[str, ...]]:
        """Past the limit on changes only what protects is let through: without loosening nothing can swing. Pauses to
        measure, moves to other CPUs, and lifting everything, do not count."""
        while self._changes and snapshot.at - self._changes[0] >= _MINUTE_S:
            self._changes.popleft()
        if plan.settings == self._planned:
            return plan, (), ()
        settings, reasons = dict(plan.settings), dict(plan.reasons)
        changed: list[str] = []
        withheld: list[str] = []
        for name in sorted({*settings, *self._planned}):
            new, old = settings.get(name, UNLIMITED), self._planned.get(name, UNLIMITED)
            if new == old:
                continue
            counts = replace(new, frozen=old.frozen, cpus=old.cpus, weight=old.weight) != old and bool(settings)
            if counts and len(self._changes) >= self._allowed and not tighter(new, old):
                settings[name] = replace(old, frozen=new.frozen, cpus=new.cpus, weight=new.weight)
                withheld.append(name)
                reasons[name] = Reason(
                    "too-many-changes", f"more than {self._allowed} changes a minute: loosening waits",
                    {"then": reasons[name].as_json() if name in reasons else None},
                )  # fmt: skip
                continue
            if counts:
                self._changes.append(snapshot.at)
            changed.append(name)
        return Plan(settings, reasons, plan.next_in_s), tuple(changed), tuple(withheld)

    def _do(self, plan: Plan, faults: list[str]) -> None:
        self._planned = dict(plan.settings)
        if self._act is None:
            return
        try:
            done = self._act.apply(plan)
        except LeaseLost as problem:
            faults.append(f"acting: {_said(problem)}")
            self._applied = self._planned = {}
            self._by = {}
        except Exception as problem:
            faults.append(f"acting: {_said(problem)}")
        else:
            faults.extend(done.errors)
            self._by = done.by
            self._applied = {name: one for name, one in done.settings.items() if one != UNLIMITED}


def tighter(new: Setting, old: Setting) -> bool:
    """Whether nothing in it is looser than before, a freeze, its CPUs and its weight left aside."""
    return (
        new.share <= old.share
        and _at_most(new.prefetching, old.prefetching)
        and _at_most(new.cores, old.cores)
        and (old.domains is None or (new.domains is not None and new.domains <= old.domains))
    )


def _at_most(new: int | None, old: int | None) -> bool:
    return old is None or (new is not None and new <= old)


def aged(snapshot: Snapshot, now: float) -> Snapshot:
    """The same readings, as old as they are by now."""
    more = max(0.0, now - snapshot.at)

    def older(reading: Reading) -> Reading:
        return replace(reading, age_s=reading.age_s + more)

    def home(one: DomainState) -> DomainState:
        return replace(
            one, bandwidth=older(one.bandwidth), latency_ns=older(one.latency_ns), saturation=older(one.saturation)
        )

    def group(one: GroupState) -> GroupState:
        return replace(
            one, step_s=older(one.step_s), tail_s=older(one.tail_s), bandwidth=older(one.bandwidth),
            cpus=older(one.cpus), rate=older(one.rate), wait=older(one.wait),
            throttled=older(one.throttled),
        )  # fmt: skip

    return replace(
        snapshot, at=now, domains=tuple(map(home, snapshot.domains)), groups=tuple(map(group, snapshot.groups)),
        steal=older(snapshot.steal),
    )  # fmt: skip


def _said(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"
