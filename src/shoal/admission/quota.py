"""Quotas: the capacity in which a tenant may still start jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shoal.admission.snapshot import Need
from shoal.admission.types import TenantState


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota that stands in the way: `name` is `accelerators`, `accelerators.TYPE`, `cpu_milli`, `memory_bytes` or
    `running_jobs`. A job that needs more than `limit` by itself can never start under it."""

    name: str
    limit: int
    used: int
    needs: int

    @property
    def never(self) -> bool:
        return self.needs > self.limit


class Account:
    """What a tenant holds while a decision is being made. `saved_for` names, by limit, the older job of the tenant for
    which what is left of that limit is being saved. Nothing ever stands in the way of an `unlimited` account."""

    def __init__(self, state: TenantState) -> None:
        self._quota = state.tenant.quota
        self._by_type = dict(self._quota.by_type)
        self._kinds = dict(state.used.accelerators)
        self._accelerators = state.used.accelerator_count
        self._cpu_milli = state.used.cpu_milli
        self._memory_bytes = state.used.memory_bytes
        self._jobs = state.running_jobs
        quota = self._quota
        others = (quota.accelerators, quota.cpu_milli, quota.memory_bytes, quota.running_jobs)
        self.unlimited = not self._by_type and all(limit is None for limit in others)
        self.saved_for: dict[str, str] = {}

    def exceeded(self, need: Need, ranks: int) -> tuple[Limit, ...]:
        """The limits that the job would break now."""
        if self.unlimited:
            return ()
        return tuple(limit for limit in self._asked(need, ranks) if limit.used + limit.needs > limit.limit)

    def saved(self, need: Need, ranks: int) -> str | None:
        """The older job for which a limit that this one would draw on is being saved."""
        if not self.saved_for:
            return None
        return next((self.saved_for[x.name] for x in self._asked(need, ranks) if x.name in self.saved_for), None)

    def most(self, need: Need, at_most: int) -> int:
        """How many ranks of one job, up to `at_most`, the limits leave."""
        if self.unlimited:
            return at_most
        for limit in self._asked(need, 1):
            left = max(0, limit.limit - limit.used)
            # One job is one, of however many ranks.
            at_most = min(at_most, left // limit.needs if limit.name != "running_jobs" else at_most * min(left, 1))
        return at_most

    def take(self, need: Need, ranks: int) -> None:
        if self.unlimited:
            return
        for kind, count in ((need.pool, need.count), *need.others):
            self._kinds[kind] = self._kinds.get(kind, 0) + count * ranks
            self._accelerators += count * ranks
        self._cpu_milli += need.cpu_milli * ranks
        self._memory_bytes += need.memory_bytes * ranks
        self._jobs += 1

    def _asked(self, need: Need, ranks: int) -> Iterator[Limit]:
        quota = self._quota
        total = 0
        for kind, count in ((need.pool, need.count), *need.others):
            total += count * ranks
            if count and kind in self._by_type:
                yield Limit(f"accelerators.{kind}", self._by_type[kind], self._kinds.get(kind, 0), count * ranks)
        if quota.accelerators is not None and total:
            yield Limit("accelerators", quota.accelerators, self._accelerators, total)
        if quota.cpu_milli is not None and need.cpu_milli:
            yield Limit("cpu_milli", quota.cpu_milli, self._cpu_milli, need.cpu_milli * ranks)
        if quota.memory_bytes is not None and need.memory_bytes:
            yield Limit("memory_bytes", quota.memory_bytes, self._memory_bytes, need.memory_bytes * ranks)
        if quota.running_jobs is not None:
            yield Limit("running_jobs", quota.running_jobs, self._jobs, 1)


def tightest(exceeded: Iterable[tuple[Limit, ...]]) -> Limit:
    """Of the alternatives the one that lacks least; of its limits the first."""
    return min(exceeded, key=lambda limits: (limits[0].never, limits[0].used + limits[0].needs - limits[0].limit))[0]
