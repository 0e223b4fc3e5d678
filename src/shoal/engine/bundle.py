"""Archives of working files: what one would unpack to, and unpacking it, both within limits."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from shoal.core import Invalid

MAX_MEMBERS = 100_000
MAX_RATIO = 200
"""Unpacked to packed. Source code is at 3 to 10, and the best that gzip can do with nothing but zeros is 1,030."""
_SMALL_BYTES = 16 << 20
"""What unpacks to less may have any ratio: a few files of zeros are no attack."""
_BLOCK = 512
_HINT = "give a tar archive (plain, gzip, bzip2 or xz) whose members stay inside their directory"
_MAGIC: tuple[tuple[bytes, Callable[[IO[bytes]], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
)
_BROKEN = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, KeyError, ValueError)
"""What reading a broken archive may raise."""


@dataclass(frozen=True, slots=True)
class Contents:
    members: int
    unpacked_bytes: int


def inspect(path: Path, *, limit_bytes: int) -> Contents:
    """Read the whole archive as unpacking would. Raises Invalid for one that is broken, would leave its directory,
    holds nothing, or unpacks to too much; OSError when it cannot be read. Blocks."""
    contents = Contents(0, 0)
    try:
        with path.open("rb") as file, _open(file, limit_bytes) as archive:
            for member, so_far in _members(archive, path.stat().st_size, limit_bytes):
                tarfile.data_filter(member, "/nowhere")
                contents = so_far
    except (*_BROKEN, OSError) as problem:
        raise _broken(problem) from problem
    if not contents.members:
        raise Invalid("the archive is empty", where="files", hint=_HINT)
    return contents


def unpack(
    path: Path, run_dir: Path, *, limit_bytes: int, acting: Callable[[], AbstractContextManager[None]] = nullcontext
) -> None:
    """Unpack the archive below `run_dir`. Raises as `inspect`. Blocks.

    The `data` filter refuses links and names that leave the directory and devices, and takes away special modes and
    leading slashes. `acting` is entered once the archive is open, and what is written is written within.
    """
    try:
        with path.open("rb") as file, acting(), _open(file, limit_bytes) as archive:
            members = _members(archive, os.fstat(file.fileno()).st_size, limit_bytes)
            archive.extractall(run_dir, members=(member for member, _ in members), filter="data")
    except (*_BROKEN, OSError) as problem:
        raise _broken(problem) from problem


def _open(file: IO[bytes], limit_bytes: int) -> tarfile.TarFile:
    magic = file.read(6)
    file.seek(0)
    unpacked: Any = next((opened(file) for start, opened in _MAGIC if magic.startswith(start)), file)
    # The headers of all members come on top of what they hold.
    return tarfile.open(fileobj=_Bounded(unpacked, limit_bytes + MAX_MEMBERS * 4 * _BLOCK), mode="r:")  # type: ignore[call-overload, no-any-return]


def _members(archive: tarfile.TarFile, packed: int, limit_bytes: int) -> Iterator[tuple[tarfile.TarInfo, Contents]]:
    """Each member, once everything up to it is within the limits: what comes next was not even read."""
    unpacked = 0
    for members, member in enumerate(archive, start=1):
        unpacked += member.size + _BLOCK
        if members > MAX_MEMBERS:
            raise _too_much(f"it has more than {MAX_MEMBERS} members")
        if unpacked > limit_bytes:
            raise _too_much(f"it unpacks to more than {limit_bytes / (1 << 20):.0f} MiB")
        if unpacked > max(_SMALL_BYTES, MAX_RATIO * packed):
            raise _too_much(f"it unpacks to more than {MAX_RATIO} times its size")
        yield member, Contents(members, unpacked)


def _too_much(why: str) -> Invalid:
    hint = "leave data out of `files` and name it under `inputs`"
    return Invalid(f"the archive is refused: {why}", where="files", hint=hint)


def _broken(problem: BaseException) -> BaseException:
    if isinstance(problem, OSError) and problem.errno is not None and not isinstance(problem, gzip.BadGzipFile):
        return problem  # of the disk; bzip2 tells of bad data by one without a number
    return Invalid(f"the archive cannot be unpacked: {_fault(problem)}", where="files", hint=_HINT)


def _fault(problem: BaseException) -> str:
    if isinstance(problem, tarfile.FilterError):
        return f"its member {problem.tarinfo.name!r} is a device, or is or points to something outside the directory"
    return str(problem) if isinstance(problem, _Claims) else "it is no tar archive, or it is cut or damaged"


class _Claims(tarfile.ReadError):
    """The archive says of itself what cannot be."""


class _Bounded:
    """The archive's bytes, up to a limit: a header may claim any length, and reading it would take the memory."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file = file
        self._limit = limit

    def read(self, size: int = -1) -> bytes:
        if size < 0 or self._file.tell() + size > self._limit:
            raise _Claims("a header claims more than the archive may hold")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        if offset > self._limit:
            raise _Claims("a member claims more than the archive may hold")
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()
