"""One connection of the registry: first the caller is identified, then frames go to the replica's handle."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import TYPE_CHECKING, cast

from shoal.core import Reason, token_digest
from shoal.serve.gateway.replicas.replica_handle import Replica
from shoal.serve.replica.arena import Arena
from shoal.serve.replica.messages import PROTOCOL, read_hello, read_models
from shoal.serve.replica.wire import Frame, FrameReader, Kind, Limits, WireError, encode

if TYPE_CHECKING:
    from shoal.serve.gateway.replicas.registry import ReplicaRegistry

_PEER = struct.Struct("3i")
_STRANGERS = Limits(body=4 << 10, payload=0)
_LONGEST_NAME = 200


class ReplicaConnection(asyncio.BufferedProtocol):
    """`replica` is set once the caller is identified; it has joined once it said which models it holds."""

    def __init__(self, registry: ReplicaRegistry) -> None:
        self.replica: Replica | None = None
        self._registry = registry
        self._reader = FrameReader(_STRANGERS)
        self._loop = asyncio.get_running_loop()
        self._joined = False
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._registry.connections.add(self)
        too_slow = Reason("stuck", "it did not introduce itself in time")
        self._greeting = self._loop.call_later(self._registry.limits.greeting_timeout_s, self.close, too_slow)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._reader.received(nbytes):
                if self._closed:
                    return
                self._take(frame)
        except WireError as error:
            self.close(Reason("protocol", f"it sent nonsense: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(Reason("closed", f"the connection broke: {exc}" if exc else "the process closed the connection"))

    def close(self, reason: Reason) -> None:
        """End the connection; everything that is asked fails now. Nothing if it has ended already."""
        if self._closed:
            return
        self._closed = True
        self._greeting.cancel()
        self._transport.abort()
        self._registry.connections.discard(self)
        if self.replica is None:
            return
        self.replica.lose(reason)
        if self._joined:
            del self._registry.replicas[self.replica.name]
            self._registry.events.lost(self.replica, reason)

    def _take(self, frame: Frame) -> None:
        replica = self.replica
        if replica is None:
            self._greet(frame)
        elif not self._joined:
            if frame.kind is not Kind.MODELS:
                raise WireError(f"{frame.kind.name} before its models")
            replica.models.update(read_models(frame.body))
            self._joined = True
            self._greeting.cancel()
            self._registry.replicas[replica.name] = replica
            self._registry.events.joined(replica)
        elif frame.kind is Kind.LEAVING:
            if not replica.leaving:
                replica.leaving = True
                self._registry.events.leaving(replica)
            replica.stop()
        elif frame.kind is Kind.CONDITION and frame.number == 0:
            replica.stated(frame)
        else:
            replica.answered(frame)

    def _greet(self, frame: Frame) -> None:
        if frame.kind is not Kind.HELLO:
            raise WireError(f"{frame.kind.name} before a greeting")
        protocol, token, name = read_hello(frame.body)
        if protocol != PROTOCOL:
            self._refuse(f"it speaks protocol {protocol}, this gateway {PROTOCOL}", again=False)
        elif not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
            self._refuse("its name is empty, too long or not printable", again=False)
        elif any(
            connection.replica is not None and connection.replica.name == name
            for connection in self._registry.connections
        ):
            self._refuse(f"there is a replica {name!r} already", again=True)
        elif not self._registry.admit(token_digest(token)):
            self._refuse("its token is not known here", again=True)  # the gateway may be about to hear of it
        else:
            self._welcome(name, token_digest(token))

    def _refuse(self, why: str, again: bool) -> None:
        self._transport.write(encode(Kind.REFUSED, 0, [why, again]))
        self._greeting.cancel()
        self._transport.close()

    def _welcome(self, name: str, digest: str) -> None:
        """Send the arena's file with the welcome. It must be one system call of our own, on a socket into which nothing
        was written yet and which so has room for it."""
        limits = self._registry.limits
        try:
            arena, fd = Arena.create(limits.arena_bytes)
        except OSError as error:
            self._refuse(f"there is no memory for it: {error}", again=True)
            return
        try:
            with socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno())) as own:
                pid, _, _ = _PEER.unpack(own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
                frame = encode(Kind.WELCOME, 0, [arena.size, limits.message_bytes])
                socket.send_fds(own, [frame], [fd])
        except OSError as error:
            raise WireError(f"it does not take its welcome: {error}") from error
        finally:
            os.close(fd)
        self._reader.limits = Limits(payload=limits.message_bytes)
        events = self._registry.events
        self.replica = Replica(name, pid, digest, self._transport, arena, limits, events, self._loop)
