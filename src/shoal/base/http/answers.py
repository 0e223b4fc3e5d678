"""Answers as bytes: status line, headers, body."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from shoal.base.http.receiver import Buffer

JSON = b"application/json"

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_LINES = {int(status): b"HTTP/1.1 %d %s\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}


def status_line(status: int) -> bytes:
    return _LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def head(status: int, headers: Iterable[tuple[bytes, bytes]], rest: bytes) -> bytes:
    """Everything before the body. `rest` holds the headers that every answer of this moment has, and the empty line.

    Raises ValueError for a line break within a header, by which who chooses its value could write others."""
    lines = [b"%b: %b\r\n" % pair for pair in headers]
    text = b"".join(lines)
    if not text.count(b"\n") == text.count(b"\r") == len(lines):
        raise ValueError("a header holds a line break")
    return b"%b%b%b" % (status_line(status), text, rest)


def document(status: int, body: bytes, content_type: bytes, rest: bytes, *, more: bytes = b"") -> bytes:
    """A whole answer. `more` are further headers, each with its line's end."""
    return b"%bContent-Type: %b\r\nContent-Length: %d\r\n%b%b%b" % (
        status_line(status), content_type, len(body), more, rest, body
    )  # fmt: skip


def head_of(answer: Buffer) -> bytes:
    """An answer to HEAD: the same without its body."""
    whole = bytes(answer)
    return whole[: whole.index(b"\r\n\r\n") + 4]
