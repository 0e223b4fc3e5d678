"""An asyncio event loop with virtual time: no wait takes real time, and two runs of a program are identical.

When nothing is ready, time jumps to the next timer. When there is no timer either, nothing can ever happen again:
that is a deadlock, raised with the list of the tasks that wait. Sockets, pipes and child processes are refused, because
their answers would come at a real time. Work given to threads (`asyncio.to_thread`, `run_in_executor`) runs inline,
between two callbacks of the loop.

    from shoal.engine.simulated import VirtualClock, run

    async def main() -> float:
        await asyncio.sleep(86400)
        return VirtualClock().now()

    run(main(), start=1_700_000_000)  # 1700086400.0, at once
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_REFUSAL = "virtual time cannot wait for real input or output: give the code a simulated peer instead"


class Deadlock(RuntimeError):
    """Every task waits and no timer is set. `waiting` has a line per task: its name and the line it waits at."""

    def __init__(self, waiting: tuple[str, ...]) -> None:
        super().__init__("every task waits for something that cannot happen any more:\n  " + "\n  ".join(waiting))
        self.waiting = waiting


class RealIO(RuntimeError):
    """Something asked the virtual loop for real input or output."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0; `start` is the Unix time of that moment, for `VirtualClock`."""

    def __init__(self, *, start: float = 0.0) -> None:
        self.start = start
        self._virtual_now = 0.0
        super().__init__(_LeapingSelector(self))
        # asyncio runs timers that are due before `time() + resolution`, by default a nanosecond: after some weeks the
        # sum of floats is `time()` itself, and since time stands still between leaps, the timer would never be due.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._virtual_now

    def run_in_executor(
        self,
        executor: object,  # noqa: ARG002 - the base's signature
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run `func` inline, in a later turn of the loop. Whatever the executor, no thread is used."""
        done: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                result = func(*args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(result)

        self.call_soon(work)
        return done

    async def subprocess_exec(self, *_args: Any, **_options: Any) -> Any:
        raise RealIO(_REFUSAL)

    async def subprocess_shell(self, *_args: Any, **_options: Any) -> Any:
        raise RealIO(_REFUSAL)

    def leap(self, seconds: float | None) -> None:
        """Let `seconds` pass. None, for ever, is a Deadlock."""
        if seconds is None:
            raise Deadlock(tuple(sorted(_where(task) for task in asyncio.all_tasks(self))))
        self._virtual_now += seconds


class VirtualClock:
    """The `shoal.core.Clock` of a virtual loop (default: the running one)."""

    def __init__(self, loop: VirtualLoop | None = None) -> None:
        running = loop or asyncio.get_running_loop()
        if not isinstance(running, VirtualLoop):
            raise TypeError("a VirtualClock needs a VirtualLoop: start the program with shoal.engine.simulated.run")
        self._loop = running

    def now(self) -> float:
        return self._loop.start + self._loop.time()

    def monotonic(self) -> float:
        return self._loop.time()


def run(main: Coroutine[Any, Any, T], *, start: float = 0.0) -> T:
    """`asyncio.run` in virtual time that begins at `start` (Unix seconds). Raises Deadlock, RealIO."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start=start)) as runner:
        return runner.run(main)


class _LeapingSelector(selectors.SelectSelector):
    """Where a loop would sleep, its time leaps. It knows one file: the loop's own wake-up pipe."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.get_map():  # the first one is the wake-up pipe, registered when the loop is made
            raise RealIO(_REFUSAL)
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self._loop.leap(timeout)
        return []


def _where(task: asyncio.Task[Any]) -> str:
    """The task's name and the innermost line it is suspended at."""
    awaited: Any = task.get_coro()
    frame = None
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None) or frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    if frame is None:
        return f"{task.get_name()} waits"
    return f"{task.get_name()} waits in {frame.f_code.co_qualname} at {frame.f_code.co_filename}:{frame.f_lineno}"
