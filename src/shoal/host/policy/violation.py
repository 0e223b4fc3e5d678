"""Violation of a promise, in one number whatever sensor it comes from.

A *violation* of 1 means: exactly as slow as the group's `max_slowdown` permits; 0: undisturbed. The best sensor that
answers is believed: the work's own step time, else the latency probe of its domain, else saturation, else bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shoal.core import PriorityClass
from shoal.host.types import IDLE_CPUS, DomainState, GroupState, Missing, Snapshot, idle_below

HOLD_TICKS = 20
"""The number of ticks without an answer about a guaranteed group for which limits are held; then it is no
longer protected blindly."""
BANDWIDTH_MARK = 0.75
"""Of a domain's capacity: where queues at memory begin to grow, when nothing better than bandwidth is known."""
_NOW_S = 0.03
"""A reading that is older is not of this tick."""
_LEAST_LOSS = 0.005
"""A promise that is tighter than what can be told from noise is treated as this one."""


class Source(StrEnum):
    """What a violation was measured by, best first."""

    STEP = "step time"
    LATENCY = "memory latency"
    SATURATION = "memory saturation"
    BANDWIDTH = "memory bandwidth"


@dataclass(frozen=True, slots=True)
class Quiet:
    """What was read in the last moment without best-effort work: a unit's time by guaranteed group, latency by domain.
    Where it is given, it is believed before what the sensors say of undisturbed work."""

    step_s: Mapping[str, float] = field(default_factory=dict)
    latency_ns: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    """`loss` is the part of its speed that the group has lost, as far as `sensor` tells."""

    group: str
    sensor: Source
    loss: float
    value: float


@dataclass(frozen=True, slots=True)
class Watch:
    """How many ticks nothing was heard of each guaranteed group that is silent."""

    silent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """A snapshot's violations. `worst` is None if no group answers. With `hold`, a group has been silent for a short
    time: nothing may be loosened."""

    worst: Violation | None
    hold: bool
    watch: Watch


NO_QUIET = Quiet()


def look(snapshot: Snapshot, watch: Watch, quiet: Quiet = NO_QUIET) -> Seen:
    """All guaranteed groups of a snapshot, and the one that is hit hardest."""
    guaranteed = snapshot.of(PriorityClass.GUARANTEED)
    violations: list[Violation] = []
    silent: dict[str, int] = {}
    for state in guaranteed:
        name = state.group.name
        violation = violation_of(state, snapshot, quiet)
        if violation is not None:
            violations.append(violation)
        else:
            silent[name] = min(watch.silent.get(name, 0) + 1, HOLD_TICKS + 1)
    worst = max(violations, key=lambda violation: violation.value, default=None)
    return Seen(worst, any(ticks <= HOLD_TICKS for ticks in silent.values()), Watch(silent))


def violation_of(state: GroupState, snapshot: Snapshot, quiet: Quiet = NO_QUIET) -> Violation | None:
    """None if no sensor tells. A group that is known to use no CPU has nothing to lose."""
    name, allowed = state.group.name, allowed_loss(state)
    now, alone = state.step_s.known(), _undisturbed(state, quiet)
    if now is not None and alone:
        return _violation(name, Source.STEP, 1 - alone / now if now > 0 else 0.0, allowed)
    cpus = state.cpus.known()
    if cpus is not None and cpus < IDLE_CPUS:
        return Violation(name, Source.STEP, 0.0, 0.0)
    homes = [one for one in snapshot.domains if one.domain.id in state.domains]
    for sensor, loss_of in (
        (Source.LATENCY, lambda home: _latency_loss(home, quiet)),
        (Source.SATURATION, lambda home: home.saturation.known()),
        (Source.BANDWIDTH, lambda home: _crowding(home, allowed)),
    ):
        losses = [loss for home in homes if (loss := loss_of(home)) is not None]
        if losses:
            return _violation(name, sensor, max(losses), allowed)
    return None


def allowed_loss(state: GroupState) -> float:
    """The part of its speed that a guaranteed group may lose: 0.048 for a `max_slowdown` of 1.05."""
    return max(_LEAST_LOSS, 1 - 1 / max(1.0, state.group.max_slowdown))


def absorb(quiet: Quiet, snapshot: Snapshot) -> Quiet:
    """What is read now was read undisturbed."""
    steps, latencies = dict(quiet.step_s), dict(quiet.latency_ns)
    for state in snapshot.of(PriorityClass.GUARANTEED):
        now = state.step_s.known(stale_s=_NOW_S)
        if now is not None and now > 0:
            steps[state.group.name] = now
    for home in snapshot.domains:
        latency = home.latency_ns.known(stale_s=_NOW_S)
        if latency is not None and latency > 0:
            latencies[str(home.domain.id)] = latency
    return Quiet(steps, latencies)


def lowest(quiet: Quiet, snapshot: Snapshot) -> Quiet:
    """For policies that never pause any group: the lowest latency ever seen stands for the undisturbed one."""
    latencies = dict(quiet.latency_ns)
    for home in snapshot.domains:
        latency = home.latency_ns.known()
        if latency is not None and latency > 0:
            key = str(home.domain.id)
            latencies[key] = min(latency, latencies.get(key, latency))
    return Quiet(quiet.step_s, latencies)


def is_idle(state: GroupState) -> bool:
    """Whether it is known to run nothing now. Unknown is not idle; nor is what we hold frozen, or held when an older
    reading was taken."""
    cpus = None if state.applied.frozen else state.cpus.known(stale_s=_NOW_S)
    return cpus is not None and cpus < idle_below(state.applied.share, state.cores)


def has_run(state: GroupState, *, before: bool) -> bool:
    """Whether it has run since the last tick: as it did `before`, where nothing newer is known."""
    if state.cpus.known(stale_s=_NOW_S) is not None:
        return not is_idle(state)
    return before or isinstance(state.cpus.value, Missing)


def _violation(name: str, sensor: Source, loss: float, allowed: float) -> Violation:
    loss = min(max(loss, 0.0), 0.99)
    return Violation(name, sensor, loss, loss / allowed)


def _undisturbed(state: GroupState, quiet: Quiet) -> float | None:
    found = quiet.step_s.get(state.group.name)
    return found if found is not None else state.alone_s.known(stale_s=float("inf"))


def _latency_loss(home: DomainState, quiet: Quiet) -> float | None:
    """A batch's time grew by about the 0.8th power of what the probe's latency grew by, over six kinds of neighbours.
    Where that is wrong for small losses, it is by saying too much."""
    now, alone = home.latency_ns.known(), quiet.latency_ns.get(str(home.domain.id))
    alone = home.alone_ns.known(stale_s=float("inf")) if alone is None else alone
    return None if not now or not alone else 1 - 1 / (1 + float(max(0.0, now / alone - 1) ** 0.8))


def _crowding(home: DomainState, allowed: float) -> float | None:
    """No loss, but made to reach what is allowed where the bandwidth reaches its mark."""
    used, capacity = home.bandwidth.known(), home.capacity.known(stale_s=float("inf"))
    return None if used is None or not capacity else allowed * used / capacity / BANDWIDTH_MARK
