"""Finds and copies files below a directory whose owner may change them at any time. Everything here blocks.

Each name is opened relative to the directory before it. No link is followed, and no pipe is waited for.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from shoal.base import beneath
from shoal.results.keeping.names import Parts, Wanted

MOST_LOOKED_AT = 200_000
"""Entries of directories that one pattern may make the server look at."""
_DEEPEST = 64
_CHUNK = 1 << 20
_TRIES = 3
_FRESH_S = 0.02
"""Clocks of file systems are that coarse: a change within it may leave no trace."""


class NotTaken(Exception):
    """A file is not kept; the text says why."""


class Stopped(Exception):
    """The server leaves: it is taken again by the next one."""


@dataclass(frozen=True, slots=True)
class Found:
    parts: Parts
    bytes: int


@dataclass(frozen=True, slots=True)
class Content:
    digest: str
    """SHA-256 in hexadecimal digits."""
    bytes: int


@dataclass(frozen=True, slots=True)
class Tree:
    """A directory of a job below the server's home."""

    home: Path
    parts: Parts

    def owner(self) -> int:
        with beneath.directory(self.home, self.parts) as folder:
            return os.fstat(folder).st_uid


def find(tree: Tree, wanted: Wanted) -> Iterator[Found]:
    """The regular files that are meant, in the order of their paths. Raises NotTaken where there is none or too much
    to look at."""
    try:
        owner = tree.owner()
        first = wanted.fixed
        if not wanted.pattern and first:
            with beneath.directory(tree.home, (*tree.parts, *first[:-1])) as folder:
                found = os.lstat(first[-1], dir_fd=folder)
            if not stat.S_ISDIR(found.st_mode):
                _must_be_own(found, owner)
                yield Found(first, found.st_size)
                return
    except FileNotFoundError:
        raise NotTaken("there is no such file") from None
    except OSError as problem:
        raise NotTaken(_said(problem)) from None
    some = False
    for parts, found in _walk(tree, first):
        if wanted.covers(parts) and stat.S_ISREG(found.st_mode) and _is_own(found, owner):
            some = True
            yield Found(parts, found.st_size)
    if not some:
        raise NotTaken("there is no such file")


def _walk(tree: Tree, first: Parts) -> Iterator[tuple[Parts, os.stat_result]]:
    todo, seen = [first], 0
    while todo:
        at = todo.pop()
        try:
            with beneath.directory(tree.home, (*tree.parts, *at)) as folder:
                entries = []
                with os.scandir(folder) as listed:
                    for one in listed:
                        seen += 1
                        if seen > MOST_LOOKED_AT:
                            raise NotTaken(f"there are more than {MOST_LOOKED_AT} files to look at")
                        if one.name.isprintable():
                            entries.append((one.name, one.stat(follow_symlinks=False)))
        except FileNotFoundError:
            continue
        except OSError as problem:
            if at == first:
                raise NotTaken(_said(problem)) from None
            continue
        below = []
        for name, found in sorted(entries):
            if stat.S_ISDIR(found.st_mode):
                if len(at) - len(first) < _DEEPEST:
                    below.append((*at, name))
            else:
                yield (*at, name), found
        todo += reversed(below)


def content_of(tree: Tree, parts: Parts, *, most: int, stop: Callable[[], bool]) -> Content:
    """Its content, read and not copied. Raises NotTaken and Stopped."""
    return _steady(tree, parts, None, most, stop)


def copy(tree: Tree, parts: Parts, to: Path, *, most: int, stop: Callable[[], bool]) -> Content:
    """Copy a file to a new one, which is on disk when this returns, as it was at one time. Raises NotTaken for one of
    more than `most` bytes, before it is read, and for one that does not rest; Stopped; and OSError for what is wrong
    with `to`."""
    try:
        return _steady(tree, parts, to, most, stop)
    except BaseException:
        to.unlink(missing_ok=True)
        raise


def _steady(tree: Tree, parts: Parts, to: Path | None, most: int, stop: Callable[[], bool]) -> Content:
    for _ in range(_TRIES):
        with ExitStack() as opened:
            try:
                owner = tree.owner()
                file = opened.enter_context(beneath.regular_file(tree.home, (*tree.parts, *parts)))
            except FileNotFoundError:
                raise NotTaken("there is no such file") from None
            except ValueError as problem:
                raise NotTaken(str(problem)) from None
            except OSError as problem:
                raise NotTaken(_said(problem)) from None
            _must_be_own(os.fstat(file), owner)
            before = _rested(file)
            if before[2] > most:
                raise NotTaken(f"it has {before[2]} bytes, and there is room for {max(0, most)}")
            content = _read(file, before[2], to, stop)
            if _state(os.fstat(file)) == before and content.bytes == before[2]:
                return content
    raise NotTaken("it changes while it is read; keep a file that is complete")


def _rested(file: int) -> tuple[int, ...]:
    """What the file is like, once its last change is long enough ago that another one would be seen."""
    found = os.fstat(file)
    newest = max(found.st_mtime, found.st_ctime)
    if 0 <= time.time() - newest < _FRESH_S:
        time.sleep(_FRESH_S)
        found = os.fstat(file)
    return _state(found)


def _state(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _read(file: int, size: int, to: Path | None, stop: Callable[[], bool]) -> Content:
    digest, at = hashlib.sha256(), 0
    target = -1 if to is None else os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while at < size:
            if stop():
                raise Stopped
            try:
                data = os.pread(file, min(_CHUNK, size - at), at)
            except OSError as problem:
                raise NotTaken(_said(problem)) from None
            if not data:
                break
            digest.update(data)
            if target >= 0:
                _write(target, data)
            at += len(data)
        if target >= 0:
            os.fsync(target)
    finally:
        if target >= 0:
            os.close(target)
    return Content(digest.hexdigest(), at)


def _write(target: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(target, rest) :]


def _is_own(found: os.stat_result, owner: int) -> bool:
    """Whether a file is the job's: one of several names may be that of another user's file."""
    return found.st_nlink == 1 or found.st_uid == owner


def _must_be_own(found: os.stat_result, owner: int) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise NotTaken("it is a link, and links are not followed")
    if not stat.S_ISREG(found.st_mode):
        raise NotTaken("it is no regular file")
    if not _is_own(found, owner):
        raise NotTaken("it is another name of a file that is not the job's")


def _said(problem: OSError) -> str:
    if problem.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a link or a file stands where a directory should, and links are not followed"
    return problem.strerror or str(problem)
