"""The client for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from numpy.typing import ArrayLike

from shoal.core import ShoalError
from shoal.serve.client import exchange
from shoal.serve.client.arrays import Result, question
from shoal.serve.client.exchange import Answer, Ask, ConnectionBroken, NoConnection, Server
from shoal.serve.client.segment import Segment, room_for
from shoal.serve.protocol.regions import Place
from shoal.serve.types import Parameter, Tensor

log = logging.getLogger("shoal.serve.client")

Told = TypeVar("Told")


class AsyncInferenceClient:
    """`InferenceClient` for asyncio: the same calls, awaited. Cancelling one closes its connection, upon which the
    server gives up the request. All calls belong on one event loop."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        patience_s: float = 60.0,
        retries: int = 0,
        shared_memory: bool = False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._server = Server.of(url)
        self._token = token
        self._patience_s = patience_s
        self._retries = retries
        self._shared_memory = shared_memory
        self._sleep = sleep
        self._free: list[_Channel] = []

    async def infer(
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
        """As `InferenceClient.infer`."""
        request = question(
            model, inputs, outputs=outputs, version=version, timeout_s=timeout_s,
            parameters=parameters, id=id,
        )  # fmt: skip
        patience_s = exchange.patience_s(timeout_s, self._patience_s)

        async def ask(channel: _Channel) -> tuple[bytes, int | None]:
            places = await self._share(channel, request.inputs) if self._shared_memory else {}
            return await channel.call(exchange.infer(request, places), patience_s)

        return Result(exchange.inference(await self._with_channel(ask)))

    async def live(self) -> bool:
        return await self._holds(exchange.LIVE)

    async def ready(self) -> bool:
        return await self._holds(exchange.READY)

    async def model_ready(self, model: str, version: str | None = None) -> bool:
        """Raises UnknownModel."""
        return await self._holds(exchange.model_ready(model, version))

    async def server(self) -> dict[str, Any]:
        return exchange.document(await self._ask(exchange.SERVER))

    async def metadata(self, model: str, version: str | None = None) -> dict[str, Any]:
        return exchange.document(await self._ask(exchange.metadata(model, version)))

    async def statistics(self, model: str | None = None, version: str | None = None) -> list[dict[str, Any]]:
        return exchange.entries(await self._ask(exchange.statistics(model, version)), "model_stats")

    async def index(self, *, ready_only: bool = False) -> list[dict[str, Any]]:
        return exchange.entries(await self._ask(exchange.index(ready_only)))

    async def load(self, model: str) -> None:
        """Returns when the model is ready. Raises UnknownModel, BadModel."""
        await self._ask(exchange.load(model))

    async def unload(self, model: str) -> None:
        await self._ask(exchange.unload(model))

    async def close(self) -> None:
        """Give back connections and shared memory. The client may be used again."""
        while self._free:
            await self._free.pop().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _holds(self, ask: Ask) -> bool:
        try:
            await self._ask(ask)
        except ShoalError as error:
            if exchange.means_no(error):
                return False
            raise
        return True

    async def _ask(self, ask: Ask) -> tuple[bytes, int | None]:
        return await self._with_channel(lambda channel: channel.call(ask, self._patience_s))

    async def _with_channel(self, act: Callable[[_Channel], Awaitable[Told]]) -> Told:
        for tried in range(self._retries + 1):
            try:
                async with self._channel() as channel:
                    return await act(channel)
            except ShoalError as error:
                if tried == self._retries or not exchange.may_retry(error):
                    raise
                pause_s = exchange.pause_s(error, tried)
            await self._sleep(pause_s)
        raise AssertionError("retries must not be negative")

    @contextlib.asynccontextmanager
    async def _channel(self) -> AsyncIterator[_Channel]:
        channel = self._idle_channel() or await _Channel.open(self._server, self._token, self._patience_s)
        try:
            yield channel
        finally:
            if channel.reusable:
                self._free.append(channel)
            else:
                channel.abandon()

    def _idle_channel(self) -> _Channel | None:
        while self._free:
            channel = self._free.pop()
            if channel.is_open():
                return channel
            channel.abandon()
        return None

    async def _share(self, channel: _Channel, tensors: Sequence[Tensor]) -> dict[str, Place]:
        """Put the tensors into the channel's segment, after making one that is large enough if need be."""
        room = room_for(tensors)
        if channel.segment is None or channel.segment.size < room:
            try:
                segment = Segment(room)
            except OSError as error:
                return self._do_without(f"no segment can be made: {error}")
            try:
                await channel.call(exchange.register(segment), self._patience_s)
            except BaseException as error:
                segment.close()
                if not isinstance(error, ShoalError) or isinstance(error, exchange.Broken):
                    raise
                return self._do_without(str(error))
            segment.hide()
            await channel.drop_segment(self._patience_s)
            channel.segment = segment
        return channel.segment.put(tensors)

    def _do_without(self, why: str) -> dict[str, Place]:
        self._shared_memory = False
        log.warning("%s takes no inputs in shared memory, they are sent: %s", self._server, why)
        return {}


class _Channel:
    """A connection, and the segment that goes with it. `reusable` between calls; not after one that broke off."""

    def __init__(
        self, server: Server, token: str | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.segment: Segment | None = None
        self.reusable = True
        self._server = server
        self._token = token
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, server: Server, token: str | None, patience_s: float) -> _Channel:
        """Raises NoConnection."""
        try:
            async with asyncio.timeout(patience_s):
                if server.path is not None:
                    streams = await asyncio.open_unix_connection(server.path)
                else:
                    secure = ssl.create_default_context() if server.tls else None
                    streams = await asyncio.open_connection(server.host, server.port, ssl=secure)
        except (OSError, TimeoutError) as error:
            raise NoConnection(f"no connection: {str(error) or 'timed out'}", where=str(server)) from None
        return cls(server, token, *streams)

    def is_open(self) -> bool:
        """False once the server hung up."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def call(self, ask: Ask, patience_s: float) -> tuple[bytes, int | None]:
        """Raises what the server refuses the call with, and ConnectionBroken."""
        self.reusable = False
        answer = Answer()
        try:
            async with asyncio.timeout(patience_s):
                self._writer.writelines(ask.pieces(self._server, self._token))
                with contextlib.suppress(ConnectionError):  # the server may have hung up with an answer: too large, say
                    await self._writer.drain()
                while not answer.done:
                    data = await self._reader.read(exchange.PIECE)
                    if not data:
                        raise ConnectionBroken("the server hung up without an answer", where=str(self._server))
                    answer.feed(data)
        except (OSError, TimeoutError) as error:
            raise ConnectionBroken(f"no answer: {str(error) or 'timed out'}", where=str(self._server)) from None
        self.reusable = answer.keep_alive
        return answer.result()

    async def drop_segment(self, patience_s: float) -> None:
        segment, self.segment = self.segment, None
        if segment is not None:
            segment.close()
            with contextlib.suppress(ShoalError):
                await self.call(exchange.unregister(segment), patience_s)

    async def close(self) -> None:
        if self.reusable and self.is_open():
            await self.drop_segment(_FAREWELL_S)
        self.abandon()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def abandon(self) -> None:
        if self.segment is not None:
            self.segment.close()
            self.segment = None
        self._writer.transport.abort()


_FAREWELL_S = 1.0
