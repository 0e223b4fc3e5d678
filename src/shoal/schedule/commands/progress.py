"""How far a simulation has come, on stderr."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_REDRAW_S, _WIDTH = 0.2, 24

OnProgress = Callable[[int, int, float], None]


def silent(done: int, of: int, now_s: float) -> None:
    """Shows nothing."""


@contextmanager
def bar(title: str, *, stream: TextIO | None = None) -> Iterator[OnProgress]:
    """A line that is drawn over and over; nothing where the stream is not a terminal."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield silent
        return
    drawn = 0.0

    def show(done: int, of: int, now_s: float) -> None:
        nonlocal drawn
        if time.monotonic() - drawn < _REDRAW_S:
            return
        drawn = time.monotonic()
        full = round(done / of * _WIDTH)
        line = f"{title} {'━' * full}{'╌' * (_WIDTH - full)} {done} of {of} jobs, {now_s / 3600:.0f} simulated hours"
        # A line that wraps could not be drawn over.
        stream.write(f"\r\x1b[2K{line[: shutil.get_terminal_size().columns - 1]}")
        stream.flush()

    try:
        yield show
    finally:
        stream.write("\r\x1b[2K")
        stream.flush()
