"""Core pacing: what the actuator asks for, and the real process doing it, dying with its parent, and letting go."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from shoal.core import Conflict, PriorityClass, Unavailable
from shoal.host.actuators.pace import Pace
from shoal.host.linux.members import Found, Process
from shoal.host.linux.native import DIRECTORY
from shoal.host.linux.pacer import LOST_NS, PERIOD_NS, Pacer, State, calibrate, window
from shoal.host.types import Control, Group, Setting

CPU = max(os.sched_getaffinity(0))
GROUP = Group("batch", PriorityClass.BEST_EFFORT)
OTHER = Group("other", PriorityClass.BEST_EFFORT)
SPINNER = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"
PARENT = """
import sys, time
from shoal.host.linux.pacer import Pacer, window
pacer = Pacer(lease_s=60)
pacer.set({int(sys.argv[1]): window(0.5)})
print(pacer.pid, flush=True)
time.sleep(60)
"""


def real() -> None:
    capability = Pace().capability()
    if not capability.available:
        pytest.skip(capability.detail)


@pytest.fixture
def pacer() -> Iterator[Pacer]:
    real()
    made = Pacer(lease_s=60)
    yield made
    made.close()


@pytest.fixture
def spinner() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", SPINNER, str(CPU)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def found(*members: int, shared: frozenset[int] = frozenset()) -> Found:
    return Found(frozenset({Process(1, 1)}), frozenset(members), frozenset(members) - shared)


def until(true: Callable[[], bool], *, limit_s: float = 20.0) -> bool:
    end = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def exists(pid: int) -> bool:
    """As more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def cpu_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


# --- decisions ---


@given(share=some.floats(0.001, 2), lost=some.integers(0, 100_000), period=some.integers(50_000, 100_000_000))
def test_a_window_is_the_share_and_what_is_lost(share: float, lost: int, period: int) -> None:
    run_ns, period_ns = window(share, period_ns=period, lost_ns=lost)
    if period_ns == 0:
        assert share * period + lost >= period - 1
        return
    assert period_ns == period
    assert 0 < run_ns < period
    assert abs(run_ns - lost - share * period) <= 1


def test_the_kernels_limit_is_the_least_share(tmp_path: Path) -> None:
    kernel = tmp_path / "proc/sys/kernel"
    kernel.mkdir(parents=True)
    for runtime, least in (("950000", 0.05), ("600000", 0.4), ("-1", 0.05)):
        (kernel / "sched_rt_runtime_us").write_text(runtime)
        (kernel / "sched_rt_period_us").write_text("1000000")
        assert Pace(root=tmp_path).least_share == pytest.approx(least)
    assert Pace(root=tmp_path / "nothing").least_share == 0.05


def test_a_missing_binary_is_reported_and_refused(tmp_path: Path) -> None:
    pace = Pace(directory=tmp_path)
    assert not pace.capability().available
    assert "g++" in pace.capability().detail
    assert "CPU quota only" in pace.capability().consequence
    with pytest.raises(Unavailable, match="not built"):
        pace.apply(GROUP, found(CPU), Setting(share=0.5))
    assert calibrate(CPU, directory=tmp_path) == LOST_NS
    with pytest.raises(Unavailable, match="cannot be started"):
        Pacer(directory=tmp_path).set({CPU: window(0.5)})


def test_without_a_limit_no_process_is_started(tmp_path: Path) -> None:
    pacer = Pacer(directory=tmp_path)
    pace = Pace(pacer=pacer, directory=tmp_path)
    assert pace.apply(GROUP, found(CPU), Setting()) == Setting()
    pace.restore()
    pace.close()
    assert pacer.pid is None
    assert pace.statistics() == {}


def test_it_is_the_control_share() -> None:
    assert (Pace.name, Pace.control) == ("pace", Control.SHARE)


def test_refused_priority_names_the_capability(tmp_path: Path) -> None:
    if os.getuid() != 0 or not (DIRECTORY / "shoal-pace").exists():
        pytest.skip("it takes root to give up rights, and the native parts")
    open_to_all = Path("/tmp") / f"shoal-test-{os.getpid()}"
    shutil.copytree(DIRECTORY, open_to_all)
    try:
        said = subprocess.run(
            [open_to_all / "shoal-pace", "--check"], user=65534, capture_output=True, text=True, check=True
        )
        assert '"errno": 1,' in said.stdout
        status = tmp_path / "proc/self/status"
        status.parent.mkdir(parents=True)
        wrapper = open_to_all / "wrapped"
        wrapper.mkdir()
        (wrapper / "shoal-pace").write_text(f"#!/bin/sh\necho '{said.stdout.strip()}'\n")
        (wrapper / "shoal-pace").chmod(0o755)
        for capabilities, expected in (("0" * 16, "needs CAP_SYS_NICE"), ("000001ffffffffff", "cpu.rt_runtime_us")):
            status.write_text(f"CapEff:\t{capabilities}\n")
            capability = Pace(directory=wrapper, root=tmp_path).capability()
            assert not capability.available
            assert expected in capability.detail
    finally:
        shutil.rmtree(open_to_all)


# --- the real process ---


def test_a_spinning_neighbour_gets_its_share(pacer: Pacer, spinner: int) -> None:
    pacer.set({CPU: window(0.2)})
    before, began = cpu_s(spinner), time.monotonic()
    time.sleep(0.5)
    had = (cpu_s(spinner) - before) / (time.monotonic() - began)
    assert had < 0.4
    statistics = pacer.statistics()[CPU]
    assert statistics.state is State.PACING
    assert statistics.burned_s > statistics.given_s


