"""Endless loops of the control plane: errors do not end them, and a lasting error does not fill the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Protocol

from shoal.core import LeaseLost, ShoalError

_REMEMBERED = 256
"""The number of distinct errors that are remembered; then the memory starts anew, and with it the tracebacks."""


class Loop(Protocol):
    async def close(self) -> None: ...


class BackgroundLoop:
    """A task of the event loop, from `open` to `close`: `_run`, until it is cancelled."""

    _task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """Names it in logs and in `shoal status`."""
        return type(self).__name__

    async def _run(self) -> None:
        raise NotImplementedError

    def open(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"{type(self).__module__}.{self.name}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def ended(self) -> BaseException | None:
        """Wait until `_run` is over by itself: what it raised, or None."""
        if self._task is None:
            return None
        await asyncio.wait({self._task})
        return None if self._task.cancelled() else self._task.exception()


class RunningLoop(BackgroundLoop):
    """A loop of a given coroutine function, for objects that have several loops."""

    def __init__(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._function = run

    @property
    def name(self) -> str:
        return self._name

    async def _run(self) -> None:
        await self._function()


class Defects:
    """Logs an unexpected error: with its traceback the first time, in one line when the same comes again."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._seen: set[tuple[type[BaseException], str]] = set()

    def note(self, event: str, error: BaseException, **about: object) -> None:
        known = (type(error), str(error))
        if known in self._seen:
            self._log.warning(event, error=type(error).__name__, text=str(error), again=True, **about)
            return
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen.add(known)
        self._log.error(event, error=type(error).__name__, exc_info=error, **about)


class Turns:
    """Guards the turns of a loop. An expected error or a defect is logged, and the turn fails; the loop goes on.
    A lost lease, or what is no `Exception` (a simulated crash), goes to `on_fatal`, and the loop is over."""

    def __init__(self, log: Any, event: str, on_fatal: Callable[[BaseException], None]) -> None:
        self._log = log
        self._event = event
        self._on_fatal = on_fatal
        self._defects = Defects(log)

    def turn(self, **about: object) -> Turn:
        """One turn, as a context manager; `about` goes into the log when it fails."""
        return Turn(self, about)

    def failed(self, error: BaseException, about: dict[str, object]) -> bool:
        """Take an error; True when the loop is over."""
        if isinstance(error, LeaseLost) or not isinstance(error, Exception):
            self._on_fatal(error)
            return True
        if isinstance(error, ShoalError):
            self._log.warning(self._event, error=str(error), **about)
        else:
            self._defects.note(f"{self._event} by a defect", error, **about)
        return False


class Turn:
    """Whether the turn was `held_up`, and whether the loop is `over`, once it was left."""

    def __init__(self, turns: Turns, about: dict[str, object]) -> None:
        self._turns = turns
        self._about = about
        self.held_up = False
        self.over = False

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None or isinstance(error, asyncio.CancelledError):
            return False
        self.over = self._turns.failed(error, self._about)
        self.held_up = not self.over
        return True
