"""The mounts that show sites' folders here: of what kind they are, and how fast they give what is in a file."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from shoal.shell.agent.rates import steady

LEAST_BYTES, MOST_BYTES, MOST_S = 1 << 20, 4 << 20, 1.0
"""Of a file that is read to measure: its least size, the most that is read of it, and the longest time."""
AGAIN_S = 600.0
_PART = 128 << 10
_CAREFUL = frozenset({"fuse.sshfs", "fuse.nfs"})
"""Mounts by FUSE that write what a program writes, and nothing else. rclone sends a file whole when it is closed, so an
empty one over what a command has written over there."""
_OVER_NETWORK = ("fuse", "nfs", "cifs", "smb", "9p", "ceph", "lustre")


def leaves_alone(folder: str, mountinfo: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether a file that is open for writing here, and not written, may be written over there."""
    kind = kind_of(folder, mountinfo)
    return kind is not None and (not kind.startswith("fuse") or kind in _CAREFUL)


def kind_of(folder: str, mountinfo: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Of the file system, such as `fuse.sshfs`; None where that is not known."""
    best, kind = "", ""
    try:
        lines = mountinfo.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode("latin-1", "replace").decode("unicode_escape", "replace")
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


def rate_of(path: str) -> float | None:
    """Bytes a second of the middle of a file, which the kernel is told to forget before; without what it takes until
    the first come. None for what is no large file. Blocks; raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size < LEAST_BYTES:
            return None
        wanted = min(MOST_BYTES, found.st_size // 2)
        at = (found.st_size - wanted) // 2
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        at += len(os.pread(fd, _PART, at))
        began, done = time.monotonic(), 0
        while done < wanted - _PART and time.monotonic() - began < MOST_S:
            part = os.pread(fd, _PART, at + done)
            if not part:
                break
            done += len(part)
        return done / max(time.monotonic() - began, 1e-6) if done else None
    finally:
        os.close(fd)


class MountRate:
    """Of one site: `bytes_per_s` once it was measured, by reading a part of a file that a command has read there."""

    def __init__(
        self, read: Callable[[str], float | None] = rate_of, kind: Callable[[str], str | None] = kind_of,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.bytes_per_s: float | None = None
        self._read, self._kind, self._clock = read, kind, clock
        self._next = 0.0
        self._busy = False

    def measure(self, path: str) -> threading.Thread | None:
        """Every ten minutes at most, in a thread: a mount that hangs holds up that, and nothing else."""
        if self._busy or self._clock() < self._next or not (self._kind(path) or "").startswith(_OVER_NETWORK):
            return None
        self._busy, self._next = True, self._clock() + AGAIN_S
        thread = threading.Thread(target=self._run, args=(path,), daemon=True, name="mount")
        thread.start()
        return thread

    def _run(self, path: str) -> None:
        with contextlib.suppress(OSError):
            if (found := self._read(path)) is not None:
                self.bytes_per_s = steady(self.bytes_per_s, found)
        self._busy = False
