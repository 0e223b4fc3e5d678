"""The answers that are the protocol's own, as bytes."""

from __future__ import annotations

from http import HTTPStatus

from shoal.base.http.answers import JSON, document, status_line
from shoal.inference.types import Buffer
from shoal.serve.protocol import errors

METRICS = b"text/plain; version=0.0.4; charset=utf-8"

_OK = status_line(200)


def timing(queue_s: float | None, compute_s: float | None) -> bytes:
    """The header (W3C Server-Timing, in milliseconds) by which callers and load generators learn where time went."""
    if queue_s is None or compute_s is None:
        return b""
    return b"Server-Timing: queue;dur=%.3f, compute;dur=%.3f\r\n" % (queue_s * 1e3, compute_s * 1e3)


def inference(header: bytes, binary: list[Buffer], rest: bytes) -> list[Buffer]:
    """The answer to an inference in one piece, or in several where copying the outputs together costs more."""
    if not binary:
        return [document(200, header, JSON, rest)]
    size = len(header) + sum(map(len, binary))
    head = (
        b"%bContent-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n%b%b"
        % (_OK, len(header), size, rest, header)
    )
    return [b"".join((head, *binary))] if size < _SMALL else [head, *binary]


_SMALL = 16 << 10


def failure(error: BaseException, rest: bytes) -> bytes:
    status = errors.statuses(error)[0]
    more = b""
    wait = errors.retry_after_s(error)
    if wait is not None:
        more = b"Retry-After: %d\r\n" % wait
    if status == HTTPStatus.UNAUTHORIZED:
        more = b'WWW-Authenticate: Bearer realm="shoal"\r\n'
    if isinstance(error, errors.WrongMethod):
        more = b"Allow: %b\r\n" % error.allowed.encode()
    return document(status, errors.body(error), JSON, rest, more=more)
