"""Calls of a client as values, made without I/O, so that the sync and the async client share every line of logic.

A *flow* is a generator: it yields effects (send this, pause, hand out this item), gets their results back, and returns
its own. `Client` and `AsyncClient` differ only in how they carry effects out.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import quote

from shoal.core import Invalid

if TYPE_CHECKING:
    import httpx
    from pydantic import BaseModel

T = TypeVar("T")
M = TypeVar("M", bound="BaseModel")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and how to read its answer. `repeatable`: sent twice it does no more than once. `wait_s` is how
    long the server may hold its answer back on purpose."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Send:
    request: httpx.Request


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Emit:
    item: Any


@dataclass(frozen=True, slots=True)
class Done:
    value: Any


Effect = Send | Pause | Emit
Flow = Generator[Effect, Any, T]


def go_on(flow: Flow[Any], result: Any = None) -> Effect | Done:
    """Give the flow the result of its last effect, an error included, and get its next one, or its end."""
    try:
        return flow.throw(result) if isinstance(result, BaseException) else flow.send(result)
    except StopIteration as stop:
        return Done(stop.value)


class Exchange(Protocol):
    """How a client reaches its server."""

    def perform(self, call: Call[T]) -> Flow[T]:
        """The call's value. A server that is absent or restarts is waited for, as long as the client has patience."""
        ...


# --- for building calls ---


def reads(model: type[M]) -> Callable[[httpx.Response], M]:
    """Reads an answer as this model."""
    return lambda response: model.model_validate_json(response.content)


def reads_mapping(response: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.json()
    return found


def reads_nothing(_response: httpx.Response) -> None:
    return None


def json_body(value: object) -> tuple[bytes, dict[str, str]]:
    """A call's body and headers."""
    return json.dumps(value).encode(), {"content-type": "application/json"}


def path_piece(kind: str, name: str) -> str:
    """`name` as one piece of a path. Nothing is called `..` or `a/b`, and as a path these would lead elsewhere."""
    if "/" in name or not name.strip("."):
        raise Invalid(f"{name!r} cannot be the name of a {kind}", hint="names have letters, digits and dashes")
    return quote(name, safe="")


def fresh_key() -> str:
    """An idempotency key for a submission that brought none."""
    return uuid.uuid4().hex
