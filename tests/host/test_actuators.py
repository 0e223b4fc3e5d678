"""Each mechanism on fake machines: what it sets, what it refuses, and that all of it is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.core import Conflict, Invalid, Overloaded, Unavailable
from shoal.host.actuators import (
    Affinity,
    BandwidthAllocation,
    Binder,
    CgroupFreeze,
    CoreCount,
    Cpuset,
    CpuWeight,
    Placement,
    Prefetchers,
    Quota,
    StopSignal,
    Unhindered,
)
from shoal.host.actuators.bandwidth import ways
from shoal.host.linux.fs import Kernel
from shoal.host.types import UNLIMITED, Setting
from shoal.host.undo.resctrl import Cache
from shoal.host.undo.write_ahead_log import WriteAheadLog
from tests.host.fake import AMD, CAPACITY, RESCTRL_AMD, RESCTRL_INTEL, RESCTRL_MBPS, FakeHost, Machine
from tests.host.kit import BATCH, OTHER, SERVICE, found, write_ahead_log

TWO_CACHES = {0: (frozenset({0, 1}), 0), 1: (frozenset({2, 3}), 1)}
HALF = Setting(share=0.5)


def known(cpus: float | None = None, bandwidth: float | None = None):
    return lambda group: Unhindered(cpus, bandwidth)


class State:
    """Everything a guard could have changed, to be compared before and after."""

    def __init__(self, host: FakeHost) -> None:
        self.groups = {
            (hierarchy.top, group.path()): (dict(group.values), tuple(group.own()))
            for hierarchy in host.hierarchies
            for group in hierarchy.root.below()
        }
        self.processes = {
            pid: (one.user_cpus, one.stopped, one.resctrl, one.monitor, host.allowed(one))
            for pid, one in host.processes.items()
        }
        self.msr = {cpu: dict(registers) for cpu, registers in host.msr.items()}
        self.controls = dict(host.resctrl.controls) if host.resctrl is not None else {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class Bench:
    """A machine, its write-ahead log, and the check that both end as they began."""

    def __init__(self, path: Path, machine: Machine) -> None:
        self.host = FakeHost(machine)
        self.wal: WriteAheadLog = write_ahead_log(path, self.host)
        self._before: State | None = None

    def ready(self) -> None:
        """What is so now is how the machine is to be left."""
        self._before = State(self.host)

    def assert_restored(self) -> None:
        assert State(self.host) == self._before
        assert len(self.wal) == 0


@pytest.fixture(params=["v1", "v2", "hybrid"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, Machine(cgroups=request.param, l3s=TWO_CACHES))
    yield bench
    bench.wal.close()


def quota_of(host: Kernel, directory: str) -> str:
    v1, v2 = f"/sys/fs/cgroup/cpu/{directory}/cpu.cfs_quota_us", f"/sys/fs/cgroup/{directory}/cpu.max"
    return host.read(v1 if host.exists(v1) else v2).split()[0]


# --- weight ---

HEAVY = Setting(weight=100.0)


def weight_of(host: Kernel, directory: str) -> str:
    v1, v2 = f"/sys/fs/cgroup/cpu/{directory}/cpu.shares", f"/sys/fs/cgroup/{directory}/cpu.weight"
    return host.read(v1 if host.exists(v1) else v2).strip()


def test_a_weight_is_raised_and_taken_back(bench: Bench) -> None:
    process = bench.host.start()
    bench.ready()
    weight = CpuWeight(bench.wal, kernel=bench.host)
    assert weight.capability().available
    members = found(bench.host, process.pid)
    assert weight.apply(SERVICE, members, HEAVY).weight == 100.0
    assert weight_of(bench.host, "shoal-guard-service") in ("102400", "10000")
    most = weight.apply(SERVICE, members, Setting(weight=9999.0)).weight
    assert weight_of(bench.host, "shoal-guard-service") in ("262144", "10000")
    assert most in (256.0, 100.0), "what the kernel takes"
    assert weight.apply(SERVICE, members, UNLIMITED) == UNLIMITED
    bench.assert_restored()


def test_a_weight_above_ours_is_left_alone(bench: Bench) -> None:
    group = bench.host.group("service")
    v1 = bench.host.exists("/sys/fs/cgroup/cpu/service/cpu.shares")
    path = "/sys/fs/cgroup/cpu/service/cpu.shares" if v1 else "/sys/fs/cgroup/service/cpu.weight"
    process = bench.host.start(cgroup="service")
    bench.host.write(path, "9000")
    bench.ready()
    weight = CpuWeight(bench.wal, kernel=bench.host)
    weight.apply(SERVICE, found(bench.host, process.pid), Setting(weight=2.0))
    assert weight_of(bench.host, "service") == "9000"
    weight.restore()
    bench.assert_restored()
    assert group is not None


def test_a_real_time_process_cannot_be_moved_and_nothing_is_left(bench: Bench) -> None:
    usual, urgent = bench.host.start(), bench.host.start(real_time=True)
    bench.ready()
    weight = CpuWeight(bench.wal, kernel=bench.host)
    with pytest.raises(Conflict, match="cannot be moved"):
        weight.apply(SERVICE, found(bench.host, usual.pid, urgent.pid), HEAVY)
    bench.assert_restored()


def test_a_weight_survives_that_another_mechanism_takes_their_directory_back(bench: Bench) -> None:
    process = bench.host.start()
    bench.ready()
    cpuset = Binder(Cpuset(bench.wal, kernel=bench.host), dict(enumerate(bench.host.domains())))
    weight, members = CpuWeight(bench.wal, kernel=bench.host), found(bench.host, process.pid)
    cpuset.apply("service", members, Setting(cpus=frozenset({0})))
    weight.apply(SERVICE, members, HEAVY)
    cpuset.apply("service", members, UNLIMITED)
    weight.apply(SERVICE, members, HEAVY)
    assert weight_of(bench.host, "shoal-guard-service") in ("102400", "10000")
    weight.restore()
    bench.assert_restored()


def test_where_weights_cannot_be_set_it_says_so(tmp_path: Path) -> None:
    host = FakeHost(Machine(cgroups="none"))
    found_out = CpuWeight(write_ahead_log(tmp_path, host), kernel=host).capability()
    assert not found_out.available
    assert "no cgroup hierarchy" in found_out.detail
    assert "takes CPU time from guaranteed work" in found_out.consequence


# --- quota ---


def test_a_quota_is_a_share_of_what_a_group_keeps_busy(bench: Bench) -> None:
    bench.host.group("batch")
    process = bench.host.start(cgroup="batch", busy=2.0)
    bench.ready()
    quota = Quota(bench.wal, unhindered=known(cpus=2.0), kernel=bench.host)
    assert quota.capability().available
    assert quota.apply(BATCH, found(bench.host, process.pid), HALF).share == 0.5
    assert quota_of(bench.host, "batch") == "100000"
    bench.host.advance(1.0)
    assert process.run_ns == pytest.approx(1e9)
    quota.apply(BATCH, found(bench.host, process.pid), UNLIMITED)
    quota.restore()
    bench.assert_restored()


def test_the_least_quota_is_a_millisecond_in_a_hundred(bench: Bench) -> None:
    bench.host.group("batch")
    process = bench.host.start(cgroup="batch")
    quota = Quota(bench.wal, unhindered=known(cpus=1.0), kernel=bench.host)
    applied = quota.apply(BATCH, found(bench.host, process.pid), Setting(share=0.001))
    assert quota_of(bench.host, "batch") == "1000"
    assert applied.share == quota.least_share == 0.01


def test_a_group_that_shares_its_cgroup_gets_one_below_it(bench: Bench) -> None:
    process, stranger = bench.host.start(), bench.host.start()
    bench.ready()
    quota = Quota(bench.wal, unhindered=known(cpus=1.0), kernel=bench.host)
    quota.apply(BATCH, found(bench.host, process.pid), HALF)
    assert quota_of(bench.host, "shoal-guard-batch") == "50000"
    assert "shoal-guard-batch" in bench.host.cgroup_lines(process)
    assert "shoal-guard" not in bench.host.cgroup_lines(stranger)
    quota.restore("batch")
    bench.assert_restored()


def test_newcomers_are_followed(bench: Bench) -> None:
    first, stranger = bench.host.start(), bench.host.start()
    quota = Quota(bench.wal, unhindered=known(cpus=1.0), kernel=bench.host)
    quota.apply(BATCH, found(bench.host, first.pid), HALF)
    second = bench.host.start()
    quota.apply(BATCH, found(bench.host, first.pid, second.pid), HALF)
    assert "shoal-guard-batch" in bench.host.cgroup_lines(second)
    child = bench.host.start(ppid=second.pid)
    bench.host.end(second)
    quota.apply(BATCH, found(bench.host, first.pid, child.pid), HALF)
    quota.restore()
    assert all("shoal-guard" not in bench.host.cgroup_lines(one) for one in (first, child, stranger))


def test_a_tighter_quota_of_the_owner_stands(bench: Bench) -> None:
    bench.host.group("batch")
    process = bench.host.start(cgroup="batch")
    v1 = bench.host.exists("/sys/fs/cgroup/cpu/batch")
    path = "/sys/fs/cgroup/cpu/batch/cpu.cfs_quota_us" if v1 else "/sys/fs/cgroup/batch/cpu.max"
    bench.host.write(path, "10000")
    quota = Quota(bench.wal, unhindered=known(cpus=1.0), kernel=bench.host)
    quota.apply(BATCH, found(bench.host, process.pid), HALF)
    assert quota_of(bench.host, "batch") == "10000"
    quota.apply(BATCH, found(bench.host, process.pid), Setting(share=0.05))
    assert quota_of(bench.host, "batch") == "5000"
    quota.restore()
    assert quota_of(bench.host, "batch") == "10000"


def test_a_group_of_several_cgroups_splits_its_quota(bench: Bench) -> None:
    bench.host.group("batch/a")
    bench.host.group("batch/b")
    pids = [bench.host.start(cgroup=f"batch/{name}").pid for name in "ab"]
    quota = Quota(bench.wal, unhindered=known(cpus=2.0), kernel=bench.host)
    quota.apply(BATCH, found(bench.host, *pids), HALF)
    if bench.host.exists("/sys/fs/cgroup/batch/cpu.max"):  # version 2 hands the controller on no further
        assert quota_of(bench.host, "batch") == "100000"
    else:
        assert [quota_of(bench.host, f"batch/{name}") for name in "ab"] == ["50000", "50000"]


def test_a_group_that_is_named_by_its_cgroup_is_limited_as_a_whole(bench: Bench) -> None:
    bench.host.group("batch/a")
    process = bench.host.start(cgroup="batch/a")
    bench.ready()
    quota = Quota(bench.wal, unhindered=known(cpus=2.0), kernel=bench.host)
    quota.apply(BATCH, replace(found(bench.host, process.pid), cgroup="batch"), HALF)
    assert quota_of(bench.host, "batch") == "100000"
    quota.restore()
    bench.assert_restored()


def test_a_quota_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Machine(cgroups="v1"))
    bench.host.group("batch/inner")
    bench.host.write("/sys/fs/cgroup/cpu/batch/inner/cpu.cfs_quota_us", "90000")
    process = bench.host.start(cgroup="batch/inner")
    bench.ready()
    quota = Quota(bench.wal, unhindered=known(cpus=1.0), kernel=bench.host)
    members = replace(found(bench.host, process.pid), cgroup="batch")
    with pytest.raises(Conflict, match="larger quota"):
        quota.apply(BATCH, members, HALF)
    bench.assert_restored()


def test_version_2_hands_the_controller_to_nobody_below_a_shared_group(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Machine(cgroups="v2"))
    bench.host.group("session")
    process, _ = bench.host.start(cgroup="session"), bench.host.start(cgroup="session")
    bench.ready()
    quota = Quota(bench.wal, unhindered=known(), kernel=bench.host)
    with pytest.raises(Unavailable, match=r"has no cpu\.max"):
        quota.apply(BATCH, found(bench.host, process.pid), HALF)
    bench.assert_restored()


# --- placement ---


def binder(bench: Bench) -> Binder:
    return Binder(Cpuset(bench.wal, kernel=bench.host), dict(enumerate(bench.host.domains())))


def test_a_group_moves_to_another_domain_with_its_memory(bench: Bench) -> None:
    bench.host.group("batch")
    process = bench.host.start(cgroup="batch")
    bench.ready()
    placement = Placement(binder(bench))
    assert placement.capability().available
    placement.apply(BATCH, found(bench.host, process.pid), Setting(domains=frozenset({1})))
    assert bench.host.allowed(process) == {2, 3}
    assert process.node == 1
    placement.apply(BATCH, found(bench.host, process.pid), Setting(domains=frozenset({0})))
    assert bench.host.allowed(process) == {0, 1}
    placement.restore()
    bench.assert_restored()


def test_cpusets_that_nest_move_by_their_union(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Machine(cgroups="v1", l3s=TWO_CACHES))
    bench.host.group("batch/a/b")
    processes = [bench.host.start(cgroup=f"batch/{path}") for path in ("a", "a/b")]
    for path in ("batch", "batch/a", "batch/a/b")[::-1]:
        bench.host.write(f"/sys/fs/cgroup/cpuset/{path}/cpuset.cpus", "0-1")
    bench.ready()
    placement = Placement(binder(bench))
    members = replace(found(bench.host, *(one.pid for one in processes)), cgroup="batch", cpus=bench.host.cpus)
    placement.apply(BATCH, members, Setting(domains=frozenset({1})))
    assert all(bench.host.allowed(one) == {2, 3} for one in processes)
    placement.restore()
    bench.assert_restored()


def test_fewer_cores_within_a_domain(bench: Bench) -> None:
    bench.host.group("batch")
    process = bench.host.start(cgroup="batch", busy=4.0)
    bench.ready()
    shared = binder(bench)
    cores, placement = CoreCount(shared), Placement(shared)
    both = Setting(cores=1, domains=frozenset({1}))
    placement.apply(BATCH, found(bench.host, process.pid), both)
    assert cores.apply(BATCH, found(bench.host, process.pid), both).cores == 1
    assert bench.host.allowed(process) == {3}
    cores.apply(BATCH, found(bench.host, process.pid), Setting(cores=3))
    assert bench.host.allowed(process) == {1, 2, 3}
    cores.apply(BATCH, found(bench.host, process.pid), UNLIMITED)
    bench.assert_restored()


def test_affinity_stands_in_for_cpusets(bench: Bench) -> None:
    process, pinned = bench.host.start(threads=3), bench.host.start(user_cpus=frozenset({2}))
    bench.ready()
    affinity = Placement(Binder(Affinity(bench.wal, kernel=bench.host), dict(enumerate(bench.host.domains()))))
    affinity.apply(BATCH, found(bench.host, process.pid, pinned.pid), Setting(domains=frozenset({1})))
    assert bench.host.allowed(process) == bench.host.allowed(pinned) == {2, 3}
    assert process.node == 1
    late = bench.host.start()
    affinity.apply(BATCH, found(bench.host, process.pid, pinned.pid, late.pid), Setting(domains=frozenset({1})))
    assert bench.host.allowed(late) == {2, 3}
    bench.host.end(late)
    affinity.restore()
    assert bench.host.allowed(process) == bench.host.cpus
    assert bench.host.allowed(pinned) == {2}


def test_a_group_that_its_owner_pinned_stays_there(bench: Bench) -> None:
    process = bench.host.start(user_cpus=frozenset({0}))
    bench.ready()
    with pytest.raises(Conflict, match="allowed on CPUs 0 only"):
        Placement(binder(bench)).apply(BATCH, found(bench.host, process.pid), Setting(domains=frozenset({1})))
    bench.assert_restored()


def test_one_domain_offers_no_placement(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Machine())
    assert "one memory domain" in Placement(binder(bench)).capability().detail
    assert CoreCount(binder(bench)).capability().available


# --- freezing ---


def test_a_group_freezes_and_thaws(bench: Bench) -> None:
    bench.host.group("batch")
    process, other = bench.host.start(cgroup="batch"), bench.host.start()
    bench.ready()
    freeze = CgroupFreeze(bench.wal, kernel=bench.host)
    assert freeze.capability().available
    for _ in range(2):
        freeze.apply(BATCH, found(bench.host, process.pid), Setting(frozen=True))
        assert process.frozen()
        assert not other.frozen()
        freeze.apply(BATCH, found(bench.host, process.pid), UNLIMITED)
        assert not process.frozen()
    freeze.restore()
    bench.assert_restored()


def test_newcomers_of_a_frozen_group_freeze(bench: Bench) -> None:
    first, _ = bench.host.start(), bench.host.start()
    freeze = CgroupFreeze(bench.wal, kernel=bench.host)
    freeze.apply(BATCH, found(bench.host, first.pid), Setting(frozen=True))
    second = bench.host.start()
    freeze.apply(BATCH, found(bench.host, first.pid, second.pid), Setting(frozen=True))
    assert second.frozen()
    freeze.restore()
    assert not first.frozen()
    assert not second.frozen()


def test_signals_stop_what_no_cgroup_can(bench: Bench) -> None:
    process = bench.host.start()
    bench.ready()
    stop = StopSignal(bench.wal)
    stop.apply(BATCH, found(bench.host, process.pid), Setting(frozen=True))
    assert process.stopped
    stop.apply(BATCH, found(bench.host, process.pid), UNLIMITED)
    bench.assert_restored()


# --- bandwidth allocation ---


def hardware(path: Path, spec, **traits) -> tuple[Bench, BandwidthAllocation]:
    bench = Bench(path, Machine(resctrl=spec, l3s=TWO_CACHES, **traits))
    return bench, BandwidthAllocation(bench.wal, unhindered=known(bandwidth=20e9), kernel=bench.host, cache_share=0.25)


def schemata(bench: Bench) -> str:
    return bench.host.read("/sys/fs/resctrl/shoal-guard-batch/schemata")


@pytest.mark.parametrize(
    ("share", "value", "in_force"), [(0.5, 50, 0.5), (0.12, 20, 0.2), (0.3, 30, 0.3), (0.01, 10, 0.1), (1.0, 100, 1.0)]
)
def test_percentages_are_rounded_up_as_the_hardware_does(
    tmp_path: Path, share: float, value: int, in_force: float
) -> None:
    bench, mba = hardware(tmp_path, RESCTRL_INTEL)
    process = bench.host.start()
    bench.ready()
    mba.apply(BATCH, found(bench.host, process.pid), HALF)
    assert mba.apply(BATCH, found(bench.host, process.pid), Setting(share=share)).share == pytest.approx(in_force)
    assert f"MB:0={value:4d};1={value:4d}" in schemata(bench)
    assert ("L3:0=7;1=7" in schemata(bench)) == (share < 1)
    mba.restore()
    bench.assert_restored()


@pytest.mark.parametrize(("spec", "value"), [(RESCTRL_MBPS, 4769), (RESCTRL_AMD, 40)])
def test_where_bytes_are_counted_a_share_is_of_what_was_taken_before(tmp_path: Path, spec, value: int) -> None:
    bench, mba = hardware(tmp_path, spec, processor=AMD if spec is RESCTRL_AMD else Machine().processor)
    process = bench.host.start(busy=4.0, demand=5e9)
    applied = mba.apply(BATCH, found(bench.host, process.pid), HALF)
    assert f"MB:0={value:4d};1={value:4d}" in schemata(bench)
    assert applied.share == pytest.approx(0.5, rel=1e-3)


def test_without_knowing_what_it_takes_such_hardware_is_passed_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Machine(resctrl=RESCTRL_MBPS))
    process = bench.host.start()
    bench.ready()
    mba = BandwidthAllocation(bench.wal, unhindered=known(), kernel=bench.host)
    with pytest.raises(Unavailable, match="not known yet"):
        mba.apply(BATCH, found(bench.host, process.pid), HALF)
    bench.assert_restored()


def test_threads_and_newcomers_are_put_into_the_group(tmp_path: Path) -> None:
    bench, mba = hardware(tmp_path, RESCTRL_INTEL)
    first = bench.host.start(threads=3)
    mba.apply(BATCH, found(bench.host, first.pid), HALF)
    second = bench.host.start()
    mba.apply(BATCH, found(bench.host, first.pid, second.pid), HALF)
    tasks = bench.host.read("/sys/fs/resctrl/shoal-guard-batch/tasks").split()
    assert tasks == [str(tid) for tid in (*first.tids, *second.tids)]


def test_no_class_is_left(tmp_path: Path) -> None:
    bench, mba = hardware(tmp_path, replace(RESCTRL_INTEL, closids=2))
    first, second = bench.host.start(), bench.host.start()
    mba.apply(BATCH, found(bench.host, first.pid), HALF)
    bench.ready()
    with pytest.raises(Overloaded, match="Out of CLOSIDs"):
        mba.apply(OTHER, found(bench.host, second.pid), HALF)
    mba.restore("batch")
    mba.apply(OTHER, found(bench.host, second.pid), HALF)
    assert second.resctrl == "shoal-guard-other"


def test_hardware_that_is_busy_says_when_to_ask_again(tmp_path: Path) -> None:
    bench, mba = hardware(tmp_path, RESCTRL_INTEL)
    assert bench.host.resctrl is not None
    bench.host.resctrl.busy = True
    with pytest.raises(Overloaded, match="limbo") as raised:
        mba.apply(BATCH, found(bench.host, bench.host.start().pid), HALF)
    assert raised.value.retry_after_s == 10.0
    assert len(bench.wal) == 0


def test_a_process_in_a_group_of_somebody_else_is_left_there(tmp_path: Path) -> None:
    bench, mba = hardware(tmp_path, RESCTRL_INTEL)
    bench.host.mkdir("/sys/fs/resctrl/guaranteed-class")
    process = bench.host.start()
    bench.host.write("/sys/fs/resctrl/guaranteed-class/tasks", str(process.pid))
    bench.ready()
    with pytest.raises(Conflict, match="of another program"):
        mba.apply(BATCH, found(bench.host, process.pid), HALF)
    bench.assert_restored()


def test_a_refused_line_comes_with_the_kernels_words(tmp_path: Path) -> None:
    bench, mba = hardware(tmp_path, RESCTRL_INTEL)
    process = bench.host.start()
    mba.apply(BATCH, found(bench.host, process.pid), HALF)
    assert bench.host.resctrl is not None
    bench.host.resctrl.spec = replace(RESCTRL_INTEL, least=60)
    with pytest.raises(Invalid, match=r"MB value 20 out of range"):
        mba.apply(BATCH, found(bench.host, process.pid), Setting(share=0.2))
    assert process.resctrl == ""


def test_ways_avoid_what_devices_use() -> None:
    assert ways(Cache(("L3",), (0,), 0xFFF, 1, 0xC00), 0.25) == 0b111
    assert ways(Cache(("L3",), (0,), 0xFFF, 1, 0x003), 0.25) == 0b11100
    assert ways(Cache(("L3",), (0,), 0xFFF, 4, 0), 0.01) == 0b1111
    assert ways(Cache(("L3",), (0,), 0xF, 1, 0xF), 1.0) == 0xF


def test_a_limit_holds_in_the_model(tmp_path: Path) -> None:
    bench, mba = hardware(tmp_path, RESCTRL_INTEL)
    noisy = bench.host.start(busy=4.0, demand=13e9)
    bench.host.advance(1.0)
    assert noisy.moved == pytest.approx(2 * CAPACITY)
    mba.apply(BATCH, found(bench.host, noisy.pid), Setting(share=0.1))
    bench.host.advance(1.0)
    assert noisy.moved == pytest.approx(2 * CAPACITY * 1.1)


# --- prefetchers ---


@pytest.mark.parametrize(("processor", "off"), [(Machine().processor, 0b1111), (AMD, 0b101111)])
def test_prefetchers_go_off_from_the_highest_core_on(tmp_path: Path, processor, off: int) -> None:
    bench = Bench(tmp_path, Machine(processor=processor, msr=True))
    register = bench.host.prefetch_register
    for cpu in bench.host.cpus:
        bench.host.msr[cpu][register] = 0x40  # a bit that is not ours
    process = bench.host.start()
    bench.ready()
    prefetchers = Prefetchers(bench.wal, kernel=bench.host)
    members = found(bench.host, process.pid)
    assert prefetchers.apply(BATCH, members, Setting(prefetching=1)).prefetching == 1
    assert {cpu for cpu, one in bench.host.msr.items() if one[register] == 0x40 | off} == {1, 2, 3}
    prefetchers.apply(BATCH, members, Setting(prefetching=3))
    assert {cpu for cpu, one in bench.host.msr.items() if one[register] != 0x40} == {3}
    prefetchers.restore()
    bench.assert_restored()


def test_cores_of_guaranteed_work_keep_their_prefetchers(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Machine(msr=True))
    process = bench.host.start()
    prefetchers = Prefetchers(bench.wal, kernel=bench.host)
    members = found(bench.host, process.pid, exclusive=frozenset({1, 2}))
    assert prefetchers.apply(BATCH, members, Setting(prefetching=0)).prefetching == 2
    assert bench.host.msr[0][0x1A4] == bench.host.msr[3][0x1A4] == 0
    with pytest.raises(Unavailable, match="guaranteed work may use all"):
        prefetchers.apply(OTHER, replace(members, exclusive=frozenset()), Setting(prefetching=0))


def test_a_core_of_two_groups_is_on_when_neither_wants_it_off(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Machine(msr=True))
    members = found(bench.host, bench.host.start().pid)
    bench.ready()
    prefetchers = Prefetchers(bench.wal, kernel=bench.host)
    prefetchers.apply(BATCH, members, Setting(prefetching=2))
    prefetchers.apply(OTHER, members, Setting(prefetching=3))
    prefetchers.apply(BATCH, members, UNLIMITED)
    assert [cpu for cpu in sorted(bench.host.cpus) if bench.host.msr[cpu][0x1A4]] == [3]
    prefetchers.apply(OTHER, members, UNLIMITED)
    bench.assert_restored()


def test_without_the_registers_it_says_what_is_needed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Machine())
    found_ = Prefetchers(bench.wal, kernel=bench.host).capability()
    assert not found_.available
    assert "msr module" in found_.detail
    assert found_.consequence
