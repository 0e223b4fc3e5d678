"""Outcome of a simulation of the schedulers, by queue and by tenant; and execution times to draw."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from shoal.serve.scheduling import Scheduler
from shoal.serve.scheduling import simulate as scheduling
from shoal.serve.scheduling.simulate import ServiceTime, Span, Stream


def affine(setup_s: float, per_sample_s: float, jitter: float = 0.0) -> ServiceTime:
    """a + b*n, times a log-normal factor of this spread."""

    def draw(samples: int, random: Random) -> float:
        factor = random.lognormvariate(0.0, jitter) if jitter else 1.0
        return (setup_s + per_sample_s * samples) * factor

    return draw


@dataclass(slots=True)
class Outcome:
    """What became of a queue's (or a tenant's) requests. `latencies_s` are of those that were answered, in order of
    their answers, `in_time` of them by their deadline; `refused` were refused on arrival, `dropped` after they were
    taken; `device_s` is in slot-seconds."""

    latencies_s: list[float] = field(default_factory=list)
    in_time: int = 0
    refused: int = 0
    dropped: int = 0
    executions: int = 0
    device_s: float = 0.0

    @property
    def admitted(self) -> int:
        return len(self.latencies_s) + self.dropped

    @property
    def offered(self) -> int:
        return self.admitted + self.refused


@dataclass(frozen=True, slots=True)
class Simulation:
    """`end_s` is when the last execution ended; `ended_s` when each arrival of a queue was answered, in their order
    (not a number: never)."""

    queues: dict[str, Outcome]
    tenants: dict[str, Outcome]
    timeline: tuple[Span, ...]
    end_s: float
    ended_s: dict[str, list[float]] = field(default_factory=dict)


def simulate(scheduler: Scheduler, streams: Iterable[Stream], *, seed: int = 0) -> Simulation:
    """As `shoal.serve.scheduling.simulate.simulate`, with what became of the requests."""
    streams = [*streams]
    found = scheduling.simulate(scheduler, streams, seed=seed)
    queues = {stream.spec.key: _outcome(stream, found) for stream in streams}
    tenants: dict[str, Outcome] = {}
    for stream in streams:
        total, one = tenants.setdefault(stream.spec.tenant, Outcome()), queues[stream.spec.key]
        total.latencies_s += one.latencies_s
        total.in_time += one.in_time
        total.refused += one.refused
        total.dropped += one.dropped
        total.executions += one.executions
        total.device_s += one.device_s
    end_s = max((span.end_s for span in found.timeline), default=0.0)
    return Simulation(queues, tenants, tuple(found.timeline), end_s, found.ended_s)


def _outcome(stream: Stream, found: scheduling.Simulation) -> Outcome:
    key, within_s = stream.spec.key, stream.wanted_within_s
    answered = sorted(
        (ended, float(arrived)) for ended, arrived in zip(found.ended_s[key], stream.arrivals, strict=True)
        if ended == ended  # not a number: never
    )  # fmt: skip
    spans = [span for span in found.timeline if span.queue == key]
    return Outcome(
        latencies_s=[ended - arrived for ended, arrived in answered],
        in_time=sum(ended <= arrived + within_s for ended, arrived in answered),
        refused=found.refused[key],
        dropped=len(stream.arrivals) - len(answered) - found.refused[key],
        executions=len(spans),
        device_s=sum((span.end_s - span.start_s) * span.slots for span in spans),
    )
