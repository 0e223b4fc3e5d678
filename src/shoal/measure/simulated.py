"""A simulated shared server: compute slots, batches, an order between models. Fast, seeded, and labelled as simulated.

It stands in for a real server wherever something takes loads and gives `LoadResult`s: as the probe of a search, and to
check what a planner thinks. It knows no network and no caches: models disturb each other by waiting for slots only.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from shoal.measure.profiles import Demand, ExecutionTime, ModelProfile, ServerType
from shoal.measure.types import LoadResult

Floats = NDArray[np.float64]

LABEL = "simulated"
"""Stands in front of the tenant's name in every result made here."""


class Order(StrEnum):
    """Whose turn it is when a slot is free. What is chosen waits for its slots; nothing overtakes it meanwhile."""

    FIFO = "fifo"
    FAIR = "fair"
    """Least slot-seconds per weight first, counted from when the model last began to wait (start-time fair queueing;
    Goyal, Vin and Cheng 1996)."""
    PRIORITY = "priority"
    DEADLINE = "deadline"
    """Earliest arrival + objective first."""


@dataclass(frozen=True)
class SimulatedServer:
    """One server with these models on it. `run` is a pure function of its arguments.

    A model's arrivals depend on the seed, its own name, rate and burstiness only, so that a load alone and the same
    load beside others can be compared request by request.
    """

    demands: tuple[Demand, ...]
    server: ServerType
    order: Order = Order.FIFO
    seed: int = 0

    def __post_init__(self) -> None:
        names = [demand.name for demand in self.demands]
        if len(set(names)) < len(names):
            raise ValueError(f"two demands share a name: {sorted(names)}")
        wide = [demand.name for demand in self.demands if demand.profile.slots > self.server.slots]
        if wide:
            raise ValueError(f"{wide} need more slots than the {self.server.slots} of {self.server.name}")

    def run(
        self, rates: Mapping[str, float] | None = None, *, duration_s: float, warmup_s: float = 0.0, seed: int = 0
    ) -> dict[str, LoadResult]:
        """Loads by `Demand.name`, in requests per second; None takes the demands' own. Every request is answered."""
        known = {demand.name: demand for demand in self.demands}
        loads = {name: demand.rate_per_s for name, demand in known.items()} if rates is None else rates
        streams = {
            name: arrivals(known[name], rate, warmup_s + duration_s, [self.seed, seed])
            for name, rate in loads.items()
            if name in known
        }
        missing = sorted(set(loads) - set(known))
        if missing:
            raise ValueError(f"no such models on this server: {missing}")
        return self.replay(streams, duration_s=duration_s, warmup_s=warmup_s, seed=seed)

    def replay(
        self, streams: Mapping[str, Floats], *, duration_s: float, warmup_s: float = 0.0, seed: int = 0
    ) -> dict[str, LoadResult]:
        """As `run`, with given arrivals: ascending seconds of shape (requests,) by `Demand.name`."""
        known = {demand.name: demand for demand in self.demands}
        demands = [known[name] for name in streams]
        done = _serve(demands, list(streams.values()), self.server, self.order, [self.seed, seed])
        return {
            demand.name: LoadResult(
                tenant=f"{LABEL} {demand.tenant}".strip(),
                model=demand.profile.name,
                scheduled_s=times,
                sent_s=times,
                done_s=ended,
                status=np.full(len(times), 200, dtype=np.int64),
                duration_s=duration_s,
                warmup_s=warmup_s,
            )
            for demand, times, ended in zip(demands, streams.values(), done, strict=True)
        }

    def probe(self, *, first: int = 1_000, warmup: int = 200) -> SimulatedProbe:
        """A probe for `find_frontier`, with a new seed for each trial. See `SimulatedProbe`."""
        return SimulatedProbe(self, first, warmup)


@dataclass
class SimulatedProbe:
    """Hands over the latencies of `first` requests, of all models together, then of ever longer runs, until it is
    enough. The first `warmup` requests are not handed over: the server is empty when they arrive."""

    server: SimulatedServer
    first: int = 1_000
    warmup: int = 200
    trials: int = 0

    def __call__(self, rates_per_s: Mapping[str, float], enough: Callable[[Mapping[str, Floats]], bool]) -> None:
        self.trials += 1
        total = sum(rates_per_s.values())
        warmup_s, duration_s = self.warmup / total, self.first / total
        told = dict.fromkeys(rates_per_s, 0)
        while True:
            # Run again from the start, for longer: what was told before comes out the same, and is left out.
            found = self.server.run(rates_per_s, duration_s=duration_s, warmup_s=warmup_s, seed=self.trials)
            latencies = {name: result.latencies_s() for name, result in found.items()}
            news = {name: each[told[name] :] for name, each in latencies.items()}
            told = {name: len(each) for name, each in latencies.items()}
            if enough(news):
                return
            duration_s *= 2


