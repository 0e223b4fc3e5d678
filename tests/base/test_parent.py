"""Small servers that are kept by their parent, which real signals hit."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.base.home import ServerInfo
from shoal.base.processes import parent_of, start_ticks
from tests.servers import until

SERVER = """
import os, signal, sys, time
{before}
from shoal.base.parent import fork_server

class Log:
    def error(self, what, **about):
        print(what, about, file=sys.stderr, flush=True)
    warning = error

server = fork_server(Log())
hits = []
signal.signal(signal.SIGINT, lambda *_: hits.append(1))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(len(hits)))
{after}
print(os.getpid(), server.deaths, flush=True)
while True:
    signal.pause()
"""
READY = "server.ready()"


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def next(self) -> tuple[int, int]:
        """The pid of the server that comes next, and the deaths before it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()
        pid, deaths = map(int, line.split())
        return pid, deaths

    def ends(self) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@contextmanager
def running(after: str = READY, before: str = "", **options: object) -> Iterator[Running]:
    process: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]
        [sys.executable, "-c", SERVER.format(before=before, after=after)], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, **options,
    )  # fmt: skip
    try:
        yield Running(process)
    finally:
        process.kill()
        process.communicate()


def info(pid: int) -> ServerInfo:
    return ServerInfo(pid, start_ticks(pid) or 0, "")


@pytest.mark.few
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_killed_server_comes_again_and_is_another_process(signum: signal.Signals) -> None:
    with running() as one:
        first, _ = one.next()
        os.kill(first, signum)
        second, deaths = one.next()
        assert (second != first, deaths) == (True, 1)
        parent = info(second).parent()
        assert parent is not None
        assert parent.pid == parent_of(second) == one.process.pid
        one.process.terminate()
        code, said = one.ends()
        assert code == 0
        assert f"the server was killed: starting it again {{'pid': {first}, 'why': 'signal {signum.name}'" in said


def test_five_deaths_within_a_minute_end_it() -> None:
    with running() as one:
        for death in range(5):
            pid, deaths = one.next()
            assert deaths == death
            os.kill(pid, signal.SIGKILL)
        code, said = one.ends()
        assert code == 128 + signal.SIGKILL
        assert said.count("starting it again") == 4
        assert "giving up" in said
        assert "killed 5 times within a minute" in said


@pytest.mark.few
@pytest.mark.parametrize("code", [0, 4, 6])
def test_a_server_that_ends_by_itself_does_not_come_again(code: int) -> None:
    with running(f"{READY}; sys.exit({code})") as one:
        assert one.ends() == (code, "")


def test_a_server_that_was_never_ready_does_not_come_again() -> None:
    with running("os.kill(os.getpid(), signal.SIGKILL)") as one:
        assert one.ends() == (-signal.SIGKILL, "")


@pytest.mark.few
@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_that_ends_the_server_ends_its_parent(signum: signal.Signals) -> None:
    with running() as one:
        one.next()
        one.process.send_signal(signum)
        assert one.ends() == (-signum, "")


def test_who_was_asked_to_end_is_not_started_again_when_it_is_killed_then() -> None:
    with running(f"{READY}; signal.signal(signal.SIGTERM, signal.SIG_IGN)") as one:
        pid, _ = one.next()
        one.process.terminate()
        until(lambda: not _pending(one.process.pid))
        os.kill(pid, signal.SIGKILL)
        assert one.ends() == (-signal.SIGKILL, "")


def _pending(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd")))


def test_a_hang_up_that_was_to_be_ignored_is_ignored() -> None:
    ignore = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    with running(before=ignore) as one:
        pid, _ = one.next()
        one.process.send_signal(signal.SIGHUP)
        os.kill(pid, signal.SIGKILL)
        assert one.next()[1] == 1


def test_a_killed_parent_takes_the_server_with_it() -> None:
    with running() as one:
        server = info(one.next()[0])
        assert not server.lost()
        one.process.kill()
        one.process.wait()
        until(lambda: not server.alive())


def test_one_ctrl_c_of_a_terminal_is_one_signal() -> None:
    controlling, terminal = pty.openpty()
    take = "import fcntl, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    count = "signal.signal(signal.SIGINT, lambda *_: (hits.append(1), print(os.getpid(), len(hits), flush=True)))"
    with running(f"{READY}; {count}", take, stdin=terminal) as one:
        pid, _ = one.next()
        os.write(controlling, b"\x03")
        assert one.next() == (pid, 1)
        until(lambda: not _pending(one.process.pid))
        one.process.terminate()
        assert one.ends() == (1, "")  # as often as it was hit
    os.close(controlling)
    os.close(terminal)


def test_a_process_with_threads_is_the_server_itself() -> None:
    thread = "import threading; threading.Thread(target=signal.pause, daemon=True).start()"
    with running(before=thread) as one:
        assert one.next() == (one.process.pid, 0)
        one.process.kill()
        assert "will not be started again" in one.ends()[1]


def test_what_cannot_be_forked_any_more_is_started_from_the_beginning(tmp_path: Path) -> None:
    """A module that starts a thread as it is imported: by the server once it was ready, and then by its parent."""
    (tmp_path / "threaded.py").write_text(
        "import signal, threading\nthreading.Thread(target=signal.pause, daemon=True).start()\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    hurry = "import shoal.base.parent; shoal.base.parent._LEISURE_S = 0.01"
    with running(f"{READY}; import threaded; server.loaded()", hurry, env=environ) as one:
        pid, _ = one.next()
        until(lambda: len(list(Path(f"/proc/{one.process.pid}/task").iterdir())) == 2)
        os.kill(pid, signal.SIGKILL)
        again, deaths = one.next()
        assert (parent_of(again), deaths) == (one.process.pid, 0)
        one.process.terminate()
        code, said = one.ends()
        assert code == 0
        assert "all anew, for a module has started a thread" in said


def test_it_goes_on_where_nothing_can_be_said_any_more() -> None:
    with running(stdin=subprocess.DEVNULL) as one:
        pid, _ = one.next()
        assert one.process.stderr is not None
        one.process.stderr.close()
        os.kill(pid, signal.SIGKILL)
        assert one.next()[1] == 1
        one.process.stderr = None
