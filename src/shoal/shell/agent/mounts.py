"""Recognition of the mount that shows a site's folder here."""

from __future__ import annotations

from pathlib import Path

_CAREFUL = frozenset({"fuse.sshfs", "fuse.nfs"})
"""Mounts by FUSE that write what a program writes, and nothing else. rclone sends a file whole when it is closed, so an
empty one over what a command has written over there."""


def leaves_alone(folder: str, mountinfo: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether a file that is open for writing here, and not written, may be written over there."""
    best, kind = "", ""
    try:
        lines = mountinfo.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode("latin-1", "replace").decode("unicode_escape", "replace")
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return not kind.startswith("fuse") or kind in _CAREFUL
