"""An alarm that rings when it should.

Event loops round their timers to milliseconds, which is more than many a model takes. On Linux a timer of the kernel
(`timerfd`) wakes the loop within tens of microseconds; elsewhere the loop's own timer has to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK, _TFD_CLOEXEC = os.O_NONBLOCK, getattr(os, "O_CLOEXEC", 0)
_TFD_TIMER_ABSTIME = 1


class _Times(ctypes.Structure):
    """`struct itimerspec` of 64-bit Linux: the interval (none here), then the moment."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("s", ctypes.c_long),
        ("ns", ctypes.c_long),
    )


class Alarm:
    """Calls `ring` in the loop at the moment last set (in `time.monotonic` seconds), once."""

    def __init__(self, ring: Callable[[], None], *, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._ring = ring
        self._handle: asyncio.Handle | None = None
        self._fd = _timer()
        if self._fd is not None:
            self._times = _Times(0, 0, 0, 0)
            self._loop.add_reader(self._fd, self._rang)

    def set(self, at_s: float) -> None:
        """A moment that has passed rings at once."""
        if self._fd is None:
            self._cancel()
            # Not earlier than now: loops disagree on what a negative delay is.
            self._handle = self._loop.call_later(max(0.0, at_s - time.monotonic()), self._ring)
            return
        nanoseconds = max(1, int(at_s * 1e9))  # 0 would disarm it
        self._times.s, self._times.ns = divmod(nanoseconds, 1_000_000_000)
        if _libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(self._times), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        self._cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rang(self) -> None:
        assert self._fd is not None
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
            self._ring()


def _timer() -> int | None:
    """A new timerfd; None where there is no such thing."""
    if not hasattr(_libc, "timerfd_create"):
        return None
    fd = int(_libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC))
    return fd if fd >= 0 else None


_libc = ctypes.CDLL(None, use_errno=True)
