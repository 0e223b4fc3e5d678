"""A request's head, from its first line to the empty one."""

from __future__ import annotations

from dataclasses import dataclass

import httptools

from shoal.base.http.errors import Malformed

CHUNKED = -1
"""The `length` of a body that says its length as it goes."""

_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Head:
    """`target` is the path with its query, also where the request had the whole URL. `headers` are all of them, their
    names in lower case. `length` in bytes is the body's; `coding` its Content-Encoding, "" for none. `modern` means
    HTTP/1.1, whose connections stay open unless the head says otherwise."""

    method: str
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    length: int
    coding: str
    keep_alive: bool
    modern: bool
    expects_continue: bool

    def get(self, name: bytes) -> bytes | None:
        """A header's value; the first one's, if there are several."""
        return next((value for known, value in self.headers if known == name), None)


class _Fields:
    """What the parser calls back."""

    def __init__(self) -> None:
        self.target = b""
        self.complete = 0
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, target: bytes) -> None:
        self.target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.strip()))

    def on_headers_complete(self) -> None:
        self.complete += 1


_SINGLE = frozenset({
    b"authorization", b"content-encoding", b"content-length", b"content-type", b"expect", b"host", b"transfer-encoding",
})  # fmt: skip
"""Given twice, they could be read in two ways."""


def parse(raw: bytes) -> Head:
    """Read one head, which ends with its empty line. Raises Malformed for what is not one, or is ambiguous."""
    fields = _Fields()
    parser = httptools.HttpRequestParser(fields)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # an offer (to speak HTTP/2, say) that need not be taken
    except httptools.HttpParserError as error:
        raise Malformed(f"this is not HTTP/1.1: {error}") from None
    version = parser.get_http_version()
    if fields.complete != 1 or version not in ("1.1", "1.0"):
        raise Malformed("this is not one request of HTTP/1.1")
    single: dict[bytes, bytes] = {}
    connection = set()
    for name, value in fields.headers:
        if name in single:
            raise Malformed("this header is given twice", where=name.decode())
        if name in _SINGLE:
            single[name] = value
        elif name == b"connection":
            connection |= {word.strip() for word in value.lower().split(b",")}
    modern = version == "1.1"
    if modern and b"host" not in single:
        raise Malformed("a request of HTTP/1.1 names its host", where="Host")
    coding = single.get(b"content-encoding", b"").lower().decode("latin-1")
    return Head(
        parser.get_method().decode(),
        _path(fields.target),
        tuple(fields.headers),
        _length(single),
        "" if coding == "identity" else coding,
        b"close" not in connection and (modern or b"keep-alive" in connection),
        modern,
        single.get(b"expect", b"").lower() == b"100-continue",
    )


def _path(target: bytes) -> bytes:
    """What a request asks for on this server: a target may be a whole URL (RFC 9112, section 3.2.2)."""
    if target.startswith(b"/"):
        return target
    scheme, found, rest = target.partition(b"://")
    if not found or scheme.lower() not in (b"http", b"https"):
        return target
    end = next((at for at, byte in enumerate(rest) if byte in b"/?"), len(rest))
    path = rest[end:]
    return path if path.startswith(b"/") else b"/" + path


def _length(single: dict[bytes, bytes]) -> int:
    coding = single.get(b"transfer-encoding")
    if coding is None:
        return read_number(single.get(b"content-length"), "content-length") or 0
    if coding.lower() != b"chunked" or b"content-length" in single:
        raise Malformed("the body's length is ambiguous", where="Transfer-Encoding", hint="send `chunked` alone")
    return CHUNKED


def read_number(value: bytes | None, where: str) -> int | None:
    """A header's number of bytes; None if there is no header. Raises Malformed."""
    if value is None:
        return None
    if not value.isdigit() or len(value) > _MOST_DIGITS:
        raise Malformed(f"{value!r:.40} is no number of bytes", where=where)
    return int(value)
