"""The local engine's parts that need no process: records, names, limits, and what the machine is said to offer."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.contract.manifest import JobManifest
from shoal.core import Device
from shoal.engine import Exit, GangStatus, Phase, RankStatus
from shoal.engine.changes import Changes
from shoal.engine.local import cgroups, streams, supervisor
from shoal.engine.local.gangs import rank_status
from shoal.engine.local.inventory import Accelerators, device_type, local_node, nvidia_accelerators
from shoal.engine.probe import probe_machine, quotas_of
from tests.engine.local_kit import no_accelerators

# --- records ---

KEYS = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=20)
VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=200)


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=8))
def test_a_record_reads_as_it_was_written(fields: dict[str, str]) -> None:
    block = supervisor.encode(dict(fields))
    assert len(block) == supervisor.RECORD_BYTES
    assert supervisor.decode(block) == fields


@given(st.dictionaries(KEYS, st.text(max_size=9000), min_size=1, max_size=4))
def test_any_text_leaves_a_whole_record(fields: dict[str, str]) -> None:
    block = supervisor.encode(dict(fields))
    assert len(block) == supervisor.RECORD_BYTES
    assert set(supervisor.decode(block)) <= set(fields) | {""}


@given(st.integers(0, supervisor.RECORD_BYTES - 1))
def test_a_half_written_record_reads_as_none(cut: int) -> None:
    old = supervisor.encode({"state": "running", "pid": 123})
    new = supervisor.encode({"state": "exited", "pid": 123, "code": 0, "detail": "x" * 900})
    torn = new[:cut] + old[cut:]
    assert supervisor.decode(torn) in ({}, supervisor.decode(old), supervisor.decode(new))


def test_a_preallocated_record_is_empty(tmp_path: Path) -> None:
    (tmp_path / "record").write_bytes(b"\n" * supervisor.RECORD_BYTES)
    assert supervisor.read_record(str(tmp_path / "record")) == {}
    supervisor.write_record(str(tmp_path / "record"), {"state": "ready", "nothing": None})
    assert supervisor.read_record(str(tmp_path / "record")) == {"state": "ready"}
    assert supervisor.read_record(str(tmp_path / "absent")) == {}


# --- times of a log ---


def test_times_of_a_log_are_bounded_and_as_exact_as_they_are_new() -> None:
    times: list[tuple[int, float]] = []
    for second in range(100_000):
        times.append((second, float(second)))
        if len(times) > supervisor._MOST_TIMES:
            newest, times = times[-1], supervisor.thin(times)
            assert (times[0], times[-1]) == ((0, 0.0), newest)
    assert times[-500:] == [(second, float(second)) for second in range(99_500, 100_000)]
    for (_, earlier), (_, later) in itertools.pairwise(times):
        assert later - earlier <= 1 + 3 * (100_000 - earlier) / supervisor._FINENESS


def test_the_times_of_a_year_are_bounded() -> None:
    year = [(minute, 60.0 * minute) for minute in range(366 * 24 * 60)]
    assert 3000 < len(supervisor.thin(year)) < supervisor._MOST_TIMES


def test_a_clock_that_was_set_back_leaves_entries_bounded() -> None:
    times = [(size, 50_000.0 + size) for size in range(supervisor._MOST_TIMES)]
    times.append((supervisor._MOST_TIMES, 10_000.0))
    kept = supervisor.thin(times)
    assert len(kept) < supervisor._MOST_TIMES
    assert kept[-1] == times[-1]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(-5, 50)), max_size=20),
    st.integers(0, 30),
)
def test_times_are_in_order_whatever_the_file_says(noted: list[tuple[int, int]], size: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "log").write_bytes(b"x" * size)
        os.utime(root / "log", (40, 40))
        (root / "log.times").write_text("".join(f"{length} {at}.000\n" for length, at in noted) + "junk\n7")
        times = streams.read_log_times(root)
    assert times[-1][0] == size
    assert [length for length, _ in times] == sorted(length for length, _ in times)
    assert [at for _, at in times] == sorted(at for _, at in times)
    assert times[-1][1] >= 40
    assert len(times) == 1 + sum(length < size and at >= 0 for length, at in noted)
    assert streams.read_log_times(root) == ()


def test_only_the_first_decision_counts(tmp_path: Path) -> None:
    assert supervisor.decide(str(tmp_path), "abort") == "abort"
    assert supervisor.decide(str(tmp_path), "go") == "abort"


# --- statuses ---

STARTED = {"state": "running", "pid": "7", "started_at": "1.5"}
EXITED = {**STARTED, "state": "exited", "ended_at": "2.5", "code": "0", "stopped": "0"}


@pytest.mark.parametrize(
    ("record", "alive", "decision", "phase"),
    [
        ({}, True, None, Phase.STARTING),
        ({"state": "ready"}, True, "go", Phase.STARTING),
        (STARTED, True, "go", Phase.RUNNING),
        (EXITED, True, "go", Phase.RUNNING),
        (EXITED, False, "go", Phase.ENDED),
        ({"state": "ready"}, False, "abort", Phase.ENDED),
        ({"state": "ready"}, False, "go", Phase.STARTING),
        (STARTED, False, "go", Phase.RUNNING),
    ],
)
def test_a_rank_has_ended_only_when_its_supervisor_is_gone_and_its_end_is_known(
    record: dict[str, str], alive: bool, decision: str | None, phase: Phase
) -> None:
    status = rank_status(RankStatus(0, Phase.STARTING, "n"), record, alive=alive, decision=decision)
    assert status.phase is phase
    assert (status.exit is not None) == (phase is Phase.ENDED)


def test_a_removed_record_does_not_take_a_status_back() -> None:
    before = RankStatus(0, Phase.RUNNING, "n", 7, 1.5)
    assert rank_status(before, {}, alive=True, decision="go") == before


def test_an_exit_is_read_in_full() -> None:
    record = {**STARTED, "state": "exited", "ended_at": "2.5", "signal": "9", "oom": "1", "stopped": "1"}
    status = rank_status(RankStatus(0, Phase.RUNNING, "n"), record, alive=False, decision="go")
    assert status == RankStatus(0, Phase.ENDED, "n", 7, 1.5, 2.5, Exit(signal=9, oom=True, stopped=True))


# --- fan-out ---


async def test_every_watcher_gets_the_present_and_each_gangs_latest_then_the_end() -> None:
    changes = Changes()
    present, other = GangStatus("a", Phase.STARTING), GangStatus("b", Phase.STARTING)
    prompt, slow = (changes.watch([present]) for _ in range(2))
    assert await anext(prompt) == present
    changes.put(other)
    changes.put(GangStatus("a", Phase.RUNNING))
    changes.put(GangStatus("a", Phase.ENDED))
    changes.close()
    assert [status async for status in prompt] == [other, GangStatus("a", Phase.ENDED)]
    assert [status async for status in slow] == [GangStatus("a", Phase.ENDED), other]


async def test_what_was_not_told_when_a_connection_is_cut_is_told_no_more() -> None:
    changes = Changes()
    watcher = changes.watch([GangStatus("a", Phase.RUNNING)])
    changes.close(at_once=True)
    assert [status async for status in watcher] == []


async def test_a_waiting_watcher_is_woken() -> None:
    changes = Changes()
    watcher = changes.watch([])
    waiting = asyncio.create_task(anext(watcher))
    await asyncio.sleep(0)
    changes.put(GangStatus("a", Phase.ENDED))
    assert (await waiting).name == "a"


async def test_an_abandoned_watcher_is_forgotten() -> None:
    changes = Changes()
    changes.watch([])
    gc.collect()
    assert len(changes._watchers) == 0


# --- inventory ---


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla T4", "t4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce GTX 1080 Ti", "gtx1080ti"),
        ("NVIDIA Graphics Device", "nvidia"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100-1g.5gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "h100-1g.10gb-me"),
    ],
)
def test_products_have_short_type_names(product: str, kind: str) -> None:
    assert device_type(product) == kind


def test_declared_slots_stand_in_for_missing_accelerators_only() -> None:
    assert local_node(3, no_accelerators(), memory_limit_bytes=None).capacity().accelerators == {"cpu": 3}
    assert [d.id for d in local_node(2, no_accelerators(), memory_limit_bytes=None).devices] == ["cpu0", "cpu1"]
    found = Accelerators((Device("GPU-1", "h200", 0),), "one")
    assert local_node(3, found, memory_limit_bytes=None).capacity().accelerators == {"h200": 1}
    assert local_node(1, no_accelerators(), memory_limit_bytes=1000).memory_bytes == 1000


def test_nvml_finds_devices_or_says_why_not() -> None:
    found = nvidia_accelerators()
    assert found.detail
    assert all(device.memory_bytes for device in found.devices)


class Nvml:
    """Answers as NVML does on a machine with an A100 in slices, a V100 without MIG and an H100 with MIG off. A handle
    is (device, slice)."""

    NVMLError = type("NVMLError", (Exception,), {})
    NAMES = ("NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-16GB", "NVIDIA H100 80GB HBM3")
    SLICES = {0: ("3g.20gb", 20 << 30), 3: ("1g.5gb", 5 << 30)}  # noqa: RUF012

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.1"

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> tuple[int, int]:
        return index, -1

    def nvmlDeviceGetMigMode(self, handle: tuple[int, int]) -> list[int]:
        if handle[0] == 1:
            raise self.NVMLError("Not Supported")
        return [int(handle[0] == 0), 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: tuple[int, int]) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: tuple[int, int], at: int) -> tuple[int, int]:
        if at not in self.SLICES:
            raise self.NVMLError("Not Found")
        return handle[0], at

    def nvmlDeviceGetUUID(self, handle: tuple[int, int]) -> str:
        return f"GPU-{handle[0]}" if handle[1] < 0 else f"MIG-{handle[0]}-{handle[1]}"

    def nvmlDeviceGetName(self, handle: tuple[int, int]) -> str:
        profile = "" if handle[1] < 0 else f" MIG {self.SLICES[handle[1]][0]}"
        return self.NAMES[handle[0]] + profile

    def nvmlDeviceGetMemoryInfo(self, handle: tuple[int, int]) -> SimpleNamespace:
        return SimpleNamespace(total=80 << 30 if handle[1] < 0 else self.SLICES[handle[1]][1])


def test_slices_that_mig_made_are_devices_of_their_own_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    found = nvidia_accelerators()
    assert found.devices == (
        Device("MIG-0-0", "a100-3g.20gb", 0, 20 << 30), Device("MIG-0-3", "a100-1g.5gb", 1, 5 << 30),
        Device("GPU-1", "v100", 2, 80 << 30), Device("GPU-2", "h100", 3, 80 << 30),
    )  # fmt: skip
    for device in found.devices:
        asked = {"name": "x", "command": ["x"], "resources": {"accelerators": f"{device.type}:1"}}
        assert JobManifest.model_validate(asked).resources.accelerators.type == device.type


# --- cgroups on a made-up machine ---


class FakeTree:
    """A cgroup v2 tree as plain files. `enabled` are the controllers that the service's parent hands on."""

    def __init__(self, root: Path, enabled: str) -> None:
        self.top = root / "cgroup"
        self.own = self.top / "app.slice" / "server.service"
        self.own.mkdir(parents=True)
        (self.top / "cgroup.subtree_control").write_text("")
        (self.top / "app.slice" / "cgroup.subtree_control").write_text(enabled)
        (self.own / "cgroup.subtree_control").write_text("")
        (self.top / "app.slice" / "memory.max").write_text("max")
        (self.own / "memory.max").write_text(str(8 << 30))
        self.proc = root / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "cgroup").write_text("0::/app.slice/server.service\n")
        line = f"31 23 0:28 / {self.top} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
        (self.proc / "self" / "mountinfo").write_text(line)

    @staticmethod
    def mkdir(path: Path) -> None:
        path.mkdir()
        files = ("cgroup.subtree_control", "cgroup.procs", "cgroup.kill", "memory.max", "memory.swap.max", "cpu.weight")
        for name in (*files, "pids.max"):
            (path / name).write_text("")


