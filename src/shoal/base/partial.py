"""A file that comes in pieces, under another name until it is whole, and goes on where an earlier one stood."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from shoal.core import ShoalError

if TYPE_CHECKING:
    from io import BufferedRandom

_CHUNK = 1 << 20
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def in_words(path: Path, done: str = "written") -> Iterator[None]:
    """What goes wrong with a file here, in words."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ShoalError(f"the file cannot be {done}: {why}", where=str(path)) from None


class PartialFile:
    """`content` names what it holds, so that pieces of another content are not taken for its own."""

    def __init__(self, target: Path, content: str, size: int) -> None:
        self._target = target
        self._size = size
        name = target.name[:80]
        self._part = target.with_name(f".{name}.{hashlib.sha256(content.encode()).hexdigest()[:16]}.part")
        self._ours = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{16}}\.part")
        self._digest = hashlib.sha256()
        self._file: BufferedRandom | None = None
        self.have = 0
        """Bytes that are here."""

    def __enter__(self) -> Self:
        with in_words(self._target):
            self._target.parent.mkdir(parents=True, exist_ok=True)
            if self._target.is_dir():
                raise IsADirectoryError(21, "there is a directory of this name")
            for other in self._target.parent.iterdir():
                if self._ours.fullmatch(other.name) and other != self._part:
                    other.unlink(missing_ok=True)
            self._file = os.fdopen(os.open(self._part, _FLAGS, 0o666), "r+b")
            if self._file.seek(0, os.SEEK_END) > self._size:
                self._file.truncate(0)
            self._file.seek(0)
            while chunk := self._file.read(_CHUNK):
                self._digest.update(chunk)
                self.have += len(chunk)
        return self

    def append(self, data: bytes) -> None:
        assert self._file is not None
        with in_words(self._target):
            self._file.write(data)
            self._file.flush()
        self._digest.update(data)
        self.have += len(data)

    def finish(self, sha256: str | None = None) -> str:
        """Give it its name; its digest. Raises ShoalError where it is another than it should be, and forgets what is
        here."""
        assert self._file is not None
        with in_words(self._target):
            found = self._digest.hexdigest()
            if sha256 not in (None, found):
                self._part.unlink(missing_ok=True)
                raise ShoalError(
                    "the file is not what it should be", where=str(self._target),
                    hint="what was here of it is removed: try again",
                )  # fmt: skip
            os.fsync(self._file.fileno())
            self._part.replace(self._target)
        return found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
