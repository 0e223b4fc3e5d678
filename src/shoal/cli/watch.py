"""Looks at the server while a command waits for it: a server that cannot write, as on a full disk, ends nothing."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from shoal.cli.context import CliContext
from shoal.core import ShoalError

_EVERY_S = 3.0


class ServerWatch:
    """While entered, says once why the server cannot write, and when it can again."""

    def __init__(self, context: CliContext, *, every_s: float = _EVERY_S) -> None:
        self._context = context
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="server-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()

    def _run(self) -> None:
        told: str | None = None
        with self._context.client(patience_s=0.0) as client:
            while not self._over.wait(self._every_s):
                try:
                    trouble = client.status().last_write_failed
                except ShoalError:
                    continue  # whoever waits for it says so
                if trouble is not None and told is None:
                    self._context.note(f"the server cannot go on: {trouble}")
                elif trouble is None and told is not None:
                    self._context.note("the server goes on")
                told = trouble
