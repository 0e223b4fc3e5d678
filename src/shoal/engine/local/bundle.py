"""Unpacking a job's working files."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from shoal.core import Fault, Invalid
from shoal.engine import bundle
from shoal.engine.protocol import LaunchFailed

_OUR_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
_UNLIMITED = 1 << 62


def unpack(
    path: Path, run_dir: Path, *, limit_bytes: int, acting: Callable[[], AbstractContextManager[None]] = nullcontext
) -> None:
    """Unpack the archive; blocks. `limit_bytes` 0: no limit. Raises LaunchFailed: the user's fault for a bad archive,
    ours for a bad disk. `acting` as for `shoal.engine.bundle.unpack`."""
    try:
        path.open("rb").close()
    except OSError as problem:
        what = f"the bundle cannot be read: {problem.strerror}"
        raise LaunchFailed(what, fault=Fault.PLATFORM, where=str(path)) from problem
    try:
        bundle.unpack(path, run_dir, limit_bytes=limit_bytes or _UNLIMITED, acting=acting)
    except Invalid as problem:
        raise LaunchFailed(
            problem.what, fault=Fault.USER, where=f"bundle {path.name[:12]}", hint=problem.hint
        ) from problem
    except OSError as problem:
        ours = problem.errno in _OUR_ERRORS
        raise LaunchFailed(
            f"the bundle cannot be unpacked: {problem.strerror or problem}",
            fault=Fault.PLATFORM if ours else Fault.USER,
            where=str(run_dir) if ours else f"bundle {path.name[:12]}",
            hint="free space there" if ours else None,
        ) from problem
