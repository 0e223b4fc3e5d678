"""Reading what ranks wrote, by offset, and nothing outside the directory it was written in."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from shoal.core import NotFound
from shoal.engine.protocol import LogChunk, LogTimes

MAX_BYTES = 4 << 20
"""One read returns at most this much, whatever was asked for."""

_ENTRY = re.compile(rb"(\d{1,18}) (\d{1,11}\.\d{3})")

_FILES = {"log": "log", "metrics": "metrics.jsonl"}


def read_stream(
    rank_dir: Path, run_dir: Path, stream: str, offset: int, limit: int, *, ended: bool, where: str
) -> LogChunk:
    """See `Engine.read`. `ended` says that the stream is complete; `where` names the rank in errors."""
    if stream in _FILES:
        fd = _open_inside(rank_dir, _FILES[stream])
    elif stream.startswith("file:") and stream != "file:":
        relative = stream.removeprefix("file:")
        fd = _open_inside(run_dir, relative)
        if fd is None and not _stays_inside(run_dir, relative):
            raise NotFound(f"{relative!r} is not a file inside the run directory", where=where)
    else:
        raise NotFound(
            f"there is no stream {stream!r}", where=where, hint="streams are log, metrics and file:RELATIVE/PATH"
        )
    if fd is None:
        return LogChunk(b"", max(0, offset), max(0, offset), ended)
    try:
        size = os.fstat(fd).st_size
        offset = offset if offset >= 0 else max(0, size + offset)
        if stream == "log":
            offset, limit = _past_hole(fd, offset, limit)
        data = os.pread(fd, max(0, min(limit, MAX_BYTES)), offset)
    finally:
        os.close(fd)
    return LogChunk(data, offset, offset + len(data), ended and offset + len(data) >= size)


def read_log_times(rank_dir: Path) -> LogTimes:
    """See `Engine.log_times`. The rank could write to its supervisor's file: what is no entry there is ignored. Where a
    clock was set back, the later time counts."""
    fd = _open_inside(rank_dir, _FILES["log"])
    if fd is None:
        return ()
    try:
        log = os.fstat(fd)
    finally:
        os.close(fd)
    entries = [entry for entry in _noted_times(rank_dir) if entry[0] < log.st_size]
    times, latest = [], 0.0
    for size, at in (*sorted(entries), (log.st_size, log.st_mtime)):
        latest = max(latest, at)
        times.append((size, latest))
    return tuple(times)


def _noted_times(rank_dir: Path) -> Iterator[tuple[int, float]]:
    fd = _open_inside(rank_dir, "log.times")
    if fd is None:
        return
    with os.fdopen(fd, "rb") as file:
        for line in file.read(MAX_BYTES).split(b"\n"):
            if (entry := _ENTRY.fullmatch(line)) is not None:
                yield int(entry[1]), float(entry[2])


def _past_hole(fd: int, offset: int, limit: int) -> tuple[int, int]:
    """Where to read and how much, so that nothing is read of the hole that the middle of a log which became too long
    has left (see the supervisor's `_cut_log`)."""
    try:
        offset = os.lseek(fd, offset, os.SEEK_DATA)
        return offset, min(limit, os.lseek(fd, offset, os.SEEK_HOLE) - offset)
    except OSError:  # at the end, or a file system without holes
        return offset, limit


def _open_inside(root: Path, relative: str) -> int | None:
    """The open regular file, or None when there is none, or it lies elsewhere once all links are followed. Nothing else
    is ever opened: a rank may have put a fifo there, or a link to a device."""
    try:
        handle = os.open(root / relative, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        held = Path(f"/proc/self/fd/{handle}")
        if stat.S_ISREG(os.fstat(handle).st_mode) and held.readlink().is_relative_to(root.resolve()):
            return os.open(held, os.O_RDONLY | os.O_CLOEXEC)  # exactly what was looked at, whatever has the name now
    except OSError:
        return None
    finally:
        os.close(handle)
    return None


def _stays_inside(root: Path, relative: str) -> bool:
    """True for a path that could be written later: inside, and nothing is there yet."""
    try:
        path = (root / relative).resolve()
        return path.is_relative_to(root.resolve()) and not path.exists()
    except (OSError, ValueError, RuntimeError):
        return False
