"""Refusals on the wire: which status each error of `shoal.serve.errors` has, and back again for clients."""

from __future__ import annotations

import math
from typing import Any

import orjson

from shoal.base.http import HeadTooLarge, TooSlow, UnsupportedCoding
from shoal.core import Conflict, Forbidden, Invalid, NotFound, Overloaded, ShoalError, Unavailable
from shoal.serve.errors import (
    BadModel,
    BadRequest,
    DeadlineMissed,
    ModelFailed,
    NotReady,
    RateLimited,
    ReplicaLost,
    TooLarge,
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
    (TooLarge, 413, "RESOURCE_EXHAUSTED"),
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
    (Conflict, 409, "ALREADY_EXISTS"),
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
    """The protocol's error document. `code` is ours, a stable word by which a client tells refusals apart; so is
    `retry_after_s`, where asking again is a matter of time."""
    document: dict[str, Any] = {"error": message(error), "code": "internal"}
    if isinstance(error, ShoalError):
        document["code"] = error.code
    if isinstance(error, Overloaded):
        document["retry_after_s"] = error.retry_after_s
    return orjson.dumps(document)


def retry_after_s(error: BaseException) -> int | None:
    """Whole seconds for a Retry-After header, rounded up; None where asking again is not a matter of time."""
    return max(1, math.ceil(error.retry_after_s)) if isinstance(error, Overloaded) else None


_BY_CODE: dict[str, type[ShoalError]] = {kind.code: kind for kind, _, _ in reversed(_STATUS)}
"""Where classes share a code, the most special: a model server's `not-found` is about a model."""


def rebuild(http: int, body: bytes, retry_after: float | None) -> ShoalError:
    """The error that a server meant: by its code if it is a Shoal server, else by the status alone. `retry_after` is
    what the header of that name says."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    told = found if isinstance(found, dict) else {}
    what = str(told.get("error") or f"the server answered with status {http}")
    kind = _BY_CODE.get(str(told.get("code", "")))
    if kind is None:
        # Of the classes that share a status, the last is the most general.
        kind = next((kind for kind, status, _ in reversed(_STATUS) if status == http), ShoalError)
    if issubclass(kind, Overloaded):
        exact = told.get("retry_after_s", retry_after)
        return kind(what, retry_after_s=exact if isinstance(exact, int | float) else 1.0)
    return kind(what)
