"""One client's connection: requests one after the other, each answered before the next is looked at."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from shoal.base.http import answers
from shoal.base.http.errors import BodyTooLarge, NoAnswer, Stopping, TooSlow
from shoal.base.http.head import Head
from shoal.base.http.receiver import Buffer, Phase, Receiver
from shoal.core import ShoalError

if TYPE_CHECKING:
    from shoal.base.http.front import Front

log = logging.getLogger("shoal.http")

Call = TypeVar("Call")

_TRASH = memoryview(bytearray(64 << 10))
"""Receives bytes that are to be discarded."""


class Doing(Enum):
    """What the connection waits for; each has its own patience."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    """The application works."""
    DRAIN = auto()
    """The client takes its answers more slowly than they come."""
    LINGER = auto()
    """The last answer is on its way; a refused sender is let talk on, else it would see a reset, not the answer."""


_DOING = {Phase.IDLE: Doing.IDLE, Phase.HEAD: Doing.HEAD, Phase.BODY: Doing.BODY}
_BUSY = (Doing.ANSWER, Doing.DRAIN)
_IDLE = frozenset({Doing.IDLE, Doing.HEAD, Doing.LINGER})
"""Nothing is worked on: such a connection may be closed for another."""


class Connection(asyncio.BufferedProtocol, ABC, Generic[Call]):
    """Made by a `Front` for each client. An application is a subclass: it lets heads in as calls and answers these.

    `collects`: a call is handed over with its whole body; otherwise at once, and its body in pieces.
    """

    collects = True

    def __init__(self, front: Front, network: str) -> None:
        self.network = network
        self._front = front
        self._transport: asyncio.Transport
        limits = front.limits
        self._receiver = Receiver(limits.head, limits.body if self.collects else None, self._let_in)
        self._connected = False
        self.secure = False
        """Whether it is encrypted: set before it is made."""
        self._doing = Doing.IDLE
        self._since = front.loop.time()
        self._head: Head | None = None
        self._call: Call | None = None
        self._task: asyncio.Task[None] | None = None
        self._held = 0
        self._owed = 0
        """Bytes not yet sent when the client began to drag."""
        self._blocked = False
        """The client has to take something before more is sent."""
        self._paused = False
        self._ended_at: float | None = None
        """When the client said that it will send no more; it may still wait for answers."""
        self._closing = False
        """The present answer is the last."""
        self._finished = False
        """The last answer is given; what comes in is thrown away."""

    # What an application says

    @abstractmethod
    def admit(self, head: Head) -> Call:
        """Let a request in before its body comes, or refuse it by raising."""

    @abstractmethod
    def handle(self, call: Call, body: Buffer) -> None:
        """Answer the call: now, by `_send`, or later, by a task given to `_start`."""

    @abstractmethod
    def failure(self, error: Exception, rest: bytes) -> bytes:
        """The answer to a request that failed with this error."""

    def pass_on(self) -> None:
        """Something came of a body that is not collected."""
        raise NotImplementedError

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._connected = True

    def connection_lost(self, _error: Exception | None) -> None:
        self._finished = True
        self._drop_call()
        self._front.forget(self)
        del self._receiver  # each holds the other: without the cycle, both are freed at once

    def eof_received(self) -> bool:
        """The client sends no more. It may still wait for its answers (RFC 9112, section 9.6) or be gone, which cannot
        be told apart before something is sent: so they are worked out, but not for longer than `half_closed_s`."""
        self._ended_at = self._front.loop.time()
        if self.secure:  # the end of TLS is that of both ways
            return False
        return self._doing in (Doing.ANSWER, Doing.DRAIN) and not self._finished and not self._receiver.streaming

    def pause_writing(self) -> None:
        self._owed = self._transport.get_write_buffer_size()
        self._blocked = True
        self._begin(Doing.DRAIN)

    def resume_writing(self) -> None:
        self._blocked = False
        if self._doing is not Doing.DRAIN:
            return
        if self._call is not None:
            self._begin(Doing.ANSWER)
            return
        self._begin(Doing.LINGER if self._finished else Doing.IDLE)
        if self._closing and not self._finished:
            self._finish()
        self._advance()

    def get_buffer(self, _size_hint: int) -> memoryview:
        return _TRASH if self._finished else self._receiver.space()

    def buffer_updated(self, nbytes: int) -> None:
        if self._finished:
            return
        self._receiver.came(nbytes)
        self._advance()

    # What the front calls

    @property
    def idle(self) -> bool:
        return self._connected and self._doing in _IDLE

    @property
    def since(self) -> float:
        return self._since

    def overdue(self, now: float) -> bool:
        if not self._connected:  # the handshake of TLS has a time limit of its own
            return False
        limits = self._front.limits
        match self._doing:
            case Doing.IDLE:
                patience = limits.idle_s
            case Doing.HEAD:
                patience = limits.head_s
            case Doing.BODY:
                patience = limits.body_s + self._receiver.received / limits.slowest_bytes_per_s
            case Doing.ANSWER if self._ended_at is not None:
                return now - self._ended_at > limits.half_closed_s
            case Doing.ANSWER:
                patience = limits.answer_s
            case Doing.DRAIN:
                taken = self._owed - self._transport.get_write_buffer_size()
                patience = limits.body_s + taken / limits.slowest_bytes_per_s
            case Doing.LINGER:
                patience = limits.linger_s
        return now - self._since > patience

    def expire(self) -> None:
        """The time limit is over: a client that waits for an answer gets an error, other connections are closed."""
        match self._doing:
            case Doing.IDLE:
                self._transport.close()
            case Doing.HEAD | Doing.BODY:
                self.refuse(TooSlow("the request came too slowly"))
            case Doing.ANSWER if self._ended_at is not None:
                self._transport.abort()
            case Doing.ANSWER:
                self.refuse(NoAnswer(f"there was no answer within {self._front.limits.answer_s:g} s"))
            case Doing.DRAIN | Doing.LINGER:
                self._transport.abort()

    def drain(self) -> None:
        """Answer what is on its way, then close."""
        self._closing = True
        if self._connected and self._doing is Doing.IDLE and not self._finished:
            self._finish()

    def stop(self) -> None:
        """Close now; a client that waits for an answer is told why there is none."""
        if not self._connected:
            return
        if self._doing in (Doing.HEAD, Doing.BODY, Doing.ANSWER):
            self.refuse(Stopping("the server is being stopped"))
        self._transport.close()

    def abort(self) -> None:
        if self._connected:
            self._transport.abort()

    def refuse(self, error: ShoalError) -> None:
        """The last word on this connection, whatever it was at."""
        self._closing = True
        self._receiver.lost = True
        self._fail(error)

    # Receiving

    def _advance(self) -> None:
        """Take and handle requests until one has to be waited for."""
        if self._finished:
            return
        receiver = self._receiver
        while self._doing not in _BUSY:
            try:
                request = receiver.take()
            except Exception as error:
                self._closing |= receiver.lost or not isinstance(error, ShoalError)
                self._fail(error)
            else:
                if request is None:
                    self._wait_for_more(_DOING[receiver.phase])
                    return
                try:
                    self.handle(*request)
                except Exception as error:  # a defect, too, must become an answer
                    self._fail(error)
            if self._finished:
                return
        if receiver.streaming and self._call is not None:
            self.pass_on()
        elif receiver.full:
            self._pause()

    def _wait_for_more(self, doing: Doing) -> None:
        if doing is not self._doing:
            self._begin(doing)
        if self._ended_at is not None:
            self._finish()
            return
        self._resume()
        if doing is Doing.BODY:
            self._say_continue()
            if self._receiver.received > self._held:
                try:
                    self._hold(self._receiver.received)
                except ShoalError as error:
                    self.refuse(error)

    def _say_continue(self) -> None:
        if self._receiver.wants_continue:
            self._receiver.wants_continue = False
            self._transport.write(answers.CONTINUE)

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and self._ended_at is None:
            self._paused = False
            self._transport.resume_reading()

    def _let_in(self, head: Head) -> Call:
        """Refuse a request before its body is received, if it is to be refused."""
        self._head = head
        self._closing |= not head.keep_alive
        call = self.admit(head)
        if self.collects:
            self._check_size(head.length)
            if not head.coding:
                self._hold(head.length)
        return call

    def _check_size(self, size: int) -> None:
        most = self._front.limits.body
        if size > most:
            raise BodyTooLarge(f"the body has {size} bytes, {most} are the most that is taken", where="body")

    def _hold(self, size: int) -> None:
        if size > self._held:
            self._front.hold(size - self._held)
            self._held = size

    # Answering

    def _start(self, call: Call, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Answer the call by this task."""
        self._begin(Doing.ANSWER)
        self._call = call
        self._task = self._front.loop.create_task(work)
        return self._task

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, ShoalError):
            log.error("a request could not be answered", exc_info=error)
        self._send(self.failure(error, self._rest()))

    def _rest(self) -> bytes:
        closing = self._closing or self._front.draining
        modern = self._head is None or self._head.modern
        return self._front.rest(closing, modern)

    def _send(self, *parts: Buffer) -> None:
        """Send the present request's answer and be done with it."""
        if self._head is not None and self._head.method == "HEAD":
            parts = (answers.head_of(parts[0]),)
        self._done(*parts)

    def _done(self, *parts: Buffer) -> None:
        """Send the last parts of an answer as they are."""
        self._drop_call()
        self._head = None
        self._begin(Doing.DRAIN if self._blocked else Doing.IDLE)
        if len(parts) == 1:
            self._transport.write(parts[0])
        elif parts:
            self._transport.writelines(parts)
        if self._closing or self._front.draining:
            self._finish()

    def _finish(self) -> None:
        self._finished = True
        if self._doing is not Doing.DRAIN:
            self._begin(Doing.LINGER)
        if self._receiver.lost and self._ended_at is None and self._transport.can_write_eof():
            self._transport.write_eof()
            self._resume()
        else:
            self._transport.close()

    def _drop_call(self) -> None:
        """Forget the present request; if it is still worked on, that ends."""
        task, self._task, self._call = self._task, None, None
        if task is not None and task is not asyncio.current_task(self._front.loop):
            task.cancel()
        if self._held:
            self._front.release(self._held)
            self._held = 0

    def _begin(self, doing: Doing) -> None:
        self._doing = doing
        self._since = self._front.loop.time()
