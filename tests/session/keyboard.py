"""`shoal` at a real terminal, with somebody at its keyboard."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from .talk import LONG_S


class Keyboard:
    def __init__(
        self, home: Path, *words: str, rows: int = 30, columns: int = 100,
        program: tuple[str, str] = ("-m", "shoal.cli"),
    ) -> None:  # fmt: skip
        self._main, side = pty.openpty()
        self.resize(rows, columns)
        line = [sys.executable, *program, words[0], "--home", str(home), *words[1:]]
        self.process = subprocess.Popen(
            line, stdin=side, stdout=side, stderr=side,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm", "PS1": "$ ", "NO_COLOR": "1"},
        )  # fmt: skip
        os.close(side)
        self.seen = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: bytes) -> None:
        os.write(self._main, text)

    def until(self, pattern: bytes) -> re.Match[bytes]:
        """Forgets all up to the end of the match."""
        end = time.monotonic() + LONG_S
        while (found := re.search(pattern, self.seen)) is None:
            assert time.monotonic() < end, (pattern, self.seen)
            assert self._read(), (pattern, self.seen)
        self.seen = self.seen[found.end() :]
        return found

    def code(self) -> int:
        while self._read():
            pass
        return self.process.wait(LONG_S)

    def _read(self) -> bool:
        if not select.select([self._main], [], [], LONG_S)[0]:
            return False
        try:
            data = os.read(self._main, 1 << 16)
        except OSError:  # no process has the terminal any more
            return False
        self.seen += data
        return bool(data)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._main)
