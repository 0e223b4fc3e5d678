"""Refusals on the wire: which status each error of `shoal.serve.errors` has."""

from __future__ import annotations

import math
from typing import Any

import orjson

from shoal.base.http import HeadTooLarge, TooSlow, UnsupportedCoding
from shoal.core import Conflict, Forbidden, Invalid, NotFound, Overloaded, ShoalError, Unavailable
from shoal.inference.errors import BadModel, BadRequest, ModelFailed
from shoal.serve.errors import (
    BodyTooLarge,
    DeadlineMissed,
    NotReady,
    RateLimited,
    ReplicaLost,
    SequenceLost,
    TooManySequences,
    UnknownModel,
)


class Unauthorized(Forbidden):
    """The call carries no bearer token, or an unknown one (HTTP 401, UNAUTHENTICATED)."""

    code = "unauthorized"


class NoSuchCall(NotFound):
    """The protocol has no such path (HTTP 404, UNIMPLEMENTED)."""

    code = "no-such-call"


class WrongMethod(Invalid):
    """The path exists, but only for the method `allowed` (HTTP 405, UNIMPLEMENTED)."""

    code = "wrong-method"

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None, allowed: str = "") -> None:
        super().__init__(what, where=where, hint=hint)
        self.allowed = allowed


_STATUS: tuple[tuple[type[ShoalError], int, str], ...] = (
    # The first class that fits decides, so subclasses stand before their bases.
    (Unauthorized, 401, "UNAUTHENTICATED"),
    (Forbidden, 403, "PERMISSION_DENIED"),
    (BodyTooLarge, 413, "RESOURCE_EXHAUSTED"),
    (WrongMethod, 405, "UNIMPLEMENTED"),
    (TooSlow, 408, "CANCELLED"),
    (UnsupportedCoding, 415, "INVALID_ARGUMENT"),
    (HeadTooLarge, 431, "RESOURCE_EXHAUSTED"),
    (BadModel, 400, "INVALID_ARGUMENT"),
    (BadRequest, 400, "INVALID_ARGUMENT"),
    (Invalid, 400, "INVALID_ARGUMENT"),
    (NoSuchCall, 404, "UNIMPLEMENTED"),
    (UnknownModel, 404, "NOT_FOUND"),
    (NotFound, 404, "NOT_FOUND"),
    (SequenceLost, 409, "ABORTED"),
    (Conflict, 409, "ALREADY_EXISTS"),
    (TooManySequences, 429, "RESOURCE_EXHAUSTED"),
    (RateLimited, 429, "RESOURCE_EXHAUSTED"),
    (DeadlineMissed, 503, "DEADLINE_EXCEEDED"),
    (Overloaded, 503, "RESOURCE_EXHAUSTED"),
    (ReplicaLost, 502, "UNAVAILABLE"),
    (NotReady, 503, "UNAVAILABLE"),
    (Unavailable, 503, "UNAVAILABLE"),
    (ModelFailed, 500, "INTERNAL"),
)


def statuses(error: BaseException) -> tuple[int, str]:
    """The HTTP status and the name of the gRPC status code; what is not expected is 500 and INTERNAL."""
    for kind, http, rpc in _STATUS:
        if isinstance(error, kind):
            return http, rpc
    return 500, "INTERNAL"


def message(error: BaseException) -> str:
    """What the caller is told; nothing of the server's inside for an error that was not meant to be read."""
    return str(error) if isinstance(error, ShoalError) else "internal error; the server's log has the details"


def body(error: BaseException) -> bytes:
    """The protocol's error document. `code` is ours, a stable word by which a client tells refusals apart; so are
    `retry_after_s`, where asking again is a matter of time, and `answered`, the steps of a lost sequence."""
    document: dict[str, Any] = {"error": message(error), "code": "internal"}
    if isinstance(error, ShoalError):
        document["code"] = error.code
    if isinstance(error, SequenceLost) and error.answered is not None:
        document["answered"] = error.answered
    if isinstance(error, Overloaded):
        document["retry_after_s"] = error.retry_after_s
    return orjson.dumps(document)


def retry_after_s(error: BaseException) -> int | None:
    """Whole seconds for a Retry-After header, rounded up; None where asking again is not a matter of time."""
    return max(1, math.ceil(error.retry_after_s)) if isinstance(error, Overloaded) else None