def test_version_2_groups_go_where_controllers_are_handed_on(tmp_path: Path) -> None:
    tree = FakeTree(tmp_path, "memory pids")
    found = cgroups.probe(tmp_path, proc=tree.proc, mkdir=tree.mkdir)
    assert set(found.controllers) == {"memory", "pids"}
    root = found.controllers["memory"].root
    assert root.parent == tree.top / "app.slice"
    (group,) = found.groups("a.1.run", 2, cpu_milli=500, memory_bytes=1 << 30, processes=99)
    assert group["path"] == str(root / "a.1.run.2")
    assert dict(group["writes"]) == {"memory.max": str(1 << 30), "memory.swap.max": "0", "pids.max": "99"}
    assert (group["join"], group["oom"], group["peak"]) == ("cgroup.procs", "memory.events", "memory.peak")
    absent = {each.name: each for each in found.capabilities() if not each.available}
    assert set(absent) == {"cgroup-cpu"}
    assert "NOT enforced" in absent["cgroup-cpu"].consequence


def test_the_tightest_limit_above_us_is_our_memory(tmp_path: Path) -> None:
    tree = FakeTree(tmp_path, "memory")
    assert cgroups.memory_limit_bytes(cgroups.mounts(tree.proc)) == 8 << 30


def test_without_rights_nothing_is_claimed(tmp_path: Path) -> None:
    tree = FakeTree(tmp_path, "memory pids cpu")

    def forbidden(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    found = cgroups.probe(tmp_path, proc=tree.proc, mkdir=forbidden)
    assert found.controllers == {}
    assert found.groups("a.1.run", 0, cpu_milli=1000, memory_bytes=1 << 30, processes=99) == []
    for capability in found.capabilities():
        assert not capability.available
        assert "Permission denied" in capability.detail
        assert capability.consequence


def test_a_rank_that_asks_for_no_core_has_the_least_weight(tmp_path: Path) -> None:
    tree = FakeTree(tmp_path, "memory pids cpu")
    found = cgroups.probe(tmp_path, proc=tree.proc, mkdir=tree.mkdir)
    (group,) = found.groups("a.1.run", 0, cpu_milli=0, memory_bytes=0, processes=0)
    assert group["writes"] == [("cpu.weight", "1")]


def test_a_whole_group_is_killed_by_one_write_where_the_kernel_has_it(tmp_path: Path) -> None:
    tree = FakeTree(tmp_path, "memory pids cpu")
    group = tmp_path / "shoal" / "a.1.run.0"
    group.parent.mkdir()
    tree.mkdir(group)
    (group / "cgroup.procs").write_text("1\n")  # whoever read it would kill the first process of all
    cgroups.kill((str(group.parent),), "a.1.run", 0)
    assert (group / "cgroup.kill").read_text() == "1"
    assert (group / "pids.max").read_text() == ""


# --- the doctor's view ---


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("ext4 /dev/sda1 rw,quota,usrquota,data=ordered", ["quota", "usrquota"]),
        ("ext4 /dev/sda1 rw,usrjquota=aquota.user,jqfmt=vfsv1", ["usrjquota"]),
        ("xfs /dev/sda1 rw,attr2,prjquota", ["prjquota"]),
        ("xfs /dev/sda1 rw,noquota", []),
        ("ext4 /dev/sda1", []),
        ("", []),
    ],
)
def test_quotas_of_the_file_system_are_read_from_its_mount(options: str, found: list[str]) -> None:
    lines = f"22 1 8:2 / / rw,usrquota shared:1 - {options}\n36 22 8:1 /x /home rw,noatime shared:2 - {options}\nodd\n"
    assert quotas_of(lines, os.makedev(8, 1)) == found
    assert quotas_of(lines, os.makedev(9, 9)) == []


def test_the_probe_names_everything_and_leaves_nothing(tmp_path: Path) -> None:
    found = probe_machine(tmp_path / "home", accelerators=no_accelerators)
    names = [each.name for each in found]
    assert len(set(names)) == len(names)
    assert {"accelerators", "cores", "memory", "cgroup-memory", "pidfd", "disk", "fsync", "user"} <= set(names)
    for each in found:
        assert each.detail
        assert each.available or each.consequence
    assert "no NVIDIA accelerator is offered" in found[0].consequence
    assert list(tmp_path.iterdir()) == []


def test_an_unusable_home_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = {each.name: each for each in probe_machine(tmp_path / "file" / "home", accelerators=no_accelerators)}
    assert not found["disk"].available
    assert "Not a directory" in found["disk"].detail
    assert "will refuse this home" in found["disk"].consequence
