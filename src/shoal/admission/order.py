"""Best-effort jobs that another part puts in order: which job is next, on what it may run and how large it may be.

What else a start needs stays admission's: capacity, quotas, reservations, the tenants' accounts. Such jobs come after
all that admission puts in order by itself, and respect its reservations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from shoal.admission.reservation import Reservation
from shoal.admission.snapshot import GroupKey, Need
from shoal.admission.types import Pending
from shoal.core import Reason

MOST_RESERVATIONS = 32
"""The most jobs for which one decision reserves capacity."""


Prefers = Callable[[str], Mapping[str, float]]
"""By the id of a waiting job, what nodes are worth to it beyond what its manifest says: seconds saved, by name."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A job that may start now, on the first of its `ways` that fits: what a rank needs, and the most ranks. With
    `whole` it starts with the most that its quota allows or not at all. For one that `reserves`, capacity is kept if it
    fits nowhere; then it may not use what is kept for others, however soon it ends."""

    job: Pending
    ways: Sequence[tuple[Need, int]]
    whole: bool = False
    reserves: bool = False


class Order(Protocol):
    def has(self, key: GroupKey) -> bool:
        """Whether it puts the jobs of such a group in order."""

    def turns(self, left: Mapping[str, int], begun: Set[str]) -> Iterator[Turn]:
        """The turns of this decision. `left` is how many accelerators of each type are free by now, `begun` the ids of
        those of its jobs that start; both change with every turn."""

    def starts(self, turn: Turn, given: str) -> Reason:
        """Why the job of this turn starts; `given` says in words what it is given."""

    def waits(self, job: Pending, reservation: Reservation | None) -> Reason:
        """Why a job waits that would fit on the nodes and has quota; `reservation` is what is kept for it."""
