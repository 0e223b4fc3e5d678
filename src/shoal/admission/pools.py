"""Nodes in buckets by what is free, so that the best node is found without looking at the others."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence

from shoal.admission.snapshot import CPU_POOL, BucketKey, Pool, shared_pool
from shoal.admission.types import NodeState, Shared
from shoal.core import Share

_FEW = 4
"""Up to this many changes of a bucket are made one by one; more of them by one merge."""


def bucket_keys(state: NodeState) -> Iterator[tuple[str, BucketKey]]:
    """The pools a node belongs to, and its bucket in each. Nodes closed for new jobs belong to none."""
    if not state.schedulable:
        return
    yield from keys_of(
        {kind: len(ids) for kind, ids in state.free_devices.items()}, state.free_seats, state.free_cpu_milli
    )


def keys_of(free: Mapping[str, int], seats: Shared, cpu_milli: int) -> Iterator[tuple[str, BucketKey]]:
    """The same, from how many devices of each type are free whole, what those have left that can be shared, and
    cpus."""
    for kind, count in free.items():
        yield kind, (count, 0)
    for kind, devices in seats.items():
        yield shared_pool(kind, Share.GUARANTEED), (sum(left.guaranteed > 0 for left in devices.values()), 0)
        yield shared_pool(kind, Share.BEST_EFFORT), (sum(left.best_effort > 0 for left in devices.values()), 0)
    yield CPU_POOL, (sum(free.values()), max(0, cpu_milli) // 1000)


class PoolTable:
    """The mutable side of the snapshot's `pools`: changes are collected by `touch` and made at `freeze`."""

    def __init__(self, states: Sequence[NodeState]) -> None:
        self._buckets: dict[str, dict[BucketKey, tuple[int, ...]]] = {}
        self._touched: dict[int, dict[str, BucketKey]] = {}
        self._frozen: dict[str, Pool] = {}
        filling: dict[str, dict[BucketKey, list[int]]] = {}
        for at, state in enumerate(states):
            for pool, key in bucket_keys(state):
                filling.setdefault(pool, {}).setdefault(key, []).append(at)
        for pool, buckets in filling.items():
            self._buckets[pool] = {key: tuple(ats) for key, ats in buckets.items()}
            self._frozen[pool] = _frozen(self._buckets[pool])

    @classmethod
    def thaw(cls, pools: Mapping[str, Pool]) -> PoolTable:
        made = cls(())
        made._buckets = {name: dict(pool.buckets) for name, pool in pools.items()}
        made._frozen = dict(pools)
        return made

    def touch(self, at: int, old: NodeState) -> None:
        """The state of the node at this position is about to change from `old`."""
        if at not in self._touched:
            self._touched[at] = dict(bucket_keys(old))

    def freeze(self, states: Sequence[NodeState]) -> Mapping[str, Pool]:
        if not self._touched:
            return self._frozen
        gone: dict[tuple[str, BucketKey], list[int]] = {}
        come: dict[tuple[str, BucketKey], list[int]] = {}
        for at, old in self._touched.items():
            for pool, key in bucket_keys(states[at]):
                if old[pool] != key:
                    gone.setdefault((pool, old[pool]), []).append(at)
                    come.setdefault((pool, key), []).append(at)
        self._touched.clear()
        changed = gone.keys() | come.keys()
        for pool, key in changed:
            buckets = self._buckets[pool]
            members = _merged(buckets.get(key, ()), gone.get((pool, key), ()), come.get((pool, key), ()))
            if members:
                buckets[key] = members
            else:
                del buckets[key]
        if changed:
            self._frozen = self._frozen | {pool: _frozen(self._buckets[pool]) for pool in {pool for pool, _ in changed}}
        return self._frozen


def _frozen(buckets: Mapping[BucketKey, tuple[int, ...]]) -> Pool:
    return Pool(tuple(sorted(buckets)), dict(buckets), sum(key[0] * len(ats) for key, ats in buckets.items()))


def _merged(members: tuple[int, ...], gone: Sequence[int], come: Sequence[int]) -> tuple[int, ...]:
    kept = list(members)
    if len(gone) <= _FEW:
        for at in gone:
            del kept[bisect_left(kept, at)]
    else:
        leaving = set(gone)
        kept = [at for at in kept if at not in leaving]
    if len(come) <= _FEW:
        for at in come:
            insort(kept, at)
    else:
        kept.extend(come)
        kept.sort()
    return tuple(kept)
