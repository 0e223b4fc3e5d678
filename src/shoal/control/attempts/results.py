"""Results of jobs: the files of their run directories, and those that a manifest's outputs have the server keep.

The owner of the directories may change them while they are read: they are walked by descriptors, and no link is
followed. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from shoal.base import beneath
from shoal.contract.records import JobRecord
from shoal.control.attempts.phases import Layout
from shoal.core import Conflict, Invalid, NotFound

_DEEPEST = 64
"""Levels of directories that are listed and kept."""
_MOST = 50_000
"""Files of one listing: more would hold a thread for seconds."""


class FileKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """`kept`: it is an artifact, which outlives the run directory."""

    path: str
    kind: FileKind
    size_bytes: int
    modified_at: float
    kept: bool


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Bytes of a file from an offset; `version` differs once the file is another or has changed."""

    data: bytes
    size_bytes: int
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Root:
    """A directory of a job, by its names below the home."""

    parts: tuple[str, ...]
    kept: bool


class NotKept(Exception):
    """An output cannot be kept; the text says which and why."""


class Results:
    def __init__(self, layout: Layout) -> None:
        self._home = layout.home
        self._layout = layout

    def entries(
        self, job: JobRecord, path: str = "", *, attempt: int | None = None, recursive: bool = False,
        after: str | None = None, limit: int = 1000,
    ) -> tuple[list[FileEntry], str | None]:  # fmt: skip
        """What lies at a path, in the order of the paths, and behind which path a listing goes on. A kept file takes
        the place of that of the run directory. Raises NotFound, and Invalid for a path that leads out or has too much
        below it."""
        parts = _parts(path)
        roots = self._roots(job, attempt)
        if any(self._is_directory(root, parts) for root in roots):
            found = self._below_path(roots, parts, recursive=recursive)
        else:
            found = [entry for entry in self._merged(roots, parts[:-1]) if parts and entry.path == "/".join(parts)]
            if not found:
                raise _absent(job, path)
        begin = _parts(after) if after else ()
        rest = [entry for entry in found if _order(entry) > begin]
        return rest[:limit], rest[limit - 1].path if len(rest) > limit else None

    def _below_path(self, roots: list[Root], parts: tuple[str, ...], *, recursive: bool) -> list[FileEntry]:
        found: list[FileEntry] = []
        todo = [parts]
        while todo:
            entries = self._merged(roots, todo.pop())
            found += entries
            if len(found) > _MOST:
                raise Invalid(f"there are more than {_MOST} files below this path", where="path",
                              hint="name a directory in it, or have the job pack its files into one")  # fmt: skip
            if recursive:
                inner = [_order(entry) for entry in entries if entry.kind is FileKind.DIRECTORY]
                todo += [where for where in inner if len(where) < len(parts) + _DEEPEST]
        return sorted(found, key=_order)

    def _merged(self, roots: list[Root], at: tuple[str, ...]) -> list[FileEntry]:
        entries: dict[str, FileEntry] = {}
        for root in reversed(roots):
            with contextlib.suppress(OSError), beneath.directory(self._home, (*root.parts, *at)) as folder:
                entries |= {one.path: one for one in _listed(folder, at, kept=root.kept)}
        return list(entries.values())

    def _is_directory(self, root: Root, parts: tuple[str, ...]) -> bool:
        try:
            with beneath.directory(self._home, (*root.parts, *parts)):
                return True
        except OSError:
            return False

    def read(
        self, job: JobRecord, path: str, *, attempt: int | None = None, offset: int = 0, limit: int = 1 << 20,
        version: str | None = None,
    ) -> FilePiece:  # fmt: skip
        """Bytes of a regular file. Raises NotFound, Invalid for what is no regular file, and Conflict where the file is
        no longer of the `version` that was begun with."""
        parts = _parts(path)
        for root in self._roots(job, attempt):
            try:
                with beneath.regular_file(self._home, (*root.parts, *parts)) as file:
                    # What is kept was looked at when it was, and belongs to the job's user as well as to the server.
                    owner = None if root.kept else self._owner(root.parts)
                    return _piece(file, owner, path, offset, limit, version)
            except FileNotFoundError:
                continue
            except ValueError as problem:
                raise Invalid(f"{path!r} cannot be read: {problem}", where="path") from None
            except OSError as problem:
                raise NotFound(f"{path!r} cannot be read: {problem.strerror}", where="path") from None
        raise _absent(job, path)

    def _owner(self, root: tuple[str, ...]) -> int:
        with beneath.directory(self._home, root) as folder:
            return os.fstat(folder).st_uid

    def _roots(self, job: JobRecord, attempt: int | None) -> list[Root]:
        """Where its files are; the first that has one is meant."""
        number = job.attempt if attempt is None else attempt
        if not 0 <= number <= job.attempt:
            raise NotFound(f"job {job.id} has no attempt {number}", where="attempt", hint=f"the last is {job.attempt}")
        kept = [Root(self._below(self._layout.artifacts_dir(job.id)), kept=True)] if attempt is None else []
        return [*kept, Root(self._below(self._layout.run_dir(job.id, number)), kept=False)]

    def _below(self, path: Path) -> tuple[str, ...]:
        return path.relative_to(self._home).parts

    # --- keeping ---

    def keep(self, job_id: str, attempt: int, outputs: list[str]) -> None:
        """Keep these paths of an attempt's run directory as the job's artifacts. May be repeated. Raises NotKept."""
        source = self._below(self._layout.run_dir(job_id, attempt))
        target = self._below(self._layout.artifacts_dir(job_id))
        for output in outputs:
            try:
                self._keep(source, target, _parts(output))
            except OSError as problem:
                raise NotKept(f"{output}: {problem.strerror or problem}") from None

    def _keep(self, source: tuple[str, ...], target: tuple[str, ...], parts: tuple[str, ...]) -> None:
        if parts and self._keep_file(source, target, parts):
            return
        owner = self._owner(source)
        todo = [parts]
        while todo:
            at = todo.pop()
            with (
                beneath.directory(self._home, (*source, *at)) as old,
                beneath.directory(self._home, (*target, *at), make=True) as new,
            ):
                for entry in _listed(old, at, kept=False):
                    name = entry.path.rpartition("/")[2]
                    if entry.kind is FileKind.DIRECTORY and len(at) < _DEEPEST:
                        todo.append((*at, name))
                    elif entry.kind is FileKind.FILE and _is_own(os.lstat(name, dir_fd=old), owner):
                        beneath.keep_file(old, name, new, name)

    def _keep_file(self, source: tuple[str, ...], target: tuple[str, ...], parts: tuple[str, ...]) -> bool:
        """Keep one file; False for a directory."""
        *above, name = parts
        with beneath.directory(self._home, (*source, *above)) as old:
            found = os.lstat(name, dir_fd=old)
            if stat.S_ISDIR(found.st_mode):
                return False
            if not stat.S_ISREG(found.st_mode) or not _is_own(found, self._owner(source)):
                raise OSError(0, "it is no regular file of the job, and links are not kept")
            with beneath.directory(self._home, (*target, *above), make=True) as new:
                beneath.keep_file(old, name, new, name)
        return True


