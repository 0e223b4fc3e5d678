"""A socket of this machine given to a local client, in place of a tunnel to it: what both say takes no way by here.

The client's connection stays, and says no more. Its end, from either side, is the end of what was given: the client
holds the socket by then, so it is shut down and not only closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

from shoal.base.http.tunnel import Tunnel


class Handover(Tunnel):
    """Only for a client of a local socket: descriptors go no other way."""

    _made: socket.socket | None = None

    async def connect(self, made: socket.socket) -> None:
        self._made = made

    def greet(self, transport: asyncio.Transport, head: bytes) -> None:
        """The descriptor goes with the answer's head, past what a transport keeps; a client that has not taken its
        earlier answers by then gets nothing."""
        if self._made is None or transport.get_write_buffer_size():
            transport.abort()
            return
        try:
            with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as client:
                sent = socket.send_fds(client, [head], [self._made.fileno()], socket.MSG_DONTWAIT)
        except OSError:
            sent = 0
        if sent < len(head):
            transport.abort()

    def client_made(self, transport: asyncio.Transport, begun: bytes) -> None:  # noqa: ARG002
        self._client = transport
        if self._made is None:
            transport.close()

    def client_sent(self, data: bytes) -> None:
        """It has another way for it."""

    def client_ended(self) -> bool:
        return False

    def client_lost(self) -> None:
        self._client = None
        self._shut()

    def close(self) -> None:
        self._shut()
        super().close()

    def abort(self) -> None:
        self._shut()
        super().abort()

    def _shut(self) -> None:
        made, self._made = self._made, None
        if made is None:
            return
        with made, contextlib.suppress(OSError):
            made.shutdown(socket.SHUT_RDWR)
        if self._on_end is not None:
            self._on_end()
