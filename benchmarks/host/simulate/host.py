"""A host that exists only in time: it moves when it is sensed, and does what it was told a little later."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from host.simulate.physics import LEAK, Flow, Moment, latency_ns, moments, saturation, slowdown
from host.simulate.workloads import BEST_EFFORT, GUARANTEED, Mechanism, Placed, Scenario
from shoal.base.statistics import weighted_quantile
from shoal.core import PriorityClass
from shoal.host.sensors.senses import Undisturbed
from shoal.host.types import UNLIMITED, DomainState, GroupState, Missing, Reading, Setting, Snapshot

_ABSENT = Reading(Missing("this simulated host has no such sensor"))
_BLIND = Reading(Missing("no sensor answers at this moment of the simulation"))
_IDLE = Reading(Missing("it does nothing at this moment of the simulation"))


@dataclass(slots=True)
class Flowed:
    """What happened in one interval. `steps` are a guaranteed group's units: (slowdown, count); `speed` a best-effort
    group's, as a part of what it does unhindered, over time."""

    began: float
    ended: float
    steps: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    """Seconds in which it had something to do."""
    speed: dict[str, float] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)
    """Bytes."""
    cpu: dict[str, float] = field(default_factory=dict)
    """CPU seconds."""
    pressure: dict[int, float] = field(default_factory=dict)
    latency: dict[int, float] = field(default_factory=dict)
    saturated: dict[int, float] = field(default_factory=dict)
    domains: dict[str, frozenset[int]] = field(default_factory=dict)

    @property
    def length(self) -> float:
        return self.ended - self.began

    def slowdown(self, name: str) -> float | None:
        """The mean over its units; None if it finished none."""
        found = self.steps.get(name)
        count = sum(n for _, n in found) if found else 0.0
        return sum(value * n for value, n in found) / count if found and count else None


@dataclass(frozen=True, slots=True)
class _Part:
    """Some cores of a best-effort group in one domain. `pace` is its speed before contention."""

    group: str
    domain: int
    cores: float
    pace: float
    bandwidth: float
    flow: Flow


