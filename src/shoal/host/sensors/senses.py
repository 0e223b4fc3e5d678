"""Puts together what sensors say: a `Snapshot` for the policy, and everything else for journal and metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shoal.base.statistics import quantile
from shoal.core import Capability, PriorityClass
from shoal.host.actuators.base import Unhindered
from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.linux.members import Found, Membership
from shoal.host.sensors.base import Key, Quantity, Readings, Scope, Sensor, missing
from shoal.host.sensors.latency import MemoryLatency
from shoal.host.sensors.uncore import sockets
from shoal.host.types import (
    NOT_SENSED,
    UNLIMITED,
    Control,
    Domain,
    DomainState,
    Group,
    GroupState,
    Missing,
    Reading,
    Setting,
    Snapshot,
    idle_below,
)

FREEZE_TAKES_S = 0.01
"""Until a freeze or thaw is in force (at most 7.9 ms where it was measured)."""


_READINGS = 5


@dataclass(slots=True)
class Undisturbed:
    """The median of the last readings during which all best-effort work was frozen or idle, so that a moment in which
    something else disturbed does no harm. Readings beside best-effort work in other memory domains alone count until
    there is a better one."""

    readings: deque[float] = field(default_factory=lambda: deque(maxlen=_READINGS))
    at: float = 0.0
    everywhere: bool = False

    def add(self, value: float, now: float, *, everywhere: bool) -> None:
        """`everywhere`: best-effort work was frozen or idle in all memory domains."""
        if self.everywhere and not everywhere:
            return
        if everywhere and not self.everywhere:
            self.readings.clear()
        self.readings.append(value)
        self.at, self.everywhere = now, everywhere

    def reading(self, now: float) -> Reading:
        if not self.readings:
            return Reading(Missing("no moment yet in which all best-effort work beside it was frozen or idle"))
        return Reading(quantile(self.readings, 0.5), now - self.at)


@dataclass(frozen=True, slots=True)
class Sensed:
    """One reading of the host. `found` are the groups' processes."""

    snapshot: Snapshot
    found: Mapping[str, Found]


def _not_known(name: str, found: Found) -> frozenset[int]:  # noqa: ARG001
    return frozenset()


