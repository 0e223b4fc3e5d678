"""One client's calls of the inference protocol: which tenant asks what, and the answer in the protocol's form."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from shoal.base.http import BodyTooLarge, Malformed, Stopping
from shoal.base.http.answers import JSON, document
from shoal.base.http.connection import Connection
from shoal.base.http.head import Head, read_number
from shoal.base.http.receiver import Buffer
from shoal.inference.protocol import requests, responses
from shoal.inference.protocol.requests import Reply
from shoal.inference.types import InferRequest
from shoal.serve.gateway.http import answers
from shoal.serve.gateway.http.routes import HttpRoute, find
from shoal.serve.protocol.errors import Unauthorized, WrongMethod

if TYPE_CHECKING:
    from shoal.serve.gateway.http.front import HttpFront

MOST_JSON = 4 << 20
"""Bytes: it is parsed on the event loop while all other requests wait. Binary tensors count only towards the body."""


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request whose head was let in. `header_length` is that of the JSON in its body if not all of it is."""

    route: HttpRoute
    tenant: str
    header_length: int | None


class InferenceConnection(Connection[HttpCall]):
    def __init__(self, front: HttpFront, network: str) -> None:
        super().__init__(front, network)
        self._app = front
        self._read: tuple[Head | None, int | None, str | None] = (None, None, None)

    def admit(self, head: Head) -> HttpCall:
        if head is not self._read[0]:  # mostly it is the same head again
            length = read_number(_single(head, b"inference-header-content-length"), "Inference-Header-Content-Length")
            self._read = head, length, _token(head.get(b"authorization"))
        _, length, token = self._read
        route = find(head.target)
        if head.method != route.method and (head.method != "HEAD" or route.method != "GET"):
            raise WrongMethod(f"{head.method} is not for this path", hint=f"use {route.method}", allowed=route.method)
        tenant = "" if route.public else self._app.gateway.tenant_of(token)
        if tenant is None:
            what = "this call needs a token" if token is None else "this token is unknown"
            raise Unauthorized(what, hint="send the header Authorization: Bearer TOKEN")
        call = HttpCall(route, tenant, length)
        if not head.coding:
            self._check_json(call, head.length)
        return call

    def _check_json(self, call: HttpCall, size: int) -> None:
        self._check_size(size)
        length = call.header_length
        json = size if length is None or call.route.act is not None else length
        if json > MOST_JSON:
            hint = "send tensors as binary data"
            raise BodyTooLarge(f"the JSON has {json} bytes, {MOST_JSON} are the most that is taken", hint=hint)

    def handle(self, call: HttpCall, body: Buffer) -> None:
        route, front = call.route, self._app
        self._check_json(call, len(body))
        if route.act is None:
            request, reply = self._decode(call, body)
            self._start(call, self._work(call, partial(front.gateway.infer, request), reply))
        elif route.waits:
            self._start(call, self._work(call, partial(route.act, front, call, body)))
        else:
            self._succeed(route.act(front, call, body))

    def failure(self, error: Exception, rest: bytes) -> bytes:
        return answers.failure(error, rest)

    def _decode(self, call: HttpCall, body: Buffer) -> tuple[InferRequest, Reply]:
        route, tenant, length = call.route, call.tenant, call.header_length
        if length == 0:
            metadata = self._app.gateway.metadata(tenant, route.model, route.version)
            return requests.decode_raw(route.model, route.version, tenant, body, metadata)
        return requests.decode(route.model, route.version, tenant, body, length, self._app.shared)

    async def _work(self, call: HttpCall, work: Callable[[], Awaitable[Any]], reply: Reply | None = None) -> None:
        """Answer the call with what comes of the work: an inference in the form of `reply`, or nothing."""
        try:
            found = await work()
            if self._call is call:
                if reply is None:
                    self._succeed(None)
                else:
                    header, binary = responses.encode(found, reply, call.tenant, self._app.shared)
                    timing = answers.timing(found.queue_s, found.compute_s)
                    self._send(*answers.inference(header, binary, timing + self._rest()))
        except asyncio.CancelledError:
            self._cancelled(call)
            raise
        except Exception as error:
            if self._call is call:
                self._fail(error)
        self._advance()

    def _cancelled(self, call: HttpCall) -> None:
        """Not by this connection, which gives up its call first: the gateway ends."""
        if self._call is call:
            self.refuse(Stopping("the server is being stopped"))

    def _succeed(self, found: object) -> None:
        if found is None:
            body, kind = b"", JSON
        elif isinstance(found, bytes):
            body, kind = found, answers.METRICS
        else:
            body, kind = orjson.dumps(found), JSON
        self._send(document(200, body, kind, self._rest()))


def _token(value: bytes | None) -> str | None:
    if value is None:
        return None
    scheme, _, token = value.partition(b" ")
    return token.strip().decode("latin-1") if scheme.lower() == b"bearer" else None


def _single(head: Head, name: bytes) -> bytes | None:
    """The value of a header that would be read in two ways if it were given twice. Raises Malformed."""
    found = [value for known, value in head.headers if known == name]
    if len(found) > 1:
        raise Malformed("this header is given twice", where=name.decode())
    return found[0] if found else None
