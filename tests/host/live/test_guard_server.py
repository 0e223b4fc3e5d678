"""The server's own guard on this machine: real jobs, and nothing left behind however the server ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.base.home import Home, running_server
from shoal.base.processes import start_ticks
from tests.servers import kill_for_good

PATIENCE_S = 30.0
_CAP_SYS_NICE = 23
CPUS = len(os.sched_getaffinity(0))


def _held(capability: int) -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    return bool(int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16) >> capability & 1)


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _held(_CAP_SYS_NICE), reason="limits on other processes need CAP_SYS_NICE (run as root)"),
]


def shoal(home: Path, *words: str) -> str:
    command = [sys.executable, "-m", "shoal.cli", *words, "--home", str(home)]
    environ = {**os.environ, "SHOAL_GUARD__POLICY": "static"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environ, timeout=60).stdout


def until(true: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    shoal(tmp_path, "up", "--set", "guard.enabled=on", "--port", "0", "--slots", "2", "--detach")
    yield tmp_path
    if running_server(Home(tmp_path)) is None:
        shoal(tmp_path, "up", "--port", "0", "--slots", "2", "--detach")
    for job in json.loads(shoal(tmp_path, "jobs", "--json"))["jobs"]:
        shoal(tmp_path, "cancel", job["id"])
    until(lambda: "RUNNING" not in shoal(tmp_path, "jobs"), "its jobs have ended")
    shoal(tmp_path, "down")


def submit(home: Path, name: str, priority_class: str) -> None:
    told = {
        "name": name, "priority_class": priority_class, "command": ["python", "-c", "while True: pass"],
        "resources": {"cpus": max(0.1, CPUS / 4)}, "grace": "1s",
    }  # fmt: skip
    path = home / f"{name}.json"
    path.write_text(json.dumps(told))
    shoal(home, "submit", str(path))


def told(home: Path) -> dict[str, int]:
    """The first pid of each class's group."""
    path = home / "guard" / "server.json"
    groups = json.loads(path.read_text())["groups"] if path.exists() else []
    return {one["class"]: one["pids"][0] for one in groups}


def guard_pid(home: Path) -> int | None:
    done = subprocess.run(
        [sys.executable, "-m", "shoal.cli", "guard", "status", "--json", "--home", str(home)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return int(json.loads(done.stdout)["pid"]) if done.returncode == 0 else None


def apart(pids: dict[str, int]) -> bool:
    """Whether each class has CPUs of its own."""
    ours, theirs = (os.sched_getaffinity(pids[one]) for one in ("guaranteed", "best-effort"))
    return ours.isdisjoint(theirs)


def everywhere(pids: dict[str, int]) -> bool:
    return all(len(os.sched_getaffinity(pid)) == CPUS for pid in pids.values())


@pytest.mark.skipif(CPUS < 2, reason="it takes two CPUs to set classes apart")
@pytest.mark.parametrize("how", ["killed", "asked"])
def test_best_effort_jobs_are_limited_and_let_go_with_the_server(home: Path, how: str) -> None:
    submit(home, "feed", "guaranteed")
    submit(home, "flood", "best-effort")
    pids = until(lambda: (found := told(home)) and len(found) == 2 and found, "both jobs are told to the guard")
    guard = until(lambda: guard_pid(home), "the guard ticks")
    assert "guard: static, 2 groups" in shoal(home, "status")
    until(lambda: apart(pids), "each class has CPUs of its own")
    if "pace" in working(home):
        until(lambda: "pace" in shoal(home, "guard", "explain"), "cores are paced, and it says so")

    os.kill(guard, signal.SIGKILL)
    again = until(lambda: (found := guard_pid(home)) != guard and found, "it is started again")
    until(lambda: apart(pids), "and limits again")

    if how == "killed":
        kill_for_good(Home(home))
    else:
        shoal(home, "down")
    until(lambda: start_ticks(again) is None, "the guard has ended with its server")
    until(lambda: everywhere(pids), "the limits are lifted")
    assert all(start_ticks(pid) is not None for pid in pids.values()), "the jobs go on"


def working(home: Path) -> set[str]:
    """The mechanisms that work here."""
    found = json.loads(shoal(home, "guard", "doctor", "--json"))["actuators"]
    return {one["name"] for one in found if one["available"]}
