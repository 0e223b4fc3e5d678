"""Files that are not, or not wholly, on the fast disk."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from shoal.cache.door.node import Node, outcome
from shoal.cache.sources import Changed, Source, Version
from shoal.cache.store.links import META
from shoal.core import Conflict, ShoalError

BUFFER = 256 * 1024
_UNKNOWN = 1 << 62


class SourceFile(io.RawIOBase):
    """An object read from its source: one request as long as it is read in order. It is of one version, or an error;
    where the source tells no version (None), it is read once from its beginning."""

    def __init__(self, source: Source, version: Version | None, node: Node) -> None:
        self._source = source
        self._version = version
        self._size = _UNKNOWN if version is None else version.size
        self._node = node
        self._position = 0
        self._parts: Iterator[bytes] | None = None
        self._rest = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._version is not None

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if self._version is None:
            raise io.UnsupportedOperation("the source tells no version of this object")
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._version.size}[whence]
        if base + offset < 0:
            raise ValueError("a position before the beginning")
        if base + offset != self._position:
            self._position, self._parts, self._rest = base + offset, None, b""
        return self._position

    def readinto(self, buffer: Any) -> int:
        if self._position >= self._size:
            return 0
        try:
            with self._node.waiting():
                return self._take(buffer)
        except (Changed, Conflict) as error:
            raise OSError(f"{error}: open it again") from error
        except ShoalError as error:
            raise OSError(str(error)) from error

    def _take(self, buffer: Any) -> int:
        if not self._rest:
            if self._parts is None:
                left = self._size - self._position
                self._parts = self._source.read(self._position, left, self._version)
            self._rest = next(self._parts, b"")
            if not self._rest:
                if self._version is None:
                    return 0
                raise Conflict(f"{self._source.url} ended after {self._position} of {self._size} bytes")
        count = min(len(buffer), len(self._rest), self._size - self._position)
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self._position += count
        self._node.came_through(self._source.url, count)
        return count

    def close(self) -> None:
        closer = getattr(self._parts, "close", None)
        self._parts = None
        if closer is not None:
            closer()
        super().close()


class ChunkedFile(io.RawIOBase):
    """A large object: each chunk from the fast disk where it is there, else from the source, all of one version."""

    def __init__(
        self, node: Node, key: str, url: str, options: Mapping[str, Any], source: Source, told: Mapping[str, Any],
        chunk_bytes: int,
    ) -> None:  # fmt: skip
        self._node = node
        self._key = key
        self._ask = {"url": url, "options": dict(options)}
        self._version = Version(str(told["tag"]), int(told["size"]))
        self._source = source
        self._chunk = chunk_bytes
        self._position = 0
        self._folder = -1
        self._open: tuple[int, io.RawIOBase] | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._version.size}[whence]
        if base + offset < 0:
            raise ValueError("a position before the beginning")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        if self._position >= self._version.size:
            return 0
        number, offset = divmod(self._position, self._chunk)
        if self._open is None or self._open[0] != number:
            self._close_chunk()
            self._open = number, self._chunk_file(number)
        file = self._open[1]
        start = offset if isinstance(file, io.FileIO) else self._position
        file.seek(start)
        count = file.readinto(memoryview(buffer)[: min(len(buffer), self._chunk - offset)]) or 0
        self._position += count
        if isinstance(file, io.FileIO):
            self._node.hit_part(self._key, count)
        return count

    def _chunk_file(self, number: int) -> io.RawIOBase:
        found = self._link(number)
        if found is None:
            try:
                with self._node.waiting():
                    told = self._node.ask("chunk", number=number, tag=self._version.tag, **self._ask)
            except ShoalError as error:
                raise OSError(str(error)) from error
            found = self._link(number) if outcome(told) == "held" else None
        if found is not None:
            return found
        return SourceFile(self._source, self._version, self._node)

    def _link(self, number: int) -> io.FileIO | None:
        """The chunk on the fast disk, of our version."""
        if self._folder < 0:
            self._folder = open_folder(f"{self._node.links}/{self._key}.d", self._version)
        if self._folder < 0:
            return None
        try:
            descriptor = os.open(str(number), os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            os.close(self._folder)  # a new folder may have been made meanwhile
            self._folder = -1
            return None
        return io.FileIO(descriptor, "rb", closefd=True)

    def _close_chunk(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def close(self) -> None:
        self._close_chunk()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1
        super().close()


def open_folder(path: str, version: Version | None) -> int:
    """The descriptor of a folder of chunks of this version; -1 where there is none."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1
    found = read_meta(folder)
    if found is not None and (version is None or (found["tag"], found["size"]) == (version.tag, version.size)):
        return folder
    os.close(folder)
    return -1


def read_meta(folder: int) -> Any:
    """Which version the chunks are of; None where that cannot be read."""
    try:
        descriptor = os.open(META, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    with io.FileIO(descriptor, "rb") as file:
        return json.loads(file.readall())
