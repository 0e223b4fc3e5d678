"""Types of a guard: what it senses (`Snapshot`), and what it decides from that (`Plan`).

Bandwidths are bytes per second, times seconds unless the name says otherwise. What could not be sensed is `Missing`
with its reason: unknown is never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeVar

from shoal.core import PriorityClass, Reason

TICK_S = 0.1
STALE_S = 1.0
"""An older reading is as good as none."""
WAIT_STALE_S = 30.0
"""Waiting is told thread by thread, which is read seldom, and decides nothing."""
IDLE_CPUS = 0.02
"""Work that keeps fewer CPUs busy neither disturbs other work nor has anything to lose."""
_IDLE_PART = 0.1
_MUCH_WAITING, _TOO_FEW_CPUS = 0.1, 0.9


def idle_below(share: float, cores: int) -> float:
    """The CPUs of which a group keeps fewer busy when it does nothing, for undisturbed times and policies alike. A core
    that limited work has for a twentieth of the time is busy when it is used for a twentieth."""
    return min(IDLE_CPUS, _IDLE_PART * share * cores)


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a value is not there, in a sentence that says how to have it, if one can."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    value: float | Missing
    age_s: float = 0.0

    def known(self, *, stale_s: float = STALE_S) -> float | None:
        """The value, unless it is missing or older than `stale_s`."""
        return None if isinstance(self.value, Missing) or self.age_s > stale_s else self.value


NOT_SENSED = Reading(Missing("nothing senses it"))


@dataclass(frozen=True, slots=True)
class Domain:
    """CPUs that share a last-level cache and a path to memory: Kelp's subdomain (an AMD CCX, a half of an Intel socket
    under sub-NUMA clustering). `nodes` are its NUMA nodes, `accelerators` the devices whose home it is, `siblings` the
    CPUs of each physical core that has several."""

    id: int
    cpus: frozenset[int]
    nodes: frozenset[int] = frozenset({0})
    accelerators: tuple[str, ...] = ()
    siblings: tuple[frozenset[int], ...] = ()


@dataclass(frozen=True, slots=True)
class DomainState:
    """`saturation` is the share of cycles in which memory pushed back on the cores (0 to 1), `latency_ns` what one
    dependent load from memory takes, `alone_ns` that without best-effort work, `capacity` the bandwidth it was
    calibrated to have."""

    domain: Domain
    bandwidth: Reading = NOT_SENSED
    capacity: Reading = NOT_SENSED
    latency_ns: Reading = NOT_SENSED
    saturation: Reading = NOT_SENSED
    alone_ns: Reading = NOT_SENSED


@dataclass(frozen=True, slots=True)
class Group:
    """Processes that are treated alike. A guaranteed group may be slowed down by `max_slowdown` (1.05: a twentieth);
    best-effort groups share what is left by `weight`, and keep at least `min_share` of their speed. `cpus` is how many
    CPUs it was promised, None if it is not known."""

    name: str
    priority_class: PriorityClass
    weight: float = 1.0
    min_share: float = 0.02
    max_slowdown: float = 1.05
    cpus: float | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """Limits on a group; the default limits nothing. Of guaranteed groups `cpus` and `weight` are all that is ever set.

    `share` is the fraction of its cores' unhindered access to memory that it keeps. Whatever the machine has for that
    is used: bandwidth allocation in hardware, pacing of cores, CPU quota. `cores` and `prefetching` are on how many of
    its cores it runs and hardware prefetchers are on, `domains` and `cpus` where it may run; None leaves each as it was
    found. `weight` is how many times as much as ordinary work it weighs where both want the same CPU; None as found.
    """

    share: float = 1.0
    prefetching: int | None = None
    cores: int | None = None
    domains: frozenset[int] | None = None
    cpus: frozenset[int] | None = None
    frozen: bool = False
    weight: float | None = None


UNLIMITED = Setting()


@dataclass(frozen=True, slots=True)
class GroupState:
    """What a group did since the last tick.

    `step_s` is the mean CPU time of a unit of its own work (batch, request, step), so that waiting for a CPU does not
    count; `tail_s` the 99th percentile of it; `alone_s` what a unit takes when no best-effort work disturbs, as far as
    known. `cpus` is how many CPUs it kept busy. `domains` is where it runs, on `cores` CPUs; `free` are the CPUs where
    it may run when nothing here binds it, none if that is not known. `applied` is the limit in force.

    `rate` is units of work per second by the clock, `wait` the seconds that its threads could run and did not, per
    second that they ran. `throttled` is the share of periods in which its CPU quota ran out, ours or its own.
    `unmatched` is what of its definition matches no process, such as `pids 7, 8`.
    """

    group: Group
    domains: frozenset[int]
    cores: int = 1
    step_s: Reading = NOT_SENSED
    tail_s: Reading = NOT_SENSED
    alone_s: Reading = NOT_SENSED
    bandwidth: Reading = NOT_SENSED
    cpus: Reading = NOT_SENSED
    applied: Setting = UNLIMITED
    free: frozenset[int] = frozenset()
    rate: Reading = NOT_SENSED
    wait: Reading = NOT_SENSED
    throttled: Reading = NOT_SENSED
    unmatched: str = ""

    @property
    def slowdown(self) -> float | None:
        """Of a unit of its work against undisturbed, at least 1; None if unknown."""
        now, alone = self.step_s.known(), self.alone_s.known(stale_s=float("inf"))
        return None if now is None or not alone else max(1.0, now / alone)

    @property
    def waiting(self) -> float | None:
        """The part of the time in which its threads could run that they waited for a CPU instead, 0 to 1; None if
        unknown. Not in its steps' CPU time, so nor in `slowdown`."""
        wait = self.wait.known(stale_s=WAIT_STALE_S)
        return None if wait is None else wait / (1 + wait)

    @property
    def starved(self) -> bool:
        """Whether it waits a tenth of that time although it gets fewer CPUs than it was promised. Where it gets as
        many, it waits for threads of its own."""
        promised, cpus, waiting = self.group.cpus, self.cpus.known(), self.waiting
        if promised is None or cpus is None or waiting is None:
            return False
        return waiting >= _MUCH_WAITING and cpus < _TOO_FEW_CPUS * promised


