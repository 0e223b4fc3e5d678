"""Drops what a mount has in its cache of files that were changed on the other side."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

PATIENCE_S = 10.0
"""For each path: a mount that hangs is left as it is. Behind a slow link, or on a crowded machine, all of the paths
that a `git commit` changes may take longer."""


def set_again(path: str, mode: int | None) -> None:
    """A change of the mode to what it is makes sshfs, rclone and NFS ask anew: sshfs keeps attributes and names for
    20 s otherwise. Blocks."""
    with contextlib.suppress(OSError):
        known = os.stat(path).st_mode if mode is None else mode  # noqa: PTH116 - names may be no UTF-8
        os.chmod(path, stat.S_IMODE(known))  # noqa: PTH101


async def refresh(
    changed: Mapping[str, int | None], touch: Callable[[str, int | None], None] = set_again,
    limit: Callable[[float], AbstractAsyncContextManager[Any]] = asyncio.timeout,
) -> None:  # fmt: skip
    """`changed` has the modes of paths over there, None for those that are gone."""
    folders = {path.rpartition("/")[0] or "/" for path in changed} - set(changed)
    present = {path: mode for path, mode in changed.items() if mode is not None}
    with contextlib.suppress(TimeoutError):
        for path, mode in {**present, **dict.fromkeys(sorted(folders))}.items():
            async with limit(PATIENCE_S):
                await asyncio.to_thread(touch, path, mode)
