"""A shared memory segment of ours, into which the inputs of one request at a time are put."""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from shoal.serve.protocol.regions import Place
from shoal.serve.types import Tensor

_FOLDER = Path("/dev/shm")  # noqa: S108  # where the system keeps POSIX shared memory
_ALIGNMENT = 64
_SMALLEST = 64 << 10


class Segment:
    """Has a name in the file system only until `hide` is called, once the server has opened it. So nothing is left
    behind, however this process ends. The lock tells the server that the segment is still in use."""

    def __init__(self, size: int) -> None:
        """Raises OSError."""
        self.name = f"client-{os.getpid()}-{secrets.token_hex(8)}"
        self.key = f"/{self.name}"
        self.size = max(_SMALLEST, 1 << (size - 1).bit_length())
        self._path = _FOLDER / self.name
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            os.ftruncate(self._descriptor, self.size)
            self._memory = memoryview(mmap.mmap(self._descriptor, self.size))
        except OSError:
            self.hide()
            os.close(self._descriptor)
            raise

    def hide(self) -> None:
        self._path.unlink(missing_ok=True)

    def put(self, tensors: Sequence[Tensor]) -> dict[str, Place]:
        """Copy the contents in; `room_for` says how much that takes."""
        places, at = {}, 0
        for tensor in tensors:
            size = len(tensor.data)
            self._memory[at : at + size] = tensor.data
            places[tensor.name] = Place(self.name, at, size)
            at += _padded(size)
        return places

    def close(self) -> None:
        self.hide()
        self._memory.release()
        os.close(self._descriptor)


def room_for(tensors: Sequence[Tensor]) -> int:
    return sum(_padded(len(tensor.data)) for tensor in tensors)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
