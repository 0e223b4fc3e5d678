"""History of a tenant's jobs: how long their runs held their capacity, and when jobs came.

It is what an interval of a start rests on (see `futures`). A decision does not look at it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from shoal.admission.persistent import CowMap, FrozenMap
from shoal.admission.types import Pending, Running

_RUNS = 128
MOST_ARRIVALS = 64
"""The number of a tenant's last runs and arrivals that are remembered."""


class Run(NamedTuple):
    """A run that is over: the kind of job, for how long it held its capacity, and how long it was declared to run."""

    kind: str
    held_s: float
    declared_s: float | None


class Arrival(NamedTuple):
    """A job that came to wait, and when admission first saw it."""

    at: float
    job: Pending


@dataclass(frozen=True, slots=True)
class Past:
    """Of one tenant, the newest last."""

    runs: tuple[Run, ...] = ()
    arrivals: tuple[Arrival, ...] = ()

    def ran(self, run: Run) -> Past:
        return Past((*self.runs[1 - _RUNS :], run), self.arrivals)

    def came(self, arrivals: tuple[Arrival, ...]) -> Past:
        return replace(self, arrivals=(*self.arrivals, *arrivals)[-MOST_ARRIVALS:])


NO_PAST = Past()


class PastBook:
    """The pasts of all tenants, to be changed."""

    def __init__(self) -> None:
        self._pasts: CowMap[Past] = CowMap()
        self._came: dict[str, list[Pending]] = {}
        self._returning: set[str] = set()
        self._looked = False

    def came(self, job: Pending) -> None:
        """A job waits. One that was preempted and comes back did not come then; nor did those that wait when it all
        begins."""
        if job.job_id in self._returning:
            self._returning.discard(job.job_id)
        elif self._looked:
            self._came.setdefault(job.tenant, []).append(job)

    def ended(self, running: Running, held_s: float | None) -> None:
        """A job holds its capacity no more, after this time; None: it was preempted."""
        self._returning.discard(running.job_id)
        if held_s is None and running.stopping:
            self._returning.add(running.job_id)
        elif held_s is not None and not running.endless:
            past = self._pasts.get(running.tenant) or NO_PAST
            self._pasts[running.tenant] = past.ran(Run(running.kind, held_s, running.declared_s))

    def freeze(self, now: float) -> FrozenMap[Past]:
        """What came since the last time, came now."""
        for tenant, jobs in self._came.items():
            past = self._pasts.get(tenant) or NO_PAST
            self._pasts[tenant] = past.came(tuple(Arrival(now, job) for job in jobs[-MOST_ARRIVALS:]))
        self._came.clear()
        self._looked = True
        return self._pasts.freeze()

    @classmethod
    def thaw(cls, pasts: FrozenMap[Past]) -> PastBook:
        """One that goes on from there, as if all began anew."""
        made = cls()
        made._pasts = CowMap.thaw(pasts)
        return made
