"""Each sensor on fake machines whose truth is known, and on this one where it has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.host.linux.fs import LINUX
from shoal.host.linux.members import Found
from shoal.host.linux.perf import Counts, parse_terms, scatter
from shoal.host.sensors import (
    CpuClocks,
    MemoryLatency,
    Quantity,
    ReportedWork,
    ResctrlMonitor,
    SchedulerStatistics,
    Scope,
    Thrifty,
    UncoreCounters,
    Work,
    pinned,
)
from shoal.host.sensors.base import Key, Readings
from shoal.host.sensors.reports import ReportLines, gateway_work
from shoal.host.types import Missing, Reading
from tests.host.fake import AMD, CAPACITY, RESCTRL_INTEL, FakeHost, Machine
from tests.host.fake.resctrl import ResctrlSpec
from tests.host.kit import RealKit, found, until, write_ahead_log

EVER = float("-inf")
TWO_CACHES = {0: (frozenset({0, 1}), 0), 1: (frozenset({2, 3}), 1)}


def value(readings: Readings, quantity: Quantity, scope: Scope, of: str | int = 0) -> float:
    reading = readings[Key(quantity, scope, of)]
    assert not isinstance(reading.value, Missing), reading.value.reason
    return reading.value


def why(readings: Readings, quantity: Quantity, scope: Scope, of: str | int = 0) -> str:
    reading = readings[Key(quantity, scope, of)]
    assert isinstance(reading.value, Missing)
    return reading.value.reason


# --- resctrl ---


def monitored(path: Path, spec: ResctrlSpec = RESCTRL_INTEL) -> tuple[FakeHost, ResctrlMonitor]:
    host = FakeHost(Machine(resctrl=spec, l3s=TWO_CACHES))
    return host, ResctrlMonitor(host.domains(), kernel=host, wal=write_ahead_log(path, host))


def test_bandwidth_of_domains_and_groups_is_what_they_moved(tmp_path: Path) -> None:
    host, sensor = monitored(tmp_path)
    noisy = host.start(busy=2.0, demand=5e9, user_cpus=frozenset({0, 1}))
    host.start(busy=1.0, demand=3e9, user_cpus=frozenset({2}))
    groups = {"batch": found(host, noisy.pid)}
    first = sensor.read(host.now, groups, EVER)
    assert "is Unavailable" in why(first, Quantity.BANDWIDTH, Scope.DOMAIN, 0)
    assert "is Unavailable" in why(first, Quantity.BANDWIDTH, Scope.GROUP, "batch")
    host.advance(0.1)
    second = sensor.read(host.now, groups, EVER)
    assert "only once" in why(second, Quantity.BANDWIDTH, Scope.GROUP, "batch")
    host.advance(0.1)
    third = sensor.read(host.now, groups, EVER)
    assert value(third, Quantity.BANDWIDTH, Scope.DOMAIN, 0) == pytest.approx(10e9, rel=1e-6)
    assert value(third, Quantity.BANDWIDTH, Scope.DOMAIN, 1) == pytest.approx(3e9, rel=1e-6)
    assert value(third, Quantity.BANDWIDTH, Scope.GROUP, "batch") == pytest.approx(10e9, rel=1e-6)
    sensor.close()
    assert not [name for name in host.names("/sys/fs/resctrl/mon_groups") if name.startswith("shoal")]


def test_a_control_group_that_comes_and_goes_spoils_one_reading_only(tmp_path: Path) -> None:
    host, sensor = monitored(tmp_path)
    noisy = host.start(busy=2.0, demand=5e9, user_cpus=frozenset({0, 1}))
    groups = {"batch": found(host, noisy.pid)}
    rates: list[Reading] = []
    for tick in range(9):
        if tick == 3:
            host.mkdir("/sys/fs/resctrl/shoal-guard-batch")
            host.write("/sys/fs/resctrl/shoal-guard-batch/tasks", str(noisy.pid))
        if tick == 6:
            host.rmdir("/sys/fs/resctrl/shoal-guard-batch")
        rates.append(sensor.read(host.now, groups, EVER)[Key(Quantity.BANDWIDTH, Scope.DOMAIN, 0)])
        host.advance(0.1)
    known = [rate.value for rate in rates if not isinstance(rate.value, Missing)]
    assert known == [pytest.approx(10e9, rel=1e-6)] * len(known)
    assert len(known) >= 4


def test_counters_that_go_back_are_dropped(tmp_path: Path) -> None:
    host, sensor = monitored(tmp_path)
    noisy = host.start(busy=1.0, demand=5e9, user_cpus=frozenset({0}))
    groups = {"batch": found(host, noisy.pid)}
    for _ in range(3):
        sensor.read(host.now, groups, EVER)
        host.advance(0.1)
    assert host.resctrl is not None
    host.resctrl.bytes.clear()
    spoiled = sensor.read(host.now, groups, EVER)
    assert why(spoiled, Quantity.BANDWIDTH, Scope.DOMAIN, 0)
    host.advance(0.1)
    assert value(sensor.read(host.now, groups, EVER), Quantity.BANDWIDTH, Scope.DOMAIN, 0) == pytest.approx(5e9)


@pytest.mark.parametrize("word", ["Unassigned", "Error"])
def test_a_counter_that_is_not_assigned_is_missing_not_zero(tmp_path: Path, word: str) -> None:
    host, sensor = monitored(tmp_path)
    read = host.read
    host.read = lambda path: f"{word}\n" if path.endswith("mbm_total_bytes") else read(path)  # type: ignore[method-assign]
    readings = sensor.read(host.now, {"batch": found(host, host.start().pid)}, EVER)
    assert f"is {word}" in why(readings, Quantity.BANDWIDTH, Scope.DOMAIN, 0)
    assert f"is {word}" in why(readings, Quantity.BANDWIDTH, Scope.GROUP, "batch")


def test_under_sub_numa_clustering_each_half_is_counted_for_itself(tmp_path: Path) -> None:
    host, sensor = monitored(tmp_path, replace(RESCTRL_INTEL, snc=True))
    read = []
    real = host.read
    host.read = lambda path: (read.append(path), real(path))[1]  # type: ignore[method-assign,func-returns-value]
    sensor.read(host.now, {}, EVER)
    assert any("mon_L3_01/mon_sub_L3_01/mbm_total_bytes" in path for path in read)


def test_without_resctrl_it_says_what_is_needed() -> None:
    host = FakeHost()
    capability = ResctrlMonitor(host.domains(), kernel=host).capability()
    assert not capability.available
    assert "mount -t resctrl" in capability.detail


def test_without_leave_to_make_groups_only_limited_ones_are_counted() -> None:
    host = FakeHost(Machine(resctrl=RESCTRL_INTEL))
    sensor = ResctrlMonitor(host.domains(), kernel=host)
    readings = sensor.read(host.now, {"batch": found(host, host.start().pid)}, EVER)
    assert "only while it has a limit" in why(readings, Quantity.BANDWIDTH, Scope.GROUP, "batch")


# --- counters outside the cores ---


@pytest.mark.parametrize("multiplexed", [1.0, 0.25])
def test_intels_controllers_give_bandwidth_and_saturation(multiplexed: float) -> None:
    host = FakeHost(Machine(uncore=True, multiplexed=multiplexed))
    host.start(busy=4.0, demand=6e9)
    sensor = UncoreCounters(kernel=host)
    assert sensor.capability().available
    assert "only once" in why(sensor.read(host.now, {}, EVER), Quantity.BANDWIDTH, Scope.SOCKET)
    host.advance(0.5)
    readings = sensor.read(host.now, {}, EVER)
    assert value(readings, Quantity.BANDWIDTH, Scope.SOCKET) == pytest.approx(24e9, rel=1e-3)
    assert value(readings, Quantity.SATURATION, Scope.SOCKET) == pytest.approx(24e9 / CAPACITY - 0.5, rel=1e-3)
    sensor.close()
    assert host.open_counters == 0


def test_amds_controllers_give_bandwidth() -> None:
    host = FakeHost(Machine(uncore=True, processor=AMD))
    host.start(busy=2.0, demand=6e9)
    sensor = UncoreCounters(kernel=host)
    sensor.read(host.now, {}, EVER)
    host.advance(0.5)
    readings = sensor.read(host.now, {}, EVER)
    assert value(readings, Quantity.BANDWIDTH, Scope.SOCKET) == pytest.approx(12e9, rel=1e-3)


def test_counters_that_never_had_a_turn_say_nothing() -> None:
    before = Counts(100, 50, (10, 20))
    assert Counts(300, 150, (20, 40)).since(before) == (20.0, 40.0)
    assert Counts(300, 50, (10, 20)).since(before) is None


def test_event_descriptions_are_read_as_the_kernel_writes_them() -> None:
    assert parse_terms("event=0x04,umask=0x3,edge\n") == {"event": 4, "umask": 3, "edge": 1}
    assert scatter(0x1FF, "0-7,32-35") == 0xFF | 1 << 32
    assert scatter(3, "8-9") == 0x300


def test_this_machine_says_whether_it_has_counters() -> None:
    capability = UncoreCounters().capability()
    assert capability.detail
    assert capability.available or capability.consequence


# --- the scheduler's books ---


def test_cpus_kept_busy_and_waited_for() -> None:
    host = FakeHost(Machine(cgroups="v2"))
    host.group("batch")
    process = host.start(cgroup="batch", busy=2.0, threads=3)
    groups = {"batch": found(host, process.pid)}
    sensor = SchedulerStatistics(kernel=host)
    sensor.read(host.now, groups, EVER)
    host.advance(0.5)
    readings = sensor.read(host.now, groups, EVER)
    assert value(readings, Quantity.CPUS, Scope.GROUP, "batch") == pytest.approx(2.0, rel=1e-6)
    assert value(readings, Quantity.WAIT, Scope.GROUP, "batch") == 0
    assert value(readings, Quantity.STEAL, Scope.HOST) == pytest.approx(0.25)
    host.write("/sys/fs/cgroup/batch/cpu.max", "50000 100000")
    host.advance(0.5)
    sensor.read(host.now, groups, EVER)
    host.advance(0.5)
    readings = sensor.read(host.now, groups, EVER)
    assert value(readings, Quantity.CPUS, Scope.GROUP, "batch") == pytest.approx(0.5, rel=1e-6)
    assert value(readings, Quantity.WAIT, Scope.GROUP, "batch") == pytest.approx(3.0, rel=1e-6)
    assert value(readings, Quantity.THROTTLED, Scope.GROUP, "batch") == 1.0


def test_what_a_process_did_before_it_joined_does_not_count() -> None:
    host = FakeHost()
    first = host.start(busy=1.0)
    host.advance(100.0)
    sensor = SchedulerStatistics(kernel=host)
    sensor.read(host.now, {"batch": Found()}, EVER)
    host.advance(1.0)
    sensor.read(host.now, {"batch": found(host, first.pid)}, EVER)
    host.advance(1.0)
    readings = sensor.read(host.now, {"batch": found(host, first.pid)}, EVER)
    assert value(readings, Quantity.CPUS, Scope.GROUP, "batch") == pytest.approx(1.0, rel=1e-6)


def test_the_clocks_of_processes_say_how_many_cpus_are_busy() -> None:
    host = FakeHost()
    first, second = host.start(busy=1.0), host.start(busy=0.5)
    host.advance(100.0)
    sensor, both = CpuClocks(kernel=host), {"batch": found(host, first.pid, second.pid)}
    sensor.read(host.now, {"batch": found(host, first.pid)}, EVER)
    for _ in range(10):
        host.advance(0.1)
        readings = sensor.read(host.now, both, EVER)
    assert value(readings, Quantity.CPUS, Scope.GROUP, "batch") == pytest.approx(1.5, rel=1e-6)
    first.busy = 0.0
    host.advance(0.1)
    after = value(sensor.read(host.now, both, EVER), Quantity.CPUS, Scope.GROUP, "batch")
    assert 0.5 < after < 1.5, "a mean over several periods of a quota"
    host.end(second)
    host.advance(1.0)
    assert value(sensor.read(host.now, both, EVER), Quantity.CPUS, Scope.GROUP, "batch") < 0.5


@pytest.fixture
def real() -> Iterator[RealKit]:
    kit = RealKit()
    yield kit
    kit.close()


def test_the_books_of_this_machine_see_a_process_run(real: RealKit) -> None:
    sensor = SchedulerStatistics()
    if not sensor.capability().available:
        pytest.skip(sensor.capability().detail)
    groups = {"batch": found(LINUX, real.process())}
    sensor.read(0.0, groups, EVER)
    ran = []

    def has_run() -> bool:
        ran.append(value(sensor.read(len(ran) + 1.0, groups, EVER), Quantity.CPUS, Scope.GROUP, "batch"))
        return ran[-1] > 0

    until(has_run, "a process that sleeps and wakes uses CPU time")


# --- latency ---


def test_latency_is_the_median_of_shots_since_the_conditions_changed() -> None:
    host = FakeHost()
    shots = iter([300.0, 900.0, 310.0, 272.0])
    sensor = MemoryLatency(host.domains(), lambda cpu: next(shots))
    for now in (1.0, 2.0, 3.0):
        readings = sensor.read(now, {}, EVER)
    assert value(readings, Quantity.LATENCY, Scope.DOMAIN, 0) == 310
    assert value(sensor.read(4.0, {}, 3.5), Quantity.LATENCY, Scope.DOMAIN, 0) == 272


def test_a_probe_that_nobody_is_judged_by_is_fired_seldom() -> None:
    host, shots = FakeHost(), list[int]()
    sensor = MemoryLatency(host.domains(), lambda cpu: shots.append(cpu) or 300.0, wanted=lambda: False)  # type: ignore[func-returns-value]
    for tick in range(100):
        readings = sensor.read(tick / 10, {}, EVER)
    assert len(shots) == 2
    assert readings[Key(Quantity.LATENCY, Scope.DOMAIN, 0)].age_s == pytest.approx(4.9)


def test_a_probe_that_fails_is_missing() -> None:
    def fail(cpu: int) -> float:
        raise OSError(22, "no such CPU")

    host = FakeHost()
    assert "no such CPU" in why(
        MemoryLatency(host.domains(), fail).read(0.0, {}, EVER), Quantity.LATENCY, Scope.DOMAIN, 0
    )
    assert not MemoryLatency(host.domains(), None).capability().available


def test_a_shot_is_fired_where_it_should_be_and_nothing_stays_bound() -> None:
    before = LINUX.affinity(0)
    cpu = max(before)
    shoot = pinned(lambda: float(min(os.sched_getaffinity(0))))
    assert shoot(cpu) == cpu
    assert LINUX.affinity(0) == before


# --- reported work ---


def test_reported_work_is_time_per_unit() -> None:
    told = {"service": Work(100, 10.0, 1.0)}
    sensor = ReportedWork(lambda now: told)
    assert why(sensor.read(1.0, {}, EVER), Quantity.STEP, Scope.GROUP, "service")
    told["service"] = Work(150, 20.0, 3.0)
    readings = sensor.read(3.0, {}, EVER)
    assert value(readings, Quantity.STEP, Scope.GROUP, "service") == pytest.approx(0.2)
    assert value(readings, Quantity.RATE, Scope.GROUP, "service") == pytest.approx(25.0)
    assert sensor.read(9.0, {}, EVER)[Key(Quantity.STEP, Scope.GROUP, "service")].age_s == pytest.approx(4.0)
    assert "since other work was frozen" in why(sensor.read(9.0, {}, 2.0), Quantity.STEP, Scope.GROUP, "service")
    told["service"] = Work(3, 0.1, 10.0)  # it was started anew
    assert why(sensor.read(10.0, {}, EVER), Quantity.STEP, Scope.GROUP, "service")


def test_a_gateways_metrics_are_work() -> None:
    text = (
        'shoal_serve_executions_total{model="ocr",tenant="a",version="1"} 40.0\n'
        'shoal_serve_executions_total{model="ocr",tenant="a",version="2"} 10.0\n'
        'shoal_serve_compute_seconds_total{model="ocr",tenant="a",version="1"} 3.0\n'
        'shoal_serve_compute_seconds_total{model="ocr",tenant="a",version="2"} 1.0\n'
        'shoal_serve_waiting{model="ocr",tenant="a",version="1"} 0.0\n'
    )
    assert gateway_work(text, 5.0) == {("a", "ocr"): Work(50.0, 4.0, 5.0)}


def test_training_reports_become_cpu_time_per_step(tmp_path: Path) -> None:
    from shoal.train._hooks import Hooks

    path, clock, spent = tmp_path / "metrics", [1000.0], [0.0]
    environ = {"SHOAL_METRICS_FILE": str(path), "SHOAL_CHECKPOINT_DIR": str(tmp_path)}
    hooks = Hooks(environ, now=lambda: clock[0], monotonic=lambda: clock[0])
    lines = ReportLines(path, lambda: spent[0], wall=lambda: clock[0])
    assert lines.work(0.0) is None
    told = []
    for step in range(1, 9):
        clock[0] += 0.25
        spent[0] += 0.2
        hooks.report(step, loss=1.0)
        told.append(lines.work(clock[0]))
    work = [one for one in told if one is not None]
    assert len(work) >= 6
    assert (work[-1].busy_s - work[0].busy_s) / (work[-1].units - work[0].units) == pytest.approx(0.2)


# --- thrift ---


def test_a_sensor_that_says_nothing_is_asked_seldom() -> None:
    asked = []

    class Silent:
        name = "silent"

        def capability(self):  # type: ignore[no-untyped-def]
            raise NotImplementedError

        def read(self, now: float, found: object, since: float) -> Readings:
            asked.append(now)
            return {}

        def close(self) -> None:
            return

    sensor = Thrifty(Silent(), cost=lambda: 0.0)
    assert all(sensor.read(tick / 10, {}, EVER) == {} for tick in range(25))
    assert len(asked) == 3


def test_an_expensive_sensor_is_read_seldom_and_its_readings_age() -> None:
    clock, reads = [0.0], []
    key = Key(Quantity.STEAL, Scope.HOST)

    class Costly:
        name = "costly"

        def capability(self):  # type: ignore[no-untyped-def]
            raise NotImplementedError

        def read(self, now: float, found: object, since: float) -> Readings:
            clock[0] += 0.002
            reads.append(now)
            return {key: Reading(now)}

        def close(self) -> None:
            return

    sensor = Thrifty(Costly(), share=0.01, cost=lambda: clock[0])
    ages = [sensor.read(tick / 10, {}, EVER)[key].age_s for tick in range(9)]
    assert 2 <= len(reads) <= 5
    assert max(ages) >= 0.1
