"""The loops of extensions: opened, watched, closed in one way. One that fails costs neither another nor the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from shoal.base.loops import BackgroundLoop, Turns
from shoal.core import Capability

log = structlog.get_logger("shoal.extensions")

_FIRST_WAIT_S = 1.0
_MOST_WAIT_S = 60.0
"""A loop that fails at every start must not fill the log, and one that fails for want of a network is to come back."""
_SHOWN_S = 600.0
"""`shoal status` names a loop for this long after its last failure: a person looks minutes later."""


@dataclass(frozen=True, slots=True)
class _Failure:
    text: str
    at: float
    times: int


class Supervisor(BackgroundLoop):
    """Keeps one loop of an extension running. When it fails, it is started again after a wait, which doubles."""

    def __init__(self, extension: str, loop: BackgroundLoop, on_fatal: Callable[[BaseException], None]) -> None:
        self._label = f"{extension}: {loop.name}"
        self._loop = loop
        self._failure: _Failure | None = None
        self._turns = Turns(log, "a loop of an extension failed", on_fatal)

    @property
    def name(self) -> str:
        return self._label

    async def close(self) -> None:
        await super().close()
        try:
            await self._loop.close()
        except Exception as error:  # of one extension: the others are still to be closed
            self._turns.failed(error, {"loop": self._label, "closing": True})

    async def _run(self) -> None:
        wait_s, times = _FIRST_WAIT_S, 0
        while True:
            began = _now()
            self._loop.open()
            error = await self._loop.ended()
            if error is None or self._turns.failed(error, {"loop": self._label}):
                return
            if _now() - began > _MOST_WAIT_S:
                wait_s = _FIRST_WAIT_S
            times += 1
            self._failure = _Failure(f"{type(error).__name__}: {error}", _now(), times)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _MOST_WAIT_S)

    def capabilities(self) -> Iterator[Capability]:
        """A loop that failed lately."""
        failure = self._failure
        if failure is not None and _now() - failure.at < _SHOWN_S:
            detail = f"failed {failure.times} times, last by {failure.text}"
            yield Capability(self._label, False, detail, "what it does is late; it is started again by itself")


def _now() -> float:
    return asyncio.get_running_loop().time()
