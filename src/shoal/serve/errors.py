"""What a call can be refused with; the protocol's fronts turn each into their own status."""

from __future__ import annotations

from shoal.base.http import TooLarge as TooLarge
from shoal.core import Invalid, NotFound, Overloaded, ShoalError, Unavailable


class BadRequest(Invalid):
    """The request is malformed or does not match the model's inputs (HTTP 400, INVALID_ARGUMENT)."""


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


class ModelFailed(ShoalError):
    """The model itself raised an error on this input (HTTP 500, INTERNAL)."""

    code = "model-failed"


class BadModel(Invalid):
    """The model file cannot be loaded, or must not be (HTTP 400 on load, INVALID_ARGUMENT)."""

    code = "bad-model"
