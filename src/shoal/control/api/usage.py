"""Use of the API by the holder of each token: requests and expensive questions by a token bucket each, and the
number of requests that wait at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from shoal.base.rates import Buckets
from shoal.control.server_settings import TokenLimits
from shoal.core import Overloaded

_BUSY_RETRY_S = 5.0
"""A guess at when a stream may have ended; it cannot be known."""


class RateLimited(Overloaded):
    """The token asked too often, or waits in too many places (429 with Retry-After)."""

    code = "rate-limited"


class Usage:
    """`clock` counts seconds; None stands for the running event loop's."""

    def __init__(self, limits: TokenLimits | None = None, *, clock: Callable[[], float] | None = None) -> None:
        self._limits = limits
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        if limits is not None:
            self._requests = Buckets(limits.requests_per_s, limits.burst)
            self._questions = Buckets(limits.questions_per_s, limits.question_burst)
        self._waiting: Counter[str] = Counter()

    def request(self, token_id: str) -> None:
        """Count a request. Raises RateLimited."""
        limits = self._limits
        if limits is not None and (retry_after_s := self._requests.take(token_id, self._clock())):
            raise RateLimited(
                f"this token may ask {limits.requests_per_s:g} times a second",
                hint="ask less often; the admin can raise the settings tokens.requests_per_s and tokens.burst",
                retry_after_s=retry_after_s,
            )

    def question(self, token_id: str) -> None:
        """Count a request whose answer is expensive to work out. Raises RateLimited."""
        limits = self._limits
        if limits is not None and (retry_after_s := self._questions.take(token_id, self._clock())):
            raise RateLimited(
                f"this token may ask for {limits.questions_per_s:g} explanations or checks a second",
                hint="ask less often; the admin can raise tokens.questions_per_s and tokens.question_burst",
                retry_after_s=retry_after_s,
            )

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
