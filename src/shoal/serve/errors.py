"""Errors of a call; the protocol's fronts turn each into their own status."""

from __future__ import annotations

from shoal.base.http import BodyTooLarge as BodyTooLarge
from shoal.core import Conflict, NotFound, Overloaded, Unavailable


class UnknownModel(NotFound):
    """No such model or version for this tenant (HTTP 404, NOT_FOUND)."""


class RateLimited(Overloaded):
    """The tenant used up its rate limit (HTTP 429 with Retry-After, RESOURCE_EXHAUSTED)."""

    code = "rate-limited"


class DeadlineMissed(Overloaded):
    """The answer could not come in time, so it is not worked out (HTTP 503 with Retry-After, DEADLINE_EXCEEDED)."""

    code = "deadline"


class NotReady(Unavailable):
    """The model is loading, or none of its replicas is alive (HTTP 503, UNAVAILABLE)."""

    code = "not-ready"


class ReplicaLost(Unavailable):
    """The replica died while it worked on the request; it is safe to ask again (HTTP 502, UNAVAILABLE)."""

    code = "replica-lost"


class SequenceLost(Conflict):
    """The state of a sequence is gone, after `answered` of its steps (HTTP 409, ABORTED)."""

    code = "sequence-lost"

    def __init__(
        self, what: str, *, where: str | None = None, hint: str | None = None, answered: int | None = None
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.answered = answered


class TooManySequences(Overloaded):
    """No replica can keep another sequence (HTTP 429 with Retry-After, RESOURCE_EXHAUSTED)."""

    code = "too-many-sequences"
