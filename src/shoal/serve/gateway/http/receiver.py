"""A connection's incoming bytes, made into requests. Does no I/O: it says where bytes go and is told when they came."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from enum import Enum, auto
from typing import Generic, TypeVar

from shoal.serve.errors import BadRequest
from shoal.serve.gateway.http.chunks import ChunkedBody
from shoal.serve.gateway.http.head import CHUNKED, Head, parse
from shoal.serve.types import Buffer

Admitted = TypeVar("Admitted")

_LARGE = 16 << 20
"""Bodies from here on are received into fresh pages, so that memory is taken as data arrives and not when it is
announced; below it, a bytearray is faster."""

_NOTHING = memoryview(b"")


class Phase(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()


class Receiver(Generic[Admitted]):
    """Heads and short bodies come through one buffer of `head_limit` bytes, the rest of a longer body goes straight to
    where it stays. `admit` sees each head before its body is received: what it returns is handed out with the body,
    and what it raises comes out of `take`."""

    def __init__(self, head_limit: int, body_limit: int, admit: Callable[[Head], Admitted]) -> None:
        self.lost = False
        """After an error: whether it is unknown where the next request begins."""
        self.wants_continue = False
        """The sender waits for a word before it sends the body."""
        self._body_limit = body_limit
        self._admit = admit
        self._bytes = bytearray(head_limit)
        self._buffer = memoryview(self._bytes)
        self._start = self._end = 0
        self._last: tuple[bytes, Head] | None = None
        self._admitted: Admitted | None = None
        self._body = _NOTHING
        self._filled = 0
        self._chunks: ChunkedBody | None = None

    @property
    def phase(self) -> Phase:
        if self._admitted is not None:
            return Phase.BODY
        return Phase.HEAD if self._end > self._start else Phase.IDLE

    @property
    def received(self) -> int:
        """Bytes of the present body so far."""
        return len(self._chunks.body) if self._chunks is not None else self._filled

    def space(self) -> memoryview:
        """Where the next bytes go; empty if a request has to be taken first."""
        if self._body:
            return self._body[self._filled :]
        return self._buffer[self._end :]

    def came(self, count: int) -> None:
        if self._body:
            self._filled += count
        else:
            self._end += count

    def take(self) -> tuple[Admitted, Buffer] | None:
        """The next request, if it is complete. Its body is never written to again."""
        if self._admitted is None and not self._begin():
            return None
        if self._chunks is not None:
            return self._take_chunks(self._chunks)
        return self._done(self._body) if self._filled == len(self._body) else None

    def _done(self, body: Buffer) -> tuple[Admitted, Buffer]:
        admitted = self._admitted
        assert admitted is not None
        self._admitted, self._body, self._filled, self._chunks = None, _NOTHING, 0, None
        return admitted, body

    def _begin(self) -> bool:
        """Read a head and as much of its body as is there; False if the head is not complete."""
        head = self._take_head()
        if head is None:
            return False
        self.lost = head.length != 0
        self._admitted = self._admit(head)
        self.lost = False
        there = self._end - self._start
        if head.length == CHUNKED:
            self._chunks = ChunkedBody(self._body_limit)
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
        self._compact()
        return True

    def _take_head(self) -> Head | None:
        data = self._bytes
        while data.startswith(b"\r\n", self._start, self._end):  # as RFC 9112 advises (section 2.2)
            self._start += 2
        end = data.find(b"\r\n\r\n", self._start, self._end) + 4
        if end < 4:
            self._compact()
            if self._end == len(data):
                self.lost = True
                raise BadRequest(f"the head is longer than {len(data)} bytes")
            return None
        raw = bytes(self._buffer[self._start : end])
        self._start = end
        # Clients repeat themselves: mostly a head is the same, byte for byte, as the one before.
        if self._last is None or raw != self._last[0]:
            self.lost = True
            self._last = raw, parse(raw)
            self.lost = False
        return self._last[1]

    def _take_chunks(self, chunks: ChunkedBody) -> tuple[Admitted, Buffer] | None:
        self.lost = True
        self._start += chunks.feed(self._buffer[self._start : self._end])
        self.lost = False
        self._compact()
        return self._done(memoryview(chunks.body)) if chunks.done else None

    def _compact(self) -> None:
        """Move what is left to the buffer's front, once its back is used up."""
        left = self._end - self._start
        if not left or self._end == len(self._bytes):
            self._buffer[:left] = self._buffer[self._start : self._end]
            self._start, self._end = 0, left
