"""Servers that tests kill."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from shoal.base.home import Home, ServerInfo, running_server
from shoal.base.processes import start_ticks


def until(true: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends_at, "it did not come to that"
        time.sleep(0.01)


def kill_for_good(server: Home | int) -> None:
    """`kill -9` of a home's server, or that of a pid, and of what would start it again. Waits for its end."""
    info = running_server(server) if isinstance(server, Home) else ServerInfo(server, start_ticks(server) or 0, "")
    assert info is not None
    parent = info.parent()
    os.kill(info.pid if parent is None else parent.pid, signal.SIGKILL)
    until(lambda: not info.alive())
