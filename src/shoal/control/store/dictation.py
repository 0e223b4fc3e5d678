"""The server's side of a scribe: starts the process, dictates groups of writes to it, and knows when it is gone."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from shoal.control import scribe
from shoal.control.bulk import Bulk

_LEAVE_S = 5.0


class ScribeGone(Exception):
    """It ended without an answer: what it was told last is written whole, or not at all."""


class Dictation:
    """One scribe and the way to it. `written` counts the groups that it wrote."""

    def __init__(self, path: Path, pragmas: Mapping[str, str | int], bulks: Mapping[str, Bulk]) -> None:
        """Raises OSError when no process can be started."""
        self.written = 0
        self._stream, other = socket.socketpair()
        self._source = self._stream.makefile("rb")
        with contextlib.ExitStack() as undo, other:
            undo.callback(self._stream.close)
            undo.callback(self._source.close)
            # A session of its own: Ctrl-C in the server's terminal is the server's to answer.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "shoal.control.scribe", str(other.fileno()), str(path)],
                pass_fds=[other.fileno()], stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            undo.pop_all()
        with contextlib.suppress(OSError):  # the first group finds out
            scribe.send(self._stream, (str(path), dict(pragmas), {kind: tuple(bulk) for kind, bulk in bulks.items()}))

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, epoch: int, packed: Sequence[bytes]) -> int | None:
        """Write these works (see `scribe.pack`) in one transaction. Returns the number after which their events are
        numbered, None when it refused and nothing is written. Raises ScribeGone."""
        try:
            scribe.send(self._stream, (epoch, list(packed)))
            seq: int = scribe.receive(self._source)
        except (OSError, EOFError) as error:
            raise ScribeGone from error
        if seq < 0:
            return None
        self.written += 1
        return seq

    def close(self) -> None:
        """It leaves once it has done what it was told."""
        self._source.close()
        self._stream.close()
        try:
            self._process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
