"""The fake machine and the real one answer alike: the same suite runs on both, where the real one has what it asks."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

import pytest

from shoal.core import ShoalError
from shoal.host.linux import cpus
from shoal.host.linux.fs import LINUX, Kernel, start_time, threads
from shoal.host.linux.hierarchies import hierarchies, serving
from shoal.host.undo.resctrl import Resctrl
from tests.host.fake import RESCTRL_AMD, RESCTRL_INTEL, RESCTRL_MBPS, FakeHost, Machine
from tests.host.fake.resctrl import ResctrlSpec
from tests.host.kit import FakeKit, RealKit

Kit = FakeKit | RealKit


@pytest.fixture(params=["v1", "v2", "hybrid", "real"])
def kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    kit: Kit = RealKit() if request.param == "real" else FakeKit(request.param)
    yield kit
    kit.close()


def refused(code: int, act: Callable[[], object]) -> None:
    with pytest.raises(OSError) as raised:  # noqa: PT011
        act()
    assert errno.errorcode[raised.value.errno or 0] == errno.errorcode[code]


def group(kit: Kit, controller: str) -> str:
    path = f"{kit.top(controller)}/shoal-test-{os.getpid()}"
    if isinstance(kit, RealKit):
        kit.made.append(path)
    kit.kernel.mkdir(path)
    return path


def test_processes_are_described(kit: Kit) -> None:
    pid = kit.process()
    assert start_time(kit.kernel, pid)
    assert pid in threads(kit.kernel, pid)
    assert kit.kernel.affinity(pid)
    run, wait, slices = kit.kernel.read(f"/proc/{pid}/task/{pid}/schedstat").split()
    assert run.isdigit()
    assert wait.isdigit()
    assert slices.isdigit()
    for hierarchy in hierarchies(kit.kernel):
        directory = hierarchy.directory(kit.kernel, pid)
        assert directory is not None
        assert str(pid) in kit.kernel.read(f"{directory}/cgroup.procs").split()


def test_a_process_that_is_gone_is_nowhere(kit: Kit) -> None:
    assert start_time(kit.kernel, 4_000_000) is None
    assert threads(kit.kernel, 4_000_000) == ()
    refused(errno.ESRCH, lambda: kit.kernel.affinity(4_000_000))
    refused(errno.ESRCH, lambda: kit.kernel.signal(4_000_000, 1, 19))


def test_groups_are_made_and_removed(kit: Kit) -> None:
    made = group(kit, "cpu")
    refused(errno.EEXIST, lambda: kit.kernel.mkdir(made))
    refused(errno.ENOENT, lambda: kit.kernel.mkdir(f"{made}/no/such"))
    pid = kit.process()
    kit.kernel.write(f"{made}/cgroup.procs", str(pid))
    assert kit.kernel.read(f"{made}/cgroup.procs").split() == [str(pid)]
    refused(errno.EBUSY, lambda: kit.kernel.rmdir(made))
    refused(errno.ESRCH, lambda: kit.kernel.write(f"{made}/cgroup.procs", "4000000"))
    kit.kernel.write(f"{made.rpartition('/')[0]}/cgroup.procs", str(pid))
    kit.kernel.rmdir(made)
    assert not kit.kernel.exists(made)


def test_a_quota_is_at_least_a_millisecond_of_a_period_of_at_most_a_second(kit: Kit) -> None:
    made = group(kit, "cpu")
    hierarchy = serving(kit.kernel, "cpu")
    assert hierarchy is not None
    if hierarchy.version == 1:
        quota = f"{made}/cpu.cfs_quota_us"
        assert kit.kernel.read(quota).strip() == "-1"
        refused(errno.EINVAL, lambda: kit.kernel.write(quota, "999"))
        refused(errno.EINVAL, lambda: kit.kernel.write(f"{made}/cpu.cfs_period_us", "1000001"))
        kit.kernel.write(quota, "1000")
        assert kit.kernel.read(quota).strip() == "1000"
    else:
        quota = f"{made}/cpu.max"
        assert kit.kernel.read(quota).split() == ["max", "100000"]
        refused(errno.EINVAL, lambda: kit.kernel.write(quota, "999 100000"))
        refused(errno.EINVAL, lambda: kit.kernel.write(quota, "5000 1000001"))
        kit.kernel.write(quota, "1000 100000")
        assert kit.kernel.read(quota).split() == ["1000", "100000"]


def test_a_child_of_version_1_may_have_no_larger_quota(kit: Kit) -> None:
    made = group(kit, "cpu")
    if not kit.kernel.exists(f"{made}/cpu.cfs_quota_us"):
        pytest.skip("version 2 permits it")
    child = f"{made}/child"
    kit.kernel.mkdir(child)
    if isinstance(kit, RealKit):
        kit.made.append(child)
    kit.kernel.write(f"{child}/cpu.cfs_quota_us", "50000")
    refused(errno.EINVAL, lambda: kit.kernel.write(f"{made}/cpu.cfs_quota_us", "20000"))
    kit.kernel.write(f"{made}/cpu.cfs_quota_us", "60000")
    refused(errno.EINVAL, lambda: kit.kernel.write(f"{child}/cpu.cfs_quota_us", "70000"))


def test_cpusets_of_version_1_hold_processes_once_they_have_cpus_and_memory(kit: Kit) -> None:
    made = group(kit, "cpuset")
    pid = kit.process()
    if kit.kernel.exists(f"{made}/cpuset.cpus.effective"):
        kit.kernel.write(f"{made}/cgroup.procs", str(pid))
    else:
        refused(errno.ENOSPC, lambda: kit.kernel.write(f"{made}/cgroup.procs", str(pid)))
        top = made.rpartition("/")[0]
        for file in ("cpuset.cpus", "cpuset.mems"):
            kit.kernel.write(f"{made}/{file}", kit.kernel.read(f"{top}/{file}").strip())
        kit.kernel.write(f"{made}/cgroup.procs", str(pid))
        refused(errno.ENOSPC, lambda: kit.kernel.write(f"{made}/cpuset.cpus", "\n"))
    one = min(kit.kernel.affinity(pid))
    kit.kernel.write(f"{made}/cpuset.cpus", str(one))
    assert kit.kernel.affinity(pid) == {one}
    refused(errno.EINVAL, lambda: kit.kernel.write(f"{made}/cpuset.cpus", "0-x"))


def test_cpusets_of_version_1_nest(kit: Kit) -> None:
    made = group(kit, "cpuset")
    if kit.kernel.exists(f"{made}/cpuset.cpus.effective"):
        pytest.skip("version 2 takes what is left by itself")
    whole = cpus.parse(kit.kernel.read(f"{made.rpartition('/')[0]}/cpuset.cpus"))
    if len(whole) < 2:
        pytest.skip("one CPU does not nest")
    child = f"{made}/child"
    kit.kernel.mkdir(child)
    if isinstance(kit, RealKit):
        kit.made.append(child)
    kit.kernel.write(f"{made}/cpuset.cpus", str(min(whole)))
    refused(errno.EACCES, lambda: kit.kernel.write(f"{child}/cpuset.cpus", str(max(whole))))
    kit.kernel.write(f"{child}/cpuset.cpus", str(min(whole)))
    refused(errno.EBUSY, lambda: kit.kernel.write(f"{made}/cpuset.cpus", str(max(whole))))


def test_the_freezer_takes_two_words(kit: Kit) -> None:
    controller, file, on, off = (
        ("freezer", "freezer.state", "FROZEN", "THAWED")
        if serving(kit.kernel, "freezer")
        else ("unified", "cgroup.freeze", "1", "0")
    )
    made = group(kit, controller)
    refused(errno.EINVAL, lambda: kit.kernel.write(f"{made}/{file}", "maybe"))
    kit.kernel.write(f"{made}/{file}", on)
    assert kit.kernel.read(f"{made}/{file}").strip() == on
    kit.kernel.write(f"{made}/{file}", off)


def test_threads_are_bound(kit: Kit) -> None:
    pid = kit.process()
    one = min(kit.kernel.affinity(pid))
    kit.kernel.set_affinity(pid, frozenset({one}))
    assert kit.kernel.affinity(pid) == {one}
    refused(errno.EINVAL, lambda: kit.kernel.set_affinity(pid, frozenset({1000})))


def test_a_signal_finds_the_very_process(kit: Kit) -> None:
    pid = kit.process()
    start = start_time(kit.kernel, pid)
    assert start is not None
    refused(errno.ESRCH, lambda: kit.kernel.signal(pid, start + 1, 19))
    kit.kernel.signal(pid, start, 0)


def test_pressure_and_statistics_have_their_lines(kit: Kit) -> None:
    if not kit.kernel.exists("/proc/pressure/cpu"):
        pytest.skip("this kernel keeps no pressure")
    assert "total=" in kit.kernel.read("/proc/pressure/memory").splitlines()[0]
    assert kit.kernel.read("/proc/stat").startswith("cpu ")


# --- resctrl ---


@pytest.fixture(params=[RESCTRL_INTEL, RESCTRL_MBPS, RESCTRL_AMD, "real"], ids=["percent", "mbps", "amd", "real"])
def resctrl(request: pytest.FixtureRequest) -> Iterator[tuple[Kernel, Resctrl]]:
    spec = request.param
    kernel: Kernel = FakeHost(Machine(resctrl=spec)) if isinstance(spec, ResctrlSpec) else LINUX
    try:
        found = Resctrl.find(kernel)
    except ShoalError as problem:
        pytest.skip(str(problem))
    if found.bandwidth() is None:
        pytest.skip("no bandwidth allocation here")
    yield kernel, found
    for group in found.groups():
        if "shoal-test" in group:
            kernel.rmdir(group)


def test_a_control_group_begins_unlimited_and_keeps_what_it_is_told(resctrl: tuple[Kernel, Resctrl]) -> None:
    kernel, found = resctrl
    machine = found.bandwidth()
    assert machine is not None
    group = f"{found.root}/shoal-test"
    kernel.mkdir(group)
    assert {"schemata", "tasks"} <= set(kernel.names(group))
    found.allocate(group, {"MB": dict.fromkeys(machine.ids, str(machine.least))})
    line = next(one for one in kernel.read(f"{group}/schemata").splitlines() if one.strip().startswith("MB:"))
    assert {int(part.partition("=")[2]) for part in line.partition(":")[2].split(";")} == {machine.least}


def test_the_kernel_says_what_it_has_against_a_line(resctrl: tuple[Kernel, Resctrl]) -> None:
    kernel, found = resctrl
    group = f"{found.root}/shoal-test"
    kernel.mkdir(group)
    with pytest.raises(ShoalError, match="Unknown or unsupported resource"):
        found.allocate(group, {"XX": {0: "1"}})
    with pytest.raises(ShoalError, match="out of range"):
        found.allocate(group, {"MB": {0: "0"}})
    cache = found.cache()
    if cache is not None and cache.mask.bit_count() >= 3:
        with pytest.raises(ShoalError, match="consecutive"):
            found.allocate(group, {cache.resources[0]: {cache.ids[0]: "5"}})


def test_groups_run_out(resctrl: tuple[Kernel, Resctrl]) -> None:
    kernel, found = resctrl
    classes = int(kernel.read(f"{found.root}/info/MB/num_closids"))

    def make_all() -> None:
        for at in range(classes):  # one of them is the default group's
            kernel.mkdir(f"{found.root}/shoal-test-{at}")

    refused(errno.ENOSPC, make_all)
    assert found.last_status() != "ok"
