"""One shape for every error: `{"error": {"code", "what", "where", "hint", "problems"}}`."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from shoal.base.http import BodyTooLarge as BodyTooLarge
from shoal.base.http import status_of as server_status
from shoal.base.validation import sentence
from shoal.contract.manifest import values
from shoal.control.tokens import Unauthenticated
from shoal.core import Conflict, Forbidden, Invalid, NotFound, Overloaded, ShoalError, Unavailable


class Gone(ShoalError):
    """It was there once, and was removed for its age."""

    code = "gone"


_STATUS: tuple[tuple[type[ShoalError], int], ...] = (
    (BodyTooLarge, 413),
    (Invalid, 422),
    (NotFound, 404),
    (Conflict, 409),
    (Forbidden, 403),
    (Unauthenticated, 401),
    (Gone, 410),
    (Overloaded, 429),
    (Unavailable, 503),
)

_HTTP_CODES = {
    401: "unauthenticated",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    413: "too-large",
}


def status_of(error: ShoalError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def error_response(
    status: int,
    code: str,
    what: str,
    *,
    where: str | None = None,
    hint: str | None = None,
    problems: Sequence[ShoalError] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    return Response(_document(code, what, where, hint, problems), status, headers, "application/json")


def _document(code: str, what: str, where: str | None, hint: str | None, problems: Sequence[ShoalError] = ()) -> bytes:
    body = {
        "error": {
            "code": code,
            "what": what,
            "where": where,
            "hint": hint,
            "problems": [{"what": p.what, "where": p.where, "hint": p.hint} for p in problems],
        }
    }
    return orjson.dumps(body)


def refusal(error: Exception) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """What the HTTP server itself says when it refuses a request before the API sees it: status, headers, body."""
    headers = {"Content-Type": "application/json"}
    if isinstance(error, ShoalError):
        headers |= _headers(error)
        body = _document(error.code, error.what, error.where, error.hint)
    else:
        body = _document("internal", "the server failed at this request", None, None)
    return server_status(error), [(name.lower().encode(), value.encode()) for name, value in headers.items()], body


def _headers(error: ShoalError) -> dict[str, str]:
    """What the client is told beside the error itself: when to come back, and how to say who it is."""
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": 'Bearer realm="shoal"'}
    if isinstance(error, Overloaded):
        return {"Retry-After": str(max(1, round(error.retry_after_s)))}
    return {"Retry-After": "1"} if isinstance(error, Unavailable) else {}


async def shoal_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ShoalError)
    problems = error.problems if isinstance(error, Invalid) else ()
    return error_response(
        status_of(error), error.code, error.what,
        where=error.where, hint=error.hint, problems=problems, headers=_headers(error),
    )  # fmt: skip


async def _invalid_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [Invalid(sentence(found, _SHAPES), where=_place(found["loc"])) for found in error.errors()]
    what = problems[0].what if len(problems) == 1 else f"the request has {len(problems)} problems"
    where = problems[0].where
    hint = "send a JSON object, with Content-Type: application/json" if where == "body" else None
    return error_response(422, Invalid.code, what, where=where, hint=hint, problems=problems)


_SHAPES = {
    values.NAME: "only lower-case letters, digits and inner dashes are allowed, at most 63",
    values.ACCELERATOR_TYPE: "only lower-case letters, digits and inner . _ - are allowed, at most 63",
    values.SECRET_NAME: "only letters, digits and inner . _ - are allowed, at most 128",
    values.NO_NUL: "NUL characters are not allowed",
}
"""What the patterns of fields allow, in words."""


def _place(location: Sequence[str | int]) -> str:
    """`("body", "quota", "cpu_milli")` as `quota.cpu_milli`, `("query", "limit")` as `?limit`."""
    source, *rest = location
    path = ".".join(str(part) for part in rest if not isinstance(part, int)) or str(source)
    return f"?{path}" if source == "query" else path


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        return error_response(422, Invalid.code, "the body cannot be read as JSON", where="body")
    code = _HTTP_CODES.get(error.status_code, "error")
    what, hint = str(error.detail), None
    if error.status_code == 404:
        what, hint = _nothing_there(request)
    elif error.status_code == 405:
        what, hint = f"{request.url.path} does not know the method {request.method}", _DESCRIPTION
    return error_response(error.status_code, code, what, hint=hint, headers=dict(error.headers or {}))


_DESCRIPTION = "see /openapi.json"


def _nothing_there(request: Request) -> tuple[str, str]:
    path = request.url.path
    own = path.removeprefix(request.scope.get("root_path", ""))
    for kind in request.app.state.extensions.elsewhere:
        if own.startswith(tuple(kind.paths)):
            return f"{kind.name} is not in planes: {kind.not_in_planes}", "use the shared server"
    for kind in request.app.state.extensions.off:
        if own.startswith(tuple(kind.paths)):
            off = next(iter(kind.off()), None)
            how = f"`shoal up --set {kind.name}.enabled=on`" if off is None else off.detail.removeprefix("off: ")
            return f"{kind.name} is off on this server", how
    return f"there is nothing at {path}", _DESCRIPTION


def install(app: FastAPI) -> None:
    # Asynchronous, for a plain function would be sent to a thread, to compute next to nothing.
    app.add_exception_handler(ShoalError, shoal_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
