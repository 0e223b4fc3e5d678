"""Messages between a client and a proxy. A part of the one file that is sent to a site (see `source`): the
standard library alone, Python 3.8 or newer."""

from __future__ import annotations

import struct
from typing import Iterator  # noqa: UP035 - runs on Python 3.8

HEAD = struct.Struct(">IBI")
"""Of each frame: the stream, the kind, and the size of what follows."""
MAX_FRAME = 8 << 20
"""Larger than any list of arguments that a kernel takes; who announces more talks garbage."""


class Frame:
    """Kinds of frames. From the client: HELLO, RUN, DATA, END, KILL, PING, TRY. From the proxy: WELCOME, STARTED,
    REFUSED, OUT, ERR, EXIT, PONG, TRIED. Both: CREDIT."""

    HELLO, WELCOME, RUN, STARTED, REFUSED, DATA, END, OUT, ERR, EXIT, CREDIT, KILL, PING, PONG, TRY, TRIED = range(16)


def frame(stream: int, kind: int, data: bytes = b"") -> bytes:
    return HEAD.pack(stream, kind, len(data)) + data


class Frames:
    """Takes frames out of a stream of bytes. Raises ValueError for garbage."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= HEAD.size:
            stream, kind, size = HEAD.unpack_from(self._buffer, at)
            if size > MAX_FRAME or kind > Frame.TRIED:
                raise ValueError("this is no frame")
            if len(self._buffer) - at - HEAD.size < size:
                break
            at += HEAD.size
            yield stream, kind, bytes(self._buffer[at : at + size])
            at += size
        del self._buffer[:at]
