"""The progress of a load or a search, reported to the waiting caller."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Progress:
    """Of all targets of a load together. `total_s` is None where the end is not known beforehand."""

    elapsed_s: float
    total_s: float | None
    sent: int
    done: int
    failed: int

    @property
    def outstanding(self) -> int:
        return self.sent - self.done

    def text(self) -> str:
        rate = self.done / self.elapsed_s if self.elapsed_s > 0 else 0.0
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done} answered, {rate:.0f}/s, {self.outstanding} outstanding{failed}"


_REDRAW_S = 0.2
_WIDTH = 24

OnProgress = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Shows nothing."""


@contextmanager
def bar(title: str, *, stream: TextIO | None = None) -> Iterator[OnProgress]:
    """A line on stderr that is drawn over and over; nothing at all where stderr is not a terminal.

    Drawn by hand: a richer bar takes milliseconds to draw, in which the generator would send nothing.
    """
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield silent
        return
    drawn_s = -_REDRAW_S

    def show(progress: Progress) -> None:
        nonlocal drawn_s
        if progress.elapsed_s - drawn_s < _REDRAW_S and progress.elapsed_s >= drawn_s:
            return
        drawn_s = progress.elapsed_s
        share = min(1.0, progress.elapsed_s / progress.total_s) if progress.total_s else 0.0
        full = round(share * _WIDTH)
        line = f"{title} {'━' * full}{'╌' * (_WIDTH - full)} {progress.elapsed_s:.1f}s  {progress.text()}"
        # A line that wraps could not be drawn over.
        stream.write(f"\r\x1b[2K{line[: shutil.get_terminal_size().columns - 1]}")
        stream.flush()

    try:
        yield show
    finally:
        clear(stream)


def clear(stream: TextIO | None = None) -> None:
    """Make room for a line of text where a bar is being drawn."""
    stream = sys.stderr if stream is None else stream
    if stream.isatty():
        stream.write("\r\x1b[2K")
        stream.flush()
