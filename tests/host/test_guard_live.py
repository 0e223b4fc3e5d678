"""The guard on this machine, over real processes: it limits, and leaves nothing behind, `kill -9` included."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.core import LeaseLost
from shoal.host.guard.config import MECHANISMS, parse_config
from shoal.host.guard.journal import read_journal
from shoal.host.guard.live import LiveHost
from shoal.host.linux.fs import LINUX, children
from shoal.host.linux.hierarchies import serving
from shoal.host.types import Control, Plan, Setting

BUSY = "while True: pass"
RUN = "import typer; from shoal.host.commands import guard; app = typer.Typer(); guard.register(app); app()"
PATIENCE_S = 30.0


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture
def flood() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    yield process
    process.kill()
    process.wait()


def told(pid: int, **more: object) -> dict[str, object]:
    return {
        "groups": [
            {"name": "feed", "class": "guaranteed", "label": "SHOAL_TEST_NOBODY_HAS_THIS=1"},
            {"name": "flood", "class": "best-effort", "pids": [pid]},
        ],
        **more,
    }


def cgroups_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text()


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def stopped_or_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZ"


def watchdog() -> int:
    """The pid of the only one that this process has started."""
    mine = children(LINUX, os.getpid(), threading.get_native_id())
    (found,) = [pid for pid in mine if b"shoal.host.undo.watchdog" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def test_every_mechanism_has_a_name_to_allow_it_by(tmp_path: Path, flood: subprocess.Popen[bytes]) -> None:
    host = LiveHost(parse_config(told(flood.pid, actuators={"allow": [*Control]})), tmp_path, look_only=True)
    try:
        assert {one.name for one in host.capabilities()["actuators"]} == set(MECHANISMS)
    finally:
        host.close()
    assert list(tmp_path.iterdir()) == []


def test_a_plan_is_carried_out_and_taken_back(tmp_path: Path, flood: subprocess.Popen[bytes]) -> None:
    host = LiveHost(parse_config(told(flood.pid, actuators={"allow": ["stop-signal"]})), tmp_path)
    try:
        seen = host.sense(time.monotonic())
        assert [one.group.name for one in seen.groups] == ["feed", "flood"]
        assert seen.controls == {Control.FREEZE}
        done = host.apply(Plan({"flood": Setting(frozen=True)}))
        assert done.settings["flood"].frozen
        until(lambda: stopped(flood.pid), "it is stopped")
        host.sense(time.monotonic())
        assert host.apply(Plan({})).settings["flood"] == Setting()
        until(lambda: not stopped(flood.pid), "it goes on")
        host.apply(Plan({"flood": Setting(frozen=True)}))
    finally:
        assert host.close() == ()
    until(lambda: not stopped(flood.pid), "it goes on")


def test_guaranteed_work_weighs_more_and_a_killed_guard_leaves_it_as_it_was(
    tmp_path: Path, flood: subprocess.Popen[bytes]
) -> None:
    group = {"name": "feed", "class": "guaranteed", "pids": [flood.pid], "cpus": 1}
    config = json.dumps({"groups": [group], "actuators": {"allow": ["weight"]}})
    before = cgroups_of(flood.pid)
    # A guard that raises the weight, says so, and hangs until it is killed.
    code = (
        "import json, sys, time; from pathlib import Path\n"
        "from shoal.host.guard.config import parse_config; from shoal.host.guard.live import LiveHost\n"
        "from shoal.host.types import Plan, Setting\n"
        "host = LiveHost(parse_config(json.loads(sys.argv[1])), Path(sys.argv[2]))\n"
        "host.sense(time.monotonic())\n"
        "print(host.apply(Plan({'feed': Setting(weight=100.0)})).by, flush=True)\n"
        "time.sleep(600)"
    )
    guard = subprocess.Popen([sys.executable, "-c", code, config, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert guard.stdout is not None
        if "weight" not in guard.stdout.readline():
            pytest.skip("no weight can be set here")
        assert "shoal-guard-feed" in cgroups_of(flood.pid)
        guard.kill()
        until(lambda: cgroups_of(flood.pid) == before, "it is back in its cgroup")
    finally:
        guard.kill()
        guard.communicate()


def test_a_limit_in_cores_does_not_make_a_group_smaller(tmp_path: Path, flood: subprocess.Popen[bytes]) -> None:
    if len(os.sched_getaffinity(flood.pid)) < 2:
        pytest.skip("one CPU only")
    host = LiveHost(parse_config(told(flood.pid, actuators={"allow": ["cores-affinity"]})), tmp_path)
    try:
        whole = host.sense(time.monotonic()).groups[1].cores
        host.apply(Plan({"flood": Setting(cores=1)}))
        until(lambda: len(os.sched_getaffinity(flood.pid)) == 1, "it is bound to one core")
        assert host.sense(time.monotonic()).groups[1].cores == whole
    finally:
        host.close()
    assert len(os.sched_getaffinity(flood.pid)) == whole


def test_a_watchdog_that_is_killed_is_replaced_and_limits_begin_anew(
    tmp_path: Path, flood: subprocess.Popen[bytes]
) -> None:
    host = LiveHost(parse_config(told(flood.pid, actuators={"allow": ["stop-signal"]})), tmp_path)
    frozen = Plan({"flood": Setting(frozen=True)})
    try:
        at = time.monotonic()
        host.sense(at)
        host.apply(frozen)
        first = watchdog()
        os.kill(first, signal.SIGKILL)
        host.sense(at + 2)
        until(lambda: not Path(f"/proc/{first}/stat").exists() or stopped_or_zombie(first), "it is gone")
        with pytest.raises(LeaseLost):
            host.apply(frozen)
        until(lambda: not stopped(flood.pid), "it goes on")
        assert host.apply(frozen).settings["flood"].frozen
        assert watchdog() != first
    finally:
        host.close()
    until(lambda: not stopped(flood.pid), "it goes on")


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind_however_the_guard_ends(
    tmp_path: Path, flood: subprocess.Popen[bytes], signum: signal.Signals
) -> None:
    before, places = cgroups_of(flood.pid), os.sched_getaffinity(flood.pid)
    config = tmp_path / "guard.yaml"
    config.write_text(json.dumps(told(flood.pid, policy={"name": "static", "share": 0.2})))
    words = [sys.executable, "-c", RUN, "guard", "run", "-c", str(config), "--home", str(tmp_path)]
    guard = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    journal = tmp_path / "guard" / "journal.jsonl"
    try:
        until(lambda: journal.exists() and journal.stat().st_size > 20_000, "it ticks")
        _, records = read_journal(journal)
        applied = [one.applied.get("flood") for one in records]
        if not any(one is not None and one.share < 1 for one in applied):
            pytest.skip("nothing here can slow a process down")
        guard.send_signal(signum)
        guard.wait(PATIENCE_S)
        until(lambda: cgroups_of(flood.pid) == before, "it is back in its cgroups")
        until(lambda: os.sched_getaffinity(flood.pid) == places, "it may run where it could")
        until(lambda: not stopped(flood.pid), "it runs")
    finally:
        guard.kill()
        guard.wait()


def test_a_limit_that_somebody_takes_away_is_set_again_and_shown(
    tmp_path: Path, flood: subprocess.Popen[bytes]
) -> None:
    """As another guard's end once did: the cgroup is removed by hand."""
    host = LiveHost(parse_config(told(flood.pid, actuators={"allow": ["quota"]})), tmp_path)
    plan = Plan({"flood": Setting(share=0.5)})

    def quota() -> str | None:
        for line in cgroups_of(flood.pid).splitlines():
            _, controllers, path = line.split(":", 2)
            if path.endswith("shoal-guard-flood") and "cpu" in controllers.split(","):
                return path
        return None

    try:
        host.sense(time.monotonic())
        if host.apply(plan).settings["flood"].share == 1 or (path := quota()) is None:
            pytest.skip("no quota can be set here")
        hierarchy = serving(LINUX, "cpu")
        assert hierarchy is not None
        made = Path(f"{hierarchy.top}{path}")
        (made.parent / "cgroup.procs").write_text(str(flood.pid))
        made.rmdir()
        host.sense(time.monotonic())
        done = host.apply(plan)
        assert quota() == path
        assert (made / "cpu.cfs_quota_us").exists() is False or (made / "cpu.cfs_quota_us").read_text() != "-1\n"
        assert any("made again" in one for one in done.errors)
        assert host.apply(plan).errors == ()
    finally:
        host.close()
