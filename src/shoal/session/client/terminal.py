"""This process's own terminal: raw while a session has it, and as it was before at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import tty
from collections.abc import Iterator


def size_of(fd: int) -> tuple[int, int] | None:
    """Rows and columns; None for what is no terminal."""
    try:
        size = os.get_terminal_size(fd)
    except OSError:
        return None
    return size.lines or 24, size.columns or 80


@contextlib.contextmanager
def raw(fd: int, *, wanted: bool) -> Iterator[None]:
    """Keys are passed on as they are pressed, Ctrl-C too."""
    if not wanted:
        yield
        return
    before = termios.tcgetattr(fd)
    tty.setraw(fd, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextlib.contextmanager
def woken_by(*signals: signal.Signals) -> Iterator[int]:
    """A descriptor that can be read once one of the signals came: its bytes are their numbers."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    old_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    old = {one: signal.signal(one, lambda *_: None) for one in signals}
    try:
        yield reader
    finally:
        for one, handler in old.items():
            signal.signal(one, handler)
        signal.set_wakeup_fd(old_fd)
        os.close(reader)
        os.close(writer)
