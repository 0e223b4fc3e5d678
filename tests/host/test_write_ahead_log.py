"""The write-ahead log and its watchdog: what a dead guard leaves behind is taken back, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Conflict, LeaseLost
from shoal.host.actuators import Affinity, Binder, CgroupFreeze, CoreCount, Cpuset, Quota, StopSignal, Unhindered
from shoal.host.linux.fs import LINUX, start_time
from shoal.host.types import Domain, Setting
from shoal.host.undo.watchdog import Watchdog
from shoal.host.undo.write_ahead_log import WriteAheadLog, play_back
from tests.host.fake import FakeHost, Machine
from tests.host.kit import BATCH, RealKit, found, until, write_ahead_log

QUOTA = "/sys/fs/cgroup/batch/cpu.max"


@pytest.fixture
def host() -> FakeHost:
    host = FakeHost(Machine(msr=True))
    host.group("batch")
    return host


@pytest.fixture
def wal(tmp_path: Path, host: FakeHost) -> Iterator[WriteAheadLog]:
    wal = write_ahead_log(tmp_path, host)
    yield wal
    wal.abandon()


def play(wal: WriteAheadLog, host: FakeHost) -> tuple[str, ...]:
    return play_back(wal.path, kernel=host, sleep=lambda _: None)


# --- the log ---


def test_a_change_is_noted_before_it_is_made(wal: WriteAheadLog, host: FakeHost) -> None:
    noted_first = []
    write = host.write
    host.write = lambda path, text: (noted_first.append(text in wal.path.read_text()), write(path, text))  # type: ignore[method-assign,assignment]
    wal.write("s", QUOTA, "5000 100000")
    wal.write("s", QUOTA, "7000 100000")
    assert noted_first == [True, True]


def test_what_a_dead_guard_changed_goes_back_to_what_was_first(wal: WriteAheadLog, host: FakeHost) -> None:
    for quota in ("5000", "7000", "9000"):
        wal.write("s", QUOTA, f"{quota} 100000")
    wal.abandon()
    assert play(wal, host) == ()
    assert host.read(QUOTA).split()[0] == "max"


def test_a_guard_that_dies_between_note_and_write_is_undone_too(wal: WriteAheadLog, host: FakeHost) -> None:
    wal.write("s", QUOTA, "5000 100000")
    real = host.write
    host.write = lambda path, text: None  # type: ignore[method-assign,assignment]
    wal.write("s", QUOTA, "7000 100000")
    host.write = real  # type: ignore[method-assign]
    wal.abandon()
    assert play(wal, host) == ()
    assert host.read(QUOTA).split()[0] == "max"


def test_playing_back_twice_is_playing_back_once(wal: WriteAheadLog, host: FakeHost) -> None:
    wal.write("s", QUOTA, "5000 100000")
    wal.make("s", "/sys/fs/cgroup/shoal-guard-x")
    wal.abandon()
    play(wal, host)
    host.write(QUOTA, "5000 100000")  # by its owner, afterwards
    assert play(wal, host) == ()
    assert host.read(QUOTA).split()[0] == "5000"


def test_what_somebody_else_changed_since_stays(wal: WriteAheadLog, host: FakeHost) -> None:
    wal.write("s", QUOTA, "5000 100000")
    wal.set_bits("s", "/dev/cpu/0/msr", 0x1A4, 0b1111, 0b1111)
    host.write(QUOTA, "33000 100000")
    host.msr[0][0x1A4] = 0b0101
    wal.abandon()
    problems = play(wal, host)
    assert len(problems) == 2
    assert all("another process" in problem for problem in problems)
    assert host.read(QUOTA).split()[0] == "33000"
    assert host.msr[0][0x1A4] == 0b0101


def test_bits_of_others_in_the_same_register_stay(wal: WriteAheadLog, host: FakeHost) -> None:
    wal.set_bits("s", "/dev/cpu/0/msr", 0x1A4, 0b1111, 0b1111)
    host.msr[0][0x1A4] |= 0x80
    wal.revert("s")
    assert host.msr[0][0x1A4] == 0x80


def test_what_is_gone_needs_nothing(wal: WriteAheadLog, host: FakeHost) -> None:
    process = host.start()
    wal.write("s", QUOTA, "5000 100000")
    wal.stop("s", process.pid, process.start, signal.SIGSTOP)
    wal.set_affinity("s", process.pid, process.start, process.pid, frozenset({1}))
    wal.make("s", "/sys/fs/cgroup/shoal-guard-x")
    host.end(process)
    host.rmdir("/sys/fs/cgroup/batch")
    host.rmdir("/sys/fs/cgroup/shoal-guard-x")
    wal.abandon()
    assert play(wal, host) == ()


def test_another_process_of_the_same_pid_is_left_alone(wal: WriteAheadLog, host: FakeHost) -> None:
    process = host.start()
    wal.stop("s", process.pid, process.start, signal.SIGSTOP)
    wal.set_affinity("s", process.pid, process.start, process.pid, frozenset({1}))
    process.start += 1
    wal.abandon()
    assert play(wal, host) == ()
    assert process.stopped
    assert process.user_cpus == {1}


def test_processes_of_a_group_go_back_to_where_it_was_made(wal: WriteAheadLog, host: FakeHost) -> None:
    process = host.start(cgroup="batch")
    wal.make("s", "/sys/fs/cgroup/batch/shoal-guard-x")
    host.write("/sys/fs/cgroup/batch/shoal-guard-x/cgroup.procs", str(process.pid))
    child = host.start(ppid=process.pid)
    wal.abandon()
    assert play(wal, host) == ()
    assert host.cgroup_lines(process) == host.cgroup_lines(child) == "0::/batch\n"
    assert not host.exists("/sys/fs/cgroup/batch/shoal-guard-x")


def test_a_torn_line_is_a_change_that_was_never_made(wal: WriteAheadLog, host: FakeHost) -> None:
    wal.write("s", QUOTA, "5000 100000")
    wal.abandon()
    with wal.path.open("a") as file:
        file.write('{"scope": "s", "change": {"kind": "write", "pa')
    assert play(wal, host) == ()
    assert host.read(QUOTA).split()[0] == "max"


def test_a_log_of_an_earlier_boot_says_nothing_of_this_one(wal: WriteAheadLog, host: FakeHost) -> None:
    wal.write("s", QUOTA, "5000 100000")
    wal.abandon()
    text = wal.path.read_text()
    wal.path.write_text(text.replace('"boot": "7a1d"', '"boot": "0000"'))
    play(wal, host)
    assert host.read(QUOTA).split()[0] == "5000"


def test_a_write_that_is_refused_leaves_no_note(wal: WriteAheadLog, host: FakeHost) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        wal.write("s", QUOTA, "1 100000")
    assert len(wal) == 0
    wal.write("s", QUOTA, "5000 100000")
    with pytest.raises(OSError, match="Invalid argument"):
        wal.write("s", QUOTA, "1 100000")
    assert wal.revert("s") == ()
    assert host.read(QUOTA).split()[0] == "max"


def test_the_next_guard_takes_back_what_the_last_one_left(tmp_path: Path, host: FakeHost) -> None:
    first = write_ahead_log(tmp_path, host)
    first.write("s", QUOTA, "5000 100000")
    first.abandon()
    second = write_ahead_log(tmp_path, host)
    assert second.left == ()
    assert host.read(QUOTA).split()[0] == "max"
    second.close()


def test_two_guards_cannot_hold_one_log(tmp_path: Path, host: FakeHost) -> None:
    first = write_ahead_log(tmp_path, host)
    with pytest.raises(Conflict, match="another guard"):
        write_ahead_log(tmp_path, host)
    first.close()
    write_ahead_log(tmp_path, host).close()


def test_a_long_life_keeps_a_short_log(wal: WriteAheadLog, host: FakeHost) -> None:
    for at in range(5000):
        wal.write("s", QUOTA, f"{1000 + at} 100000")
    assert len(wal.path.read_text().splitlines()) < 3000
    wal.abandon()
    play(wal, host)
    assert host.read(QUOTA).split()[0] == "max"


def test_a_disk_that_is_full_stops_the_change(wal: WriteAheadLog, host: FakeHost) -> None:
    os.close(wal._file)
    wal._file = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError, match="No space left"):
        wal.write("s", QUOTA, "5000 100000")
    assert host.read(QUOTA).split()[0] == "max"


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(1000, 90000)), max_size=25),
    torn=st.integers(0, 60),
)
def test_whatever_was_done_and_whenever_it_died_all_is_as_before(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], torn: int
) -> None:
    host = FakeHost(Machine(msr=True, cgroups="v1"))
    pids = {}
    for name in "abc":
        host.group(name)
        pids[name] = host.start(cgroup=name)
    before = [(dict(group.values), group.own()) for one in host.hierarchies for group in one.root.below()]
    wal = write_ahead_log(tmp_path_factory.mktemp("wal"), host)
    for name, action, value in steps:
        process = pids[name]
        if action == 0:
            wal.write(name, f"/sys/fs/cgroup/cpu/{name}/cpu.cfs_quota_us", str(value))
        elif action == 1:
            wal.write(name, f"/sys/fs/cgroup/freezer/{name}/freezer.state", "FROZEN" if value % 2 else "THAWED")
        elif action == 2:
            wal.set_bits("msr", f"/dev/cpu/{value % 4}/msr", 0x1A4, 0b1111, value)
        elif action == 3:
            wal.set_affinity(name, process.pid, process.start, process.pid, frozenset({value % 4}))
        elif action == 4 and not host.exists(f"/sys/fs/cgroup/cpu/{name}/shoal-guard-x"):
            wal.make(name, f"/sys/fs/cgroup/cpu/{name}/shoal-guard-x")
            host.write(f"/sys/fs/cgroup/cpu/{name}/shoal-guard-x/cgroup.procs", str(process.pid))
        elif action == 5:
            wal.revert(name)
    wal.abandon()
    with wal.path.open("a") as file:
        file.write('{"scope": "s", "change": {"kind": "write", "path": "/sys/x", "before"'[:torn])
    assert play_back(wal.path, kernel=host, sleep=lambda _: None) == ()
    assert [(dict(group.values), group.own()) for one in host.hierarchies for group in one.root.below()] == before
    assert all(registers[0x1A4] == 0 for registers in host.msr.values())
    assert all(host.allowed(process) == host.cpus for process in pids.values())


# --- the watchdog, for real ---

_GUARD = """
import sys, time
from pathlib import Path
from shoal.host.actuators import Affinity, Binder, CgroupFreeze, CoreCount, Cpuset, Quota, StopSignal, Unhindered
from shoal.host.linux.fs import LINUX, start_time
from shoal.host.linux.members import Found, Process
from shoal.host.types import Domain, Group, Setting
from shoal.core import PriorityClass
from shoal.host.undo.write_ahead_log import WriteAheadLog
from shoal.host.undo.watchdog import Watchdog
path, pid, lease_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
wal = WriteAheadLog(path)
watchdog = Watchdog(wal, lease_s=lease_s)
group = Group(sys.argv[4], PriorityClass.BEST_EFFORT)
cpus = LINUX.affinity(pid)
found = Found(frozenset({Process(pid, start_time(LINUX, pid))}), cpus, cpus)
setting = Setting(share=0.05, cores=1, frozen=True)
binding = Cpuset(wal)
binding = binding if binding.capability().available else Affinity(wal)
for actuator in (
    Quota(wal, unhindered=lambda group: Unhindered(cpus=1.0)), CoreCount(Binder(binding, {0: Domain(0, cpus)})),
    CgroupFreeze(wal), StopSignal(wal),
):
    if actuator.capability().available:
        actuator.apply(group, found, setting)
