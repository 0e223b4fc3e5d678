"""HTTP as a client sees it, without I/O: what to send, and what was answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import httptools
import orjson

from shoal.core import Invalid, Overloaded, ShoalError, Unavailable
from shoal.serve.client.segment import Segment
from shoal.serve.errors import BadRequest, DeadlineMissed, NotReady, ReplicaLost
from shoal.serve.protocol import errors, requests, responses
from shoal.serve.protocol.regions import Place
from shoal.serve.protocol.requests import Reply
from shoal.serve.types import Buffer, InferRequest, InferResponse

PIECE = 64 << 10
"""Bytes received at once."""

_WAY_BACK_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is: a TCP port, with TLS or without, or else the socket file `path`."""

    host: str
    port: int
    tls: bool
    path: str | None
    prefix: str

    @classmethod
    def of(cls, url: str) -> Server:
        """From `http://HOST:PORT[/PREFIX]`, `https://...` or `unix:///PATH`. Raises Invalid."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise Invalid(f"{url!r:.200} is no URL: {error}") from None
        if parts.scheme == "unix" and parts.path:
            return cls("localhost", 0, False, parts.path, "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            hint = "as in http://127.0.0.1:8000 or unix:///run/shoal.sock"
            raise Invalid(f"{url!r:.200} is no server's URL", hint=hint)
        tls = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if tls else 80), tls, None, parts.path.rstrip("/"))

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Ask:
    """A call: its body is `header`, then `binary`."""

    method: str
    path: str
    header: bytes = b""
    binary: Sequence[Buffer] = ()

    def pieces(self, server: Server, token: str | None) -> list[Buffer]:
        """What to send, head first."""
        size = len(self.header) + sum(map(len, self.binary))
        host = f"[{server.host}]" if ":" in server.host else server.host
        lines = [f"{self.method} {server.prefix}{self.path} HTTP/1.1", f"Host: {host}", f"Content-Length: {size}"]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        if self.binary:
            lines.append(f"Inference-Header-Content-Length: {len(self.header)}")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return [head + self.header, *self.binary]


class Answer:
    """Takes what is received; complete once `done`."""

    def __init__(self) -> None:
        self.done = False
        self.keep_alive = False
        self._status = 0
        self._fields: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._parser: Any = httptools.HttpResponseParser(self)

    def feed(self, data: Buffer) -> None:
        """Raises Unavailable if this is not HTTP."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise Unavailable(f"what answers does not speak HTTP/1.1: {error}") from None
        if self.done:
            self._parser = None  # it holds this object: without a cycle, both are freed at once

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields[name.lower()] = value

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status == 100:
            self._fields.clear()
            return
        self.done = True
        self.keep_alive = self._parser.should_keep_alive()

    def result(self) -> tuple[bytes, int | None]:
        """The body, and how long the JSON in it is if it is not all. Raises what the server refused the call with."""
        body = b"".join(self._body)
        if self._status != 200:
            raise errors.rebuild(self._status, _json(body), self._number(b"retry-after"))
        length = self._number(b"inference-header-content-length")
        return body, None if length is None else int(length)

    def _number(self, name: bytes) -> float | None:
        value = self._fields.get(name, b"")
        return float(value) if value.isdigit() else None


def document(answer: tuple[bytes, int | None]) -> dict[str, Any]:
    """An answer's JSON object. Raises Unavailable if it is none."""
    found = _json(answer[0])
    if type(found) is not dict:
        raise Unavailable("the server's answer is no JSON object")
    return found


def entries(answer: tuple[bytes, int | None], key: str | None = None) -> list[dict[str, Any]]:
    """An answer's JSON array, or that under a key of its object. Raises Unavailable if there is none."""
    found = _json(answer[0]) if key is None else document(answer).get(key)
    if type(found) is not list:
        raise Unavailable("the server's answer has no JSON array")
    return found


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


class Broken(Unavailable):
    """There is no answer, and not because the server refused."""


class NoConnection(Broken):
    """No server listens there, or it refuses us. Nothing was sent."""


class ConnectionBroken(Broken):
    """The connection broke, or the answer took too long: whether the request was worked on is not known."""


def may_retry(error: ShoalError) -> bool:
    """Whether asking again is safe and of use: nothing was sent, the server was too busy, or a replica died at it."""
    return isinstance(error, NoConnection | ReplicaLost | Overloaded) and not isinstance(error, DeadlineMissed)


def pause_s(error: ShoalError, tried: int) -> float:
    """How long to wait before asking again: as long as the server says, else longer from time to time."""
    wanted = error.retry_after_s if isinstance(error, Overloaded) else _FIRST_PAUSE_S * 2**tried
    return min(wanted, _LONGEST_PAUSE_S)


def patience_s(timeout_s: float | None, otherwise_s: float) -> float:
    """How long to wait for an answer that is of use for `timeout_s`: the server's refusal should still get here."""
    return otherwise_s if timeout_s is None else timeout_s + _WAY_BACK_S


def means_no(error: ShoalError) -> bool:
    """Whether the error answers a health check with "not live" or "not ready"."""
    return isinstance(error, NoConnection | NotReady)


LIVE = Ask("GET", "/v2/health/live")
READY = Ask("GET", "/v2/health/ready")
SERVER = Ask("GET", "/v2")


def infer(request: InferRequest, places: Mapping[str, Place]) -> Ask:
    """Asks for binary outputs; inputs that have a place are in shared memory already."""
    header, binary = requests.encode(request, Reply(binary=True, outputs=request.outputs), places)
    return Ask("POST", model_path(request.model, request.version, "infer"), header, binary)


def inference(answer: tuple[bytes, int | None]) -> InferResponse:
    """Raises Unavailable for an answer that cannot be understood, which is not the caller's fault."""
    try:
        return responses.decode(*answer)[0]
    except BadRequest as error:
        raise Unavailable(f"the server's answer cannot be understood: {error}") from None


def model_ready(model: str, version: str | None) -> Ask:
    return Ask("GET", model_path(model, version, "ready"))


def metadata(model: str, version: str | None) -> Ask:
    return Ask("GET", model_path(model, version))


def model_path(model: str, version: str | None = None, what: str = "") -> str:
    path = f"/v2/models/{quote(model, safe='')}"
    if version is not None:
        path += f"/versions/{quote(version, safe='')}"
    return f"{path}/{what}" if what else path


def statistics(model: str | None, version: str | None) -> Ask:
    return Ask("GET", "/v2/models/stats" if model is None else model_path(model, version, "stats"))


def index(ready_only: bool) -> Ask:
    return Ask("POST", "/v2/repository/index", orjson.dumps({"ready": ready_only}))


def load(model: str) -> Ask:
    return Ask("POST", f"/v2/repository/models/{quote(model, safe='')}/load")


def unload(model: str) -> Ask:
    return Ask("POST", f"/v2/repository/models/{quote(model, safe='')}/unload")


def register(segment: Segment) -> Ask:
    told = orjson.dumps({"key": segment.key, "offset": 0, "byte_size": segment.size})
    return Ask("POST", f"/v2/systemsharedmemory/region/{segment.name}/register", told)


def unregister(segment: Segment) -> Ask:
    return Ask("POST", f"/v2/systemsharedmemory/region/{segment.name}/unregister")
