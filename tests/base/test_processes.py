"""A process is known by pid and start, signalled only while it is the same, and can be bound to its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.base.processes import Process, open_process, send, start_detached, start_in, start_ticks
from shoal.core import Unavailable

STAT = "7 ({name}) {state} 1 7 7 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 {start} 0"


@pytest.mark.parametrize("name", ["sleep", "a) R 1 (b", "with space", "\ufffd"])
def test_the_start_is_read_whatever_the_process_is_called(name: str) -> None:
    assert start_in(STAT.format(name=name, state="S", start=4711)) == 4711


@pytest.mark.parametrize("state", ["Z", "X"])
def test_an_ended_process_has_no_start(state: str) -> None:
    assert start_in(STAT.format(name="gone", state=state, start=4711)) is None


def test_a_name_that_is_no_text_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_bytes(
        STAT.format(name="NAME", state="S", start=12).encode().replace(b"NAME", b"\xff")
    )
    assert start_ticks(7, proc=tmp_path) == 12
    assert start_ticks(8, proc=tmp_path) is None


def test_only_the_process_that_is_meant_gets_the_signal() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        started = start_ticks(child.pid)
        assert started is not None
        assert not send(Process(child.pid, started + 1), signal.SIGKILL), "another process had this pid"
        assert open_process(Process(child.pid, started + 1)) is None
        assert child.poll() is None
        assert send(Process(child.pid, started), signal.SIGTERM)
        assert child.wait() == -signal.SIGTERM
    assert not send(Process(child.pid, started), signal.SIGTERM)


BOUND = """
import os, signal, sys, time
from shoal.base.processes import end_with_parent
print(os.getpid(), end_with_parent(int(sys.argv[1]), signal.SIGUSR1), flush=True)
signal.sigwait({signal.SIGTERM}) if sys.argv[2:] else None
"""


def test_a_bound_process_ends_with_its_parent() -> None:
    parent = f"import os, subprocess, sys; me, program = str(os.getpid()), {BOUND!r}\n"
    parent += "subprocess.run([sys.executable, '-c', program, me, 'stay'])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, bound = process.stdout.readline().split()
        assert bound == "True"
        opened = os.pidfd_open(int(pid))
        process.kill()
        process.wait()
        assert process.stdout.read() == "", "the last of those that could write has ended"
    os.close(opened)


def test_one_whose_parent_has_ended_is_told_so() -> None:
    done = subprocess.run([sys.executable, "-c", BOUND, "1"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == "False"


def test_a_detached_process_has_its_own_session_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_TOKEN", "secret")
    monkeypatch.setenv("OTHER", "kept")
    (tmp_path / "log").write_text("before\n")
    program = "import os; print(os.getsid(0) == os.getpid(), os.environ.get('SHOAL_TOKEN'), os.environ['OTHER'])"
    assert start_detached([sys.executable, "-c", program], tmp_path / "log", what="thing").wait() == 0
    assert (tmp_path / "log").read_text() == "before\nTrue None kept\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_started_is_called_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"the gateway cannot be started: No such file"):
        start_detached([str(tmp_path / "none")], tmp_path / "log", what="gateway")
