"""Calls of commands as a shell made them: all words expanded, redirections open. Told by `shoal-stage`."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Open(StrEnum):
    """What a descriptor is. OUTER is a pipe that the session was started with, so no neighbour's."""

    PIPE = "pipe"
    OUTER = "outer"
    FILE = "file"
    NULL = "null"
    TERMINAL = "terminal"
    OTHER = "other"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """`shared`: its reader or writer is not this command alone, so that what is read ahead would be missing
    elsewhere."""

    kind: Open
    inode: int = 0
    shared: bool = False
    path: str = ""
    flags: int = 0
    offset: int = 0

    @property
    def joint(self) -> int:
        """The inode of the pipe that joins it with a neighbour; 0 where there is none."""
        return self.inode if self.kind is Open.PIPE and not self.shared else 0


@dataclass(frozen=True, slots=True)
class Call:
    """One command about to start."""

    run: str
    path: str
    cwd: str
    pid: int
    parent: int
    umask: int
    one_output: bool
    ignores_pipe: bool
    limited: bool
    stdin: Descriptor
    stdout: Descriptor
    stderr: Descriptor
    argv: tuple[str, ...]
    environ: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def read_call(data: bytes) -> Call:
    """Raises ValueError for what is no call."""
    try:
        reader = _Reader(data)
        run, path, cwd, numbers = (reader.text() for _ in range(4))
        pid, parent, umask, one_output, ignores, limited = (int(one) for one in numbers.split())
        stdin, stdout, stderr = (_descriptor(reader.text()) for _ in range(3))
        argv, environ = reader.list(), reader.list()
    except (struct.error, IndexError) as error:
        raise ValueError("this is no call") from error
    pairs = dict(one.partition("=")[::2] for one in environ)
    return Call(run.partition(":")[0], path, cwd, pid, parent, umask, bool(one_output), bool(ignores), bool(limited),
                stdin, stdout, stderr, tuple(argv), pairs)  # fmt: skip


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self) -> int:
        (value,) = struct.unpack_from("=I", self._data, self._at)
        self._at += 4
        return int(value)

    def text(self) -> str:
        size = self.number()
        if self._at + size > len(self._data):
            raise ValueError("this is no call")
        self._at += size
        return self._data[self._at - size : self._at].decode("utf-8", "surrogateescape")

    def list(self) -> Sequence[str]:
        return [self.text() for _ in range(self.number())]


def _descriptor(text: str) -> Descriptor:
    kind, *rest = text.split(" ", 5)
    if kind in (Open.PIPE, Open.OUTER):
        return Descriptor(Open(kind), inode=int(rest[0]), shared=rest[1] != "0")
    if kind == Open.FILE:
        flags, shared, offset, identity, path = rest
        return Descriptor(Open.FILE, int(identity.partition(":")[2]), shared != "0", path, int(flags), int(offset))
    return Descriptor(Open(kind))
