"""The two clients. Their methods are the functions of `operations` and `flows`; only carrying out differs.

Other methods stand below a name that a component declares, as `client.NAME.method(...)`: see `shoal.contract.methods`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import httpx

from shoal.contract import sending
from shoal.contract.calls import Done, Effect, Emit, Flow, Pause, Send, go_on
from shoal.contract.methods import AsyncPerformer, Operation, Performer, Stream, SyncPerformer, single
from shoal.core import Invalid
from shoal.sdk import downloads, flows, models, operations
from shoal.sdk.exchange import SOCKET, Exchange
from shoal.sdk.locate import locator

T = TypeVar("T")


class _Methods(Performer):
    submit = Operation(flows.submit)
    check = Operation(flows.check)
    manifest_schema = single(operations.manifest_schema)
    wait = Operation(flows.wait)
    wait_array = Operation(flows.wait_array)
    logs = Stream(flows.logs, models.LogPiece)
    events = Stream(flows.events, models.EventView)
    download = Stream(downloads.download, models.Download)

    jobs = single(operations.jobs)
    job = single(operations.job)
    array = single(operations.array)
    change_array = single(operations.change_array)
    explain_array = single(operations.explain_array)
    cancel = single(operations.cancel)
    cancel_jobs = single(operations.cancel_jobs)
    suspend = single(operations.suspend)
    resume = single(operations.resume)
    explain = single(operations.explain)
    metrics = single(operations.metrics)
    log_piece = single(operations.log_piece)
    files = single(operations.files)
    file_piece = single(operations.file_piece)
    event_page = single(operations.event_page)
    upload = single(sending.upload)

    tenants = single(operations.tenants)
    tenant = single(operations.tenant)
    create_tenant = single(operations.create_tenant)
    change_tenant = single(operations.change_tenant)
    create_token = single(operations.create_token)
    tokens = single(operations.tokens)
    revoke_token = single(operations.revoke_token)
    secrets = single(operations.secrets)
    set_secret = single(operations.set_secret)
    delete_secret = single(operations.delete_secret)

    nodes = single(operations.nodes)
    drain_node = single(operations.drain_node)
    undrain_node = single(operations.undrain_node)
    status = single(operations.status)
    settings = single(operations.settings)
    doctor = single(operations.doctor)
    collect_garbage = single(operations.collect_garbage)
    pages = single(operations.pages)
    page = single(operations.page)

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        home: str | Path | None = None,
        patience_s: float = 10.0,
        first_s: float = math.inf,
        environ: Mapping[str, str] | None = None,
        transport: Any = None,
    ) -> None:
        """Finds the server by arguments, else SHOAL_URL and SHOAL_TOKEN, else what the server of `home` (SHOAL_HOME,
        ~/.shoal) wrote there, else the one that listens at /run/shoal/shoal.sock for all users of this machine. A `url`
        may be `unix:PATH`. `patience_s`: how long an absent or restarting server is waited for;
        `first_s`: no longer than this until it has answered once."""
        self.locate = locator(url, token, home, environ)
        """Where the server is now, and the token that opens it."""
        self.exchange = Exchange(self.locate, patience_s=patience_s, first_s=first_s)
        self._transport = transport
        self._environ = os.environ if environ is None else environ

    def __getattr__(self, name: str) -> Any:
        """A namespace that an extension brings, made when it is first asked for."""
        if name.startswith("_"):
            raise AttributeError(name)
        from shoal.base.discover import find_one

        found = find_one("client", name)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)
        namespace = self.__dict__[name] = found.load()(self)
        return namespace

    def __dir__(self) -> list[str]:
        from shoal.base.discover import find

        return sorted({*super().__dir__(), *find("client")})

    def _options(self, by: _Way, local: type[httpx.HTTPTransport | httpx.AsyncHTTPTransport]) -> dict[str, Any]:
        # Certificates take 30 ms to load, and most servers are on this machine and have none.
        verify = _authorities(self._environ) if by.checked else False
        options: dict[str, Any] = {"verify": verify, "trust_env": False, "headers": {"user-agent": "shoal"}}
        if self._transport is not None:
            options["transport"] = self._transport
        elif by.socket is not None:
            options["transport"] = local(uds=str(by.socket), verify=False)
        return options


@dataclass(frozen=True, slots=True)
class _Way:
    """By which of its connections a request goes."""

    checked: bool
    socket: Path | None

    @classmethod
    def of(cls, request: httpx.Request) -> _Way:
        return cls(request.url.scheme == "https", request.extensions.get(SOCKET))


def _authorities(environ: Mapping[str, str]) -> Any:
    """What a server's certificate is checked by: the file that SHOAL_CA_FILE names, else the public authorities."""
    file = environ.get("SHOAL_CA_FILE")
    if not file:
        return True
    import ssl

    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise Invalid(f"the certificates cannot be read: {error}", where=f"SHOAL_CA_FILE: {file}") from None


class Client(_Methods, SyncPerformer):
    """A synchronous client; use it as a context manager or `close` it. One thread at a time."""

    @functools.cached_property
    def _http(self) -> dict[_Way, httpx.Client]:
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        while self._http:
            self._http.popitem()[1].close()

    def perform(self, flow: Flow[T]) -> T:
        effect = go_on(flow)
        while not isinstance(effect, Done):
            effect = go_on(flow, self._carry_out(effect))
        return cast(T, effect.value)

    def iterate(self, flow: Flow[None]) -> Iterator[Any]:
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
        way = _Way.of(request)
        http = self._http.get(way)
        if http is None:
            http = self._http[way] = httpx.Client(**self._options(way, httpx.HTTPTransport))
        return http.send(request)


class AsyncClient(_Methods, AsyncPerformer):
    """The same for asyncio; use it as an async context manager or `await close()`."""

    @functools.cached_property
    def _http(self) -> dict[_Way, httpx.AsyncClient]:
        return {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        while self._http:
            await self._http.popitem()[1].aclose()

    async def perform(self, flow: Flow[T]) -> T:
        effect = go_on(flow)
        while not isinstance(effect, Done):
            effect = go_on(flow, await self._carry_out(effect))
        return cast(T, effect.value)

    async def iterate(self, flow: Flow[None]) -> AsyncIterator[Any]:
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
            import asyncio  # a synchronous client does without

            await asyncio.sleep(effect.seconds)
        return None

    async def _send(self, request: httpx.Request) -> httpx.Response:
        way = _Way.of(request)
        http = self._http.get(way)
        if http is None:
            http = self._http[way] = httpx.AsyncClient(**self._options(way, httpx.AsyncHTTPTransport))
        return await http.send(request)
