"""Carries one session between this process's streams and the agent in the job, over as many connections as it takes."""

from __future__ import annotations

import os
import secrets
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from shoal.core import ShoalError
from shoal.session import frames
from shoal.session.client.connection import Connection, Unreachable
from shoal.session.client.escapes import HELP, Escapes, Wish
from shoal.session.client.terminal import raw, size_of, woken_by

_ACK_EVERY = 32 << 10
_MOST_READ = 256 << 10
_PATIENCE_S = 600.0
"""How long a server that is away is waited for."""
_AGAIN_S = 0.5
_SIGNALLED = 128
SIGNALS = (signal.SIGWINCH, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Detached(Exception):
    """The person left; the session goes on."""


class Over(Exception):
    """The session cannot be reached any more; `written` bytes of its output were seen."""

    def __init__(self, error: ShoalError, written: int) -> None:
        super().__init__(str(error))
        self.error, self.written = error, written


@dataclass(frozen=True, slots=True)
class Streams:
    """Descriptors of standard input, output and errors. `terminal`: input is one, and the session has one too."""

    source: int = 0
    output: int = 1
    errors: int = 2
    terminal: bool = True


class Relay:
    """`connect` makes a connection to the session; it raises Unreachable where the server is away."""

    def __init__(
        self, connect: Callable[[], Connection], streams: Streams, note: Callable[[str], None], *, shared: bool = False,
        patience_s: float = _PATIENCE_S,
    ) -> None:  # fmt: skip
        self._connect, self._streams, self._note, self._shared = connect, streams, note, shared
        self._patience_s = patience_s
        self._name = secrets.token_hex(8)
        self._offset = self._acknowledged = 0
        self._written = 0
        self._unsent = bytearray()
        """What was read and the agent has not confirmed: sent again after a break."""
        self._confirmed = 0
        self._source_over = self._greeted = False
        self._most = frames.SHORT
        self._code: int | None = None
        self._escapes = Escapes()
        self._connected_once = False

    def run(self) -> int:
        """The exit code of the session's command; as shells do for a signal. Raises Detached, and Over where it cannot
        be reached any more."""
        with woken_by(*SIGNALS) as woken, raw(self._streams.source, wanted=self._streams.terminal):
            lost_at: float | None = None
            told = False
            while True:
                try:
                    connection = self._connect()
                except Unreachable as error:
                    now = time.monotonic()
                    if not self._connected_once:
                        raise
                    if not told:
                        told = True
                        self._say("the connection is lost; it is tried again (~. leaves)")
                    if lost_at is not None and now - lost_at > self._patience_s:
                        raise Over(error, self._written) from None
                    self._wait(woken)
                    continue
                except ShoalError as error:
                    if not self._connected_once:
                        raise
                    raise Over(error, self._written) from None
                if told:
                    self._say("connected again")
                lost_at, told = None, False
                try:
                    self._connected_once = True
                    self._carry(connection, woken)
                except OSError:
                    pass
                finally:
                    connection.close()
                if self._code is not None:
                    return self._code
                lost_at = lost_at or time.monotonic()

    def _wait(self, woken: int) -> None:
        """Between two tries; a person may leave meanwhile."""
        watched = [woken, *([self._streams.source] if self._streams.terminal else [])]
        ready, _, _ = select.select(watched, [], [], _AGAIN_S)
        if woken in ready:
            self._heed(woken, None)
        if self._streams.source in ready:
            self._read_source(None)

    def _say(self, text: str) -> None:
        if self._streams.terminal:
            text = f"\r\n[shoal] {text}\r"
        self._note(text)

    # --- one connection ---

    def _carry(self, connection: Connection, woken: int) -> None:
        """Until it breaks or the session is over. Raises OSError."""
        streams = self._streams
        size = size_of(streams.source) if streams.terminal else None
        rows, columns = size or (0, 0)
        connection.send(frames.frame(frames.HELLO, frames.write_fields(
            client=self._name, offset=self._offset, rows=rows, cols=columns,
        )))  # fmt: skip
        came, most = bytearray(), frames.SHORT
        here, source, going = connection.fileno(), streams.source, connection.going
        self._greeted = False
        poll, watched = _watch(connection, woken), (False, False)
        # A key press finds little of this in the processor's caches: what it need not call costs it nothing.
        while self._code is None:
            typing = self._greeted and not self._source_over and len(self._unsent) < frames.INPUT_WINDOW
            if watched != (typing, bool(going)):
                watched = (typing, bool(going))
                poll = _watch(connection, woken, *([source] if typing else []))
            hidden = connection.begun or connection.hidden()
            for fd, events in [(here, select.POLLIN)] if hidden else poll.poll():
                if fd == source:
                    self._read_source(connection)
                elif fd == here:
                    if going:
                        connection.send()
                    if events == select.POLLOUT:
                        continue
                    data = connection.receive(most)
                    if not data:
                        return
                    most = _MOST_READ if len(data) == most else frames.SHORT
                    came += data
                    self._take_all(came, connection)
                elif fd == woken:
                    self._heed(woken, connection)
                else:
                    return  # the server has gone, or shows its client out

    def _take_all(self, came: bytearray, connection: Connection) -> None:
        try:
            found = frames.take_frames(came)
        except ValueError as error:
            raise OSError(str(error)) from None
        for kind, payload in found:
            if kind == frames.OUTPUT:
                _write_all(self._streams.output, payload)
                self._count(payload, connection)
            elif kind == frames.TAKEN:
                self._confirm(struct.unpack(">Q", payload)[0])
            else:
                self._take(kind, payload, connection)

    def _take(self, kind: bytes, payload: bytes, connection: Connection) -> None:
        if kind == frames.ERRORS:
            _write_all(self._streams.errors, payload)
            self._count(payload, connection)
        elif kind == frames.NOTE:
            self._say(frames.plain(payload))
        elif kind == frames.EXIT:
            ended = frames.read_fields(payload)
            signum = frames.number(ended, "signal", 127)
            self._code = _SIGNALLED + signum if signum else frames.number(ended, "code", 255)
            self._offset += frames.HEAD_BYTES + len(payload)
            self._acknowledge(connection)
        elif kind == frames.WELCOME:
            self._welcome(frames.read_fields(payload), connection)
            self._greeted = True

    def _welcome(self, said: dict[str, str], connection: Connection) -> None:
        offset = frames.number(said, "offset")
        if self._shared and self._offset == 0:
            pass  # one who joins sees what is still kept, and misses nothing
        elif missed := frames.number(said, "missed"):
            self._say(f"{missed} bytes of output were missed")
        self._offset = self._acknowledged = offset
        self._confirm(frames.number(said, "taken"))
        for at in range(0, len(self._unsent), frames.MOST):
            connection.send(frames.frame(frames.INPUT, bytes(self._unsent[at : at + frames.MOST])))
        if self._source_over:
            connection.send(frames.frame(frames.END))

    def _count(self, payload: bytes, connection: Connection) -> None:
        self._written += len(payload)
        self._offset += frames.HEAD_BYTES + len(payload)
        if self._offset - self._acknowledged >= _ACK_EVERY:
            self._acknowledge(connection)

    def _acknowledge(self, connection: Connection) -> None:
        connection.send(frames.frame(frames.ACK, struct.pack(">Q", self._offset)))
        self._acknowledged = self._offset

    def _confirm(self, taken: int) -> None:
        fresh = min(max(0, taken - self._confirmed), len(self._unsent))
        del self._unsent[:fresh]
        self._confirmed += fresh

    # --- this side ---

    def _read_source(self, connection: Connection | None) -> None:
        try:
            data = os.read(self._streams.source, self._most)
        except OSError:
            data = b""
        if not data:
            self._source_over = True
            if self._streams.terminal:  # the terminal itself is gone
                raise Detached
            if connection is not None:
                connection.send(frames.frame(frames.END))
            return
        self._most = frames.MOST // 2 if len(data) == self._most else frames.SHORT
        wishes: list[Wish] = []
        if self._streams.terminal:
            data, wishes = self._escapes.feed(data)
        if data and (connection is not None or len(self._unsent) < frames.INPUT_WINDOW):
            self._unsent += data
            if connection is not None:
                connection.send(frames.frame(frames.INPUT, data))
        for wish in wishes:
            if wish is Wish.DETACH:
                if connection is not None:
                    connection.send(frames.frame(frames.DETACH))
                raise Detached
            os.write(self._streams.errors, HELP.replace("\n", "\r\n").encode())

    def _heed(self, woken: int, connection: Connection | None) -> None:
        came = set(os.read(woken, 4096))
        if signal.SIGWINCH in came and connection is not None and self._streams.terminal:
            size = size_of(self._streams.source)
            if size is not None:
                connection.send(frames.frame(frames.SIZE, struct.pack(">HH", *size)))
        if came & {signal.SIGTERM, signal.SIGHUP}:
            raise Detached
        if signal.SIGINT in came:
            if connection is None:
                raise Detached
            connection.send(frames.frame(frames.SIGNAL, bytes([signal.SIGINT])))


def _watch(connection: Connection, *others: int) -> select.poll:
    poll = select.poll()
    poll.register(connection, select.POLLIN | (select.POLLOUT if connection.going else 0))
    for one in others:
        poll.register(one, select.POLLIN)
    if connection.door is not None:
        poll.register(connection.door, select.POLLIN)
    return poll


def _write_all(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
            if fd == sys.stdout.fileno():
                return
