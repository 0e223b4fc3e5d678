"""Care of a replica for its runtimes beside executing: it notices that a state has changed, and gives them idle time.

A model whose runtime offers nothing of the kind is not in here, and costs nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from shoal.inference.pairs import innermost
from shoal.inference.runtime import Condition, HasState, IdleWork, Keeps, Runtime, RuntimeState, condition_of
from shoal.serve.replica.messages import ModelKey

log = logging.getLogger("shoal.serve.replica")

IDLE_BUDGET_S = 0.005
"""The most that a request may have to wait for idle work: a tenth of an objective of 50 ms."""
_PAUSE_S = 1.0
"""Until a runtime without idle work is asked again."""


@dataclass(slots=True)
class _Attended:
    runtime: Runtime
    state: RuntimeState | None = None
    idle_at: float | None = None


class Attendance:
    """The runtimes that have a state, or work to do when nothing waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._attended: dict[ModelKey, _Attended] = {}

    def add(self, key: ModelKey, runtime: Runtime) -> None:
        """From now on, in the place of an earlier one."""
        self.drop(key)
        runtime = innermost(runtime)
        has_state, has_work = isinstance(runtime, HasState), isinstance(runtime, IdleWork)
        if has_state or has_work:
            state = condition_or_why_not(runtime).state if has_state else None
            self._attended[key] = _Attended(runtime, state, self._clock() if has_work else None)

    def drop(self, key: ModelKey) -> None:
        self._attended.pop(key, None)

    def changed(self, key: ModelKey) -> Condition | None:
        """The model's condition if its state is another one than it was."""
        one = self._attended.get(key)
        if one is None or one.state is None:
            return None
        assert isinstance(one.runtime, HasState)
        try:
            state = one.runtime.state()
        except Exception:
            log.exception("the state of %s cannot be read", key[0])
            return None
        if state == one.state:
            return None
        word, one.state = one.state.word, state
        return condition_or_why_not(one.runtime) if state.word != word else None

    def idle_in(self) -> float | None:
        """Seconds until there may be work to do; None if there never is."""
        times = [one.idle_at for one in self._attended.values() if one.idle_at is not None]
        return max(0.0, min(times) - self._clock()) if times else None

    def work(self) -> ModelKey | None:
        """Let the runtime whose turn it is work for a moment; which model it was."""
        due = [(one.idle_at, key) for key, one in self._attended.items() if one.idle_at is not None]
        at, key = min(due, default=(0.0, None))
        if key is None or at > self._clock():
            return None
        one, more = self._attended[key], False
        assert isinstance(one.runtime, IdleWork)
        try:
            more = one.runtime.idle(IDLE_BUDGET_S)
        except Exception:
            log.exception("idle work of %s failed", key[0])
        one.idle_at = self._clock() + (0.0 if more else _PAUSE_S)
        return key


def condition_or_why_not(runtime: Runtime) -> Condition:
    """What a runtime says of its model; a runtime that cannot say so must not end the replica."""
    runtime = innermost(runtime)
    try:
        return condition_of(runtime)
    except Exception as error:
        log.exception("the condition of %s cannot be read", runtime.metadata.name)
        return Condition(state=RuntimeState("UNKNOWN", f"its runtime failed: {type(error).__name__}: {error}"))


def restore(runtime: Runtime, kept: bytes) -> None:
    """Hand the runtime what it kept. It begins anew if that makes no sense to it."""
    runtime = innermost(runtime)
    if isinstance(runtime, Keeps):
        try:
            runtime.restore(kept)
        except ValueError as why:
            log.info("%s begins anew: %s", runtime.metadata.name, why)
        except Exception:
            log.exception("what %s kept is of no use", runtime.metadata.name)
