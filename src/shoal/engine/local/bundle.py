"""Unpacking a job's working files."""

from __future__ import annotations

import errno
import tarfile
import zlib
from lzma import LZMAError
from pathlib import Path

from shoal.core import Fault
from shoal.engine.protocol import LaunchFailed

_OUR_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}


def unpack(bundle: Path, run_dir: Path) -> None:
    """Unpack the archive; blocks. Raises LaunchFailed: the user's fault for a bad archive, ours for a bad disk.

    The `data` filter refuses absolute paths, links and names that leave the directory, devices and special modes.
    """
    try:
        file = bundle.open("rb")
    except OSError as problem:
        what = f"the bundle cannot be read: {problem.strerror}"
        raise LaunchFailed(what, fault=Fault.PLATFORM, where=str(bundle)) from problem
    try:
        with file, tarfile.open(fileobj=file) as archive:
            archive.extractall(run_dir, filter="data")
    except (tarfile.TarError, EOFError, zlib.error, LZMAError, KeyError, OSError) as problem:
        ours = isinstance(problem, OSError) and problem.errno in _OUR_ERRORS
        raise LaunchFailed(
            f"the bundle cannot be unpacked: {_why(problem)}",
            fault=Fault.PLATFORM if ours else Fault.USER,
            where=str(run_dir) if ours else f"bundle {bundle.name[:12]}",
            hint="free space there"
            if ours
            else "give a tar archive (plain, gzip, bzip2 or xz) whose members stay inside their directory",
        ) from problem


def _why(problem: Exception) -> str:
    """In words, and in one line."""
    if isinstance(problem, tarfile.FilterError):
        return f"its member {problem.tarinfo.name!r} is a device, or is or points to something outside the directory"
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    if isinstance(problem, KeyError):
        return "a link in it points to a member that it does not have"
    return "it is no tar archive, or it is cut or damaged"
