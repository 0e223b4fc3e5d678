"""Cooperative pacing: a token bucket in bytes for loaders of our own, at a rate that a guard sets in a shared page.

A loader that moves 64 KiB at a time at 2.5 GB/s does to its neighbours what bandwidth allocation in hardware would: it
slows them a little, evenly, where a CPU quota at the same bandwidth stops them for milliseconds.

    pace = Pace.from_environment()      # limits nothing unless SHOAL_PACE names a page
    pace.copy(staging, batch)           # numpy arrays, or anything with a contiguous buffer
    pace.take(tensor.nbytes)            # before bytes that somebody else moves

All processes with the same page share its rate. A rate lapses when it is not renewed (`Rate.set` each tick), so that
nobody stays slow for a guard that is gone. Without the native library the same algorithm runs here, under a file lock.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from shoal.core import Invalid
from shoal.host.native import Bucket, Native, load
from shoal.host.types import Missing

ENVIRONMENT = "SHOAL_PACE"
LEASE_S = 2.0
CHUNK_BYTES = 64 << 10
BURST_BYTES = 256 << 10
"""What may go at full speed after a pause: 10 us worth at 26 GB/s, too short for a neighbour to notice."""
_CATCH_UP_CHUNKS = 64


class _Page:
    """The shared page, mapped for as long as its bucket is in use."""

    def __init__(self, path: str | os.PathLike[str], flags: int) -> None:
        self.fd = os.open(path, flags | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            if flags & os.O_CREAT:
                os.posix_fallocate(self.fd, 0, mmap.PAGESIZE)  # a full disk is an error here, not a SIGBUS later
            elif os.fstat(self.fd).st_size < ctypes.sizeof(Bucket):
                raise Invalid("this is no page of a pacing rate", where=os.fspath(path))
            self.bucket = Bucket.from_buffer(mmap.mmap(self.fd, ctypes.sizeof(Bucket)))
            self.lock = threading.Lock()  # a lock on the file does not hold between threads of one process
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Rate:
    """The controller's end: makes the page, sets the rate, and reads what was taken."""

    def __init__(self, path: str | os.PathLike[str], *, burst_bytes: int = BURST_BYTES) -> None:
        self._page = _Page(path, os.O_CREAT)
        self._page.bucket.burst_bytes = burst_bytes

    def set(self, bytes_per_s: float | None, *, lease_s: float = LEASE_S) -> None:
        """At most so many bytes per second from all takers together for the next `lease_s`; None for no limit."""
        if bytes_per_s is not None and not bytes_per_s >= 1:
            raise Invalid(f"a rate is at least one byte per second: {bytes_per_s}", hint="None lifts the limit")
        bucket = self._page.bucket
        bucket.until_ns = time.monotonic_ns() + int(lease_s * 1e9)
        bucket.bytes_per_s = 0 if bytes_per_s is None else int(bytes_per_s)

    @property
    def taken_bytes(self) -> int:
        """By all takers since the page was made."""
        return int(self._page.bucket.taken_bytes)

    @property
    def waited_s(self) -> float:
        return int(self._page.bucket.waited_ns) / 1e9

    def close(self) -> None:
        """Lift the limit."""
        self._page.bucket.bytes_per_s = 0
        self._page.close()


class Pace:
    """The loader's end. For any number of threads and processes."""

    def __init__(self, path: str | os.PathLike[str], *, native: Native | Missing | None = None) -> None:
        self._page: _Page | None = _Page(path, 0)
        self._native = load() if native is None else native

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Pace:
        """The pace at SHOAL_PACE. Without it, or where there is no such page, one that limits nothing."""
        path = environ.get(ENVIRONMENT)
        return cls(path) if path and Path(path).is_file() else _Unlimited()

    def take(self, count: int) -> None:
        """Wait until so many bytes may go, and count them."""
        if self._page is None:
            return
        if isinstance(self._native, Native):
            self._native.take(self._page.bucket, count)
            return
        for at in range(0, count, CHUNK_BYTES):
            self._take(self._page, min(CHUNK_BYTES, count - at))

    def copy(self, to: Any, source: Any) -> None:
        """Copy one buffer into another of the same length in bytes, both contiguous, at the pace."""
        target, origin = memoryview(to).cast("B"), memoryview(source).cast("B")
        if len(target) != len(origin):
            raise Invalid(f"{len(origin)} bytes do not fit into {len(target)}", where="copy")
        if target.readonly:
            raise Invalid("the target cannot be written to", where="copy")
        if self._page is not None and isinstance(self._native, Native) and not origin.readonly:
            count = len(target)
            here = ctypes.addressof(ctypes.c_char.from_buffer(target)) if count else 0
            there = ctypes.addressof(ctypes.c_char.from_buffer(origin)) if count else 0
            self._native.copy(self._page.bucket, here, there, count)
            return
        for at in range(0, len(target), CHUNK_BYTES):
            piece = origin[at : at + CHUNK_BYTES]
            self.take(len(piece))
            target[at : at + len(piece)] = piece

    def close(self) -> None:
        if self._page is not None:
            self._page.close()
            self._page = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _take(page: _Page, count: int) -> None:
        """native/host/bucket.cpp, line by line, with a lock instead of compare-and-swap."""
        bucket = page.bucket
        now = time.monotonic_ns()
        with page.lock:
            fcntl.flock(page.fd, fcntl.LOCK_EX)
            try:
                bucket.taken_bytes += count
                rate, until = int(bucket.bytes_per_s), int(bucket.until_ns)
                if rate == 0 or now >= until:
                    return
                cost = count * 1_000_000_000 // rate
                saved = int(bucket.burst_bytes) * 1_000_000_000 // rate
                start = max(now - saved, min(int(bucket.next_ns), now + _CATCH_UP_CHUNKS * cost))
                bucket.next_ns = start + cost
            finally:
                fcntl.flock(page.fd, fcntl.LOCK_UN)
        wait = min(start, until) - now
        if wait > 0:
            time.sleep(wait / 1e9)
            bucket.waited_ns += time.monotonic_ns() - now


class _Unlimited(Pace):
    def __init__(self) -> None:
        self._page = None
        self._native = Missing("no pace is set")
