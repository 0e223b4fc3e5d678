"""The client for threads."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from numpy.typing import ArrayLike

from shoal.core import ShoalError
from shoal.serve.client import exchange
from shoal.serve.client.arrays import Result, question
from shoal.serve.client.exchange import Answer, Ask, ConnectionBroken, NoConnection, Server
from shoal.serve.client.segment import Segment, room_for
from shoal.serve.protocol.regions import Place
from shoal.serve.types import Buffer, Parameter, Tensor

log = logging.getLogger("shoal.serve.client")

Told = TypeVar("Told")


class InferenceClient:
    """Asks a server over HTTP. Threads may share it: each call in flight has a connection of its own.

    `token` is the tenant's bearer token. `patience_s` is how long to wait for a connection, and for an answer where
    `infer` is not told a timeout. `retries` is how often to ask again where that is safe (`exchange.may_retry`): never,
    unless told to. `shared_memory` puts inputs into shared memory, for a server on this machine that runs as the same
    user; where it does not take them so, they are sent.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        patience_s: float = 60.0,
        retries: int = 0,
        shared_memory: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._server = Server.of(url)
        self._token = token
        self._patience_s = patience_s
        self._retries = retries
        self._shared_memory = shared_memory
        self._sleep = sleep
        self._free: list[_Channel] = []

    def infer(
        self,
        model: str,
        inputs: Mapping[str, ArrayLike | Tensor],
        *,
        outputs: Sequence[str] = (),
        version: str | None = None,
        timeout_s: float | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        id: str = "",  # the protocol's name
    ) -> Result:
        """Run a model on arrays by input name; returns arrays by output name, all of them unless `outputs` names some.

        `timeout_s` is how long the answer is of use: the server gives up a request that it cannot answer in time, with
        DeadlineMissed. A `Tensor` among the inputs is sent as it is (for BF16, which numpy lacks).
        """
        request = question(
            model, inputs, outputs=outputs, version=version, timeout_s=timeout_s,
            parameters=parameters, id=id,
        )  # fmt: skip
        patience_s = exchange.patience_s(timeout_s, self._patience_s)

        def ask(channel: _Channel) -> tuple[bytes, int | None]:
            places = self._share(channel, request.inputs) if self._shared_memory else {}
            return channel.call(exchange.infer(request, places), patience_s)

        return Result(exchange.inference(self._with_channel(ask)))

    def live(self) -> bool:
        """Whether a server answers at all."""
        return self._holds(exchange.LIVE)

    def ready(self) -> bool:
        """Whether the server has loaded every model that it should have."""
        return self._holds(exchange.READY)

    def model_ready(self, model: str, version: str | None = None) -> bool:
        """Raises UnknownModel."""
        return self._holds(exchange.model_ready(model, version))

    def server(self) -> dict[str, Any]:
        """The protocol's document about the server: its name, version and extensions."""
        return exchange.document(self._ask(exchange.SERVER))

    def metadata(self, model: str, version: str | None = None) -> dict[str, Any]:
        """The protocol's document about a model: its versions, inputs and outputs."""
        return exchange.document(self._ask(exchange.metadata(model, version)))

    def statistics(self, model: str | None = None, version: str | None = None) -> list[dict[str, Any]]:
        """Per model and version: counts, and times in nanoseconds."""
        return exchange.entries(self._ask(exchange.statistics(model, version)), "model_stats")

    def index(self, *, ready_only: bool = False) -> list[dict[str, Any]]:
        """The models and versions that there are, and their states."""
        return exchange.entries(self._ask(exchange.index(ready_only)))

    def load(self, model: str) -> None:
        """Returns when the model is ready. Raises UnknownModel, BadModel."""
        self._ask(exchange.load(model))

    def unload(self, model: str) -> None:
        self._ask(exchange.unload(model))

    def close(self) -> None:
        """Give back connections and shared memory. The client may be used again."""
        while self._free:
            self._free.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _holds(self, ask: Ask) -> bool:
        try:
            self._ask(ask)
        except ShoalError as error:
            if exchange.means_no(error):
                return False
            raise
        return True

    def _ask(self, ask: Ask) -> tuple[bytes, int | None]:
        return self._with_channel(lambda channel: channel.call(ask, self._patience_s))

    def _with_channel(self, act: Callable[[_Channel], Told]) -> Told:
        for tried in range(self._retries + 1):
            try:
                with self._channel() as channel:
                    return act(channel)
            except ShoalError as error:
                if tried == self._retries or not exchange.may_retry(error):
                    raise
                pause_s = exchange.pause_s(error, tried)
            self._sleep(pause_s)
        raise AssertionError("retries must not be negative")

    @contextlib.contextmanager
    def _channel(self) -> Iterator[_Channel]:
        channel = self._idle_channel() or _Channel(self._server, self._token, self._patience_s)
        try:
            yield channel
        finally:
            if channel.reusable:
                self._free.append(channel)
            else:
                channel.close()

    def _idle_channel(self) -> _Channel | None:
        while self._free:
            channel = self._free.pop()
            if channel.is_open():
                return channel
            channel.close()
        return None

    def _share(self, channel: _Channel, tensors: Sequence[Tensor]) -> dict[str, Place]:
        """Put the tensors into the channel's segment, after making one that is large enough if need be."""
        room = room_for(tensors)
        if channel.segment is None or channel.segment.size < room:
            try:
                segment = Segment(room)
            except OSError as error:
                return self._do_without(f"no segment can be made: {error}")
            try:
                channel.call(exchange.register(segment), self._patience_s)
            except exchange.Broken:
                segment.close()
                raise
            except ShoalError as error:
                segment.close()
                return self._do_without(str(error))
            segment.hide()
            channel.drop_segment(self._patience_s)
            channel.segment = segment
        return channel.segment.put(tensors)

    def _do_without(self, why: str) -> dict[str, Place]:
        self._shared_memory = False
        log.warning("%s takes no inputs in shared memory, they are sent: %s", self._server, why)
        return {}


