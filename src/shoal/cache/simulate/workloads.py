"""Requests by batch: how often each tenant reads each set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.cache.policy.problem import Array

TPC_DS_MB = (1253, 628, 1090, 552, 490, 245, 220, 110, 22, 11, 22, 11, 14, 7, 13, 6.5, 5, 2.6, 0.6, 0.3)
"""ROBUS's 20 views of TPC-DS sales tables."""

RANKS: Mapping[int, Sequence[int]] = {
    1: (12, 14, 7, 4, 11, 2, 19, 13, 20, 16, 10, 1, 8, 18, 6, 5, 17, 3, 15, 9),
    2: (5, 13, 18, 3, 14, 1, 16, 19, 6, 11, 10, 9, 8, 7, 12, 20, 4, 17, 2, 15),
    3: tuple(range(1, 21)),
    4: tuple(range(20, 0, -1)),
}
"""ROBUS's four rank files: the popularity of each view is one over its rank."""

QUERIES = 5.0
"""Mean queries of a tenant in a batch: one every two seconds, a batch every ten."""


@dataclass(frozen=True, slots=True)
class Workload:
    """`size` (M,) in MB; `reads` has one (N, M) array of counts for each batch."""

    size: Array
    reads: tuple[Array, ...]

    @property
    def asked(self) -> Array:
        """(N,): MB that each tenant reads in all."""
        found: Array = np.sum(self.reads, axis=0) @ self.size
        return found

    def only(self, tenant: int) -> Workload:
        return Workload(self.size, tuple(one[tenant : tenant + 1] for one in self.reads))


def robus(ranks: Sequence[Sequence[int]], batches: int, seed: int) -> Workload:
    """ROBUS's workload: a row of 20 ranks for each tenant, Poisson arrivals, Zipf popularity."""
    wanted = list(range(1, len(TPC_DS_MB) + 1))
    for at, row in enumerate(ranks):
        if sorted(row) != wanted:
            raise Invalid(f"each of the ranks 1 to {len(wanted)} is meant once", where=f"tenant {at + 1}")
    popularity = np.array([[1.0 / rank for rank in row] for row in ranks])
    return _poisson(np.array(TPC_DS_MB), [popularity] * batches, np.random.default_rng(seed))


def _poisson(size: Array, popularity: Sequence[Array], chance: np.random.Generator, mean: Any = QUERIES) -> Workload:
    """popularity: an (N, M) array for each batch; its rows are scaled to `mean` reads, a number or (N,)."""
    reads = []
    for one in popularity:
        rate = one / one.sum(1, keepdims=True) * np.reshape(mean, (-1, 1))
        reads.append(chance.poisson(rate).astype(np.float64))
    return Workload(size, tuple(reads))


def _sizes(count: int, chance: np.random.Generator) -> Array:
    return np.round(chance.lognormal(4.0, 1.5, count), 1) + 0.1


def _zipf(tenants: int, sets: int, chance: np.random.Generator) -> Array:
    """Each tenant has its own order of popularity, near that of a common one."""
    common = np.argsort(chance.random(sets))
    rows = []
    for _ in range(tenants):
        rank = np.empty(sets)
        rank[np.argsort(common + chance.normal(0, sets / 6, sets))] = np.arange(1, sets + 1)
        rows.append(1.0 / rank)
    return np.array(rows)


def zipf(tenants: int, batches: int, seed: int, sets: int = 40) -> Workload:
    """A fixed popularity."""
    chance = np.random.default_rng(seed)
    size, popularity = _sizes(sets, chance), _zipf(tenants, sets, chance)
    return _poisson(size, [popularity] * batches, chance)


def drift(tenants: int, batches: int, seed: int, sets: int = 40) -> Workload:
    """A popularity that moves: every 20 batches each tenant's most popular set changes places with another."""
    chance = np.random.default_rng(seed)
    size, popularity = _sizes(sets, chance), _zipf(tenants, sets, chance)
    shown = []
    for at in range(batches):
        if at and at % 20 == 0:
            popularity = popularity.copy()
            for row in popularity:
                one, other = int(row.argmax()), int(chance.integers(sets))
                row[[one, other]] = row[[other, one]]
        shown.append(popularity)
    return _poisson(size, shown, chance)


def bursts(tenants: int, batches: int, seed: int, sets: int = 40) -> Workload:
    """Tenants that are silent most of the time, and then ask five times as much for ten batches."""
    chance = np.random.default_rng(seed)
    size, popularity = _sizes(sets, chance), _zipf(tenants, sets, chance)
    reads: list[Array] = []
    for at in range(batches):
        if at % 10 == 0:
            mean = np.where(chance.random(tenants) < 0.2, 5 * QUERIES, QUERIES / 5)
        reads += _poisson(size, [popularity], chance, mean).reads
    return Workload(size, tuple(reads))


def scans(tenants: int, batches: int, seed: int, sets: int = 40) -> Workload:
    """The first tenant reads every set in turn, once; the others have favourites. A scan empties an LRU cache."""
    chance = np.random.default_rng(seed)
    size, popularity = _sizes(sets, chance), _zipf(tenants, sets, chance)
    reads = []
    for at, one in enumerate(_poisson(size, [popularity] * batches, chance).reads):
        changed = one.copy()
        changed[0] = 0
        changed[0, np.arange(int(QUERIES) * at, int(QUERIES) * (at + 1)) % sets] = 1
        reads.append(changed)
    return Workload(size, tuple(reads))


WORKLOADS: Mapping[str, Callable[[int, int, int], Workload]] = {
    "zipf": zipf, "drift": drift, "bursts": bursts, "scans": scans,
}  # fmt: skip
"""Made-up workloads by name, each a function of the number of tenants, the number of batches, and a seed."""


def recorded(text: str, where: str, *, batch_s: float = 10.0) -> Workload:
    """A trace: lines `SECONDS,TENANT,SET,MB`, one for each read of a whole set. Raises Invalid for any other line."""
    tenants: dict[str, int] = {}
    sets: dict[str, int] = {}
    size: list[float] = []
    found: list[tuple[int, int, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            at, tenant, name, mb = line.split(",")
            batch, amount = int(float(at) // batch_s), float(mb)
        except (ValueError, OverflowError):
            raise Invalid("`SECONDS,TENANT,SET,MB` is meant", where=f"{where}:{number}") from None
        if not (0 <= batch < 10**6 and 0 < amount < float("inf")):
            text = "a time from 0 to ten million seconds and a positive size are meant"
            raise Invalid(text, where=f"{where}:{number}")
        if name not in sets:
            sets[name] = len(size)
            size.append(amount)
        found.append((batch, tenants.setdefault(tenant.strip(), len(tenants)), sets[name]))
    if not found:
        raise Invalid("the trace has no reads", where=where)
    reads = np.zeros((max(batch for batch, _, _ in found) + 1, len(tenants), len(size)))
    np.add.at(reads, tuple(np.array(found).T), 1.0)
    return Workload(np.array(size), tuple(reads))
