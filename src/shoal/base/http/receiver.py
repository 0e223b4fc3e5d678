"""A connection's incoming bytes, made into requests. Does no I/O: it says where bytes go and is told when they came."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from enum import Enum, auto
from typing import Generic, TypeVar

from shoal.base.http.chunks import ChunkedBody, CountedBody
from shoal.base.http.coding import CODINGS, Inflated, Plain
from shoal.base.http.errors import HeadTooLarge, Malformed, UnsupportedCoding
from shoal.base.http.head import CHUNKED, Head, parse

Buffer = bytes | bytearray | memoryview
Admitted = TypeVar("Admitted")

_LARGE = 16 << 20
"""Bodies from here on are received into fresh pages, so that memory is taken as data arrives and not when it is
announced; below it, a bytearray is faster."""

_UNLIMITED = 1 << 62
_FIRST_BUFFER = 4 << 10
"""Most heads are shorter; thousands of idle connections must not cost more each."""
_NOTHING = memoryview(b"")
_MOST_BLANK_LINES = 2
"""Some clients end a body with a blank line too many, which stands before their next head (RFC 9112, section 2.2)."""


class Phase(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()


class Receiver(Generic[Admitted]):
    """Heads and short bodies come through one buffer of `head_limit` bytes. A longer body goes straight to where it
    stays if it is collected (`body_limit` is the largest); with a `body_limit` of None, bodies are handed out in pieces
    as they come. `admit` sees each head before its body is received: what it returns is handed out with the body, and
    what it raises comes out of `take`."""

    def __init__(self, head_limit: int, body_limit: int | None, admit: Callable[[Head], Admitted]) -> None:
        self.lost = False
        """After an error: whether it is unknown where the next request begins."""
        self.wants_continue = False
        """The sender waits for a word before it sends the body."""
        self._body_limit = body_limit
        self._admit = admit
        self._head_limit = head_limit
        self._bytes = bytearray(min(_FIRST_BUFFER, head_limit))
        self._buffer = memoryview(self._bytes)
        self._start = self._end = 0
        self._searched = 0
        self._blank_lines = 0
        self._last: tuple[bytes, Head] | None = None
        self._admitted: Admitted | None = None
        self._body = _NOTHING
        self._filled = 0
        self._source: ChunkedBody | CountedBody | None = None
        self._sink: Plain | Inflated = Plain()

    @property
    def phase(self) -> Phase:
        if self._admitted is not None:
            return Phase.BODY
        return Phase.HEAD if self._end > self._start or self._blank_lines else Phase.IDLE

    @property
    def received(self) -> int:
        """Bytes of the present body so far, as they are kept."""
        return len(self._sink.body) if self._source is not None else self._filled

    @property
    def streaming(self) -> bool:
        """A body that is handed out in pieces is not at its end."""
        return self._body_limit is None and self._source is not None

    @property
    def full(self) -> bool:
        """There is no space: a request has to be taken first."""
        return self._end == len(self._bytes) and not self._body

    def space(self) -> memoryview:
        """Where the next bytes go; empty if a request, or a piece, has to be taken first."""
        if self._body:
            return self._body[self._filled :]
        return self._buffer[self._end :]

    def came(self, count: int) -> None:
        if self._body:
            self._filled += count
        else:
            self._end += count

    def take(self) -> tuple[Admitted, Buffer] | None:
        """The next request, if it is complete. Its body is never written to again. If bodies are handed out in pieces,
        a request without its body, once the head is complete; then `piece` until it is not `streaming` any more."""
        if self._admitted is None and not self._begin():
            return None
        if self._body_limit is None:
            admitted, self._admitted = self._admitted, None
            assert admitted is not None
            return admitted, b""
        if self._source is not None:
            return self._collect(self._source)
        return self._done(self._body) if self._filled == len(self._body) else None

    def piece(self) -> bytes:
        """What has come of a body that is handed out in pieces."""
        assert self._source is not None
        self._feed(self._source)
        found = bytes(self._sink.body)
        self._sink.body.clear()
        if self._source.done:
            self._source = None
        return found

    def rest(self) -> bytes:
        """What came behind the last request, which is taken out."""
        found = bytes(self._buffer[self._start : self._end])
        self._start = self._end = self._searched = 0
        return found

    def _done(self, body: Buffer) -> tuple[Admitted, Buffer]:
        admitted = self._admitted
        assert admitted is not None
        self._admitted, self._body, self._filled, self._source = None, _NOTHING, 0, None
        return admitted, body

    def _begin(self) -> bool:
        """Read a head and as much of its body as is there; False if the head is not complete."""
        head = self._take_head()
        if head is None:
            return False
        self.lost = head.length != 0
        if head.coding and head.length and (self._body_limit is None or head.coding not in CODINGS):
            taken = "none is taken here" if self._body_limit is None else "gzip and deflate are taken"
            raise UnsupportedCoding(f"the body is {head.coding:.20}-coded", where="Content-Encoding", hint=taken)
        self._admitted = self._admit(head)
        self.lost = False
        there = self._end - self._start
        limit = self._body_limit
        if limit is None:
            if head.length:
                self._sink = Plain()
                self._source = self._source_of(head, _UNLIMITED)
        elif head.length == CHUNKED or (head.coding and head.length):
            self._sink = Inflated(limit) if head.coding else Plain()
            self._source = self._source_of(head, limit)
        elif head.length <= there:
            self._body = memoryview(self._bytes[self._start : self._start + head.length])
            self._filled = head.length
            self._start += head.length
        else:
            self._body = memoryview(bytearray(head.length) if head.length < _LARGE else mmap.mmap(-1, head.length))
            self._body[:there] = self._buffer[self._start : self._end]
            self._filled = there
            self._start = self._end
        self.wants_continue = head.expects_continue and not there
        if self._source is not None:
            self._grow(self._head_limit)
        else:
            self._compact()
        return True

    def _source_of(self, head: Head, limit: int) -> ChunkedBody | CountedBody:
        return ChunkedBody(limit, self._sink) if head.length == CHUNKED else CountedBody(head.length, self._sink)

    def _take_head(self) -> Head | None:
        if self._start == self._end:
            return None
        data = self._bytes
        while data.startswith(b"\r\n", self._start, self._end):
            self._start += 2
            self._blank_lines += 1
            if self._blank_lines > _MOST_BLANK_LINES:
                self.lost = True
                raise Malformed(f"more than {_MOST_BLANK_LINES} blank lines stand before the request")
        end = data.find(b"\r\n\r\n", max(self._start, self._searched - 3), self._end) + 4
        if end < 4:
            self._compact()
            self._searched = self._end
            if self._end == self._head_limit:
                self.lost = True
                what = f"the head is longer than {self._head_limit} bytes"
                raise HeadTooLarge(what, hint="send fewer or shorter headers")
            if self._end == len(data):
                self._grow(min(2 * len(data), self._head_limit))
            return None
        raw = bytes(self._buffer[self._start : end])
        self._start, self._searched, self._blank_lines = end, 0, 0
        # Clients repeat themselves: mostly a head is the same, byte for byte, as the one before.
        if self._last is None or raw != self._last[0]:
            self.lost = True
            self._last = raw, parse(raw)
            self.lost = False
        return self._last[1]

    def _collect(self, source: ChunkedBody | CountedBody) -> tuple[Admitted, Buffer] | None:
        self._feed(source)
        if not source.done:
            return None
        self.lost = True
        self._sink.end()
        self.lost = False
        body, self._sink = memoryview(self._sink.body), Plain()
        return self._done(body)

    def _feed(self, source: ChunkedBody | CountedBody) -> None:
        self.lost = True
        self._start += source.feed(self._buffer[self._start : self._end])
        self.lost = False
        self._compact()

    def _grow(self, size: int) -> None:
        if size > len(self._bytes):
            left = self._buffer[self._start : self._end]
            self._bytes = bytearray(size)
            self._buffer = memoryview(self._bytes)
            self._buffer[: len(left)] = left
            self._start, self._end, self._searched = 0, len(left), max(0, self._searched - self._start)

    def _compact(self) -> None:
        """Move what is left to the buffer's front, once its back is used up."""
        left = self._end - self._start
        if not left:
            self._start = self._end = self._searched = 0
        elif self._end == len(self._bytes):
            self._buffer[:left] = self._buffer[self._start : self._end]
            self._start, self._end, self._searched = 0, left, 0
