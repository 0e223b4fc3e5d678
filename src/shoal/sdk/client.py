"""The two clients. Their methods are the functions of `operations` and `flows`; only carrying out differs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

import httpx

from shoal.sdk import flows, models, operations
from shoal.sdk.effects import Call, Done, Effect, Emit, Exchange, Flow, Pause, Send, go_on
from shoal.sdk.locate import locator

P = ParamSpec("P")
T = TypeVar("T")


class Operation(Generic[P, T]):
    """A method of both clients: gives its result at once on `Client`, awaited on `AsyncClient`."""

    def __init__(self, build: Callable[Concatenate[Exchange, P], Flow[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Any:
        if client is None:
            return self
        return _method(lambda *args, **kwargs: client._run(self._build(client._exchange, *args, **kwargs)), self._build)


class Stream(Generic[P, T]):
    """A method of both clients that gives items as they come: an iterator, or an async one."""

    def __init__(self, build: Callable[Concatenate[Exchange, P], Flow[None]], _item: type[T]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, AsyncIterator[T]]: ...

    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Any:
        if client is None:
            return self
        return _method(
            lambda *args, **kwargs: client._iterate(self._build(client._exchange, *args, **kwargs)), self._build
        )


def _method(run: Callable[..., Any], build: Callable[..., Any]) -> Callable[..., Any]:
    """`run` under the name, text and signature of the function that it carries out, the exchange left out."""
    method = functools.wraps(build)(run)
    signature = inspect.signature(build)
    method.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
    return method


def _single(build: Callable[P, Call[T]]) -> Operation[P, T]:
    """An operation of one request."""

    def flow(exchange: Exchange, /, *args: P.args, **kwargs: P.kwargs) -> Flow[T]:
        return (yield from exchange.perform(build(*args, **kwargs)))

    flow.__doc__, flow.__name__ = build.__doc__, build.__name__
    signature = inspect.signature(build)
    first = inspect.Parameter("exchange", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [first, *signature.parameters.values()]
    flow.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return Operation(flow)


class _Methods:
    submit = Operation(flows.submit)
    check = Operation(flows.check)
    wait = Operation(flows.wait)
    deploy = Operation(flows.deploy)
    wait_ready = Operation(flows.wait_ready)
    wait_stopped = Operation(flows.wait_stopped)
    logs = Stream(flows.logs, models.LogPiece)
    events = Stream(flows.events, models.EventView)

    jobs = _single(operations.jobs)
    job = _single(operations.job)
    cancel = _single(operations.cancel)
    halt = _single(operations.halt)
    resume = _single(operations.resume)
    explain = _single(operations.explain)
    metrics = _single(operations.metrics)
    log_piece = _single(operations.log_piece)
    event_page = _single(operations.event_page)
    import_ffdl = _single(operations.import_ffdl)
    upload = _single(operations.upload)

    services = _single(operations.services)
    service = _single(operations.service)
    scale = _single(operations.scale)
    undeploy = _single(operations.undeploy)
    explain_service = _single(operations.explain_service)

    tenants = _single(operations.tenants)
    tenant = _single(operations.tenant)
    create_tenant = _single(operations.create_tenant)
    change_tenant = _single(operations.change_tenant)
    create_token = _single(operations.create_token)
    tokens = _single(operations.tokens)
    revoke_token = _single(operations.revoke_token)
    secrets = _single(operations.secrets)
    set_secret = _single(operations.set_secret)
    delete_secret = _single(operations.delete_secret)

    nodes = _single(operations.nodes)
    schedule_snapshot = _single(operations.schedule_snapshot)
    status = _single(operations.status)
    collect_garbage = _single(operations.collect_garbage)

    _exchange: Exchange

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        home: str | Path | None = None,
        patience_s: float = 10.0,
        environ: Mapping[str, str] | None = None,
        transport: Any = None,
    ) -> None:
        """Finds the server by arguments, else SHOAL_URL and SHOAL_TOKEN, else what the server of `home` (SHOAL_HOME,
        ~/.shoal) wrote there. `patience_s`: how long an absent or restarting server is waited for."""
        self._exchange = Exchange(locator(url, token, home, environ), patience_s=patience_s)
        self._transport = transport

    def _options(self, request: httpx.Request) -> dict[str, Any]:
        # Certificates take 30 ms to load, and most servers are on this machine and have none.
        options: dict[str, Any] = {"verify": _checked(request), "trust_env": False, "headers": {"user-agent": "shoal"}}
        if self._transport is not None:
            options["transport"] = self._transport
        return options


def _checked(request: httpx.Request) -> bool:
    return request.url.scheme == "https"


class Client(_Methods):
    """A synchronous client; use it as a context manager or `close` it. One thread at a time."""

    @functools.cached_property
    def _http(self) -> dict[bool, httpx.Client]:
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        while self._http:
            self._http.popitem()[1].close()

    def _run(self, flow: Flow[T]) -> T:
        effect = go_on(flow)
        while not isinstance(effect, Done):
            effect = go_on(flow, self._carry_out(effect))
        return cast(T, effect.value)

    def _iterate(self, flow: Flow[None]) -> Iterator[Any]:
        with contextlib.closing(flow):
            effect = go_on(flow)
            while not isinstance(effect, Done):
                if isinstance(effect, Emit):
                    yield effect.item
                effect = go_on(flow, self._carry_out(effect))

    def _carry_out(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            try:
                return self._send(effect.request)
            except httpx.TransportError as error:
                return error
        if isinstance(effect, Pause):
            time.sleep(effect.seconds)
        return None

    def _send(self, request: httpx.Request) -> httpx.Response:
        http = self._http.get(_checked(request))
        if http is None:
            http = self._http[_checked(request)] = httpx.Client(**self._options(request))
        return http.send(request)


class AsyncClient(_Methods):
    """The same for asyncio; use it as an async context manager or `await close()`."""

    @functools.cached_property
    def _http(self) -> dict[bool, httpx.AsyncClient]:
        return {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        while self._http:
            await self._http.popitem()[1].aclose()

    async def _run(self, flow: Flow[T]) -> T:
        effect = go_on(flow)
        while not isinstance(effect, Done):
            effect = go_on(flow, await self._carry_out(effect))
        return cast(T, effect.value)

    async def _iterate(self, flow: Flow[None]) -> AsyncIterator[Any]:
        with contextlib.closing(flow):
            effect = go_on(flow)
            while not isinstance(effect, Done):
                if isinstance(effect, Emit):
                    yield effect.item
                effect = go_on(flow, await self._carry_out(effect))

    async def _carry_out(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            try:
                return await self._send(effect.request)
            except httpx.TransportError as error:
                return error
        if isinstance(effect, Pause):
            await asyncio.sleep(effect.seconds)
        return None

    async def _send(self, request: httpx.Request) -> httpx.Response:
        http = self._http.get(_checked(request))
        if http is None:
            http = self._http[_checked(request)] = httpx.AsyncClient(**self._options(request))
        return await http.send(request)
