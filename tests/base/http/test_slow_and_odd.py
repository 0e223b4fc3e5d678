"""Slow and odd bytes cost a bounded amount of work each, and hold a connection for a bounded time.

Work is counted as executed lines of Python, time by a clock that the test moves."""

from __future__ import annotations

import asyncio
import gzip
import sys
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal.base.http as http
from shoal.base.http import Limits
from shoal.base.http.connection import Connection
from shoal.base.http.errors import status_of
from shoal.base.http.front import Front
from shoal.base.http.head import Head
from shoal.base.http.receiver import Buffer

LIMITS = Limits(head=2048, body=8192, idle_s=75, head_s=10, body_s=20, slowest_bytes_per_s=1024, linger_s=2, sweep_s=1)
LONGEST_S = LIMITS.head_s + LIMITS.body_s + LIMITS.body / LIMITS.slowest_bytes_per_s
"""From the first byte of a request to its end."""

_WATCHED = str(Path(http.__file__).parent)


class Clock:
    now = 0.0

    def time(self) -> float:
        return self.now


class Wire:
    """A transport that a client always reads from at once."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = self.reading = False

    def write(self, data: Buffer) -> None:
        self.sent += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.reading = True

    def resume_reading(self) -> None:
        self.reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def close(self) -> None:
        self.closed = True

    abort = close


class Answering(Front):
    def __init__(self) -> None:
        super().__init__(LIMITS)
        self.loop = cast(asyncio.AbstractEventLoop, Clock())

    def connection(self, network: str) -> Connection[Any]:
        return Collected(self, network)

    def rest(self, closing: bool, modern: bool) -> bytes:
        return b"\r\n"


class Collected(Connection[Head]):
    answered = 0

    def admit(self, head: Head) -> Head:
        return head

    def handle(self, call: Head, body: Buffer) -> None:
        self.answered += 1
        self._send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def failure(self, error: Exception, rest: bytes) -> bytes:
        assert status_of(error) < 500, repr(error)
        return b"HTTP/1.1 %d No\r\n\r\n" % status_of(error)


class Driven:
    """A connection, and the work that it was."""

    def __init__(self) -> None:
        front = Answering()
        self.clock = cast(Clock, front.loop)
        self.wire = Wire()
        self.connection = cast(Collected, front.connection("a"))
        self.connection.connection_made(cast(asyncio.Transport, self.wire))
        self.lines = self.bytes = self.pieces = 0
        self.in_vain = 0
        """Bytes that were looked at since the last request that was complete."""

    def send(self, raw: bytes) -> None:
        before = sys.gettrace()
        while raw and not self.wire.closed:
            answered, refused = self.connection.answered, self.connection._finished
            sys.settrace(self._trace)
            try:
                space = self.connection.get_buffer(-1)
                count = min(len(space), len(raw))
                space[:count] = raw[:count]
                self.connection.buffer_updated(count)
            finally:
                sys.settrace(before)
            assert count, "a connection that reads has space"
            raw = raw[count:]
            self.bytes, self.pieces = self.bytes + count, self.pieces + 1
            self.in_vain = 0 if self.connection.answered > answered else self.in_vain + (0 if refused else count)

    def wait(self, seconds: float) -> None:
        """As the front's sweep does while this time goes by."""
        end = self.clock.now + seconds
        while self.clock.now < end and not self.wire.closed:
            self.clock.now += LIMITS.sweep_s
            if self.connection.overdue(self.clock.now):
                self.connection.expire()

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(_WATCHED):
            return None
        self.lines += event == "line"
        return self._trace


