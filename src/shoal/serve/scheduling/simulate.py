"""The schedulers under virtual time: the live code, driven by a list of arrivals and drawn execution times.

What comes out is simulated, and says so: it compares policies under one and the same load, and does not predict what a
machine will do beyond the execution times it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, nan
from random import Random

import numpy as np
from numpy.typing import NDArray

from shoal.serve.scheduling.interface import Batch, Item, QueueSpec, Scheduler

ServiceTime = Callable[[int, Random], float]
"""Draws the seconds that an execution of this number of samples takes."""


def affine(setup_s: float, per_sample_s: float, jitter: float = 0.0) -> ServiceTime:
    """a + b*n, times a log-normal factor of this spread."""

    def draw(samples: int, random: Random) -> float:
        factor = random.lognormvariate(0.0, jitter) if jitter else 1.0
        return (setup_s + per_sample_s * samples) * factor

    return draw


@dataclass(frozen=True, slots=True)
class Stream:
    """What arrives at a queue, in ascending order of time (`shoal.base.arrivals` makes such), and how long it takes: as
    `service` draws it, or each as `works` says, as (bytes, seconds). `timeout_s` None means that an answer is wanted
    within the queue's objective, or whenever it comes if it has none."""

    spec: QueueSpec
    arrivals: Sequence[float] | NDArray[np.float64]
    service: ServiceTime
    timeout_s: float | None = None
    works: Sequence[tuple[float, float]] = ()

    @property
    def wanted_within_s(self) -> float:
        if self.timeout_s is not None:
            return self.timeout_s
        return self.spec.slo_s if self.spec.slo_s is not None else inf


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
class Span:
    """One execution on the timeline."""

    start_s: float
    end_s: float
    queue: str
    samples: int
    slots: int


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
    """Offers every arrival to the scheduler and executes what it decides, until all is done. Adds the queues."""
    by_key = {stream.spec.key: stream for stream in streams}
    random = Random(seed)  # noqa: S311
    outcomes = {key: Outcome() for key in by_key}
    for stream in by_key.values():
        scheduler.add_queue(stream.spec)
    arrivals = sorted(
        (float(at), key, index) for key, stream in by_key.items() for index, at in enumerate(stream.arrivals)
    )
    ended_s = {key: [nan] * len(stream.arrivals) for key, stream in by_key.items()}
    wanted = {key: stream.wanted_within_s for key, stream in by_key.items()}
    ends: list[tuple[float, int, Batch, float]] = []
    timeline: list[Span] = []
    wake_at = inf
    upcoming = 0
    now = 0.0
    while True:
        next_at = arrivals[upcoming][0] if upcoming < len(arrivals) else inf
        if ends and ends[0][0] <= next_at and ends[0][0] <= wake_at:
            now, _, batch, started = heappop(ends)
            outcome = outcomes[batch.queue]
            for item in batch.items:
                outcome.latencies_s.append(now - item.arrived)
                outcome.in_time += now <= item.deadline
                ended_s[batch.queue][arrivals[item.number - 1][2]] = now
            scheduler.finished(batch, now, now - started)
        elif next_at < inf and next_at <= wake_at:
            now, key, index = arrivals[upcoming]
            upcoming += 1
            item = Item(upcoming, key, now, now + wanted[key])
            if by_key[key].works:
                item.size = by_key[key].works[index][0]
            if scheduler.offer(item, now) is not None:
                outcomes[key].refused += 1
                continue
        elif wake_at < inf:
            now = wake_at
        else:
            break
        decision = scheduler.decide(now)
        wake_at = decision.wake_at if decision.wake_at is not None else inf
        for rejection in decision.rejected:
            outcomes[rejection.item.queue].dropped += 1
        for batch in decision.batches:
            stream = by_key[batch.queue]
            if stream.works:
                took_s = sum(stream.works[arrivals[item.number - 1][2]][1] for item in batch.items)
            else:
                took_s = stream.service(batch.samples, random)
            heappush(ends, (now + took_s, batch.number, batch, now))
            outcome = outcomes[batch.queue]
            outcome.executions += 1
            outcome.device_s += took_s * stream.spec.slots
            timeline.append(Span(now, now + took_s, batch.queue, batch.samples, stream.spec.slots))
    end_s = max((span.end_s for span in timeline), default=now)
    return Simulation(outcomes, _by_tenant(by_key, outcomes), tuple(timeline), end_s, ended_s)


def _by_tenant(streams: dict[str, Stream], outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    tenants: dict[str, Outcome] = {}
    for key, stream in streams.items():
        total, one = tenants.setdefault(stream.spec.tenant, Outcome()), outcomes[key]
        total.latencies_s += one.latencies_s
        total.in_time += one.in_time
        total.refused += one.refused
        total.dropped += one.dropped
        total.executions += one.executions
        total.device_s += one.device_s
    return tenants
