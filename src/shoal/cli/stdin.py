"""Standard input for a job: what it is here, and its bytes as a working file of the job."""

from __future__ import annotations

import array
import fcntl
import io
import os
import stat
import sys
import tarfile
import termios
import threading
from collections.abc import Callable
from enum import Enum

from shoal.cli.commandline import INPUT
from shoal.core import Invalid

MOST_BYTES = 16 << 20
_PATIENCE_S = 2.0


class Source(Enum):
    TERMINAL = "terminal"
    STREAM = "stream"
    """A pipe, a socket or a file: it has an end."""
    NOTHING = "nothing"


def source() -> Source:
    mode = _mode()
    if mode is None:
        return Source.NOTHING
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode):
        return Source.STREAM
    return Source.TERMINAL if os.isatty(sys.stdin.fileno()) else Source.NOTHING


def is_waiting() -> bool:
    """Whether a pipe holds bytes already that nothing has read."""
    mode = _mode()
    if mode is None or not stat.S_ISFIFO(mode):
        return False
    count = array.array("i", [0])
    fcntl.ioctl(sys.stdin.fileno(), termios.FIONREAD, count)
    return count[0] > 0


def _mode() -> int | None:
    try:
        return os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or no file at all
        return None


def read(note: Callable[[str], None]) -> bytes:
    """All of standard input; `note` is told where that takes long. Raises Invalid for too much."""
    late = threading.Timer(
        _PATIENCE_S, note, ["standard input is read to its end first: `--no-stdin`, or </dev/null, runs without it"]
    )
    late.daemon = True
    late.start()
    try:
        data = sys.stdin.buffer.read(MOST_BYTES + 1)
    finally:
        late.cancel()
    if len(data) > MOST_BYTES:
        raise Invalid(
            f"standard input is over {MOST_BYTES >> 20} MiB", where="stdin",
            hint="write it into a file that the command reads; --no-stdin runs the command without it",
        )  # fmt: skip
    return data


def archive(data: bytes) -> bytes:
    """A bundle of the one file that the job reads."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo(INPUT)
        entry.size, entry.mode = len(data), 0o644
        tar.addfile(entry, io.BytesIO(data))
    return made.getvalue()
