"""Methods of both clients, made of flows; and namespaces of such methods, which extensions add to the clients.

A component declares a class derived from `Namespace` under the name of an attribute of the clients, whose methods are
`client.NAME.method(...)`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload, runtime_checkable

from shoal.contract.calls import Call, Exchange, Flow

P = ParamSpec("P")
T = TypeVar("T")


class Performer:
    """Carries flows out, with its own exchange."""

    exchange: Exchange


class SyncPerformer(Performer):
    def perform(self, flow: Flow[T]) -> T:
        raise NotImplementedError

    def iterate(self, flow: Flow[None]) -> Iterator[Any]:
        """What the flow emits."""
        raise NotImplementedError


class AsyncPerformer(Performer):
    async def perform(self, flow: Flow[T]) -> T:
        raise NotImplementedError

    def iterate(self, flow: Flow[None]) -> AsyncIterator[Any]:
        """What the flow emits."""
        raise NotImplementedError


class Namespace:
    """Methods that belong together, given the client that carries them out: their results come at once on the sync
    client, awaited on the async one."""

    def __init__(self, client: SyncPerformer | AsyncPerformer) -> None:
        self.exchange = client.exchange
        self.perform: Callable[[Flow[Any]], Any] = client.perform
        self.iterate: Callable[[Flow[None]], Any] = client.iterate


@runtime_checkable
class Stoppable(Protocol):
    """A namespace of what the server keeps running by itself, job after job. On the sync client."""

    def running(self) -> list[str]:
        """What is kept running: `service ocr`, each once."""
        ...

    def stop_all(self, *, timeout_s: float) -> None:
        """End all of it, and wait until it has. Raises Unavailable when it has not by then."""
        ...


class Operation(Generic[P, T]):
    """A method of both clients: gives its result at once on `Client`, awaited on `AsyncClient`."""

    def __init__(self, build: Callable[Concatenate[Exchange, P], Flow[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: SyncPerformer, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncPerformer, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: Namespace, owner: type) -> Callable[P, Any]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self
        return _method(
            lambda *args, **kwargs: client.perform(self._build(client.exchange, *args, **kwargs)), self._build
        )


class Stream(Generic[P, T]):
    """A method of both clients that gives items as they come: an iterator, or an async one."""

    def __init__(self, build: Callable[Concatenate[Exchange, P], Flow[None]], _item: type[T]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: SyncPerformer, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncPerformer, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: Namespace, owner: type) -> Callable[P, Any]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self
        return _method(
            lambda *args, **kwargs: client.iterate(self._build(client.exchange, *args, **kwargs)), self._build
        )


def _method(run: Callable[..., Any], build: Callable[..., Any]) -> Callable[..., Any]:
    """`run` under the name, text and signature of the function that it carries out, the exchange left out."""
    method = functools.wraps(build)(run)
    signature = inspect.signature(build)
    method.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
    return method


def single(build: Callable[P, Call[T]]) -> Operation[P, T]:
    """An operation of one request."""

    def flow(exchange: Exchange, /, *args: P.args, **kwargs: P.kwargs) -> Flow[T]:
        return (yield from exchange.perform(build(*args, **kwargs)))

    flow.__doc__, flow.__name__ = build.__doc__, build.__name__
    signature = inspect.signature(build)
    first = inspect.Parameter("exchange", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [first, *signature.parameters.values()]
    flow.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return Operation(flow)