def arrivals(demand: Demand, rate_per_s: float, horizon_s: float, seed: Sequence[int]) -> Floats:
    """Poisson bursts of geometric size until the horizon; shape (requests,), ascending, in seconds.

    A longer horizon goes on where a shorter one ends.
    """
    gap_s = demand.burst / rate_per_s if rate_per_s > 0 else np.inf
    expected = horizon_s / gap_s
    key = [*seed, zlib.crc32(demand.name.encode())]
    # Seven standard deviations more than expected: not too few until the sun burns out.
    gaps = np.random.default_rng([*key, 0]).exponential(gap_s, int(expected + 7 * np.sqrt(expected) + 20))
    times = np.cumsum(gaps)
    times = times[times < horizon_s]
    if demand.burst > 1:
        times = np.repeat(times, np.random.default_rng([*key, 1]).geometric(1 / demand.burst, size=len(times)))
    return times


class _Times:
    """Execution times of one model, drawn in blocks because drawing them one by one is slow."""

    def __init__(self, profile: ModelProfile, speed: float, seed: Sequence[int]) -> None:
        self._profile = profile
        self._speed = speed
        self._rng = np.random.default_rng([*seed, zlib.crc32(profile.name.encode()), 1])
        self._kinds: dict[int, ExecutionTime] = {}
        self._drawn: dict[int, list[float]] = {}

    def next(self, batch: int) -> float:
        left = self._drawn.get(batch)
        if not left:
            kind = self._kinds.setdefault(batch, self._profile.time(batch))
            self._drawn[batch] = left = (kind.sample(self._rng, 512) / self._speed).tolist()
        return left.pop()


def _serve(
    demands: Sequence[Demand], streams: Sequence[Floats], server: ServerType, order: Order, seed: Sequence[int]
) -> list[Floats]:
    """When each request of each stream is answered."""
    times = np.concatenate([*streams, np.empty(0)])
    owners = np.repeat(np.arange(len(streams)), [len(one) for one in streams])
    sequence = np.argsort(times, kind="stable")
    when, owner = times[sequence].tolist(), owners[sequence].tolist()
    ended = [0.0] * len(when)
    draws = [_Times(demand.profile, server.speed, seed) for demand in demands]
    turn = _Turns(demands, order, when)
    needs = [demand.profile.slots for demand in demands]
    largest = [demand.profile.max_batch for demand in demands]
    queues = turn.queues
    free, waiting, at, total = server.slots, 0, 0, len(when)
    running: list[tuple[float, int]] = []
    while at < total or waiting:
        if running and (at == total or running[0][0] <= when[at]):
            now, slots = heappop(running)
            free += slots
        else:
            now = when[at]
            model = owner[at]
            if not queues[model]:
                turn.wakes(model)
            queues[model].append(at)
            at += 1
            waiting += 1
        while waiting:
            model = turn.next()
            if needs[model] > free:
                break
            queue = queues[model]
            batch = min(len(queue), largest[model])
            took = draws[model].next(batch)
            for _ in range(batch):
                ended[queue.popleft()] = now + took
            waiting -= batch
            free -= needs[model]
            heappush(running, (now + took, needs[model]))
            turn.ran(model, took * needs[model])
    answered = np.empty(len(when))
    answered[sequence] = ended
    return np.split(answered, np.cumsum([len(one) for one in streams])[:-1]) if streams else []


class _Turns:
    """Which model's queue is served next; a queue holds positions in the common list of arrivals."""

    def __init__(self, demands: Sequence[Demand], order: Order, when: Sequence[float]) -> None:
        self.queues: list[deque[int]] = [deque() for _ in demands]
        self._demands = demands
        self._order = order
        self._when = when
        self._served = [0.0] * len(demands)
        self._level = 0.0

    def next(self) -> int:
        """Only while something waits."""
        waiting = [model for model, queue in enumerate(self.queues) if queue]
        return min(waiting, key=self._rank) if len(waiting) > 1 else waiting[0]

    def wakes(self, model: int) -> None:
        """Its queue was empty: what it did not use then it cannot claim now."""
        self._served[model] = max(self._served[model], self._level)

    def ran(self, model: int, slot_seconds: float) -> None:
        self._level = max(self._level, self._served[model])
        self._served[model] += slot_seconds / self._demands[model].weight

    def _rank(self, model: int) -> tuple[float, int]:
        first = self.queues[model][0]
        match self._order:
            case Order.FIFO:
                return (0.0, first)
            case Order.FAIR:
                return (self._served[model], first)
            case Order.PRIORITY:
                return (float(self._demands[model].priority), first)
            case Order.DEADLINE:
                return (self._when[first] + self._demands[model].slo_s, first)