class _Channel:
    """A connection, and the segment that goes with it. `reusable` between calls; not after one that broke off."""

    def __init__(self, server: Server, token: str | None, patience_s: float) -> None:
        """Raises NoConnection."""
        self.segment: Segment | None = None
        self.reusable = True
        self._server = server
        self._token = token
        self._buffer = bytearray(exchange.PIECE)
        try:
            self._socket = _connect(server, patience_s)
        except OSError as error:
            raise NoConnection(f"no connection: {error}", where=str(server)) from None

    def is_open(self) -> bool:
        """False once the server hung up. (Nothing else can be readable between calls.)"""
        return not select.select([self._socket], [], [], 0)[0]

    def call(self, ask: Ask, patience_s: float) -> tuple[bytes, int | None]:
        """Raises what the server refuses the call with, and ConnectionBroken."""
        self.reusable = False
        until = time.monotonic() + patience_s
        answer = Answer()
        try:
            self._send(ask.pieces(self._server, self._token), until)
        except OSError as error:
            broken: OSError | None = error  # the server may have hung up on us with an answer: too large, say
        else:
            broken = None
        view = memoryview(self._buffer)
        while not answer.done:
            try:
                self._socket.settimeout(max(until - time.monotonic(), 0.001))
                count = self._socket.recv_into(view)
            except OSError as error:
                raise ConnectionBroken(f"no answer: {broken or error}", where=str(self._server)) from None
            if not count:
                raise ConnectionBroken("the server hung up without an answer", where=str(self._server))
            answer.feed(view[:count])
        self.reusable = answer.keep_alive and broken is None
        return answer.result()

    def drop_segment(self, patience_s: float) -> None:
        segment, self.segment = self.segment, None
        if segment is not None:
            segment.close()
            with contextlib.suppress(ShoalError):
                self.call(exchange.unregister(segment), patience_s)

    def close(self) -> None:
        if self.reusable and self.is_open():
            self.drop_segment(_FAREWELL_S)
        elif self.segment is not None:
            self.segment.close()
        self._socket.close()

    def _send(self, pieces: list[Buffer], until: float) -> None:
        self._socket.settimeout(max(until - time.monotonic(), 0.001))
        if isinstance(self._socket, ssl.SSLSocket):
            for piece in pieces:
                self._socket.sendall(piece)
            return
        while pieces:
            sent = self._socket.sendmsg(pieces)
            while pieces and sent >= len(pieces[0]):
                sent -= len(pieces.pop(0))
            if sent:
                pieces[0] = memoryview(pieces[0])[sent:]


_FAREWELL_S = 1.0


def _connect(server: Server, patience_s: float) -> socket.socket:
    if server.path is not None:
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        local.settimeout(patience_s)
        try:
            local.connect(server.path)
        except OSError:
            local.close()
            raise
        return local
    remote = socket.create_connection((server.host, server.port), patience_s)
    remote.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if server.tls:
        return ssl.create_default_context().wrap_socket(remote, server_hostname=server.host)
    return remote
