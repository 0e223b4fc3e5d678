"""A cluster's own job, as far as a gang needs to know it."""

from __future__ import annotations

from typing import Protocol

from shoal.core import Reason, ShoalError
from shoal.engine.protocol import RankStatus


class NotTaken(ShoalError):
    """The cluster answered, and said no."""

    code = "not-taken"


class BatchJob(Protocol):
    """As the cluster listed it last. `name` is its gang's; of several with one name the last has the greatest `order`.
    `over`: it has no process any more, or is about to have none; `waiting`: it has none yet."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def order(self) -> int: ...

    @property
    def over(self) -> bool: ...

    @property
    def waiting(self) -> bool: ...

    @property
    def hosts(self) -> list[str]:
        """The names of the nodes that it was given."""
        ...

    def why_waiting(self) -> Reason:
        """The cluster's reason in our words, with its own."""
        ...

    def why_over(self) -> str:
        """Why the cluster ended it, in words."""
        ...

    def judged(self, rank: RankStatus, why: str) -> RankStatus:
        """A rank's end as it is to be told when nothing of ours asked for it: how the cluster ended its job says whose
        doing it was. A rank that ended by itself before that ended as it did."""
        ...