def test_windows_of_several_cores_are_spread(pacer: Pacer) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("it takes two CPUs")
    pacer.set({cpu: window(0.5) for cpu in cores})
    assert until(lambda: all(one.periods > 10 or one.state is State.IDLE for one in pacer.statistics().values()))
    assert sorted(pacer.statistics()) == cores
    phases = [pacer._slot_of[cpu].phase_ns for cpu in cores]
    assert phases == [at * PERIOD_NS // len(cores) for at in range(len(cores))]


def test_settings_change_live_and_let_go(pacer: Pacer, spinner: int) -> None:
    pacer.set({CPU: window(0.1)})
    pid = pacer.pid
    pacer.set({CPU: window(0.5)})
    assert until(lambda: pacer.statistics()[CPU].state is State.PACING)
    pacer.set({})
    assert until(lambda: pacer.statistics()[CPU].state is State.OFF)
    burned = pacer.statistics()[CPU].burned_s
    time.sleep(0.05)
    assert pacer.statistics()[CPU].burned_s == burned
    pacer.set({CPU: window(0.3)})
    assert until(lambda: pacer.statistics()[CPU].state is State.PACING)
    assert pacer.pid == pid


def test_a_lease_that_is_not_renewed_ends_pacing(spinner: int) -> None:
    real()
    pacer = Pacer(lease_s=0.2)
    try:
        pacer.set({CPU: window(0.2)})
        assert until(lambda: pacer.statistics()[CPU].state is State.LAPSED)
        pacer.renew()
        assert until(lambda: pacer.statistics()[CPU].state is State.PACING)
    finally:
        pacer.close()


def test_a_core_with_work_is_never_idle_and_one_without_is_not_burned(pacer: Pacer, spinner: int) -> None:
    if not list(Path(f"/sys/devices/system/cpu/cpu{CPU}/cpuidle").glob("state*/time")):
        pytest.skip("no cpuidle statistics here")
    pacer.set({CPU: window(0.5)})
    time.sleep(0.6)
    assert pacer.statistics()[CPU].state is State.PACING
    assert pacer.statistics()[CPU].idle_s == 0
    os.kill(spinner, signal.SIGSTOP)
    if not until(lambda: pacer.statistics()[CPU].state is State.IDLE, limit_s=8):
        pytest.skip("other work keeps the core busy")
    os.kill(spinner, signal.SIGCONT)
    assert until(lambda: pacer.statistics()[CPU].state is State.PACING)


def test_kill_of_the_parent_ends_it_and_lets_the_core_go(spinner: int) -> None:
    real()
    with subprocess.Popen([sys.executable, "-c", PARENT, str(CPU)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert exists(pid)
        assert os.sched_getscheduler(pid) == os.SCHED_OTHER  # the process itself; its threads pace
        tasks = [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
        assert os.SCHED_FIFO in {os.sched_getscheduler(task) for task in tasks}
        parent.kill()
    assert until(lambda: not exists(pid))


def test_the_end_of_the_thread_that_started_it_is_not_the_parents(pacer: Pacer) -> None:
    thread = threading.Thread(target=pacer.set, args=({CPU: window(0.5)},))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert pacer.pid is not None
    assert exists(pacer.pid)


def test_a_killed_pacer_is_started_again(pacer: Pacer) -> None:
    pacer.set({CPU: window(0.5)})
    first = pacer.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert until(lambda: not pacer.alive)  # the first of its threads may be gone before the others
    pacer.set({CPU: window(0.5)})
    assert pacer.pid not in (None, first)


def test_a_core_that_does_not_exist_is_refused(pacer: Pacer) -> None:
    with pytest.raises(Unavailable, match="CPU 1000 cannot be paced"):
        pacer.set({1000: window(0.5)})
    assert pacer.pid is None


def test_it_wants_its_own_page(tmp_path: Path) -> None:
    real()
    page = tmp_path / "page"
    page.write_bytes(bytes(4096))
    binary = DIRECTORY / "shoal-pace"
    ran = subprocess.run([binary, page], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "another version" in ran.stderr
    assert subprocess.run([binary], capture_output=True, check=False).returncode == 2


def test_calibration_finds_what_a_switch_costs() -> None:
    real()
    assert 0 < calibrate(CPU) < PERIOD_NS // 10


def test_the_actuator_paces_groups_and_restores() -> None:
    real()
    pace = Pace()
    try:
        assert pace.apply(GROUP, found(CPU), Setting(share=0.5, cores=2)) == Setting(share=0.5, cores=2)
        assert pace.apply(OTHER, found(CPU), Setting(share=0.001)).share == pace.least_share
        assert pace.statistics()[CPU].state in (State.PACING, State.IDLE)
        pace.restore("other")
        assert pace.statistics()[CPU].state in (State.PACING, State.IDLE)
        assert pace.apply(GROUP, found(CPU), Setting()) == Setting()
        assert until(lambda: pace.statistics()[CPU].state is State.OFF)
    finally:
        pace.close()


def test_one_that_is_prepared_has_its_process_before_the_first_limit() -> None:
    real()
    pacer = Pacer()
    pace = Pace(pacer=pacer)
    try:
        pace.prepare(CPU)
        pid = pacer.pid
        assert pid is not None
        assert pace.works()
        pace.apply(GROUP, found(CPU), Setting(share=0.5))
        assert pacer.pid == pid
        os.kill(pid, signal.SIGKILL)
        assert until(lambda: not pace.works())
        pace.apply(GROUP, found(CPU), Setting(share=0.5))
        assert pace.works()
    finally:
        pace.close()


def test_cpus_of_guaranteed_work_are_not_paced() -> None:
    real()
    pace = Pace()
    with pytest.raises(Conflict, match=f"its CPUs {CPU}"):
        pace.apply(GROUP, found(CPU, shared=frozenset({CPU})), Setting(share=0.5))
    assert pace.statistics() == {}