def _order(entry: FileEntry) -> tuple[str, ...]:
    return tuple(entry.path.split("/"))


def _parts(path: str) -> tuple[str, ...]:
    try:
        return beneath.parts_of(path)
    except ValueError:
        raise Invalid(f"{path!r} leads out of the job's directory", where="path", hint="name a path in it") from None


def _absent(job: JobRecord, path: str) -> NotFound:
    what = f"job {job.id} has no file {path!r}" if path else f"job {job.id} has no files"
    return NotFound(what, where="path", hint=f"`shoal ls {job.id}`; run directories are removed after a while")


def _listed(folder: int, at: tuple[str, ...], *, kept: bool) -> Iterator[FileEntry]:
    with os.scandir(folder) as found:
        names = [one.name for one in found]
    for name in names:
        try:
            name.encode()
            stats = os.lstat(name, dir_fd=folder)
        except (OSError, UnicodeEncodeError):  # gone, or a name that no answer can hold
            continue
        mode = stats.st_mode
        kind = (
            FileKind.FILE if stat.S_ISREG(mode)
            else FileKind.DIRECTORY if stat.S_ISDIR(mode)
            else FileKind.LINK if stat.S_ISLNK(mode)
            else FileKind.OTHER
        )  # fmt: skip
        size = stats.st_size if kind is FileKind.FILE else 0
        yield FileEntry("/".join((*at, name)), kind, size, stats.st_mtime, kept)


def _is_own(found: os.stat_result, owner: int) -> bool:
    """Whether a file is the job's: one of several names may be that of another user's file."""
    return found.st_nlink == 1 or found.st_uid == owner


def _piece(file: int, owner: int | None, path: str, offset: int, limit: int, version: str | None) -> FilePiece:
    found = os.fstat(file)
    if owner is not None and not _is_own(found, owner):
        raise ValueError("it is another name of a file that is not the job's")
    now = f"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"
    if version is not None and version != now:
        raise Conflict(f"{path!r} has changed since its first part was read", where="path", hint="begin it again")
    data = os.pread(file, limit, offset)
    return FilePiece(data, found.st_size, now, hashlib.sha256(data).hexdigest())
