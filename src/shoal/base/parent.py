"""The process that a server is a fork of: it waits, and when the server was killed it starts it again.

What takes the longest of a start are imports. This process has them behind it: once the server has told that it is
ready it imports, at its leisure, what the server has imported until then. It has no threads, so that it may fork, and
opens nothing but what is to outlive the server, such as the sockets that listen: clients that come while there is no
server wait there for the next one.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from shoal.base.ends import describe_end
from shoal.base.home import PARENT, SERVER
from shoal.base.processes import call_this, end_as, end_with_parent

_LEISURE_S = 10.0
"""A server that ends sooner has cost no second import."""
_DEATHS, _WITHIN_S = 5, 60.0
"""It gives up after this number of deaths within this time."""
_TO_SERVER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ALWAYS = (signal.SIGTERM, signal.SIGINT)
"""A server takes these even where they were ignored when it was started, as behind `&` of a script."""
_FROM_KERNEL = 0x80
"""`si_code` of what a terminal sends: to all of its foreground, the server included."""


@dataclass(frozen=True, slots=True)
class Forked:
    """The server's side. `deaths` is how many servers before this one were killed."""

    deaths: int = 0
    _told: int | None = None
    _before: Collection[str] = field(default_factory=frozenset)

    def ready(self) -> None:
        """From now on it is started again: one that was never ready is not."""
        self._tell("\n")

    def loaded(self) -> None:
        """All that it needs is imported: the parent imports the same."""
        self._tell("\n".join(name for name in sys.modules if name not in self._before))

    def _tell(self, text: str) -> None:
        if self._told is not None:
            os.pwrite(self._told, text.encode(), 0)


def fork_server(log: Any, *, leave: Callable[[], object] = lambda: None) -> Forked:
    """Return in a child process, and again in another one when that was killed. This process never returns, unless it
    has threads: then it is the server itself. It hands signals on, ends as the server ends, and the kernel kills the
    server when it ends. `leave` closes what it must not hold open."""
    if _threads() > 1:
        log.warning("the server will not be started again when it is killed", why="a module has started a thread")
        return Forked()
    parent, told, deaths = os.getpid(), os.memfd_create("loaded"), deque[float](maxlen=_DEATHS)
    signals = {one for one in _TO_SERVER if one in _ALWAYS or signal.getsignal(one) is not signal.SIG_IGN}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals | {signal.SIGCHLD})
    was_ready = False
    for number in itertools.count():
        os.ftruncate(told, 0)
        _flush()
        gc.freeze()
        child = os.fork()
        if child == 0:
            call_this(SERVER)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if not end_with_parent(parent):
                os._exit(1)
            return Forked(number, told, frozenset(sys.modules))
        call_this(PARENT)
        leave()
        code, asked = _watch(child, told, signals)
        was_ready = was_ready or os.fstat(told).st_size > 0
        if code >= 0 or asked or not was_ready or -code in signals:
            end_as(code)
        deaths.append(time.monotonic())
        too_often = len(deaths) == _DEATHS and deaths[-1] - deaths[0] < _WITHIN_S
        _say(log, "giving up" if too_often else "starting it again", child, code, number + 1)
        if too_often:
            end_as(128 - code)
        if _threads() > 1:  # a fork has but one of them
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.execv(sys.executable, sys.orig_argv)  # noqa: S606
    raise AssertionError("it counts without end")


def _say(log: Any, then: str, pid: int, code: int, deaths: int) -> None:
    hint = {"hint": f"see what kills it, and start it with `shoal up`: it was killed {_DEATHS} times within a minute"}
    cold = {"imports": "all anew, for a module has started a thread"} if _threads() > 1 else {}
    more = hint if then == "giving up" else cold
    with contextlib.suppress(OSError, ValueError):  # a full disk, or a terminal that is gone: it goes on all the same
        log.error(f"the server was killed: {then}", pid=pid, why=describe_end(code), deaths=deaths, **more)
    _flush()


def _watch(child: int, told: int, signals: Collection[int]) -> tuple[int, bool]:
    """Wait until it has ended: its exit code (negative: the signal), and whether anybody had asked it to end."""
    asked = loaded = False
    expected = {*signals, signal.SIGCHLD}
    while True:
        found = signal.sigwaitinfo(expected) if loaded else signal.sigtimedwait(expected, _LEISURE_S)
        if found is None:
            loaded = _load(told, expected)
        elif found.si_signo == signal.SIGCHLD:
            if (code := _reap(child)) is not None:
                return code, asked
        else:
            asked = True
            if found.si_code != _FROM_KERNEL:
                os.kill(child, found.si_signo)


def _reap(child: int) -> int | None:
    """Orphans of a container come to its process 1, which this may be."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
    return code


def _load(told: int, expected: Collection[int]) -> bool:
    """Import what the server has imported. False where it has not told, or where a signal came first."""
    names = os.pread(told, os.fstat(told).st_size, 0).decode().split()
    for name in names:
        if signal.sigpending() & set(expected):
            return False
        if name not in sys.modules:
            with contextlib.suppress(Exception, SystemExit):  # made while another one was imported
                import_module(name)
    return bool(names)


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
