"""The Open Inference Protocol over gRPC (`inference.GRPCInferenceService`), on grpc.aio.

Bearer tokens come in the metadata `authorization`, as over HTTP. A call's deadline becomes the request's timeout, and
its cancellation ends the work on it. A refused call ends with the status of `protocol.errors`; the trailing metadata
`shoal-error` has the error's code, and `retry-after` says in how many seconds it is worth asking again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from shoal.core import ShoalError, Unavailable
from shoal.inference.errors import BadRequest
from shoal.inference.protocol import rpc, wire
from shoal.inference.protocol.schema import SERVICE, messages
from shoal.serve.errors import UnknownModel
from shoal.serve.gateway.shared_memory import SharedRegions
from shoal.serve.protocol import documents, errors
from shoal.serve.protocol.errors import Unauthorized

if TYPE_CHECKING:
    from shoal.serve.gateway.core import Gateway

log = logging.getLogger("shoal.serve.grpc")

_LONGEST_MESSAGE = 2000
"""Characters of an error that fit into HTTP/2 headers beside everything else."""
_CALLS = 4096
"""The most that are worked on at once."""
MOST_FIELDS = 1 << 17
"""Fields of a request: the event loop reads them one by one."""
_FEW_FIELDS = 1 << 12
"""Bytes in which there cannot be many."""
STREAM_WINDOW = 32
"""The most requests of one stream that are worked on at once."""

Context = Any
"""A grpc.aio.ServicerContext."""

Act = Callable[[str, Any, Context], Awaitable[Any]]
"""What answers a call: of a tenant, its request message, its context."""


class GrpcFront:
    """Serves a gateway over gRPC on the event loop that runs when it is started; `shared` as for `HttpFront`. The
    largest request or answer has `message` bytes."""

    def __init__(self, gateway: Gateway, *, shared: SharedRegions, message: int = 64 << 20) -> None:
        self._gateway = gateway
        self._shared = shared
        self._message = message
        self._draining = False
        self._server: Any = None

    async def start(self, host: str = "127.0.0.1", port: int = 8001) -> int:
        """Listen; returns the port, which the system chooses for 0. Raises Unavailable if it is taken."""
        options = [
            ("grpc.max_receive_message_length", self._message),
            ("grpc.max_send_message_length", self._message),
            ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share it
        ]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=_CALLS)
        server.add_generic_rpc_handlers((self._handlers(),))
        try:
            bound = server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except RuntimeError:
            raise Unavailable("the port cannot be listened on", where=f"{host}:{port}", hint="is it taken?") from None
        await server.start()
        self._server = server
        return int(bound)

    async def stop(self, drain_s: float = 10.0) -> None:
        """Take no new calls, and let those that are worked on go on for up to `drain_s`."""
        self._draining = True
        if self._server is not None:
            await self._server.stop(drain_s)

    def _handlers(self) -> grpc.GenericRpcHandler[Any, Any]:
        acts: dict[str, Act] = {
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._metadata,
            "ModelConfig": self._config,
            "ModelInfer": self._infer,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
            "SystemSharedMemoryStatus": self._region_status,
            "SystemSharedMemoryRegister": self._register,
            "SystemSharedMemoryUnregister": self._unregister,
        }
        handlers = {name: _unary(name, self._guarded(act)) for name, act in acts.items()}
        handlers["ServerLive"] = _unary("ServerLive", self._live)
        handlers["ServerReady"] = _unary("ServerReady", self._ready)
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self._stream,
            request_deserializer=_reader("ModelInferRequest"),
            response_serializer=messages().ModelStreamInferResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _guarded(self, act: Act) -> Callable[[Any, Context], Awaitable[Any]]:
        async def answer(asked: Any, context: Context) -> Any:
            try:
                return await act(self._tenant(context), _message(asked), context)
            except Exception as error:  # a defect, too, must become a status
                await _abort(context, error)

        return answer

    def _tenant(self, context: Context) -> str:
        told = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
        scheme, _, token = str(told[0]).partition(" ") if told else ("", "", "")
        tenant = self._gateway.tenant_of(token.strip() if scheme.lower() == "bearer" else None)
        if tenant is None:
            what = "this token is unknown" if token else "this call needs a token"
            raise Unauthorized(what, hint="send the metadata authorization: Bearer TOKEN")
        return tenant

    async def _live(self, _asked: Any, _context: Context) -> Any:
        return messages().ServerLiveResponse(live=True)

    async def _ready(self, _asked: Any, _context: Context) -> Any:
        return messages().ServerReadyResponse(ready=self._gateway.ready() and not self._draining)

    async def _server_metadata(self, _tenant: str, _asked: Any, _context: Context) -> Any:
        return rpc.document("ServerMetadataResponse", documents.server())

    async def _model_ready(self, tenant: str, asked: Any, _context: Context) -> Any:
        try:
            ready = self._gateway.model_ready(tenant, asked.name, asked.version or None)
        except UnknownModel:  # asked whether it is ready, the protocol's answer is no
            ready = False
        return messages().ModelReadyResponse(ready=ready)

    async def _metadata(self, tenant: str, asked: Any, _context: Context) -> Any:
        model = self._gateway.metadata(tenant, asked.name, asked.version or None)
        return rpc.document("ModelMetadataResponse", documents.metadata(model))

    async def _config(self, tenant: str, asked: Any, _context: Context) -> Any:
        model = self._gateway.metadata(tenant, asked.name, asked.version or None)
        return rpc.document("ModelConfigResponse", {"config": documents.config(model)})

    async def _infer(self, tenant: str, asked: Any, context: Context) -> Any:
        request, reply = rpc.decode(asked, tenant, self._shared, context.time_remaining())
        response = await self._gateway.infer(request)
        return rpc.encode(response, reply, tenant, self._shared)

    async def _statistics(self, tenant: str, asked: Any, _context: Context) -> Any:
        found = self._gateway.statistics(tenant, asked.name or None, asked.version or None)
        return rpc.document("ModelStatisticsResponse", documents.statistics(found))

    async def _index(self, tenant: str, asked: Any, _context: Context) -> Any:
        found = documents.index(self._gateway.index(tenant, asked.ready))
        return rpc.document("RepositoryIndexResponse", {"models": found})

    async def _load(self, tenant: str, asked: Any, _context: Context) -> Any:
        if asked.parameters:
            raise BadRequest("a model is loaded as it was deployed", where="parameters", hint="deploy another version")
        await self._gateway.load(tenant, asked.model_name)
        return messages().RepositoryModelLoadResponse()

    async def _unload(self, tenant: str, asked: Any, _context: Context) -> Any:
        await self._gateway.unload(tenant, asked.model_name)
        return messages().RepositoryModelUnloadResponse()

    async def _region_status(self, tenant: str, asked: Any, _context: Context) -> Any:
        found = documents.regions(self._shared.status(tenant, asked.name or None))
        return rpc.document("SystemSharedMemoryStatusResponse", {"regions": {one["name"]: one for one in found}})

    async def _register(self, tenant: str, asked: Any, _context: Context) -> Any:
        self._shared.register(tenant, asked.name, asked.key, asked.offset, asked.byte_size)
        return messages().SystemSharedMemoryRegisterResponse()

    async def _unregister(self, tenant: str, asked: Any, _context: Context) -> Any:
        self._shared.unregister(tenant, asked.name or None)
        return messages().SystemSharedMemoryUnregisterResponse()

    async def _stream(self, asked: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        """Requests are worked on together and answered in their order. One that is refused does not end the stream."""
        try:
            tenant = self._tenant(context)
        except ShoalError as error:
            await _abort(context, error)
        answers: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue()
        window = asyncio.Semaphore(STREAM_WINDOW)

        async def read() -> None:
            try:
                async for one in asked:
                    await window.acquire()
                    answers.put_nowait(asyncio.create_task(self._stream_one(tenant, one, context)))
            finally:
                answers.put_nowait(None)

        reader = asyncio.create_task(read())
        try:
            while (task := await answers.get()) is not None:
                yield await task
                window.release()
            await reader
        finally:
            reader.cancel()
            while not answers.empty():
                left = answers.get_nowait()
                if left is not None:
                    left.cancel()

    async def _stream_one(self, tenant: str, asked: Any, context: Context) -> Any:
        try:
            return messages().ModelStreamInferResponse(
                infer_response=await self._infer(tenant, _message(asked), context)
            )
        except Exception as error:
            _log_defect(error)
            answer = messages().ModelStreamInferResponse(error_message=errors.message(error))
            answer.infer_response.id = getattr(asked, "id", "")  # says which of the requests it was
            return answer


@dataclass(frozen=True, slots=True)
class _Garbage:
    """Bytes that are not read as a message: an error that the reader raises would reach the caller as UNKNOWN."""

    what: str
    hint: str = "use the protocol's own definitions (open_inference_grpc.proto)"


def _reader(name: str) -> Callable[[bytes], Any]:
    kind = getattr(messages(), name)
    nested = wire.INFER_REQUEST if name == "ModelInferRequest" else {}

    def read(data: bytes) -> Any:
        if len(data) > _FEW_FIELDS and not wire.has_at_most(data, MOST_FIELDS, nested):
            return _Garbage(
                f"the {name} has more than {MOST_FIELDS} fields", "send fewer tensors, as raw_input_contents"
            )
        try:
            return kind.FromString(data)
        except DecodeError:
            return _Garbage(f"{len(data)} bytes that are no {name}")

    return read


def _message(asked: Any) -> Any:
    """Raises BadRequest for what was none."""
    if isinstance(asked, _Garbage):
        raise BadRequest(asked.what, hint=asked.hint)
    return asked


def _unary(name: str, answer: Callable[[Any, Context], Awaitable[Any]]) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=_reader(f"{name}Request"),
        response_serializer=getattr(messages(), f"{name}Response").SerializeToString,
    )


async def _abort(context: Context, error: Exception) -> NoReturn:
    _log_defect(error)
    metadata = []
    if isinstance(error, ShoalError):
        metadata.append(("shoal-error", error.code))
    wait = errors.retry_after_s(error)
    if wait is not None:
        metadata.append(("retry-after", str(wait)))
    code = grpc.StatusCode[errors.statuses(error)[1]]
    await context.abort(code, errors.message(error)[:_LONGEST_MESSAGE], tuple(metadata))
    raise AssertionError("abort does not return")


def _log_defect(error: Exception) -> None:
    if not isinstance(error, ShoalError):
        log.error("a call could not be answered", exc_info=error)
