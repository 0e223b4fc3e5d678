"""History of a simulated cluster, and the proof that nothing ran twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Happening(NamedTuple):
    """`at` in Unix seconds. `event` is `launch` (a call), `refused` (it started nothing), `start` (processes exist),
    `rolled-back`, `running`, `notify`, `signal N`, `stop`, `lost`, `end` (no process is left) or `forget`."""

    at: float
    name: str
    event: str


class Overlap(NamedTuple):
    """Two gangs of one job had processes at one time, since `at`."""

    at: float
    job: str
    first: str
    second: str


def job_of(name: str) -> str:
    """Gangs are named `job.attempt.phase`."""
    return name.partition(".")[0]


def find_overlaps(history: Iterable[Happening]) -> tuple[Overlap, ...]:
    """Each pair of gangs of the same job that had processes at one time. O(n) where jobs do not overlap."""
    alive: defaultdict[str, dict[str, None]] = defaultdict(dict)  # a dict for its order
    found = []
    for at, name, event in history:
        if event == "start":
            job = job_of(name)
            found += [Overlap(at, job, other, name) for other in alive[job]]
            alive[job][name] = None
        elif event == "end":
            alive[job_of(name)].pop(name, None)
    return tuple(found)
