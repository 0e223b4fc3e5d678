"""Goodput of a job with each number of accelerators that it may have, with its uncertainty.

What was measured at a size counts for that size. The others follow from a power law of those that were (rate is a
constant times accelerators to some power), taken for linear until two sizes tell otherwise: a job that never ran larger
is given the chance to show what it gains, and what it then reports puts it right. Sia (SOSP'23) starts the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.core import Reason
from shoal.schedule.live.facts import Facts
from shoal.schedule.oracle import Oracle, Source
from shoal.schedule.types import Array

MANY = 8
"""Up to this number of sizes, each is considered; of a wider range the doublings of the least, and the most."""

GUESS = 1.0
"""The relative deviation of an estimate that rests on nothing: with such a deviation it says nothing of a size."""

SLOPE, SLOPE_DOUBT = 1.0, 0.3
"""What the power is taken to be before two sizes were measured, and its standard deviation."""

STEADY = 0.01
"""Measurements that differ by less are not told apart."""


def candidate_sizes(least: int, most: int) -> tuple[int, ...]:
    """The numbers of ranks, rising, that are looked at for a gang of `least` to `most`."""
    if most - least < MANY:
        return tuple(range(least, most + 1))
    doublings = [least]
    while doublings[-1] * 2 < most:
        doublings.append(doublings[-1] * 2)
    return (*doublings, most)


def complete(rate: Array, std: Array, sizes: Sequence[int]) -> tuple[Array, Array]:
    """Rates (jobs, sizes, types) and their deviations as an oracle has them for each size by itself, with those that it
    only guesses replaced by what the other sizes imply. Zero (does not fit) stays zero."""
    fits = rate > 0.0
    doubt = np.divide(std, rate, out=np.full_like(rate, GUESS), where=fits)
    known = fits & (doubt < GUESS)
    # A guess for one type is in proportion to another type's measurement at the same size; without one it is nothing.
    tells = fits & known.any(axis=2, keepdims=True)
    x = np.log(np.asarray(sizes, np.float64))[None, :, None]
    y = np.log(np.where(fits, rate, 1.0))
    weight = np.where(tells, 1.0 / np.maximum(doubt, STEADY) ** 2, 0.0)
    total = weight.sum(axis=1, keepdims=True)
    some = np.where(total > 0.0, total, 1.0)
    centre, level = ((weight * each).sum(axis=1, keepdims=True) / some for each in (x, y))
    belief = SLOPE_DOUBT**-2
    spread = (weight * (x - centre) ** 2).sum(axis=1, keepdims=True) + belief
    slope = ((weight * (x - centre) * (y - level)).sum(axis=1, keepdims=True) + belief * SLOPE) / spread
    # More accelerators than linear gain nothing that can be relied on, and never make it slower than fewer.
    by_law = np.exp(level + np.clip(slope, 0.0, 1.0) * (x - centre))
    law_doubt = np.sqrt(1.0 / some + (x - centre) ** 2 / spread)
    # Nothing is known of any size: as fast as is guessed for the least that may fit, in proportion.
    least = fits.argmax(axis=1)[:, None]
    guessed = np.take_along_axis(rate, least, axis=1) * np.exp(x - np.take_along_axis(x + 0.0 * rate, least, axis=1))
    unknown = np.where(total > 0.0, by_law, guessed)
    doubts = np.where(total > 0.0, np.minimum(law_doubt, GUESS), GUESS)
    found = np.where(known, rate, np.where(fits, unknown, 0.0))
    return found, np.where(known, std, found * doubts)


def by_size(oracle: Oracle, facts: Facts, job: str, per_rank: int, kind: str) -> Reason:
    """What is believed of a job on one type at each number of ranks that it may have."""
    ranks = candidate_sizes(*facts.ranks) if facts.ranks is not None else (1,)
    sizes = [per_rank * count for count in ranks]
    rate, std = oracle.rates([(job, facts.sized(size)) for size in sizes], [kind])
    rate, std = (each[0, :, 0] for each in complete(rate[None], std[None], sizes))
    told = []
    for count, size, per_s, doubt in zip(ranks, sizes, rate.tolist(), std.tolist(), strict=True):
        measured = oracle.estimate(facts.sized(size), kind, job=job).source in (Source.MEASURED, Source.KIND)
        told.append(f"{count}: {per_s:.3g}{', measured' if measured else f' ± {doubt:.2g}'}")
    text = f"{facts.kind} on {kind}, steps/s by ranks: {'; '.join(told)}"
    if (std >= rate).all():
        text = f"{facts.kind} on {kind}: nothing is known yet, and taken that its speed grows as its ranks do"
    known = {str(count): [per_s, doubt] for count, per_s, doubt in zip(ranks, rate.tolist(), std.tolist(), strict=True)}
    return Reason("sizes", text, {"kind": facts.kind, "column": kind, "per_s": known})
