"""A model of contention: one shared path to memory per domain, and what pressure on it does.

*Pressure* is the load that best-effort work puts on a domain's path, as a fraction of what the path can carry (its
capacity in bytes per second of non-temporal stores, which press hardest). All constants were fitted to measurements of
a Zen 4 guest with two cores on one L3 (docs/results/host.md); tests compare its cells one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ZEN4_PATH = 26.65e9
"""Bytes per second that one core's non-temporal stores reach: the write path of a core complex."""
QUIET_LATENCY_NS = 272.0
LEAK = 0.04
"""Part of a domain's pressure that is felt in the other domains of the host."""


def delay(pressure: float) -> float:
    """Slowdown, less 1, of work that is wholly exposed: a linear part (queueing), and a steep one near saturation."""
    pressure = min(max(pressure, 0.0), 1.0)
    return 0.5 * pressure + 1.2 * float(pressure**3.92)


def latency_ns(pressure: float) -> float:
    """Of one dependent load that misses all caches."""
    return QUIET_LATENCY_NS * (1 + 1.13 * float(min(max(pressure, 0.0), 1.0) ** 1.6))


def saturation(pressure: float) -> float:
    """Share of cycles in which memory pushes back. Assumed, not measured: the machine fitted to has no such counter."""
    return min(0.6, max(0.0, (pressure - 0.6) * 1.5))


def slowdown(exposure: float, own: float, cached: float, pressure: float, displacement: float) -> float:
    """Of guaranteed work. `exposure` scales the delay; `own` is the pressure that it puts on the path itself, on top of
    which the neighbours' comes; `cached` is what it loses when all it has in the last-level cache is displaced."""
    total = exposure * (delay(min(1.0, own + pressure)) - delay(own)) + cached * min(1.0, displacement)
    return 1.0 + total


@dataclass(frozen=True, slots=True)
class Flow:
    """A best-effort group in one domain: `demand` is the pressure it puts there while it runs, `on` the part of time in
    which it runs (below 1 for throttling by duty cycle), `memory` the part of its time that waits for memory."""

    group: str
    demand: float
    displaces: float
    memory: float
    on: float = 1.0


@dataclass(frozen=True, slots=True)
class Moment:
    """What holds during a part of an interval: pressure, displacement, and the speed of each flow's group."""

    part: float
    pressure: float
    displacement: float
    speeds: tuple[float, ...]


def moments(flows: Sequence[Flow], headroom: float = 1.0) -> Iterator[Moment]:
    """All combinations of flows that are on or off, each independent of the others, with its probability. Where they
    want more than the path carries (`headroom`), all are slowed down alike."""
    choices = [((True, flow.on), (False, 1 - flow.on)) if flow.on < 1 else ((True, 1.0),) for flow in flows]
    for combination in itertools.product(*choices):
        part = 1.0
        for _, probability in combination:
            part *= probability
        if part <= 0:
            continue
        running = [on for on, _ in combination]
        wanted = sum(flow.demand for flow, on in zip(flows, running, strict=True) if on)
        scale = min(1.0, headroom / wanted) if wanted > 0 else 1.0
        speeds = tuple(
            (1 / (1 - flow.memory + flow.memory / scale) if on else 0.0)
            for flow, on in zip(flows, running, strict=True)
        )
        displacement = sum(flow.displaces for flow, on in zip(flows, running, strict=True) if on)
        yield Moment(part, min(wanted, headroom), displacement, speeds)
