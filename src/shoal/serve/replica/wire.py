"""Frames on the socket between gateway and replica: a header, a small JSON body, and seldom a payload of raw bytes.

    magic u16 | kind u16 | number u32 | body bytes u32 | payload bytes u64     (little-endian), body, payload

`number` pairs a response with its request. A reader has limits, and takes nothing on trust.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import orjson

from shoal.inference.types import Buffer

_MAGIC = 0x5348
_HEADER = struct.Struct("<HHIIQ")
_ROOM = 256 << 10
_LEAST_FREE = 16 << 10
"""Less room than this would make short reads: what is unread then moves to the front of the buffer."""


class Kind(IntEnum):
    """What a frame says. Questions of the gateway have the same kind as the replica's answers to them."""

    HELLO = 1
    """Replica: its token and name; the first frame of a connection."""
    WELCOME = 2
    """Gateway: how large the arena is, whose file comes with the frame."""
    REFUSED = 3
    """Gateway: why the replica may not join, and whether it may try again."""
    MODELS = 4
    """Replica: what it has loaded; it can be given work."""
    LOAD = 5
    UNLOAD = 6
    EXECUTE = 7
    PING = 8
    LEAVING = 9
    """Replica: it was told to end, and will take no new work than what is on its way."""
    STOP = 10
    """Gateway: the replica may end."""
    FAILED = 11
    """Replica: the question's answer is an error."""
    CONDITION = 12
    """Of one model: its figures, its state and what it keeps. The replica also sends it unasked, with the number 0,
    when a state changes."""
    END_SEQUENCES = 13
    """Of one model: their state is not needed any more."""
    LEAVE = 14
    """Gateway: nothing waits any more for the answer to the EXECUTE of this number, which a runtime may still be at."""


_KINDS = {int(kind): kind for kind in Kind}


class WireError(Exception):
    """What the other side sent is no frame, over a limit, or makes no sense; the connection is of no more use."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest body and payload, in bytes, that a reader accepts."""

    body: int = 16 << 20
    payload: int = 1 << 30


@dataclass(slots=True)
class Frame:
    kind: Kind
    number: int
    body: Any
    payload: memoryview | None = None


def encode(kind: Kind, number: int, body: object, payload_bytes: int = 0) -> bytes:
    """Header and body, to be followed by the payload."""
    raw = orjson.dumps(body)
    return _HEADER.pack(_MAGIC, kind, number, len(raw), payload_bytes) + raw


def size_of(parts: Sequence[Buffer]) -> int:
    return sum(map(len, parts))


class FrameReader:
    """Makes frames of what arrives, in whatever pieces: receive into `buffer()`, then tell `received` how much it was.

    Memory grows with the bytes that arrive, not with those that a header promises.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._room = memoryview(bytearray(_ROOM))
        self._start = 0
        self._end = 0
        self._wanted = 0
        self._waiting: Frame | None = None
        self._payload = bytearray()
        self._payload_bytes = 0

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._room[self._end :]

    def received(self, count: int) -> list[Frame]:
        """The frames that `count` more bytes complete. Raises WireError; the reader is then of no more use."""
        self._end += count
        frames: list[Frame] = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        self._make_room()
        return frames

    def _next(self) -> Frame | None:
        if self._waiting is not None:
            return self._fill_payload(self._waiting)
        have = self._end - self._start
        if have < _HEADER.size:
            return None
        magic, kind, number, body_bytes, payload_bytes = _HEADER.unpack_from(self._room, self._start)
        if magic != _MAGIC or kind not in _KINDS:
            raise WireError(f"no frame: it starts with {magic:#06x} {kind}")
        if body_bytes > self.limits.body or payload_bytes > self.limits.payload:
            raise WireError(f"a frame of {body_bytes} + {payload_bytes} bytes is over the limit")
        self._wanted = _HEADER.size + body_bytes
        if have < self._wanted:
            return None
        body_at = self._start + _HEADER.size
        self._start = body_at + body_bytes
        try:
            body = orjson.loads(self._room[body_at : self._start])
        except orjson.JSONDecodeError as error:
            raise WireError(f"the body of a frame is no JSON: {error}") from None
        frame = Frame(_KINDS[kind], number, body)
        if not payload_bytes:
            return frame
        self._waiting, self._payload, self._payload_bytes = frame, bytearray(), payload_bytes
        return self._fill_payload(frame)

    def _fill_payload(self, frame: Frame) -> Frame | None:
        take = min(self._end - self._start, self._payload_bytes - len(self._payload))
        self._payload += self._room[self._start : self._start + take]
        self._start += take
        if len(self._payload) < self._payload_bytes:
            return None
        frame.payload = memoryview(self._payload)
        self._waiting, self._payload = None, bytearray()
        return frame

    def _make_room(self) -> None:
        unread = self._end - self._start
        if unread == 0:
            self._start = self._end = 0
            return
        crowded = len(self._room) - self._end < _LEAST_FREE
        if self._start + self._wanted <= len(self._room) and not crowded:
            return
        room = self._room
        if unread + _LEAST_FREE > len(room):
            room = memoryview(bytearray(min(2 * len(room), self._wanted + _ROOM)))
        room[:unread] = self._room[self._start : self._end]
        self._room, self._start, self._end = room, 0, unread
