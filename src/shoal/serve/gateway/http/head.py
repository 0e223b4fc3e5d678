"""A request's head, from its first line to the empty one."""

from __future__ import annotations

from dataclasses import dataclass

import httptools

from shoal.serve.errors import BadRequest

CHUNKED = -1
"""The `length` of a body that says its length as it goes."""

_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Head:
    """`length` in bytes is the body's, `header_length` that of the JSON in it if not all of it is. `token` is the
    bearer token. `modern` means HTTP/1.1, whose connections stay open unless the head says otherwise."""

    method: str
    target: bytes
    length: int
    header_length: int | None
    token: str | None
    keep_alive: bool
    modern: bool
    expects_continue: bool


class _Fields:
    """What the parser calls back; only the fields that matter here are kept."""

    def __init__(self) -> None:
        self.target = b""
        self.complete = 0
        self.twice = ""
        self.kept: dict[bytes, bytes] = {}

    def on_url(self, target: bytes) -> None:
        self.target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in _KEPT:
            if name in self.kept:
                self.twice = name.decode()
            self.kept[name] = value.strip()

    def on_headers_complete(self) -> None:
        self.complete += 1


_KEPT = frozenset({
    b"authorization", b"connection", b"content-encoding", b"content-length", b"expect",
    b"inference-header-content-length", b"transfer-encoding",
})  # fmt: skip


def parse(raw: bytes) -> Head:
    """Read one head, which ends with its empty line. Raises BadRequest for what is not one, or is ambiguous."""
    fields = _Fields()
    parser = httptools.HttpRequestParser(fields)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # an offer (to speak HTTP/2, say) that need not be taken
    except httptools.HttpParserError as error:
        raise BadRequest(f"this is not HTTP/1.1: {error}") from None
    if fields.complete != 1 or parser.get_http_version() not in ("1.1", "1.0"):
        raise BadRequest("this is not one request of HTTP/1.1")
    if fields.twice:
        raise BadRequest("this header is given twice", where=fields.twice)
    kept = fields.kept
    if kept.get(b"content-encoding", b"identity").lower() != b"identity":
        raise BadRequest("bodies must not be compressed", where="Content-Encoding")
    modern = parser.get_http_version() == "1.1"
    connection = {word.strip() for word in kept.get(b"connection", b"").lower().split(b",")}
    return Head(
        parser.get_method().decode(),
        fields.target,
        _length(kept),
        _number(kept, b"inference-header-content-length"),
        _token(kept.get(b"authorization")),
        b"close" not in connection and (modern or b"keep-alive" in connection),
        modern,
        kept.get(b"expect", b"").lower() == b"100-continue",
    )


def _length(kept: dict[bytes, bytes]) -> int:
    coding = kept.get(b"transfer-encoding")
    if coding is None:
        return _number(kept, b"content-length") or 0
    if coding.lower() != b"chunked" or b"content-length" in kept:
        raise BadRequest("the body's length is ambiguous", where="Transfer-Encoding", hint="send `chunked` alone")
    return CHUNKED


def _number(kept: dict[bytes, bytes], name: bytes) -> int | None:
    value = kept.get(name)
    if value is None:
        return None
    if not value.isdigit() or len(value) > _MOST_DIGITS:
        raise BadRequest(f"{value!r:.40} is no number of bytes", where=name.decode())
    return int(value)


def _token(value: bytes | None) -> str | None:
    if value is None:
        return None
    scheme, _, token = value.partition(b" ")
    return token.strip().decode("latin-1") if scheme.lower() == b"bearer" else None
