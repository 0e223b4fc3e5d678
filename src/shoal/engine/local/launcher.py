"""Starting supervisors."""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
import sys
from collections.abc import Mapping
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

from shoal.base.files import write_whole
from shoal.base.processes import Process, start_ticks
from shoal.engine.local import supervisor

_PYTHON = os.path.realpath(sys.executable)
"""The interpreter itself: one from a virtual environment first looks for that, 5 ms of every start."""


class Launcher:
    """Starts supervisors as processes of their own session, from a compiled copy in the home: compiling the script
    would double the time each takes to start."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._script = Path(supervisor.__file__)

    def open(self) -> None:
        compiled = self._home / "supervisor.pyc"
        code = supervisor.__spec__.loader.get_code(supervisor.__name__)  # type: ignore[union-attr]
        content = MAGIC_NUMBER + bytes(12) + marshal.dumps(code)  # after the header of a source without a date
        with contextlib.suppress(OSError):  # a full disk: the source does as well, only slower
            if not compiled.exists() or compiled.read_bytes() != content:
                write_whole(compiled, content, mode=0o644, durable=False)
            self._script = compiled

    def start(self, spec: Mapping[str, Any], env: Mapping[str, str]) -> Process:
        """Start one; raises OSError. The spec is in memory only, and complete before the supervisor begins to read."""
        stdin = os.memfd_create("shoal-spec", os.MFD_CLOEXEC)
        try:
            with open(stdin, "wb", closefd=False) as file:
                marshal.dump(dict(spec), file)
            os.lseek(stdin, 0, os.SEEK_SET)
            append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            pid = os.posix_spawn(
                _PYTHON,
                [_PYTHON, "-I", "-S", str(self._script)],
                env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, stdin, 0),
                    (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, str(self._home / "supervisor.log"), append, 0o600),
                ],
                setsid=True,
                setsigmask=supervisor.WAKERS,  # blocked from its first moment: an early wake must not kill it
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )
        finally:
            os.close(stdin)
        return Process(pid, start_ticks(pid) or 0)


def free_port(taken: frozenset[int]) -> int:
    """A TCP port of the loopback that was free just now and is in none of our gangs' hands."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port
