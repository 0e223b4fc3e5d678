"""The way into a plane: how often it is asked, and by which right. What nobody vouches for costs a plane nothing."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.base.rates import Buckets
from shoal.control.tokens import Unauthenticated
from shoal.core import Clock, Overloaded
from shoal.tenancy.live.turns import Gate

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_BEGIN = 64
"""The number of requests that begin in each round of the event loop, of all planes in turn."""
_BUSY_RETRY_S = 5.0
"""A guess at when some of the requests that are held open will have ended."""
_PROBES = {"/healthz": "ok\n", "/readyz": "ready\n"}
"""What needs no token, and what a plane that sleeps says to it: it would wake for a request with one."""


@dataclass(frozen=True, slots=True)
class PlaneLimits:
    """What one plane may take of the shared server, and one address that gives no token of a plane."""

    sleep_after_s: float = 300.0
    requests_per_s: float = 500.0
    burst: int = 2000
    requests_at_once: int = 512
    unknown_per_s: float = 10.0
    unknown_burst: int = 100


class Entrance:
    """Counts requests: those with a token by plane, others by address."""

    def __init__(self, limits: PlaneLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._known = Buckets(limits.requests_per_s, limits.burst)
        self._unknown = Buckets(limits.unknown_per_s, limits.unknown_burst)
        self._gate = Gate(_BEGIN)

    def count_unknown(self, address: str) -> None:
        """A request without a token that its plane knows. Raises Overloaded."""
        if retry_after_s := self._unknown.take(address, self._clock.monotonic()):
            raise Overloaded(
                f"this address may send {self._limits.unknown_per_s:g} requests without a valid token a second",
                hint="send a token of the plane: 'Authorization: Bearer TOKEN'", retry_after_s=retry_after_s,
            )  # fmt: skip

    def count(self, plane: str, answering: int) -> None:
        """A request to a plane; raises Overloaded where the plane has the most requests in work."""
        limits = self._limits
        hint = "ask less often; the admin of the shared server can raise the settings below tenancy"
        if answering >= limits.requests_at_once:
            raise Overloaded(
                f"plane {plane} is answering {limits.requests_at_once} requests", where=plane, hint=hint,
                retry_after_s=_BUSY_RETRY_S,
            )  # fmt: skip
        if retry_after_s := self._known.take(plane, self._clock.monotonic()):
            raise Overloaded(
                f"plane {plane} may be asked {limits.requests_per_s:g} times a second", where=plane, hint=hint,
                retry_after_s=retry_after_s,
            )  # fmt: skip

    def turn(self, plane: str) -> AbstractAsyncContextManager[None]:
        """Others have their turns before this plane's next request begins."""
        return self._gate.turn(plane)


class Asleep:
    """Answers for a plane that sleeps what comes without a token, and lets it sleep."""

    def __init__(self, refusal: Unauthenticated) -> None:
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises Unauthenticated for all but probes."""
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        if scope["method"] != "GET" or path not in _PROBES:
            raise self._refusal
        from starlette.responses import PlainTextResponse

        await PlainTextResponse(_PROBES[path])(scope, receive, send)
