"""`squashed.py USER READY`: the user's home becomes a file system that root may not enter, as NFS that squashes root.

It is FUSE's, mounted by that user without `allow_other`, so the kernel lets nobody else in; what is in it lies in a new
directory. Run in a mount namespace of its own. It writes its process id to READY once it is mounted, and serves on.
"""

# ruff: noqa: PTH116, PTH208

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mfusepy


class Mirror(mfusepy.Operations):  # type: ignore[misc]
    """A directory as it is."""

    use_ns = True

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def _at(self, path: str) -> str:
        return self.folder + path

    def getattr(self, path: str, fh: int | None = None) -> dict[str, object]:
        found = os.lstat(self._at(path))
        names = ("st_mode", "st_ino", "st_dev", "st_nlink", "st_uid", "st_gid", "st_size")
        times = {f"st_{one}time": getattr(found, f"st_{one}time_ns") for one in "acm"}
        return {**{name: getattr(found, name) for name in names}, **times}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._at(path))]

    def open(self, path: str, flags: int) -> int:
        return os.open(self._at(path), flags)

    def create(self, path: str, mode: int, fi: object = None) -> int:
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT, mode)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(self._at(path), length)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0


def main() -> None:
    user, ready = pwd.getpwnam(sys.argv[1]), Path(sys.argv[2])
    options = f"uid={user.pw_uid},gid={user.pw_gid},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "home", user.pw_dir], check=True)  # FUSE wants it empty
    before = os.stat(user.pw_dir).st_dev
    folder = tempfile.mkdtemp(prefix="shoal-squashed-")
    os.chown(folder, user.pw_uid, user.pw_gid)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
        os.chdir("/")
        for stream in range(3):  # whoever started this waits for the end of its output
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        mfusepy.FUSE(Mirror(folder), user.pw_dir, foreground=True, nothreads=True)
        os._exit(0)
    for _ in range(1000):
        try:
            if os.stat(user.pw_dir).st_dev == before:
                time.sleep(0.02)
                continue
        except PermissionError:
            break
    ready.write_text(f"{child} {folder}")


if __name__ == "__main__":
    main()
