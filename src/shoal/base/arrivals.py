"""Arrival times of requests in an open loop: seeded processes, each an ascending array of seconds from the load's
start.

The same arguments give the same arrivals, so that two servers, or two policies, can be judged under one and the same
load. All processes are given by their mean rate, whatever their shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.core import Invalid

Floats = NDArray[np.float64]
Seed = int | Sequence[int]

MOST_ARRIVALS = 50_000_000
"""More would not fit into a process; a load that long is a slip of the pen."""


def constant(rate_per_s: float, duration_s: float) -> Floats:
    """One every 1/rate seconds, from 0 on. Kinder than real users: no two requests arrive together."""
    _check(rate_per_s, duration_s)
    return np.arange(math.ceil(rate_per_s * duration_s - 1e-9), dtype=np.float64) / rate_per_s


def poisson(rate_per_s: float, duration_s: float, *, seed: Seed) -> Floats:
    """Independent users: exponential gaps."""
    _check(rate_per_s, duration_s)
    rng = np.random.default_rng(seed)
    return _scattered(rng, np.array([0.0]), np.array([duration_s]), np.array([rate_per_s]))


def bursty(
    rate_per_s: float,
    duration_s: float,
    *,
    seed: Seed,
    factor: float = 5.0,
    share: float = 0.1,
    burst_s: float = 1.0,
) -> Floats:
    """A Markov-modulated Poisson process with two states (Fischer and Meier-Hellstern 1993): calm, and bursts of
    `factor` times the calm rate (infinity: nothing arrives between them) that last `burst_s` on average and fill
    `share` of the time."""
    _check(rate_per_s, duration_s)
    if not (factor >= 1 and 0 < share < 1 and burst_s > 0):
        raise Invalid(
            f"bursts of factor {factor:g}, share {share:g} and length {burst_s:g} s do not exist",
            where="bursty arrivals",
            hint="factor is at least 1, share between 0 and 1, length positive",
        )
    rng = np.random.default_rng(seed)
    burst_rate, calm_s = rate_per_s / ((1 - share) / factor + share), burst_s * (1 - share) / share
    bursting = bool(rng.random() < share)
    starts: list[float] = []
    rates: list[float] = []
    now = 0.0
    while now < duration_s:
        starts.append(now)
        rates.append(burst_rate if bursting else burst_rate / factor)
        now += rng.exponential(burst_s if bursting else calm_s)
        bursting = not bursting
    ends = [*starts[1:], duration_s]
    return _scattered(rng, np.array(starts), np.array(ends), np.array(rates))


def clustered(rate_per_s: float, duration_s: float, *, seed: Seed, size: float) -> Floats:
    """A compound Poisson process: clusters at Poisson times, all requests of one at the same moment, a geometric number
    of them with this mean. Its index of dispersion is 2 * `size` - 1."""
    if not 1 <= size < math.inf:
        raise Invalid(f"clusters of {size:g} requests do not exist", where="clustered arrivals", hint="1 or more")
    times = poisson(rate_per_s / size, duration_s, seed=seed)
    if size == 1:
        return times
    return np.repeat(times, np.random.default_rng(_key(seed, 1)).geometric(1 / size, size=len(times)))


def diurnal(
    rate_per_s: float,
    duration_s: float,
    *,
    seed: Seed,
    period_s: float = 86_400.0,
    swing: float = 0.8,
    peak_at: float = 0.5,
) -> Floats:
    """Day and night: a Poisson process whose rate is a sine about the mean, between (1 - swing) and (1 + swing) times
    it. A shorter `period_s` is a compressed day; `peak_at` is the part of a period at which the peak comes."""
    if not (period_s > 0 and 0 <= swing <= 1):
        raise Invalid(
            f"a day of {period_s:g} s with a swing of {swing:g} does not exist",
            where="diurnal arrivals",
            hint="the period is positive, the swing between 0 and 1",
        )

    def rate(at_s: Floats) -> Floats:
        return np.asarray(rate_per_s * (1 + swing * np.cos(2 * np.pi * (at_s / period_s - peak_at))))

    return modulated(rate, rate_per_s * (1 + swing), duration_s, seed=seed)


def modulated(rate: Callable[[Floats], Floats], highest_per_s: float, duration_s: float, *, seed: Seed) -> Floats:
    """A Poisson process of any rate over time, by thinning (Lewis and Shedler 1979).

    `rate` maps times (n,) to rates (n,) between 0 and `highest_per_s`; one outside raises ValueError.
    """
    candidates = poisson(highest_per_s, duration_s, seed=seed)
    wanted = rate(candidates)
    if ((wanted < 0) | (wanted > highest_per_s * (1 + 1e-9))).any():
        raise ValueError(f"a rate left the range from 0 to {highest_per_s:g}")
    kept = np.random.default_rng(_key(seed, 1)).random(len(candidates)) * highest_per_s < wanted
    return np.asarray(candidates[kept])


def recorded(times_s: ArrayLike, *, duration_s: float | None = None) -> Floats:
    """Recorded arrivals (see `traces`), shifted to begin at 0 and cut at `duration_s`."""
    times = np.sort(np.asarray(times_s, dtype=np.float64))
    if times.size == 0 or not np.isfinite(times).all():
        raise Invalid("there are no arrivals in it, or some are not numbers", where="recorded arrivals")
    times = times - times[0]
    return np.asarray(times if duration_s is None else times[times < duration_s])


def _scattered(rng: np.random.Generator, starts: Floats, ends: Floats, rates: Floats) -> Floats:
    """Poisson arrivals of a rate that is constant on each interval: their number is Poisson, their places uniform."""
    counts = rng.poisson((ends - starts) * rates)
    places = rng.random(int(counts.sum()))
    times = np.repeat(starts, counts) + places * np.repeat(ends - starts, counts)
    times.sort()
    return times


def _key(seed: Seed, number: int) -> list[int]:
    return [*([seed] if isinstance(seed, int) else seed), number]


def _check(rate_per_s: float, duration_s: float) -> None:
    if not (math.isfinite(rate_per_s) and rate_per_s > 0):
        raise Invalid(f"{rate_per_s:g} requests per second is not a rate", where="rate", hint="give a positive number")
    if not (math.isfinite(duration_s) and duration_s > 0):
        raise Invalid(f"{duration_s:g} s is not a duration", where="duration", hint="give a positive number of seconds")
    if rate_per_s * duration_s > MOST_ARRIVALS:
        raise Invalid(
            f"{rate_per_s * duration_s:.3g} requests are more than one load can hold ({MOST_ARRIVALS:,})",
            where="rate and duration",
            hint="shorten the duration",
        )
