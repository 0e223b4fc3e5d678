"""One POST to a receiver: it follows no redirect, uses no proxy, and meets no address that leads inward."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpcore

from shoal import __version__
from shoal.notify.send.addresses import Network, allowed, is_inward
from shoal.notify.send.outcome import SENT, Outcome

_TRIED_ADDRESSES = 4


class Resolve(Protocol):
    """The addresses of a host, as text."""

    async def __call__(self, host: str, port: int) -> Sequence[str]: ...


class Refused(Exception):
    """The receiver is where no webhook may be."""


class Guarded(httpcore.AsyncNetworkBackend):
    """Connects to the very addresses that were looked at. One that may not be met refuses the whole name."""

    def __init__(self, inward: Sequence[Network], *, plain: bool, find: Resolve) -> None:
        self._inward = inward
        self._plain = plain
        self._find = find
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None,  # noqa: ASYNC109 - as it is called
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:  # fmt: skip
        addresses = await self._find(host, port)
        if not addresses:
            raise httpcore.ConnectError("the name has no address")
        if not all(allowed(address, self._inward) for address in addresses):
            raise Refused("the address leads inward, and `notify.inward` does not open it")
        if self._plain and not all(is_inward(address, self._inward) for address in addresses):
            raise Refused("http:// is for addresses in `notify.inward` only: use https://")
        failed: Exception | None = None
        for address in addresses[:_TRIED_ADDRESSES]:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        assert failed is not None
        raise failed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Webhooks:
    """`authorities` is a file of certificates that receivers' are checked by; empty: those of the system. `find`
    resolves names."""

    def __init__(self, inward: Sequence[Network], timeout_s: float, *, find: Resolve, authorities: str = "") -> None:
        self._inward = inward
        self._timeout_s = timeout_s
        self._authorities = authorities or None
        self._tls: ssl.SSLContext | None = None
        self._find = find

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Outcome:
        """The receiver has it when it answers with a status of 200 to 299 in time. What it answers is not read."""
        try:
            async with asyncio.timeout(self._timeout_s):
                status, after = await self._exchange(url, body, headers)
        except TimeoutError:
            return Outcome(f"no answer within {self._timeout_s:g} s")
        except Refused as error:
            return Outcome(str(error), lasting=True)
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            return Outcome(f"it cannot be reached: {_cause(error)}")
        if 200 <= status < 300:
            return SENT
        if 300 <= status < 400:
            return Outcome(f"it answers {status}: redirects are not followed")
        return Outcome(f"it answers {status}", lasting=status == 410, retry_after_s=after)

    async def _exchange(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, float]:
        parts = urlsplit(url)
        network = Guarded(self._inward, plain=parts.scheme == "http", find=self._find)
        if self._tls is None and parts.scheme == "https":
            self._tls = await asyncio.to_thread(ssl.create_default_context, cafile=self._authorities)
        named: dict[bytes | str, bytes | str] = {
            "content-type": "application/json", "user-agent": f"shoal/{__version__}", "host": parts.netloc,
            "connection": "close",
        }  # fmt: skip
        named.update(headers)
        limits = dict.fromkeys(("connect", "read", "write", "pool"), self._timeout_s)
        async with (
            httpcore.AsyncConnectionPool(ssl_context=self._tls, network_backend=network, retries=0) as pool,
            pool.stream("POST", url, headers=named, content=body, extensions={"timeout": limits}) as answer,
        ):
            after = 0.0
            for name, value in answer.headers:
                if name.lower() == b"retry-after":
                    with contextlib.suppress(ValueError):
                        after = max(0.0, float(value))
            return answer.status, after


def _cause(error: BaseException) -> str:
    """What the system says, without what the receiver said."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, socket.gaierror):
        return "its name has no address"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return type(error).__name__
