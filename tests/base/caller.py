"""`caller.py FOLDER SERVER CLIENT` prints whom a server sees call; each is in new namespaces (flags of `unshare`)."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from shoal.base.http.peers import local_user
from shoal.base.listening import listen_locally

_PR_SET_DUMPABLE = 4


def seen(folder: Path, server: int, client: int, uid: int = 4711) -> int:
    """Whom a server sees that a user of this number calls. Each is in a user namespace of its own first, where it says
    so (`unshare` flags)."""
    path = folder / "s"
    with listen_locally(path, 0o666) as listener, tempfile.TemporaryFile() as told:

        def call() -> None:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            _unshare(client, f"0 {uid} 1")
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(str(path))

        def see() -> None:
            _unshare(server, "0 0 1")
            accepted, _ = listener.accept()
            os.write(told.fileno(), str(local_user(accepted)).encode())

        listener.settimeout(30)
        for act in (call, see):
            _, status = os.waitpid(_forked(act), 0)
            assert status == 0, act
        told.seek(0)
        return int(told.read())


def _forked(act: Callable[[], None]) -> int:
    """The connection waits in the backlog: one after the other."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return pid


def _unshare(flag: int, mapped: str) -> None:
    if not flag:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # whoever was root before has its /proc files root's
    if libc.unshare(flag) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(mapped)


if __name__ == "__main__":
    print(seen(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
