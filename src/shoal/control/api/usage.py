"""What the holder of each token uses of the API: requests by a token bucket, and how many of them wait at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from shoal.control.settings import TokenLimits
from shoal.core import Overloaded

_BUSY_RETRY_S = 5.0
"""When a stream may have ended; nobody can know."""


class RateLimited(Overloaded):
    """The token asked too often, or waits in too many places (429 with Retry-After)."""

    code = "rate-limited"


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Usage:
    """`clock` counts seconds; None stands for the running event loop's."""

    def __init__(self, limits: TokenLimits | None = None, *, clock: Callable[[], float] | None = None) -> None:
        self._limits = limits
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._buckets: dict[str, _Bucket] = {}
        self._waiting: Counter[str] = Counter()

    def request(self, token_id: str) -> None:
        """Count a request. Raises RateLimited."""
        limits = self._limits
        if limits is None:
            return
        now = self._clock()
        bucket = self._buckets.get(token_id)
        if bucket is None:
            bucket = self._buckets[token_id] = _Bucket(float(limits.burst), now)
        bucket.left = min(limits.burst, bucket.left + (now - bucket.at) * limits.requests_per_s)
        bucket.at = now
        if bucket.left < 1:
            raise RateLimited(
                f"this token may ask {limits.requests_per_s:g} times a second",
                hint="ask less often; the admin can raise the settings tokens.requests_per_s and tokens.burst",
                retry_after_s=(1 - bucket.left) / limits.requests_per_s,
            )
        bucket.left -= 1

    @contextmanager
    def waiting(self, token_id: str) -> Iterator[None]:
        """Count a request that is held open. Raises RateLimited."""
        limits = self._limits
        if limits is not None and self._waiting[token_id] >= limits.streams:
            raise RateLimited(
                f"this token has {limits.streams} streams and waiting requests open",
                hint="close some; the admin can raise the setting tokens.streams",
                retry_after_s=_BUSY_RETRY_S,
            )
        self._waiting[token_id] += 1
        try:
            yield
        finally:
            self._waiting[token_id] -= 1
            if not self._waiting[token_id]:
                del self._waiting[token_id]


class CountedStream(StreamingResponse):
    """A stream that counts as long as it is sent, whether or not it is ever read from."""

    usage: Usage
    token_id: str

    def counted(self, usage: Usage, token_id: str) -> CountedStream:
        self.usage, self.token_id = usage, token_id
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.usage.waiting(self.token_id):
            await super().__call__(scope, receive, send)
