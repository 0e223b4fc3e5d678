"""The scheduler of `shoal serve` and `shoal up` in virtual time, as `shoal measure` simulates it.

The components do not know each other: `measure` asks for something that serves, `serve` has a scheduler and its
simulator.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from shoal.measure import Demand, Floats, ModelProfile, Serve, ServerType
from shoal.serve import DEFAULT_SCHEDULER, Profiles, QueueSpec, Stream, make_scheduler, simulate

_WARM_UP = 10
"""Executions of the smallest and of the largest batch that the scheduler knows before, as from a warm-up."""
_DRAWN = 512


def scheduled(name: str = DEFAULT_SCHEDULER) -> Serve:
    """Serving by the scheduler of this name. Each demand is a tenant's service with as many replicas as fit beside each
    other, guaranteed, with its own objective; what the scheduler refuses or drops is not a number."""

    def serve(
        demands: Sequence[Demand], streams: Sequence[Floats], server: ServerType, seed: Sequence[int]
    ) -> Sequence[Floats]:
        profiles, offered = Profiles(), []
        for demand, times in zip(demands, streams, strict=True):
            profile = demand.profile
            draw = _drawing(profile, server.speed, seed)
            spec = QueueSpec(
                demand.name, demand.tenant or demand.name, max_batch=profile.max_batch,
                slots=profile.slots, executors=server.slots // profile.slots, slo_s=demand.slo_s,
            )  # fmt: skip
            sizes = (1, profile.max_batch) * (_WARM_UP // 2)
            profiles.prime(demand.name, [(size, profile.time(size).mean_s / server.speed) for size in sizes])
            offered.append(Stream(spec, times, draw))
        result = simulate(make_scheduler(name, slots=server.slots, profiles=profiles), offered)
        return [np.array(result.ended_s[demand.name], dtype=np.float64) for demand in demands]

    return serve


def _drawing(profile: ModelProfile, speed: float, seed: Sequence[int]) -> Callable[[int, Random], float]:
    """Execution times of one model by its batch, drawn in blocks because drawing them one by one is slow."""
    rng = np.random.default_rng([*seed, zlib.crc32(profile.name.encode()), 1])
    drawn: dict[int, list[float]] = {}

    def draw(samples: int, random: Random) -> float:  # noqa: ARG001 - the simulator's, which is not numpy's
        left = drawn.get(samples)
        if not left:
            left = drawn[samples] = (profile.time(samples).sample(rng, _DRAWN) / speed).tolist()
        return left.pop()

    return draw