def head(*lines: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\n" + b"".join(line + b"\r\n" for line in (b"Host: a", *lines)) + b"\r\n"


PARTS = st.sampled_from(
    [
        b"\r\n", b"\r", b"\n", b"\r\n" * 3, b"\n" * 700, b"\r" * 700, b" ", b"\0", b"\xff" * 40, b"x" * 900,
        head(), head()[:-2], head()[:-1], head()[:9], b"GET / HTTP/1.1\r\n", b"GET " + b"/" * 700,
        b"PRI * HTTP/2.0\r\n\r\n",
        b"A: b\r\n", b"A:\r\n" * 200, b" folded\r\n", b"Content-Length: 3\r\n\r\n", head(b"Content-Length: 5000"),
        head(b"Content-Length: 00000000000000000003") + b"abc", head(b"Content-Length: -1"),
        head(b"Transfer-Encoding: chunked"), head(b"Transfer-Encoding: chunked", b"Content-Encoding: gzip"),
        head(b"Expect: 100-continue", b"Content-Length: 10"), head(b"Connection: " + b"a," * 500),
        b"1\r\nx\r\n" * 50, b"0\r\n", b"0\r\n\r\n", b"f;" + b"e" * 200 + b"\r\n", b"0000000000\r\n", b"T: x\r\n" * 70,
        b"1;" + b"e" * 240 + b"\r\nx\r\n", gzip.compress(bytes(4000)), b"12\r\n" + gzip.compress(b"")[:18] + b"\r\n",
    ]
)  # fmt: skip

LINES_A_PIECE, LINES_A_BYTE = 200, 25


@st.composite
def talks(draw: st.DrawFn) -> list[tuple[bytes, float]]:
    """Pieces of bytes, and how long the client waits after each."""
    found = []
    for part in draw(st.lists(PARTS, min_size=1, max_size=12)):
        size = draw(st.sampled_from([1, 2, 3, 50, 5000]))
        gap = draw(st.sampled_from([0.0, 0.0, 0.0, 3.0, 9.0]))
        pieces = [part[at : at + size] for at in range(0, len(part), size)]
        found += [(piece, gap if number < 20 else 0.0) for number, piece in enumerate(pieces)]
    return found


@settings(max_examples=120)
@given(talks())
def test_work_is_bounded_by_bytes_and_time_by_requests(talk: list[tuple[bytes, float]]) -> None:
    driven = Driven()
    done_at = 0.0
    for piece, gap in talk:
        answered = driven.connection.answered
        driven.send(piece)
        assert driven.lines <= LINES_A_PIECE * driven.pieces + LINES_A_BYTE * driven.bytes
        assert driven.in_vain <= LIMITS.head + 7 * LIMITS.body
        if driven.connection.answered > answered:
            done_at = driven.clock.now
        driven.wait(gap)
        if not driven.wire.closed:
            spent = driven.clock.now - done_at
            assert spent <= LIMITS.idle_s + LONGEST_S + LIMITS.linger_s + 4 * LIMITS.sweep_s
    driven.wait(LIMITS.idle_s + 2 * LIMITS.sweep_s)
    assert driven.wire.closed


@pytest.mark.parametrize(
    "byte", [b"\r\n", b"\n", b"\r", b"GET / HTTP/1.1\r\nA: b", b"A: b\r\n", b"\r\n\r\nG"], ids=repr
)  # fmt: skip
@pytest.mark.parametrize("gap", [0.5, 3.0, 9.0])
def test_no_drip_before_a_request_holds_a_connection(byte: bytes, gap: float) -> None:
    """Also a client that sends something that is not yet a request whenever its patience is nearly over."""
    for first in (b"", head()):
        driven = Driven()
        driven.send(first)
        began = driven.clock.now
        while not driven.wire.closed and driven.clock.now - began < 1000:
            driven.send(byte)
            driven.wait(gap)
        assert driven.clock.now - began <= LIMITS.head_s + LIMITS.linger_s + 2 * LIMITS.sweep_s + gap
        assert b" 40" in driven.wire.sent


@pytest.mark.parametrize("size", [1, 2, 2048])
def test_blank_lines_without_end_are_refused_at_once(size: int) -> None:
    driven = Driven()
    for _ in range(2000):
        driven.send((b"\r\n" * 1024)[:size] if size > 1 else b"\r")
        driven.send(b"" if size > 1 else b"\n")
    assert driven.wire.sent.startswith(b"HTTP/1.1 400 ")
    assert driven.in_vain <= max(size, 6)


def test_two_blank_lines_may_stand_before_each_request_in_any_pieces() -> None:
    for size in (1, 2, 3, 1000):
        driven = Driven()
        raw = (b"\r\n\r\n" + head()) * 3
        for at in range(0, len(raw), size):
            driven.send(raw[at : at + size])
        assert (driven.connection.answered, driven.wire.closed) == (3, False)
        driven.send(b"\r\n" * 3)
        assert b"HTTP/1.1 400 " in driven.wire.sent


def test_extensions_of_chunks_are_bounded_for_the_whole_body() -> None:
    driven = Driven()
    driven.send(head(b"Transfer-Encoding: chunked"))
    for _ in range(200):
        driven.send(b"1;" + b"e" * 240 + b"\r\nx\r\n")
    assert driven.wire.sent.startswith(b"HTTP/1.1 400 ")
    assert driven.in_vain <= (16 << 10) + 2 * 260
