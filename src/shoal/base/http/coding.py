"""Bodies that are collected: plain ones, and compressed ones (RFC 9110, section 8.4.1) within a limit."""

from __future__ import annotations

import zlib

from shoal.base.http.errors import Malformed, TooLarge

CODINGS = frozenset({"gzip", "x-gzip", "deflate"})
_EITHER = 32 + zlib.MAX_WBITS
"""zlib's word for: see from the first bytes whether it is gzip or zlib (which is HTTP's `deflate`)."""


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
    expands to is bounded by what is left of the limit."""

    def __init__(self, limit: int) -> None:
        self.body = bytearray()
        self._limit = limit
        self._inflate = zlib.decompressobj(_EITHER)

    def feed(self, data: bytes | memoryview) -> None:
        """Raises TooLarge, and Malformed for what is no such data."""
        if self._inflate.eof:
            if data:
                raise Malformed("the compressed body goes on after its end", where="body")
            return
        try:
            self.body += self._inflate.decompress(data, self._limit - len(self.body) + 1)
        except zlib.error as error:
            raise Malformed(f"the body cannot be decompressed: {error}", where="body") from None
        if len(self.body) > self._limit:
            raise TooLarge(f"the body has more than {self._limit} bytes when it is decompressed", where="body")
        if self._inflate.unused_data:
            raise Malformed("the compressed body goes on after its end", where="body")

    def end(self) -> None:
        """All has come. Raises Malformed if something is missing."""
        if not self._inflate.eof:
            raise Malformed("the compressed body is cut off", where="body")
