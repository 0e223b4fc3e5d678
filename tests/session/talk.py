"""An agent started as a supervisor would, and clients that speak its frames."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from shoal.session import frames

AGENT = Path(frames.__file__).with_name("agent.py")
LONG_S = 60.0


class Speaker:
    """One client of an agent, by its socket."""

    def __init__(
        self, folder: Path, session: str = "t", *, name: str = "a", offset: int = 0, hello: bool = True
    ) -> None:
        held = os.open(folder, os.O_PATH)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(LONG_S)
        eventually(lambda: self.socket.connect_ex(f"/proc/self/fd/{held}/session-t.sock") == 0)
        os.close(held)
        self.came = bytearray()
        self.queue: list[tuple[bytes, bytes]] = []
        self.offset = offset
        self.output = b""
        self.errors = b""
        if hello:
            self.say(frames.HELLO, frames.write_fields(client=name, offset=offset, rows=30, cols=100))
            self.welcome = frames.read_fields(self.next(frames.WELCOME))
            self.offset = int(self.welcome["offset"])

    def say(self, kind: bytes, payload: bytes = b"") -> None:
        self.socket.sendall(frames.frame(kind, payload))

    def type(self, data: bytes) -> None:
        self.say(frames.INPUT, data)

    def step(self) -> tuple[bytes, bytes] | None:
        """The next frame; None at the end."""
        while not self.queue:
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self.came += data
            self.queue += frames.take_frames(self.came)
        kind, payload = self.queue.pop(0)
        if kind in (frames.OUTPUT, frames.ERRORS, frames.EXIT):
            self.offset += frames.HEAD_BYTES + len(payload)
            with contextlib.suppress(OSError):
                self.say(frames.ACK, struct.pack(">Q", self.offset))
        if kind == frames.OUTPUT:
            self.output += payload
        elif kind == frames.ERRORS:
            self.errors += payload
        return kind, payload

    def next(self, kind: bytes) -> bytes:
        while (found := self.step()) is not None:
            if found[0] == kind:
                return found[1]
        raise AssertionError(f"the agent left: {self.output!r}")

    def until(self, wanted: bytes) -> None:
        while wanted not in self.output:
            assert self.step() is not None, self.output

    def ended(self) -> dict[str, str]:
        return frames.read_fields(self.next(frames.EXIT))

    def close(self) -> None:
        self.socket.close()


@contextlib.contextmanager
def agent(folder: Path, *command: str, script: Path = AGENT, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """An agent of session `t`."""
    text = ",".join(f"{name}={value}" for name, value in {"id": "t", "linger": 60, **options}.items())
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [os.path.realpath(sys.executable), "-I", "-S", str(script), text, "--", *command],
            env={**os.environ, "SHOAL_RUN": str(folder), "TERM": "xterm"}, stdin=subprocess.DEVNULL, stdout=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


LATER = """
import os, sys, time
sys.path.append({folder!r})
sys.argv[0] = {agent!r}
import agent
def clock():
    return time.monotonic() + os.stat({ahead!r}).st_size
options = dict(word.partition("=")[::2] for word in sys.argv[1].split(","))
os._exit(agent.Agent(options, sys.argv[3:], clock).run())
"""


class Ahead:
    """An agent whose clock is as many seconds ahead as a file has bytes."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "ahead"
        self._file.touch()
        self.script = folder / "later.py"
        text = LATER.format(folder=str(AGENT.parent), agent=str(AGENT), ahead=str(self._file))
        self.script.write_text(text)

    def pass_s(self, seconds: int) -> None:
        os.truncate(self._file, self._file.stat().st_size + seconds)


def eventually(true: Callable[[], bool], within_s: float = LONG_S) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


def readable(made: socket.socket, within_s: float) -> bool:
    return bool(select.select([made], [], [], within_s)[0])


def memory_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0
