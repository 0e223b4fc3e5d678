"""Drops what a mount has in its cache of files that were changed on the other side."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping


def refresh(changed: Mapping[str, int | None]) -> None:
    """`changed` has the modes of paths over there, None for those that are gone. A change of the mode to what it is
    makes sshfs, rclone and NFS ask anew: sshfs keeps attributes and names for 20 s otherwise. Blocks."""
    folders = {path.rpartition("/")[0] or "/" for path in changed}
    for path, mode in changed.items():
        if mode is not None:
            with contextlib.suppress(OSError):
                os.chmod(path, stat.S_IMODE(mode))  # noqa: PTH101 - names may be no UTF-8
    for folder in folders - set(changed):
        with contextlib.suppress(OSError):
            os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode))  # noqa: PTH101, PTH116