print(watchdog.pid, len(wal), flush=True)
while sys.argv[5] == "renew":
    watchdog.renew()
    time.sleep(0.05)
time.sleep(600)
"""


class Guard:
    """A process that holds limits on another, as a guard does."""

    def __init__(self, path: Path, pid: int, *, lease_s: float = 30.0, manner: str = "renew") -> None:
        arguments = [str(path), str(pid), str(lease_s), f"shoal-test-{os.getpid()}", manner]
        source = str(Path(__file__).parents[2] / "src")
        self.process = subprocess.Popen(
            [sys.executable, "-c", _GUARD, *arguments], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": source}
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().split()
        assert line, "the guard did not start"
        self.watchdog, self.changes = map(int, line)

    def end(self, signum: int) -> None:
        self.process.send_signal(signum)
        self.process.wait()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def limits(pid: int) -> tuple[object, ...]:
    """Everything of a process that a guard may have changed."""
    state = LINUX.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]
    return LINUX.read(f"/proc/{pid}/cgroup"), LINUX.affinity(pid), state == "T"


@pytest.fixture
def real() -> Iterator[RealKit]:
    kit = RealKit()
    yield kit
    kit.close()


def test_a_guard_that_is_killed_leaves_nothing_throttled(tmp_path: Path, real: RealKit) -> None:
    pid = real.process()
    before = limits(pid)
    guard = Guard(tmp_path / "wal", pid)
    try:
        assert guard.changes > 0
        assert limits(pid) != before
        guard.end(signal.SIGKILL)
        until(lambda: limits(pid) == before, "all limits are gone")
        until(lambda: start_time(LINUX, guard.watchdog) is None, "the watchdog leaves")
    finally:
        guard.close()
    after = WriteAheadLog(tmp_path / "wal")
    assert after.left == ()
    after.close()


def test_a_guard_that_hangs_loses_its_lease(tmp_path: Path, real: RealKit) -> None:
    pid = real.process()
    before = limits(pid)
    guard = Guard(tmp_path / "wal", pid, lease_s=0.3, manner="hang")
    try:
        until(lambda: limits(pid) == before, "all limits are gone")
    finally:
        guard.close()


def test_signals_that_end_the_guard_do_not_end_its_watchdog(tmp_path: Path, real: RealKit) -> None:
    pid = real.process()
    before = limits(pid)
    guard = Guard(tmp_path / "wal", pid)
    try:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(guard.watchdog, signum)
        guard.end(signal.SIGTERM)
        until(lambda: limits(pid) == before, "all limits are gone")
    finally:
        guard.close()


def test_when_guard_and_watchdog_are_killed_the_next_start_takes_it_back(tmp_path: Path, real: RealKit) -> None:
    pid = real.process()
    before = limits(pid)
    guard = Guard(tmp_path / "wal", pid)
    try:
        os.kill(guard.watchdog, signal.SIGKILL)
        guard.end(signal.SIGKILL)
        assert limits(pid) != before
        wal = WriteAheadLog(tmp_path / "wal")
        assert wal.left == ()
        until(lambda: limits(pid) == before, "all limits are gone")
        wal.close()
    finally:
        guard.close()


def test_a_guard_learns_that_its_watchdog_is_gone(tmp_path: Path) -> None:
    wal = WriteAheadLog(tmp_path / "wal")
    watchdog = Watchdog(wal)
    watchdog.renew()
    os.kill(watchdog.pid, signal.SIGKILL)
    os.waitid(os.P_PID, watchdog.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(LeaseLost):
        watchdog.renew()
    watchdog.close()
    wal.close()


def test_a_watchdog_leaves_a_newer_guard_alone(tmp_path: Path, host: FakeHost) -> None:
    wal = write_ahead_log(tmp_path, host)
    wal.write("s", QUOTA, "5000 100000")
    assert play_back(wal.path, epoch="of an earlier guard", kernel=host) == ()
    assert host.read(QUOTA).split()[0] == "5000"
    assert play_back(wal.path, epoch=wal.epoch, kernel=host) == ()
    assert host.read(QUOTA).split()[0] == "max"
    wal.abandon()


def test_the_real_machine_is_left_as_found_by_an_orderly_end(tmp_path: Path, real: RealKit) -> None:
    pid = real.process()
    before = limits(pid)
    wal = WriteAheadLog(tmp_path / "wal")
    members = found(LINUX, pid)
    setting = Setting(share=0.05, cores=1, frozen=True)
    for binding in (Cpuset(wal), Affinity(wal)):
        for actuator in (
            Quota(wal, unhindered=lambda _: Unhindered(cpus=1.0)),
            CoreCount(Binder(binding, {0: Domain(0, members.cpus)})),
            CgroupFreeze(wal),
            StopSignal(wal),
        ):
            if actuator.capability().available:
                actuator.apply(BATCH, members, setting)
        assert limits(pid) != before
        assert wal.revert() == ()
        until(lambda: limits(pid) == before, "all limits are gone")
    wal.close()
