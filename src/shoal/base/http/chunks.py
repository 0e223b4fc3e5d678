"""Bodies in the chunked transfer coding (RFC 9112, section 7.1).

httptools decodes it too, but does not say where in its input the body ended, which a pipelined request needs.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from shoal.base.http.errors import BodyTooLarge, Malformed

_LONGEST_LINE = 256
"""Bytes of a line of a chunk's size with its extensions, or of a trailer."""

_MOST_TRAILERS = 64

_MOST_EXTENSIONS = 16 << 10
"""Bytes of all extensions of one body. Nothing reads them, and each could be 200 times as long as its chunk."""


class _Expects(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILER = auto()
    NOTHING = auto()


class Sink(Protocol):
    """Where a body's bytes go."""

    def feed(self, data: memoryview) -> None: ...


class ChunkedBody:
    """Gives a body's bytes to `sink` as they come, at most `limit` of them; `done` when it is complete."""

    def __init__(self, limit: int, sink: Sink) -> None:
        self._limit = limit
        self._sink = sink
        self._size = 0
        self._expects = _Expects.SIZE
        self._left = 0
        self._line = b""
        self._trailers = 0
        self._extensions = 0

    @property
    def done(self) -> bool:
        return self._expects is _Expects.NOTHING

    def feed(self, data: memoryview) -> int:
        """Returns how many bytes belong to the body: all, until it is done. Raises Malformed and BodyTooLarge."""
        at = 0
        while at < len(data) and not self.done:
            if self._expects is _Expects.DATA:
                part = data[at : at + self._left]
                self._sink.feed(part)
                self._left -= len(part)
                at += len(part)
                if not self._left:
                    self._expects = _Expects.DATA_END
            else:
                at += self._take_line(data[at:])
        return at

    def _take_line(self, data: memoryview) -> int:
        seen = len(self._line)
        line = self._line + bytes(data[: _LONGEST_LINE - seen])
        end = line.find(b"\n")
        if end < 0:
            if len(line) >= _LONGEST_LINE:
                raise Malformed("a line of a chunked body is too long", where="body")
            self._line = line
            return len(line) - seen
        if line[end - 1 : end] != b"\r":
            raise Malformed("a line of a chunked body does not end with CR LF", where="body")
        self._line = b""
        self._read(line[: end - 1])
        return end + 1 - seen

    def _read(self, line: bytes) -> None:
        match self._expects:
            case _Expects.SIZE:
                digits = line.partition(b";")[0].rstrip(b" \t")
                self._extensions += len(line) - len(digits)
                if self._extensions > _MOST_EXTENSIONS:
                    raise Malformed("the extensions of its chunks are too long", where="body")
                if not 0 < len(digits) <= 15 or digits.strip(b"0123456789abcdefABCDEF"):
                    raise Malformed(f"{digits!r:.40} is no chunk's size", where="body")
                self._left = int(digits, 16)
                self._size += self._left
                if self._size > self._limit:
                    raise BodyTooLarge(f"the body exceeds {self._limit} bytes", where="body")
                self._expects = _Expects.DATA if self._left else _Expects.TRAILER
            case _Expects.DATA_END:
                if line:
                    raise Malformed("a chunk is longer than its size", where="body")
                self._expects = _Expects.SIZE
            case _:
                self._trailers += 1
                if self._trailers > _MOST_TRAILERS:
                    raise Malformed("there are too many trailers", where="body")
                if not line:
                    self._expects = _Expects.NOTHING


class CountedBody:
    """The same for a body whose length was announced."""

    def __init__(self, length: int, sink: Sink) -> None:
        self._left = length
        self._sink = sink

    @property
    def done(self) -> bool:
        return not self._left

    def feed(self, data: memoryview) -> int:
        part = data[: self._left]
        self._sink.feed(part)
        self._left -= len(part)
        return len(part)
