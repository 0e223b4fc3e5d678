"""What a tenant's jobs did before: how long their runs held their capacity, and when jobs came.

It is what an interval of a start rests on (see `futures`). A decision does not look at it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from shoal.admission.types import Pending

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
        return replace(self, runs=(*self.runs[1 - _RUNS :], run))

    def came(self, arrivals: tuple[Arrival, ...]) -> Past:
        return replace(self, arrivals=(*self.arrivals, *arrivals)[-MOST_ARRIVALS:])


NO_PAST = Past()
