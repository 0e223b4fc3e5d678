"""Expected savings of tenants, from what they read now and what they read before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shoal.cache.policy.problem import Mode, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.cache.policy.problem import Array


@dataclass(frozen=True, slots=True)
class Outlook:
    """How far the past counts for the future.

    A read that is known to come saves itself. Beyond that, `rounds` rounds of the average demand are counted, so that a
    set that is read again and again is worth its load. `memory` is the part that the newest round has in the average.
    """

    rounds: float = 10.0
    memory: float = 0.05

    def remember(self, average: Array, reads: Array) -> Array:
        """The exponential average after one more round. Both (N, M)."""
        return (1.0 - self.memory) * average + self.memory * reads


MYOPIC = Outlook(0.0, 1.0)
"""This round's reads alone, as ROBUS has it."""


def problem_of(
    mode: Mode, capacity: float, size: Array, reads: Array, average: Array, held: Array, outlook: Outlook, *,
    charge_loading: bool = True, tenants: Sequence[str] = (), sets: Sequence[str] = (), weight: Array | None = None,
) -> Problem:  # fmt: skip
    """`reads` and `average` (N, M) count whole reads of each set: those of this round, and of a usual one.

    Loading is charged so: a set that is read now and not held costs its first read, shared in proportion to the reads;
    one that is not read now costs a load of its own, shared in proportion to the average.
    """
    now = reads.sum(0) > 0
    return Problem.of(
        mode, capacity, size, (reads + outlook.rounds * average) * size, tenants=tenants, sets=sets, weight=weight,
        held=held, loading=size if charge_loading else None, use=np.where(now, reads, average),
    )  # fmt: skip


def capped(declared: Array, measured: Array, most: Array, factor: float = 2.0) -> Array:
    """The demand that counts, (N, M), in bytes a second.

    A tenant cannot read more than its devices take, `most` (N,), in all. What it declares counts in full until it was
    measured; from then on it lies within `factor` of what was, so that neither an absurd declaration nor keeping silent
    about one set pays for long.
    """
    known = measured > 0
    bounded = np.where(known, np.clip(declared, measured / factor, measured * factor), declared)
    total = bounded.sum(1)
    scale = np.divide(most, total, out=np.ones_like(total), where=total > most)
    found: Array = bounded * scale[:, None]
    return found
