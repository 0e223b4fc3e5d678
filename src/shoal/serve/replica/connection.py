"""The replica's end of the socket: blocking, and woken by signals."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType

from shoal.inference.types import Buffer
from shoal.serve.replica.arena import Arena
from shoal.serve.replica.messages import PROTOCOL, read_refusal, read_welcome
from shoal.serve.replica.wire import Frame, FrameReader, Kind, WireError, encode, size_of
from shoal.serve.sockets import address_of

_ANSWER_WITHIN_S = 10.0
"""How long a gateway that accepted the connection may take to answer the first frame."""


class Gone(Exception):
    """The gateway closed the connection, or cannot be reached."""


class Refused(Exception):
    """The gateway will not have this replica, now or ever."""

    def __init__(self, why: str, again: bool) -> None:
        super().__init__(why)
        self.again = again


class StopSignal:
    """Notes SIGTERM and SIGINT, and ends any wait on `fd`. Without the pipe, a signal that comes between the look at
    `requested` and the wait would be slept through."""

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> StopSignal:
        self.fd, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = {each: signal.signal(each, self._note) for each in (signal.SIGTERM, signal.SIGINT)}
        self._wakeup = signal.set_wakeup_fd(self._write)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for each, handler in self._before.items():
            signal.signal(each, handler)
        os.close(self.fd)
        os.close(self._write)

    def _note(self, _signum: int, _frame: FrameType | None) -> None:
        self.requested = True

    def wait(self, seconds: float) -> None:
        """Sleep, but not through a signal."""
        select.select([self.fd], [], [], seconds)
        self.clear()

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 512)


class Connection:
    """A connection on which the gateway said welcome. Its methods raise Gone when the gateway closes it, and WireError
    when the gateway talks nonsense."""

    def __init__(self, path: Path, token: str, name: str, stop: StopSignal) -> None:
        """Dial and join. Raises Gone, also for a gateway that makes no sense, or Refused."""
        self._stop = stop
        self._reader = FrameReader()
        self._ready: deque[Frame] = deque()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_ANSWER_WITHIN_S)
            with address_of(path) as address:
                self._socket.connect(address)
            self._socket.sendall(encode(Kind.HELLO, 0, [PROTOCOL, token, name]))
            self.arena, self.longest_payload = self._welcome()
            self._socket.settimeout(None)
        except (OSError, WireError) as error:
            self._socket.close()
            raise Gone(str(error)) from error
        except BaseException:
            self._socket.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(stop.fd, select.POLLIN)

    def _welcome(self) -> tuple[Arena, int]:
        """(the arena, the longest payload that the gateway reads)"""
        buffer = self._reader.buffer()
        data, fds, _, _ = socket.recv_fds(self._socket, len(buffer), 1)
        try:
            buffer[: len(data)] = data
            self._ready += self._reader.received(len(data)) if data else ()
            while not self._ready:
                self._receive()
            frame = self._ready.popleft()
            if frame.kind is Kind.REFUSED:
                raise Refused(*read_refusal(frame.body))
            if frame.kind is not Kind.WELCOME or not fds:
                raise WireError(f"{frame.kind.name} instead of a welcome")
            arena_bytes, longest_payload = read_welcome(frame.body)
            return Arena(fds[0], arena_bytes), longest_payload
        finally:
            for fd in fds:
                os.close(fd)

    def receive(self, timeout_s: float | None = None) -> Frame | None:
        """The next frame; None when a signal came, or the time is over."""
        while not self._ready:
            events = self._poll.poll(None if timeout_s is None else timeout_s * 1000)
            if not events:
                return None
            if any(fd == self._stop.fd for fd, _ in events):
                self._stop.clear()
                return None
            try:
                self._receive()
            except OSError as error:
                raise Gone(str(error)) from error
        return self._ready.popleft()

    def _receive(self) -> None:
        count = self._socket.recv_into(self._reader.buffer())
        if count == 0:
            raise Gone("the gateway closed the connection")
        self._ready += self._reader.received(count)

    def send(self, kind: Kind, number: int, body: object, payload: Sequence[Buffer] = ()) -> None:
        try:
            self._socket.sendall(encode(kind, number, body, size_of(payload)))
            for part in payload:
                self._socket.sendall(part)
        except OSError as error:
            raise Gone(str(error)) from error

    def close(self) -> None:
        self._socket.close()
