"""Notes of a program about its calls, thread by thread."""

from __future__ import annotations

import threading
from typing import Any
from weakref import ref

from shoal.offload.annotations.calls import Call, Declaration, Deferred
from shoal.offload.annotations.run import run_stages

_MOST = 256
"""Noted calls, after which they run: a loop that looks at nothing needs no memory that grows."""


class CallProgram:
    """What one thread noted."""

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def _calls(self) -> list[Call]:
        found: list[Call] = self._local.__dict__.setdefault("calls", [])
        return found

    def note(self, declaration: Declaration, arguments: dict[int | str, Any]) -> Deferred:
        for place in arguments:
            declaration.type_of(place)
        call = Call(declaration, arguments)
        found = Deferred(call, self.run)
        call.result = ref(found)
        self._calls.append(call)
        if len(self._calls) >= _MOST:
            self.run()
        return found

    def run(self, **options: Any) -> BaseException | None:
        """Run all that is noted; answers the first error. A call that raises leaves its error to its result and to
        those that need it."""
        calls, self._calls[:] = list(self._calls), []
        return run_stages(calls, **options)

    def at_once(self, declaration: Declaration, arguments: dict[int | str, Any]) -> Any:
        """The value of one call, without regard to what is noted."""
        call = Call(declaration, arguments)
        found = Deferred(call, self.run)
        call.result = ref(found)
        run_stages([call])
        return found.value


PROGRAM = CallProgram()
