"""Errors and helpers of extensions beside their routes: loads nothing of the library that answers HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from shoal.contract.principal import Principal
from shoal.core import Resources

if TYPE_CHECKING:
    from fastapi import Request, Response

    from shoal.extension.web import EventQuery

DEFAULT_TENANT = "default"
"""Made at the first start, and whose jobs an admin's are who names no tenant."""


class Credentials(Protocol):
    """A question to extensions: who sends a request that has no `Authorization`, by another proof, such as a cookie."""

    def principal(self, request: Request) -> Principal | None:
        """None: the request has no such proof. Raises Forbidden for a proof that does not hold for this request.

        Asked on the event loop: answer in microseconds."""
        ...


class Api(Protocol):
    """What needs the state of the server's API."""

    async def until(self, done: Callable[[], bool], wait_s: float, who: Principal, *, owner_id: str) -> None:
        """Returns when `done`, asked again at each event of what `owner_id` names, is true, or when the time is over.
        Raises Overloaded where too many requests of the token are held open."""
        ...

    async def events(
        self, asked: EventQuery, who: Principal, *, tenant: str, owner_id: str, over: Callable[[], bool]
    ) -> Response:
        """The events of what `owner_id` names and of its jobs; a stream of them ends once it is `over`."""
        ...

    async def leaving(self) -> None:
        """Returns once the server is about to leave: what is held open must end then."""
        ...


def resources_view(resources: Resources) -> dict[str, Any]:
    return {
        "accelerators": dict(resources.accelerators),
        "cpu_milli": resources.cpu_milli,
        "memory_bytes": resources.memory_bytes,
        "share": resources.share.value,
        "device_memory_bytes": resources.device_memory_bytes,
    }