class Senses:
    """`sensors` come strongest first: of two that say the same, the first that knows is believed. `capacity` is the
    calibrated bandwidth of domains, in bytes per second."""

    def __init__(
        self,
        domains: Sequence[Domain],
        membership: Membership,
        sensors: Sequence[Sensor],
        *,
        capacity: Mapping[int, float] | None = None,
        kernel: Kernel = LINUX,
    ) -> None:
        self._kernel = kernel
        self._membership = membership
        self._sensors = tuple(sensors)
        self._capacity = capacity or {}
        self.move(domains)
        self._alone: dict[Key, Undisturbed] = {}
        self._unhindered: dict[str, Unhindered] = {}
        self._quiet: frozenset[Key] = frozenset()
        self._frozen: frozenset[str] = frozenset()
        self._since = float("-inf")
        self._read_at = float("-inf")

    def move(self, domains: Sequence[Domain]) -> None:
        """Memory domains are these from now on: a hypervisor moves its CPUs."""
        self._domains = tuple(domains)
        self._sockets = {domain.id: sockets(self._kernel, domain.cpus) for domain in domains}
        for sensor in self._sensors:
            if isinstance(sensor, MemoryLatency):
                sensor.domains = self._domains

    def capabilities(self) -> tuple[Capability, ...]:
        """Of all sensors, strongest first."""
        return tuple(sensor.capability() for sensor in self._sensors)

    def unhindered(self, group: str) -> Unhindered:
        """The most that a group took while nothing limited it."""
        return self._unhindered.get(group, Unhindered())

    def read(
        self,
        now: float,
        applied: Mapping[str, Setting],
        *,
        controls: frozenset[Control] = frozenset(Control),
        least_share: float = 0.01,
        free: Callable[[str, Found], frozenset[int]] = _not_known,
    ) -> Sensed:
        """The host at `now` (monotonic seconds). `applied` is what has been in force since the last reading; `free`
        says on which CPUs a group may run when nothing here binds it, none if that is not known."""
        found = self._membership.refresh(now)
        frozen = frozenset(name for name, setting in applied.items() if setting.frozen)
        if frozen != self._frozen:
            self._since = self._read_at + FREEZE_TAKES_S
            self._frozen = frozen
        readings = self._merged(now, found)
        self._learn(now, found, readings, applied)
        groups = tuple(
            self._group(group, found[name], readings, applied.get(name, UNLIMITED), now, free(name, found[name]))
            for name, (group, _) in self._membership.groups.items()
        )
        domains = tuple(self._domain(domain, readings, now) for domain in self._domains)
        self._read_at = now
        steal = readings.get(Key(Quantity.STEAL, Scope.HOST), NOT_SENSED)
        return Sensed(Snapshot(now, domains, groups, controls, least_share, steal), found)

    def close(self) -> None:
        for sensor in self._sensors:
            sensor.close()

    def _merged(self, now: float, found: Mapping[str, Found]) -> Readings:
        merged: dict[Key, Reading] = {}
        for sensor in self._sensors:
            for key, reading in sensor.read(now, found, self._since).items():
                known = merged.get(key)
                if known is None or (known.known() is None and reading.known() is not None):
                    merged[key] = reading
        return merged

    def _domain(self, domain: Domain, readings: Readings, now: float) -> DomainState:
        capacity = self._capacity.get(domain.id)
        return DomainState(
            domain,
            bandwidth=self._of_socket(domain, Quantity.BANDWIDTH, readings),
            capacity=missing("it was not calibrated") if capacity is None else Reading(capacity),
            latency_ns=readings.get(_latency(domain.id), NOT_SENSED),
            alone_ns=self._undisturbed(_latency(domain.id), now),
            saturation=self._of_socket(domain, Quantity.SATURATION, readings),
        )

    def _of_socket(self, domain: Domain, quantity: Quantity, readings: Readings) -> Reading:
        """Of the domain itself if it is counted; else its socket's. Distress holds back a whole socket, but a socket's
        bandwidth is no domain's where there are several."""
        own = readings.get(Key(quantity, Scope.DOMAIN, domain.id), NOT_SENSED)
        on = self._sockets[domain.id]
        if own.known() is not None or len(on) != 1:
            return own
        whole = readings.get(Key(quantity, Scope.SOCKET, min(on)))
        shared = sum(self._sockets[other.id] == on for other in self._domains) > 1
        if whole is None or (quantity is Quantity.BANDWIDTH and shared):
            return own
        return whole

    def _group(
        self, group: Group, found: Found, readings: Readings, applied: Setting, now: float, free: frozenset[int]
    ) -> GroupState:
        def of(quantity: Quantity) -> Reading:
            return readings.get(Key(quantity, Scope.GROUP, group.name), NOT_SENSED)

        best_effort = group.priority_class is PriorityClass.BEST_EFFORT
        # Limits count in a group's own cores, so those must not shrink because of a limit.
        own = found.cpus if not free else free if applied.cpus is None else free & applied.cpus
        return GroupState(
            group,
            domains=self._homes(found),
            cores=max(1, len(own)),
            step_s=of(Quantity.STEP),
            tail_s=of(Quantity.TAIL),
            alone_s=NOT_SENSED if best_effort else self._undisturbed(_step(group.name), now),
            bandwidth=of(Quantity.BANDWIDTH),
            cpus=of(Quantity.CPUS) if found.processes else Reading(0.0),
            applied=applied,
            free=free,
            rate=of(Quantity.RATE),
            wait=of(Quantity.WAIT),
            throttled=of(Quantity.THROTTLED),
            unmatched=found.unmatched,
        )

    def _homes(self, found: Found) -> frozenset[int]:
        return frozenset(domain.id for domain in self._domains if domain.cpus & found.cpus)

    def _learn(
        self, now: float, found: Mapping[str, Found], readings: Readings, applied: Mapping[str, Setting]
    ) -> None:
        """What guaranteed work and memory take undisturbed, and what best-effort work takes unlimited."""
        disturbed: frozenset[int] = frozenset()
        for gone in self._unhindered.keys() - found.keys():
            self._unhindered.pop(gone)
        for name, (group, _) in self._membership.groups.items():
            if not found[name].processes:  # others may come, and are not to be judged by these
                self._alone.pop(_step(name), None)
                self._unhindered.pop(name, None)
            elif group.priority_class is PriorityClass.BEST_EFFORT:
                cpus = readings.get(Key(Quantity.CPUS, Scope.GROUP, name), NOT_SENSED).known()
                limit = applied.get(name, UNLIMITED)
                if limit == UNLIMITED or replace(limit, cpus=None) == UNLIMITED:
                    self._learn_unhindered(name, cpus, readings)
                idle = idle_below(limit.share, len(found[name].cpus))
                if name not in self._frozen and (cpus is None or cpus >= idle):
                    disturbed |= self._homes(found[name])
        homes = {_latency(domain.id): frozenset({domain.id}) for domain in self._domains}
        for name, (group, _) in self._membership.groups.items():
            if group.priority_class is PriorityClass.GUARANTEED and found[name].processes:
                homes[_step(name)] = self._homes(found[name])
        self._alone = {key: one for key, one in self._alone.items() if key in homes}
        quiet = frozenset(key for key, on in homes.items() if not on & disturbed)
        for key in quiet:
            reading = readings.get(key, NOT_SENSED)
            was_quiet = key in self._quiet or self._since > self._read_at  # a freeze is known to the moment
            if was_quiet and reading.age_s < now - self._read_at and (known := reading.known()) is not None:
                self._alone.setdefault(key, Undisturbed()).add(known, now, everywhere=not disturbed)
        self._quiet = quiet

    def _undisturbed(self, key: Key, now: float) -> Reading:
        return self._alone.get(key, Undisturbed()).reading(now)

    def _learn_unhindered(self, name: str, cpus: float | None, readings: Readings) -> None:
        before = self.unhindered(name)
        bandwidth = readings.get(Key(Quantity.BANDWIDTH, Scope.GROUP, name), NOT_SENSED).known()
        self._unhindered[name] = Unhindered(_most(before.cpus, cpus), _most(before.bandwidth, bandwidth))


def _step(group: str) -> Key:
    return Key(Quantity.STEP, Scope.GROUP, group)


def _latency(domain: int) -> Key:
    return Key(Quantity.LATENCY, Scope.DOMAIN, domain)


def _most(known: float | None, new: float | None) -> float | None:
    return new if known is None else known if new is None else max(known, new)