class Control(StrEnum):
    """What a policy may turn, in the order in which it should: the cheapest for best-effort work first."""

    WEIGHT = "weight"
    CPUS = "cpus"
    DOMAINS = "domains"
    SHARE = "share"
    PREFETCHING = "prefetching"
    CORES = "cores"
    FREEZE = "freeze"

    __hash__ = str.__hash__  # an enum's own is Python code


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`at` is seconds on a monotonic clock, `controls` what actuators of this host can turn, `least_share` the smallest
    share that they can set, `steal` the share of CPU time that the hypervisor took."""

    at: float
    domains: tuple[DomainState, ...]
    groups: tuple[GroupState, ...]
    controls: frozenset[Control] = frozenset(Control)
    least_share: float = 0.01
    steal: Reading = NOT_SENSED

    def of(self, priority_class: PriorityClass) -> tuple[GroupState, ...]:
        return tuple([state for state in self.groups if state.group.priority_class is priority_class])


@dataclass(frozen=True, slots=True)
class Plan:
    """The limit on each group, and why. Groups that are not named are unlimited. The next snapshot is
    wanted after `next_in_s`: sooner than a tick while a group is frozen only to measure."""

    settings: Mapping[str, Setting]
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    next_in_s: float = TICK_S


@dataclass(frozen=True, slots=True)
class Applied:
    """The limits that hold now, by group with processes; what could not be done, or was found undone, in sentences; and
    the names of the mechanisms that hold each group's limits."""

    settings: Mapping[str, Setting] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


State = TypeVar("State")


class Policy(Protocol[State]):
    """Pure: reads no clock, keeps nothing. The state is a frozen value that JSON can hold."""

    @property
    def name(self) -> str: ...

    def start(self) -> State: ...

    def step(self, snapshot: Snapshot, state: State) -> tuple[Plan, State]: ...