class SimulatedHost:
    """Deterministic for a scenario (its seed included) and the plans it is given."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.history: list[Flowed] = []
        self._now = 0.0
        self._settings: dict[str, Setting] = {}
        self._pending: tuple[float, dict[str, Setting]] | None = None
        self._random = random.Random(scenario.seed)
        self._wander = 0.0
        self._alone: dict[str | int, Undisturbed] = {}
        self._known: dict[object, tuple[list[_Part], dict[int, list[Moment]]]] = {}

    def tell(self, settings: Mapping[str, Setting]) -> None:
        """Limits that hold a moment from now."""
        self._settle(self._now)
        self._pending = (self._now + self.scenario.host.lag_s, dict(settings))

    def sense(self, now: float) -> Snapshot:
        """What happened since the last call, as this host's sensors show it."""
        flowed = self._advance(now)
        self._stray(flowed.length)
        self.history.append(flowed)
        host = self.scenario.host
        homes = tuple(self._domain_state(one.id, flowed) for one in host.domains)
        groups = tuple(self._group_state(one, flowed) for one in self.scenario.work if now < one.until_s)
        return Snapshot(now, homes, groups, host.controls, host.least_share)

    def _advance(self, until: float) -> Flowed:
        flowed = Flowed(self._now, until)
        while self._now < until - 1e-9:
            end = min([until, *(at for at in self._changes() if at > self._now + 1e-9)])
            self._settle(self._now)
            self._flow(flowed, end - self._now)
            self._now = end
        self._now = until
        return flowed

    def _settle(self, now: float) -> None:
        if self._pending is not None and self._pending[0] <= now + 1e-9:
            self._settings, self._pending = self._pending[1], None

    def _changes(self) -> Iterable[float]:
        if self._pending is not None:
            yield self._pending[0]
        for one in self.scenario.work:
            yield from (one.from_s, one.until_s)
            if one.off_s > 0 and self._now >= one.from_s:
                period = one.on_s + one.off_s
                cycle = one.from_s + ((self._now - one.from_s + 1e-9) // period) * period
                yield from (cycle + one.on_s, cycle + period)

    def _flow(self, flowed: Flowed, length: float) -> None:
        at = self._now + length / 2
        active = [one for one in self.scenario.work if one.active(at)]
        parts, momentary = self._contention(active)
        mean = {home: sum(one.part * one.pressure for one in found) for home, found in momentary.items()}
        for home, found in momentary.items():
            leaked = LEAK * (sum(mean.values()) - mean[home])
            add(flowed.pressure, home, mean[home] * length)
            felt = [(one.part, min(1.0, one.pressure + leaked)) for one in found]
            add(flowed.latency, home, length * sum(part * latency_ns(pressure) for part, pressure in felt))
            add(flowed.saturated, home, length * sum(part * saturation(pressure) for part, pressure in felt))
        for one in active:
            add(flowed.busy, one.group.name, length)
            if one.group.priority_class is PriorityClass.GUARANTEED:
                self._guaranteed(
                    flowed, one, length, momentary[one.domain], LEAK * (sum(mean.values()) - mean[one.domain])
                )
        for home in momentary:
            here = [part for part in parts if part.domain == home]
            for position, part in enumerate(here):
                speed = part.pace * sum(one.part * one.speeds[position] for one in momentary[home])
                add(flowed.speed, part.group, length * speed * part.cores)
                add(flowed.moved, part.group, length * speed * part.bandwidth)
                add(flowed.cpu, part.group, length * part.cores * min(1.0, part.pace) * part.flow.on)
                flowed.domains[part.group] = flowed.domains.get(part.group, frozenset()) | {home}

    def _guaranteed(self, flowed: Flowed, one: Placed, length: float, found: list[Moment], leaked: float) -> None:
        spec = GUARANTEED[one.kind]
        steps = flowed.steps.setdefault(one.group.name, [])
        for moment in found:
            slow = slowdown(
                spec.exposure, spec.own, spec.cached, moment.pressure + spec.leak * leaked, moment.displacement
            )
            count = length * moment.part / (spec.alone_s * slow)
            steps.append((slow, count))
            add(flowed.moved, one.group.name, length * moment.part * spec.bandwidth * one.cores / slow)
        add(flowed.cpu, one.group.name, length * one.cores)

    def _contention(self, active: list[Placed]) -> tuple[list[_Part], dict[int, list[Moment]]]:
        """Depends on who is active and what is in force, and on nothing else: remembered."""
        key = (
            tuple(one.group.name for one in active), tuple(sorted(self._settings.items(), key=lambda item: item[0]))
        )  # fmt: skip
        if key not in self._known:
            if len(self._known) > 10_000:
                self._known.clear()
            parts = self._place(active)
            found = {
                home.id: list(moments([part.flow for part in parts if part.domain == home.id]))
                for home in self.scenario.host.domains
            }
            self._known[key] = (parts, found)
        return self._known[key]

    def _place(self, active: list[Placed]) -> list[_Part]:
        """Best-effort groups on the cores that guaranteed work leaves, domains without such work first; where more
        cores are wanted than there are, all share them."""
        free = {home.id: float(len(home.cpus)) for home in self.scenario.host.domains}
        homes = set()
        for one in self.scenario.guaranteed():
            free[one.domain] -= one.cores
            homes.add(one.domain)
        taken: list[tuple[Placed, Setting, int, float]] = []
        left = dict(free)
        for one in active:
            setting = self._settings.get(one.group.name, UNLIMITED)
            if one.group.priority_class is PriorityClass.GUARANTEED or setting.frozen:
                continue
            allowed = sorted(setting.domains or {one.domain}, key=lambda home: (home in homes, home))
            wanted = float(min(one.cores, one.cores if setting.cores is None else setting.cores))
            for home in allowed:
                cores = wanted if home == allowed[-1] else min(wanted, max(0.0, left[home]))
                if cores > 0:
                    taken.append((one, setting, home, cores))
                    left[home] -= cores
                    wanted -= cores
        crowd = {
            home: min(1.0, max(0.0, free[home]) / total) if (total := free[home] - left[home]) > 0 else 1.0
            for home in free
        }
        return [self._part(one, setting, home, cores * crowd[home]) for one, setting, home, cores in taken]

    def _part(self, one: Placed, setting: Setting, home: int, cores: float) -> _Part:
        spec, mechanism = BEST_EFFORT[one.kind], self.scenario.host.mechanism
        plain = 0.0 if setting.prefetching is None else max(0.0, 1 - setting.prefetching / one.cores)
        pace, on = 1 - plain * spec.slowed, 1.0
        if mechanism is Mechanism.PACING:
            pace *= setting.share
        elif mechanism is Mechanism.QUOTA:
            on = setting.share
        else:
            pace /= 1 - spec.memory + spec.memory / max(setting.share, 1e-6)
        bandwidth = cores * spec.bandwidth * (1 - plain * spec.prefetched) / (1 - plain * spec.slowed)
        demand = bandwidth * pace * spec.press / self.scenario.host.capacity
        flow = Flow(one.group.name, demand, spec.displaces * pace, spec.memory, on)
        return _Part(one.group.name, home, cores, pace, bandwidth, flow)

    def _blind(self) -> bool:
        span = self.scenario.host.sensing.blind
        return span is not None and span[0] <= self._now < span[1]

    def _domain_state(self, home: int, flowed: Flowed) -> DomainState:
        sensing, length = self.scenario.host.sensing, max(flowed.length, 1e-9)
        domain = next(one for one in self.scenario.host.domains if one.id == home)

        def reading(there: bool, value: float) -> Reading:
            return _ABSENT if not there else _BLIND if self._blind() else Reading(value * self._noise(length))

        moved = sum(
            flowed.moved.get(one.group.name, 0.0) * self._part_in(one, home, flowed) for one in self.scenario.work
        )
        latency = reading(sensing.latency, flowed.latency.get(home, 0.0) / length)
        return DomainState(
            domain,
            bandwidth=reading(sensing.bandwidth, moved / length),
            capacity=Reading(self.scenario.host.capacity),
            latency_ns=latency,
            saturation=reading(sensing.saturation, flowed.saturated.get(home, 0.0) / length),
            alone_ns=self._undisturbed(home, frozenset({home}), latency, flowed),
        )

    def _part_in(self, one: Placed, home: int, flowed: Flowed) -> float:
        domains = flowed.domains.get(one.group.name, frozenset({one.domain}))
        return 1 / len(domains) if home in domains else 0.0

    def _group_state(self, one: Placed, flowed: Flowed) -> GroupState:
        name, sensing, length = one.group.name, self.scenario.host.sensing, max(flowed.length, 1e-9)
        blind, here = self._blind(), flowed.domains.get(one.group.name, frozenset({one.domain}))
        cpus = _ABSENT if not sensing.cpus else Reading(flowed.cpu.get(name, 0.0) / length)
        bandwidth = (
            _ABSENT if not sensing.bandwidth else _BLIND if blind else Reading(flowed.moved.get(name, 0.0) / length)
        )
        if one.group.priority_class is not PriorityClass.GUARANTEED:
            return GroupState(one.group, here, one.cores, bandwidth=bandwidth, cpus=_BLIND if blind else cpus)
        alone = GUARANTEED[one.kind].alone_s
        step, tail = _ABSENT, _ABSENT
        slow = flowed.slowdown(name)
        if sensing.step_time:
            if blind or slow is None:
                step = tail = _BLIND if blind else _IDLE
            else:
                noise = self._noise(length) * self._drift() * (1 + self._wander)
                step = Reading(alone * slow * noise)
                tail = Reading(alone * weighted_quantile(flowed.steps[name], 0.99) * noise)
        known = self._undisturbed(name, frozenset({one.domain}), step, flowed)
        if isinstance(known.value, Missing) and sensing.alone and sensing.step_time:
            known = Reading(alone)
        return GroupState(
            one.group, here, one.cores, step_s=step, tail_s=tail, alone_s=known, bandwidth=bandwidth,
            cpus=_BLIND if blind else cpus,
        )  # fmt: skip

    def _undisturbed(self, of: str | int, homes: frozenset[int], now: Reading, flowed: Flowed) -> Reading:
        """As the guard's senses learn it."""
        known = self._alone.setdefault(of, Undisturbed())
        busy = frozenset[int]().union(*(on for name, on in flowed.domains.items() if flowed.cpu.get(name)))
        if (value := now.known()) is not None and flowed.length > 0 and not busy & homes:
            known.add(value, flowed.ended, everywhere=not busy)
        return known.reading(flowed.ended)

    def _noise(self, length: float) -> float:
        """The mean over a shorter time is noisier."""
        sigma = self.scenario.host.sensing.noise * (0.1 / max(length, 0.01)) ** 0.5
        return max(0.5, self._random.gauss(1.0, sigma))

    def _stray(self, length: float) -> None:
        """An Ornstein-Uhlenbeck process, bounded."""
        sensing = self.scenario.host.sensing
        if sensing.wander:
            kept = math.exp(-length / sensing.wander_s)
            fresh = self._random.gauss(0.0, sensing.wander * math.sqrt(1 - kept**2))
            self._wander = min(0.5, max(-0.5, self._wander * kept + fresh))

    def _drift(self) -> float:
        factor = 1.0
        for one in self.scenario.drifts:
            if self._now >= one.at:
                factor *= one.factor
        return factor


def add(totals: dict[str, float] | dict[int, float], key: str | int, amount: float) -> None:
    totals[key] = totals.get(key, 0.0) + amount  # type: ignore[index,arg-type]
