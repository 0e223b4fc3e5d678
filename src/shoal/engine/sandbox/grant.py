"""Giving a tenant's user the directories of its job, and acting with that user's rights and no more.

A tenant's processes may write there before, while and after the server does. So the server follows no link in them: it
opens a directory by its own path, whose parents are the server's, and goes on from the descriptor.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from shoal.base import trees

_SETGROUPS = {"x86_64": 116, "aarch64": 159}
"""The system call itself acts on one thread; the C library's function on all of them."""


def grant_tree(path: Path, uid: int, gid: int | None = None) -> None:
    """Make the directory if it is missing and give it, with all that is in it, to the user alone. Raises OSError, also
    where the path is a link."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path.name, 0o700, dir_fd=parent)
        fd = trees.open_beneath(parent, path.name)
    finally:
        os.close(parent)
    try:
        trees.grant(fd, uid, uid if gid is None else gid)
    finally:
        os.close(fd)


def open_to(path: Path, gid: int) -> None:
    """Let who is in this group make files in a directory that stays the server's: they can neither remove nor replace
    the server's own files there, nor see other tenants'. New files belong to the group."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(fd, 0, gid)
        os.fchmod(fd, 0o3770)
    finally:
        os.close(fd)


@contextlib.contextmanager
def acting_as(uid: int, gid: int | None = None) -> Iterator[None]:
    """In this thread, files are reached with the user's rights. Only for a thread that ends afterwards: it has lost its
    supplementary groups. Raises OSError where that cannot be had."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = _SETGROUPS.get(platform.machine())
    if number is None or libc.syscall(number, 0, None) != 0:
        raise OSError(ctypes.get_errno(), "the thread's supplementary groups cannot be dropped")
    try:
        libc.setfsgid(uid if gid is None else gid)
        libc.setfsuid(uid)
        if libc.setfsuid(-1) != uid:  # it tells the present one and changes nothing
            raise PermissionError("the thread cannot act as the tenant's user")
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())
