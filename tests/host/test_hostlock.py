"""One guard for each host."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal.core import Conflict
from shoal.host.guard.hostlock import VARIABLE, HostLock

NAME = {VARIABLE: f"shoal-guard-test-hostlock-{os.getpid()}"}


def test_a_second_guard_is_told_who_works(tmp_path: Path) -> None:
    here = Path("/guard")  # short: an address has room for the beginning of a folder only
    first = HostLock(here, environ=NAME)
    slept: list[float] = []
    with pytest.raises(Conflict, match=f"pid {os.getpid()}, files in {here} ") as caught:
        HostLock(Path("/elsewhere"), environ=NAME, sleep=slept.append)
    assert caught.value.where == "/elsewhere"
    assert slept == [], "whoever lives keeps it"
    HostLock(tmp_path, environ={VARIABLE: f"{NAME[VARIABLE]}-other"}).close()
    first.close()
    HostLock(Path("/elsewhere"), environ=NAME).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_it_holds_for_all_users(tmp_path: Path) -> None:
    first = HostLock(tmp_path, environ=NAME)
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            HostLock(tmp_path, environ=NAME)
        except Conflict as problem:
            os._exit(7 if f"pid {os.getppid()}" in str(problem) else 8)
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    first.close()


def test_a_dead_guards_lock_is_free_when_nobody_keeps_it_open_any_more(tmp_path: Path) -> None:
    """As its watchdog does until it has taken everything back."""
    code = (
        "import subprocess, sys; from pathlib import Path\n"
        "from shoal.host.guard.hostlock import HostLock\n"
        "lock = HostLock(Path(sys.argv[1]))\n"
        "quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}\n"
        "print(subprocess.Popen(['sleep', '60'], pass_fds=lock.fds, **quiet).pid, flush=True)\n"
        "import os; os._exit(0)"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    made = subprocess.run(words, env={**os.environ, **NAME}, capture_output=True, text=True, check=True)
    watchdog = int(made.stdout)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            os.kill(watchdog, 9)
        time.sleep(seconds)

    with pytest.raises(Conflict):
        HostLock(tmp_path, environ=NAME, wait_s=0.1, sleep=lambda _: None)
    HostLock(tmp_path, environ=NAME, sleep=sleep).close()
    assert len(waits) >= 3
