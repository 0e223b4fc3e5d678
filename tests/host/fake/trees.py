"""Directories and files in memory. A file is a function that reads and one that writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field


def refuse(code: int, path: str = "") -> OSError:
    return OSError(code, os.strerror(code), path)


@dataclass
class File:
    read: Callable[[], str]
    write: Callable[[str], None] | None = None


def constant(text: str) -> File:
    return File(lambda: text)


@dataclass
class Directory:
    """`make` and `remove` decide on subdirectories; without them the kernel makes none there."""

    files: dict[str, File] = field(default_factory=dict)
    directories: dict[str, Directory] = field(default_factory=dict)
    make: Callable[[str], Directory] | None = None
    remove: Callable[[str], None] | None = None

    def child(self, name: str) -> Directory | None:
        return self.directories.get(name)

    def names(self) -> set[str]:
        return {*self.files, *self.directories}


class Tree:
    """Everything below `/`."""

    def __init__(self) -> None:
        self.root = Directory()

    def directory(self, path: str) -> Directory:
        """Made on the way, as nothing in particular."""
        here = self.root
        for name in path.strip("/").split("/"):
            known = here.child(name)
            if known is None:
                known = here.directories[name] = Directory()
            here = known
        return here

    def put(self, path: str, text: str) -> None:
        parent, _, name = path.rpartition("/")
        self.directory(parent).files[name] = constant(text)

    def find(self, path: str) -> Directory | File:
        here = self.root
        names = [name for name in path.split("/") if name]
        for at, name in enumerate(names):
            below = here.child(name)
            if below is not None:
                here = below
            elif at == len(names) - 1 and name in here.files:
                return here.files[name]
            else:
                raise refuse(errno.ENOENT, path)
        return here

    def read(self, path: str) -> str:
        found = self.find(path)
        if isinstance(found, Directory):
            raise refuse(errno.EISDIR, path)
        return found.read()

    def write(self, path: str, text: str) -> None:
        found = self.find(path)
        if isinstance(found, Directory):
            raise refuse(errno.EISDIR, path)
        if found.write is None:
            raise refuse(errno.EACCES, path)
        if text:  # a write of nothing does not reach the kernel
            found.write(text)

    def names(self, path: str) -> tuple[str, ...]:
        found = self.find(path)
        if isinstance(found, File):
            raise refuse(errno.ENOTDIR, path)
        return tuple(sorted(found.names()))

    def exists(self, path: str) -> bool:
        try:
            self.find(path)
        except OSError:
            return False
        return True

    def mkdir(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        found = self.find(parent)
        if isinstance(found, File):
            raise refuse(errno.ENOTDIR, path)
        if name in found.names():
            raise refuse(errno.EEXIST, path)
        if found.make is None:
            raise refuse(errno.EPERM, path)
        found.directories[name] = found.make(name)

    def rmdir(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        found = self.find(parent)
        if isinstance(found, File) or name not in found.directories:
            raise refuse(errno.ENOENT, path)
        if found.remove is None:
            raise refuse(errno.EPERM, path)
        found.remove(name)
        del found.directories[name]
