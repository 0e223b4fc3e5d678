"""The guard's last tick as Prometheus metrics. What is unknown has no sample: it is not zero."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shoal.core import PriorityClass
from shoal.host.guard.loop import Tick
from shoal.host.policy.violation import allowed_loss
from shoal.host.types import UNLIMITED, DomainState, GroupState, Setting


@dataclass(slots=True)
class Counters:
    """What adds up over the guard's life."""

    ticks: int = 0
    changes: int = 0
    withheld: int = 0
    faults: int = 0
    violated_s: float = 0.0
    cpu_s: float = 0.0
    journal_lost: int = 0
    last_at: float | None = None

    def count(self, tick: Tick) -> None:
        self.ticks += 1
        self.changes += len(tick.changed)
        self.withheld += len(tick.withheld)
        self.faults += len(tick.faults)
        if self.last_at is not None:
            states = tick.snapshot.of(PriorityClass.GUARANTEED)
            slow = [one for one in states if one.starved or (one.slowdown or 1.0) > 1 / (1 - allowed_loss(one))]
            self.violated_s += (tick.at - self.last_at) if slow else 0.0
        self.last_at = tick.at


def _slowdown(one: GroupState) -> float | None:
    return one.slowdown if one.group.priority_class is PriorityClass.GUARANTEED else None


def _latency(home: DomainState) -> float | None:
    return None if (ns := home.latency_ns.known()) is None else ns / 1e9


_OF_GROUPS: tuple[tuple[str, str, Callable[[GroupState], float | None]], ...] = (
    ("shoal_guard_slowdown", "Of the CPU time of a unit of guaranteed work, against undisturbed.", _slowdown),
    ("shoal_guard_step_seconds", "Mean CPU time of a unit of work.", lambda one: one.step_s.known()),
    ("shoal_guard_step_p99_seconds", "99th percentile of it.", lambda one: one.tail_s.known()),
    ("shoal_guard_group_bytes_per_second", "Memory traffic.", lambda one: one.bandwidth.known()),
    ("shoal_guard_waiting_ratio", "Part of the time in which it could run that a group waited for a CPU: no CPU time "
     "shows it.", lambda one: one.waiting),
    ("shoal_guard_throttled_ratio", "Part of the periods in which a group's CPU quota ran out.",
     lambda one: one.throttled.known()),
    ("shoal_guard_units_per_second", "Units of work by the clock.", lambda one: one.rate.known()),
    ("shoal_guard_group_cpus", "CPUs kept busy.", lambda one: one.cpus.known()),
)  # fmt: skip
_OF_DOMAINS: tuple[tuple[str, str, Callable[[DomainState], float | None]], ...] = (
    ("shoal_guard_domain_bytes_per_second", "Memory traffic.", lambda one: one.bandwidth.known()),
    ("shoal_guard_domain_latency_seconds", "Of one dependent load from memory.", _latency),
    ("shoal_guard_domain_saturation_ratio", "Share of cycles in which memory pushed back.",
     lambda one: one.saturation.known()),
)  # fmt: skip
_OF_LIMITS: tuple[tuple[str, str, Callable[[Setting], float | None]], ...] = (
    ("shoal_guard_share_ratio", "Share that a best-effort group keeps.", lambda one: one.share),
    ("shoal_guard_cores", "Cores that it may use, where they are limited.", lambda one: one.cores),
    ("shoal_guard_frozen", "Whether it is frozen.", lambda one: one.frozen),
)
_COUNTED: tuple[tuple[str, str, Callable[[Counters], float]], ...] = (
    ("shoal_guard_ticks_total", "Ticks of the guard.", lambda one: one.ticks),
    ("shoal_guard_changes_total", "Changes of limits.", lambda one: one.changes),
    ("shoal_guard_withheld_total", "Changes that waited for the limit on changes.", lambda one: one.withheld),
    ("shoal_guard_faults_total", "Failures of sensors, actuators or the policy.", lambda one: one.faults),
    ("shoal_guard_violated_seconds_total", "Time in which guaranteed work was slower than promised, or waited for CPUs "
     "that it was promised.", lambda one: one.violated_s),
    ("shoal_guard_journal_lost_total", "Ticks that the journal could not take.", lambda one: one.journal_lost),
    ("shoal_guard_cpu_seconds_total", "CPU time of the guard itself.", lambda one: one.cpu_s),
)  # fmt: skip


class Metrics(Collector):
    """Of the last `tick`, if there is one."""

    def __init__(self, policy: str) -> None:
        self.tick: Tick | None = None
        self.counters = Counters()
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        self._policy = policy

    def text(self) -> str:
        return generate_latest(self.registry).decode()

    def collect(self) -> Iterator[Metric]:
        tick = self.tick
        if tick is None:
            return
        snapshot = tick.snapshot
        mode = (self._policy, str(tick.dry_run).lower())
        yield from _gauge("shoal_guard_info", "The policy that decides.", ("policy", "dry_run"), [(mode, 1.0)])
        yield from _gauge("shoal_guard_steal_ratio", "Part of the CPU time that the hypervisor took.", (),
                          [((), snapshot.steal.known())])  # fmt: skip
        for name, about, of_group in _OF_GROUPS:
            yield from _gauge(name, about, ("group", "class"), [
                ((one.group.name, one.group.priority_class.value), of_group(one)) for one in snapshot.groups
            ])  # fmt: skip
        for name, about, of_domain in _OF_DOMAINS:
            yield from _gauge(name, about, ("domain",), [
                ((str(one.domain.id),), of_domain(one)) for one in snapshot.domains
            ])  # fmt: skip
        names = [one.group.name for one in snapshot.of(PriorityClass.BEST_EFFORT)]
        for name, about, of_limits in _OF_LIMITS:
            yield from _gauge(name, about, ("group",), [
                ((one,), of_limits(tick.applied.get(one, UNLIMITED))) for one in names
            ])  # fmt: skip
        about = "How many times as much as ordinary work a group weighs where both want the same CPU."
        weights = [((group,), one.weight) for group, one in tick.applied.items()]
        yield from _gauge("shoal_guard_weight_ratio", about, ("group",), weights)
        for name, about, of_counters in _COUNTED:
            yield CounterMetricFamily(name, about, value=of_counters(self.counters))


def _gauge(
    name: str, about: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float | None]]
) -> Iterator[Metric]:
    family = GaugeMetricFamily(name, about, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric(values, value)
    if family.samples:
        yield family
