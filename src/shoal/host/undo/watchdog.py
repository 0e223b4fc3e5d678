"""The watchdog: a small process that takes back a guard's limits when the guard is gone, however it ended.

It holds the read end of a pipe. A guard that lives writes to it at every tick. The pipe's end (the guard is gone,
`kill -9` included), or a silence longer than the lease (it hangs), makes the watchdog play the write-ahead log back and
leave. A guard that wakes up after that finds the pipe broken and knows that its limits are not in force any more.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from shoal.core import LeaseLost, Unavailable
from shoal.host.undo.write_ahead_log import WriteAheadLog, lock_if_free, play_back

LEASE_S = 5.0
_DYING_S = 1.0
"""How long the lock of a guard that is gone may still be held while it is taken apart."""
_START_S = 20.0

_CODE = "import sys; sys.path[:0] = [sys.argv[1]]; from shoal.host.undo.watchdog import main; main(sys.argv[2:])"


class Watchdog:
    """A running watchdog, seen from the guard. Started before the first change; `renew` at every tick. It keeps the
    descriptors `keep` open until it is done: what they lock is free only then."""

    def __init__(self, wal: WriteAheadLog, *, lease_s: float = LEASE_S, keep: Sequence[int] = ()) -> None:
        source = str(Path(__file__).parents[2])
        arguments = [str(wal.path.absolute()), wal.epoch, str(lease_s)]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _CODE, source, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=keep,
                start_new_session=True,  # what ends the guard's session or its group must not end it
                cwd="/",
            )
        except OSError as problem:
            raise Unavailable(f"the watchdog cannot be started: {problem.strerror}", where=sys.executable) from problem
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._pipe = self._process.stdin.fileno()
        os.set_blocking(self._pipe, False)
        ready, _, _ = select.select([self._process.stdout], [], [], _START_S)
        if not ready or not self._process.stdout.read(1):
            self._process.kill()
            self.close()
            raise Unavailable(
                "the watchdog did not start", hint=f"see whether {sys.executable} -c 'import shoal' works"
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def renew(self) -> None:
        """The guard lives. Raises LeaseLost when the watchdog is gone: it has undone everything, or was killed.
        Then take back what is noted, and start another."""
        try:
            os.write(self._pipe, b".")
        except BlockingIOError:  # it is stopped; what it has not read yet is enough
            return
        except BrokenPipeError as problem:
            raise LeaseLost("the watchdog is gone; limits may have been taken back") from problem

    def close(self) -> None:
        """Let it take back what the log still holds, and leave."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def main(arguments: list[str]) -> None:
    """The watchdog's own life."""
    path, epoch, lease_s = Path(arguments[0]), arguments[1], float(arguments[2])
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_IGN)  # they are meant for the guard; its end is the only sign that counts
    os.write(1, b".")
    poll = select.poll()
    poll.register(0, select.POLLIN)
    while poll.poll(lease_s * 1000) and os.read(0, 4096):
        pass
    os.close(0)  # from here on the guard, if it lives, finds that its lease is lost
    with lock_if_free(path, _DYING_S):  # a guard that hangs goes on holding it; that must not help it
        play_back(path, epoch=epoch)
