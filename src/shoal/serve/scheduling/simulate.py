"""The schedulers under virtual time: the live code, driven by a list of arrivals and drawn execution times.

What comes out is simulated, and says so: it compares policies under one and the same load, and does not predict what a
machine will do beyond the execution times it was given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, nan
from random import Random

import numpy as np
from numpy.typing import NDArray

from shoal.serve.scheduling.base import Scheduler
from shoal.serve.scheduling.interface import Batch, Item, QueueSpec

ServiceTime = Callable[[int, Random], float]
"""Draws the seconds that an execution of this number of samples takes."""


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
    """`ended_s` is when each arrival of a queue was answered, in their order (not a number: never), `timeline` all
    executions as they began; `refused` counts what each queue did not let in."""

    ended_s: dict[str, list[float]]
    timeline: list[Span] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


def simulate(scheduler: Scheduler, streams: Iterable[Stream], *, seed: int = 0) -> Simulation:
    """Offers every arrival to the scheduler and executes what it decides, until all is done. Adds the queues."""
    by_key = {stream.spec.key: stream for stream in streams}
    random = Random(seed)  # noqa: S311
    for stream in by_key.values():
        scheduler.add_queue(stream.spec)
    arrivals = sorted(
        (float(at), key, index) for key, stream in by_key.items() for index, at in enumerate(stream.arrivals)
    )
    found = Simulation({key: [nan] * len(stream.arrivals) for key, stream in by_key.items()})
    wanted = {key: stream.wanted_within_s for key, stream in by_key.items()}
    ends: list[tuple[float, int, Batch, float]] = []
    wake_at = inf
    upcoming = 0
    while True:
        next_at = arrivals[upcoming][0] if upcoming < len(arrivals) else inf
        if ends and ends[0][0] <= next_at and ends[0][0] <= wake_at:
            now, _, batch, started = heappop(ends)
            for item in batch.items:
                found.ended_s[batch.queue][arrivals[item.number - 1][2]] = now
            scheduler.finished(batch, now, now - started)
        elif next_at < inf and next_at <= wake_at:
            now, key, index = arrivals[upcoming]
            upcoming += 1
            item = Item(upcoming, key, now, now + wanted[key])
            if by_key[key].works:
                item.size = by_key[key].works[index][0]
            if scheduler.offer(item, now) is not None:
                found.refused[key] += 1
                continue
        elif wake_at < inf:
            now = wake_at
        else:
            return found
        decision = scheduler.decide(now)
        wake_at = decision.wake_at if decision.wake_at is not None else inf
        for batch in decision.batches:
            stream = by_key[batch.queue]
            if stream.works:
                took_s = sum(stream.works[arrivals[item.number - 1][2]][1] for item in batch.items)
            else:
                took_s = stream.service(batch.samples, random)
            heappush(ends, (now + took_s, batch.number, batch, now))
            found.timeline.append(Span(now, now + took_s, batch.queue, batch.samples, stream.spec.slots))
