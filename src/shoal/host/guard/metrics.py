"""The guard's last tick as Prometheus text. What is unknown has no sample: it is not zero."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shoal.core import PriorityClass
from shoal.host.guard.loop import Tick
from shoal.host.policy.violation import allowed_loss
from shoal.host.types import UNLIMITED

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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


def render(tick: Tick, counters: Counters, policy: str) -> str:
    """Text in Prometheus' exposition format."""
    snapshot = tick.snapshot
    best_effort = snapshot.of(PriorityClass.BEST_EFFORT)
    settings = {one.group.name: tick.applied.get(one.group.name, UNLIMITED) for one in best_effort}
    lines: list[str] = []

    def family(name: str, kind: str, about: str, samples: Iterable[tuple[dict[str, str], float | None]]) -> None:
        known = [(labels, value) for labels, value in samples if value is not None]
        if known:
            lines.append(f"# HELP shoal_guard_{name} {about}")
            lines.append(f"# TYPE shoal_guard_{name} {kind}")
            lines.extend(f"shoal_guard_{name}{_labels(labels)} {value:.10g}" for labels, value in known)

    groups = [({"group": one.group.name, "class": one.group.priority_class.value}, one) for one in snapshot.groups]
    homes = [({"domain": str(one.domain.id)}, one) for one in snapshot.domains]
    family(
        "info", "gauge", "The policy that decides.", [({"policy": policy, "dry_run": str(tick.dry_run).lower()}, 1.0)]
    )
    family(
        "slowdown",
        "gauge",
        "Of the CPU time of a unit of guaranteed work, against undisturbed.",
        [(labels, one.slowdown) for labels, one in groups if one.group.priority_class is PriorityClass.GUARANTEED],
    )
    family(
        "step_seconds",
        "gauge",
        "Mean CPU time of a unit of work.",
        [(labels, one.step_s.known()) for labels, one in groups],
    )
    family(
        "step_p99_seconds", "gauge", "99th percentile of it.", [(labels, one.tail_s.known()) for labels, one in groups]
    )
    family(
        "group_bytes_per_second",
        "gauge",
        "Memory traffic.",
        [(labels, one.bandwidth.known()) for labels, one in groups],
    )
    family(
        "waiting_ratio",
        "gauge",
        "Part of the time in which it could run that a group waited for a CPU: no CPU time shows it.",
        [(labels, one.waiting) for labels, one in groups],
    )
    family(
        "throttled_ratio",
        "gauge",
        "Part of the periods in which a group's CPU quota ran out.",
        [(labels, one.throttled.known()) for labels, one in groups],
    )
    family("steal_ratio", "gauge", "Part of the CPU time that the hypervisor took.", [({}, snapshot.steal.known())])
    family(
        "units_per_second",
        "gauge",
        "Units of work by the clock.",
        [(labels, one.rate.known()) for labels, one in groups],
    )
    family("group_cpus", "gauge", "CPUs kept busy.", [(labels, one.cpus.known()) for labels, one in groups])
    family(
        "domain_bytes_per_second",
        "gauge",
        "Memory traffic.",
        [(labels, one.bandwidth.known()) for labels, one in homes],
    )
    family(
        "domain_latency_seconds",
        "gauge",
        "Of one dependent load from memory.",
        [(labels, None if (ns := one.latency_ns.known()) is None else ns / 1e9) for labels, one in homes],
    )
    family(
        "domain_saturation_ratio",
        "gauge",
        "Share of cycles in which memory pushed back.",
        [(labels, one.saturation.known()) for labels, one in homes],
    )
    family(
        "share_ratio",
        "gauge",
        "Share that a best-effort group keeps.",
        [({"group": name}, one.share) for name, one in settings.items()],
    )
    family(
        "weight_ratio",
        "gauge",
        "How many times as much as ordinary work a group weighs where both want the same CPU.",
        [({"group": name}, one.weight) for name, one in tick.applied.items()],
    )
    family(
        "cores",
        "gauge",
        "Cores that it may use, where they are limited.",
        [({"group": name}, None if one.cores is None else float(one.cores)) for name, one in settings.items()],
    )
    family(
        "frozen",
        "gauge",
        "Whether it is frozen.",
        [({"group": name}, float(one.frozen)) for name, one in settings.items()],
    )
    family("ticks_total", "counter", "Ticks of the guard.", [({}, float(counters.ticks))])
    family("changes_total", "counter", "Changes of limits.", [({}, float(counters.changes))])
    family(
        "withheld_total", "counter", "Changes that waited for the limit on changes.", [({}, float(counters.withheld))]
    )
    family("faults_total", "counter", "Failures of sensors, actuators or the policy.", [({}, float(counters.faults))])
    family(
        "violated_seconds_total",
        "counter",
        "Time in which guaranteed work was slower than promised, or waited for CPUs that it was promised.",
        [({}, counters.violated_s)],
    )
    family(
        "journal_lost_total", "counter", "Ticks that the journal could not take.", [({}, float(counters.journal_lost))]
    )
    family("cpu_seconds_total", "counter", "CPU time of the guard itself.", [({}, counters.cpu_s)])
    return "\n".join(lines) + "\n"


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
