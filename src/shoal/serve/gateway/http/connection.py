"""One client's connection: requests one after the other, each answered before the next is looked at."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, cast

import orjson

from shoal.core import ShoalError
from shoal.serve.errors import DeadlineMissed, NotReady, TooLarge
from shoal.serve.gateway.http import answers
from shoal.serve.gateway.http.head import Head
from shoal.serve.gateway.http.receiver import Phase, Receiver
from shoal.serve.gateway.http.routes import Asked, Route, find
from shoal.serve.protocol import requests, responses
from shoal.serve.protocol.errors import TooSlow, Unauthorized, WrongMethod
from shoal.serve.protocol.requests import Reply
from shoal.serve.types import Buffer, InferRequest

if TYPE_CHECKING:
    from shoal.serve.gateway.http.front import HttpFront

log = logging.getLogger("shoal.serve.http")

_TRASH = memoryview(bytearray(64 << 10))
"""Where bytes go that nobody reads."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose head was let in."""

    head: Head
    route: Route
    tenant: str


class Doing(Enum):
    """What the connection waits for; each has its own patience."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    """The backend works."""
    DRAIN = auto()
    """The client takes its answers more slowly than they come."""
    LINGER = auto()
    """The last answer is on its way; a refused sender is let talk on, else it would see a reset, not the answer."""


_DOING = {Phase.IDLE: Doing.IDLE, Phase.HEAD: Doing.HEAD, Phase.BODY: Doing.BODY}


class Connection(asyncio.BufferedProtocol):
    """Made by `HttpFront` for each client."""

    def __init__(self, front: HttpFront) -> None:
        self._front = front
        self._transport: asyncio.Transport
        self._receiver = Receiver(front.limits.head, front.limits.body, self._admit)
        self._doing = Doing.IDLE
        self._since = front.loop.time()
        self._head: Head | None = None
        self._call: Call | None = None
        self._task: asyncio.Task[None] | None = None
        self._held = 0
        self._owed = 0
        """Bytes not yet sent when the client began to drag."""
        self._paused = False
        self._closing = False
        """The present answer is the last."""
        self._finished = False
        """The last answer is given; what comes in is thrown away."""

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        if not self._front.welcome(self):
            self._refuse(NotReady("the server has too many connections"))

    def connection_lost(self, _error: Exception | None) -> None:
        self._finished = True
        self._drop_call()
        self._front.forget(self)
        del self._receiver  # each holds the other: without the cycle, both are freed at once

    def eof_received(self) -> None:
        """The client is gone: the transport closes, and what the client waited for is cancelled."""

    def pause_writing(self) -> None:
        self._owed = self._transport.get_write_buffer_size()
        self._begin(Doing.DRAIN)

    def resume_writing(self) -> None:
        if self._doing is not Doing.DRAIN:
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

    def overdue(self, now: float) -> bool:
        limits = self._front.limits
        match self._doing:
            case Doing.IDLE:
                patience = limits.idle_s
            case Doing.HEAD:
                patience = limits.head_s
            case Doing.BODY:
                patience = limits.body_s + self._receiver.received / limits.slowest_bytes_per_s
            case Doing.ANSWER:
                patience = limits.answer_s
            case Doing.DRAIN:
                taken = self._owed - self._transport.get_write_buffer_size()
                patience = limits.body_s + taken / limits.slowest_bytes_per_s
            case Doing.LINGER:
                patience = limits.linger_s
        return now - self._since > patience

    def expire(self) -> None:
        """Patience is at an end: who waits for an answer gets one, the others are hung up on."""
        match self._doing:
            case Doing.IDLE:
                self._transport.close()
            case Doing.HEAD | Doing.BODY:
                self._refuse(TooSlow("the request came too slowly"))
            case Doing.ANSWER:
                self._refuse(DeadlineMissed(f"there was no answer within {self._front.limits.answer_s:g} s"))
            case Doing.DRAIN | Doing.LINGER:
                self._transport.abort()

    def drain(self) -> None:
        """Answer what is on its way, then close."""
        self._closing = True
        if self._doing is Doing.IDLE and not self._finished:
            self._finish()

    def stop(self) -> None:
        """Close now; who waits for an answer is told why there is none."""
        if self._doing in (Doing.HEAD, Doing.BODY, Doing.ANSWER):
            self._refuse(NotReady("the server is being stopped"))
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # Receiving

    def _advance(self) -> None:
        """Take and handle requests until one has to be waited for."""
        if self._finished:
            return
        receiver = self._receiver
        while self._doing is not Doing.ANSWER and self._doing is not Doing.DRAIN:
            try:
                request = receiver.take()
            except Exception as error:
                self._closing |= receiver.lost or not isinstance(error, ShoalError)
                self._fail(error)
            else:
                if request is None:
                    self._wait_for_more(_DOING[receiver.phase])
                    return
                self._handle(*request)
            if self._finished:
                return
        if not self._paused and not receiver.space():
            self._paused = True
            self._transport.pause_reading()

    def _wait_for_more(self, doing: Doing) -> None:
        if doing is not self._doing:
            self._begin(doing)
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        if doing is Doing.BODY:
            if self._receiver.wants_continue:
                self._receiver.wants_continue = False
                self._transport.write(answers.CONTINUE)
            if self._receiver.received > self._held:
                try:
                    self._hold(self._receiver.received)
                except ShoalError as error:
                    self._refuse(error)

    def _admit(self, head: Head) -> Call:
        """Refuse a request before its body is received, if it is to be refused."""
        self._head = head
        self._closing |= not head.keep_alive
        route = find(head.target)
        if head.method != route.method and (head.method != "HEAD" or route.method != "GET"):
            raise WrongMethod(f"{head.method} is not for this path", hint=f"use {route.method}", allowed=route.method)
        tenant = "" if route.public else self._front.desk.backend.tenant_of(head.token)
        if tenant is None:
            what = "this call needs a token" if head.token is None else "this token is nobody's"
            raise Unauthorized(what, hint="send the header Authorization: Bearer TOKEN")
        call = Call(head, route, tenant)
        self._check_size(call, head.length)
        self._hold(head.length)
        return call

    def _check_size(self, call: Call, size: int) -> None:
        limits, length = self._front.limits, call.head.header_length
        if size > limits.body:
            raise TooLarge(f"the body has {size} bytes, {limits.body} are the most that is taken", where="body")
        json = size if length is None or call.route.act is not None else length
        if json > limits.json:
            hint = "send tensors as binary data"
            raise TooLarge(f"the JSON has {json} bytes, {limits.json} are the most that is taken", hint=hint)

    def _hold(self, size: int) -> None:
        if size > self._held:
            self._front.hold(size - self._held)
            self._held = size

    # Answering

    def _handle(self, call: Call, body: Buffer) -> None:
        route, desk = call.route, self._front.desk
        try:
            self._check_size(call, len(body))
            if route.act is None:
                request, reply = self._decode(call, body)
                self._start(call, self._infer(call, request, reply))
            elif route.waits:
                self._start(call, self._wait(call, route.act(desk, Asked(route, call.tenant, body))))
            else:
                self._succeed(route.act(desk, Asked(route, call.tenant, body)))
        except Exception as error:  # a defect, too, must become an answer
            self._fail(error)

    def _start(self, call: Call, work: Coroutine[Any, Any, None]) -> None:
        self._begin(Doing.ANSWER)
        self._call = call
        self._task = self._front.loop.create_task(work)

    def _decode(self, call: Call, body: Buffer) -> tuple[InferRequest, Reply]:
        route, tenant, length = call.route, call.tenant, call.head.header_length
        if length == 0:
            metadata = self._front.desk.backend.metadata(tenant, route.model, route.version)
            return requests.decode_raw(route.model, route.version, tenant, body, metadata)
        return requests.decode(route.model, route.version, tenant, body, length, self._front.regions)

    async def _infer(self, call: Call, request: InferRequest, reply: Reply) -> None:
        front = self._front
        try:
            response = await front.desk.backend.infer(request)
            if self._call is call:
                header, binary = responses.encode(response, reply, call.tenant, front.regions)
                timing = answers.timing(response.queue_s, response.compute_s)
                self._send(*answers.inference(header, binary, timing + self._rest()))
        except asyncio.CancelledError:
            self._cancelled(call)
            raise
        except Exception as error:
            if self._call is call:
                self._fail(error)
        self._advance()

    async def _wait(self, call: Call, act: Awaitable[None]) -> None:
        try:
            await act
            if self._call is call:
                self._succeed(None)
        except asyncio.CancelledError:
            self._cancelled(call)
            raise
        except Exception as error:
            if self._call is call:
                self._fail(error)
        self._advance()

    def _cancelled(self, call: Call) -> None:
        """Not by this connection, which gives up its call first: the backend ends."""
        if self._call is call:
            self._refuse(NotReady("the server is being stopped"))

    def _succeed(self, document: object) -> None:
        if document is None:
            body, kind = b"", answers.JSON
        elif isinstance(document, bytes):
            body, kind = document, answers.METRICS
        else:
            body, kind = orjson.dumps(document), answers.JSON
        self._send(answers.document(body, kind, self._rest()))

    def _refuse(self, error: ShoalError) -> None:
        """The last word on this connection, whatever it was at."""
        self._closing = True
        self._receiver.lost = True
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, ShoalError):
            log.error("a request could not be answered", exc_info=error)
        self._send(answers.failure(error, self._rest()))

    def _rest(self) -> bytes:
        closing = self._closing or self._front.desk.draining
        modern = self._head is None or self._head.modern
        return self._front.rest(closing, modern)

    def _send(self, *parts: Buffer) -> None:
        """Send the present request's answer and be done with it."""
        if self._head is not None and self._head.method == "HEAD":
            parts = (answers.head_of(parts[0]),)
        self._drop_call()
        self._head = None
        self._begin(Doing.IDLE)
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)
        if self._closing or self._front.desk.draining:
            self._finish()

    def _finish(self) -> None:
        self._finished = True
        if self._doing is not Doing.DRAIN:
            self._begin(Doing.LINGER)
        if self._receiver.lost and self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _drop_call(self) -> None:
        """Forget the present request; if it is still worked on, that ends."""
        task, self._task, self._call = self._task, None, None
        if task is not None and task is not asyncio.current_task(self._front.loop):
            task.cancel()
        self._front.release(self._held)
        self._held = 0

    def _begin(self, doing: Doing) -> None:
        self._doing = doing
        self._since = self._front.loop.time()
