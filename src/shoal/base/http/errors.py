"""Reasons for which the server itself refuses a request; the application gives each refusal its own form."""

from __future__ import annotations

from http import HTTPStatus

from shoal.core import Invalid, Overloaded, ShoalError, Unavailable


class Malformed(Invalid):
    """The request is not HTTP/1.1, or is ambiguous (400)."""

    code = "malformed-request"


class TooSlow(Invalid):
    """The request took longer to arrive than is waited for (408)."""

    code = "too-slow"


class BodyTooLarge(Invalid):
    """The body is larger than the server takes (413)."""

    code = "too-large"


class UnsupportedCoding(Invalid):
    """The body is compressed in a way that is not taken here (415)."""

    code = "unsupported-coding"


class HeadTooLarge(Invalid):
    """The request's first line and headers are longer than the server takes (431)."""

    code = "head-too-large"


class TooManyConnections(Overloaded):
    """No connection is left for this client (503)."""

    code = "too-many-connections"


class NoAnswer(Overloaded):
    """The application did not answer in time (503)."""

    code = "deadline"


class Stopping(Unavailable):
    """The server is being stopped (503)."""

    code = "not-ready"


STATUSES: tuple[tuple[type[ShoalError], HTTPStatus], ...] = (
    (Malformed, HTTPStatus.BAD_REQUEST),
    (TooSlow, HTTPStatus.REQUEST_TIMEOUT),
    (BodyTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (UnsupportedCoding, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    (HeadTooLarge, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
    (Overloaded, HTTPStatus.SERVICE_UNAVAILABLE),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
)


def status_of(error: Exception) -> HTTPStatus:
    """What is none of the server's own refusals is a defect: 500."""
    return next((status for kind, status in STATUSES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
