"""Bytes both ways between a client whose connection was upgraded (RFC 9110, section 7.8) and a socket of this machine.

Each side is read only as fast as the other takes it, so a tunnel holds no more than the two buffers that the transports
allow. The end of one side's bytes is passed on; the loss of one side ends the other.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

_SCRATCH = memoryview(bytearray(256 << 10))
"""Receives what is passed on at once: idle tunnels need no buffer of their own. Of the event loop's thread alone."""


class Tunnel(asyncio.BufferedProtocol):
    """The socket's side. The client's side is an HTTP connection, which calls the methods named `client_...`."""

    def __init__(self, on_end: Callable[[], None] | None = None) -> None:
        self.received = 0
        """Bytes that came from the client so far."""
        self.sent = 0
        self._client: asyncio.Transport | None = None
        self._other: asyncio.Transport | None = None
        self._on_end = on_end
        self._ended = [False, False]
        self._early = bytearray()
        """What the socket said before there was a client."""

    async def connect(self, made: socket.socket) -> None:
        """Lead to this connected socket, which is the tunnel's own from now on. Raises OSError."""
        made.setblocking(False)
        loop = asyncio.get_running_loop()
        if made.family == socket.AF_UNIX:
            await loop.create_unix_connection(lambda: self, sock=made)
        else:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.create_connection(lambda: self, sock=made)

    def close(self) -> None:
        """End both sides; what is on its way is still sent."""
        for transport in (self._client, self._other):
            if transport is not None:
                transport.close()

    def abort(self) -> None:
        for transport in (self._client, self._other):
            if transport is not None:
                transport.abort()

    # The client's side, called by its connection

    def greet(self, transport: asyncio.Transport, head: bytes) -> None:
        """Answer the client that it has the tunnel."""
        transport.write(head)

    def client_made(self, transport: asyncio.Transport, begun: bytes) -> None:
        """`begun` came behind the request already."""
        self._client = transport
        if self._early:
            transport.write(bytes(self._early))
            self._early.clear()
        if self._other is None or self._other.is_closing():
            transport.close()
            return
        if begun:
            self.client_sent(begun)
        if self._ended[1]:
            self._pass_end(1, transport)
        else:
            self._other.resume_reading()

    def client_sent(self, data: bytes) -> None:
        self.received += len(data)
        if self._other is not None:
            self._other.write(data)

    def client_ended(self) -> bool:
        """It sends no more; whether it is still sent to."""
        return self._pass_end(0, self._other)

    def client_blocked(self, blocked: bool) -> None:
        _hold(self._other, blocked)

    def client_lost(self) -> None:
        self._client = None
        self._ended[0] = True
        if self._other is not None:
            self._other.close()

    # The socket's side, called by its transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._other = cast(asyncio.Transport, transport)
        self._other.pause_reading()

    def get_buffer(self, _size_hint: int) -> memoryview:
        return _SCRATCH

    def buffer_updated(self, nbytes: int) -> None:
        self.sent += nbytes
        if self._client is not None:
            self._client.write(bytes(_SCRATCH[:nbytes]))
        elif self._other is not None:
            self._early += _SCRATCH[:nbytes]
            self._other.pause_reading()  # that at the beginning may have come too soon to count

    def eof_received(self) -> bool:
        if self._client is None and not self._ended[0]:
            self._ended[1] = True
            return True
        return self._pass_end(1, self._client)

    def pause_writing(self) -> None:
        _hold(self._client, True)

    def resume_writing(self) -> None:
        _hold(self._client, False)

    def connection_lost(self, _error: Exception | None) -> None:
        self._other = None
        if self._client is not None:
            self._client.close()
        if self._on_end is not None:
            self._on_end()

    def _pass_end(self, side: int, to: asyncio.Transport | None) -> bool:
        self._ended[side] = True
        if all(self._ended) or to is None or not to.can_write_eof():
            if to is not None:
                to.close()
            return False
        to.write_eof()
        return True


def _hold(transport: asyncio.Transport | None, blocked: bool) -> None:
    if transport is None or transport.is_closing():
        return
    if blocked:
        transport.pause_reading()
    else:
        transport.resume_reading()


def scratch() -> memoryview:
    """Where a client's bytes are received."""
    return _SCRATCH
