"""Ends of processes in words: the exit code or signal, and the last line of its log."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

_TAIL_BYTES = 2000
_LONGEST_LINE = 300
_UNREMARKABLE = re.compile(r"\d{4}-\d\d-\d\d \S+ (DEBUG|INFO) ")
"""How a line begins that says what went well."""


def describe_end(code: int) -> str:
    """`code` as `subprocess` gives it: negative for a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def last_line(path: Path, since: int = 0) -> str:
    """What a process said last, by its log from the byte `since` on; nothing if it said nothing about its end. What a
    terminal would obey is escaped."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since, size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return printable(lines[-1])[:_LONGEST_LINE] if lines and not _UNREMARKABLE.match(lines[-1]) else ""


def printable(text: str) -> str:
    """The text with each character that is not printable as its escape sequence, such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
