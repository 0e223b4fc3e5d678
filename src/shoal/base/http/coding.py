"""Bodies that are collected: plain ones, and compressed ones (RFC 9110, section 8.4.1) within a limit."""

from __future__ import annotations

import zlib

from shoal.base.http.errors import BodyTooLarge, Malformed

CODINGS = frozenset({"gzip", "x-gzip", "deflate"})
_EITHER = 32 + zlib.MAX_WBITS
"""zlib's word for: see from the first bytes whether it is gzip or zlib (which is HTTP's `deflate`)."""


_GZIP = 16 + zlib.MAX_WBITS
_PIECE = 1 << 14
"""Bytes that zlib sees at once: it copies what follows a member."""
_MOST_MEMBERS = 4096
"""Of one body, each of which costs more than its few bytes; block compressors make one for each 64 KiB."""


class Plain:
    """A body's bytes as they are, in `body`."""

    def __init__(self) -> None:
        self.body = bytearray()

    def feed(self, data: bytes | memoryview) -> None:
        self.body += data

    def end(self) -> None:
        """All has come."""


class Inflated:
    """A body's plain bytes, in `body`. A few compressed bytes may stand for a thousand times as many: what one piece
    expands to is bounded by what is left of the limit. Members may follow one another (RFC 1952, section 2.2)."""

    def __init__(self, limit: int) -> None:
        self.body = bytearray()
        self._limit = limit
        self._inflate = zlib.decompressobj(_EITHER)
        self._members = 1

    def feed(self, data: bytes | memoryview) -> None:
        """Raises BodyTooLarge, and Malformed for what is no such data."""
        view = memoryview(data)
        for start in range(0, len(view), _PIECE):
            self._feed(view[start : start + _PIECE])

    def _feed(self, piece: bytes | memoryview) -> None:
        while piece:
            if self._inflate.eof:
                self._next_member()
            try:
                self.body += self._inflate.decompress(piece, self._limit - len(self.body) + 1)
            except zlib.error as error:
                what = "cannot be decompressed" if self._members == 1 else "goes on after its end"
                raise Malformed(f"the compressed body {what}: {error}", where="body") from None
            if len(self.body) > self._limit:
                raise BodyTooLarge(f"the body has more than {self._limit} bytes when it is decompressed", where="body")
            piece = self._inflate.unused_data

    def _next_member(self) -> None:
        self._members += 1
        if self._members > _MOST_MEMBERS:
            raise Malformed(f"the body has more than {_MOST_MEMBERS} compressed members", where="body")
        self._inflate = zlib.decompressobj(_GZIP)

    def end(self) -> None:
        """All has come. Raises Malformed if something is missing."""
        if not self._inflate.eof:
            raise Malformed("the compressed body is cut off", where="body")
