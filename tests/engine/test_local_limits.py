"""The local engine against jobs that take too much, all for real and all small: each has a bound of its own as well, so
that a limit that does not hold fails the test and not the machine."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from shoal.engine import Exit, Limits, Phase
from shoal.engine.local import cgroups
from tests.engine.conformance import RunForever
from tests.engine.local_kit import LocalKit, local_kit, until_exists

MIB = 1 << 20


@pytest_asyncio.fixture
async def kit(tmp_path: Path) -> AsyncIterator[LocalKit]:
    async with local_kit(tmp_path) as kit:
        yield kit


@pytest_asyncio.fixture
async def bare(tmp_path: Path) -> AsyncIterator[LocalKit]:
    """An engine on a machine whose cgroups are not ours to write."""
    async with local_kit(tmp_path) as kit:
        kit.engine._cgroups = cgroups.Cgroups()
        yield kit


def has(kit: LocalKit, controller: str) -> bool:
    return any(each.name == f"cgroup-{controller}" and each.available for each in kit.engine.capabilities())


async def ended(kit: LocalKit, name: str) -> Exit:
    end = (await kit.settle(name)).ranks[0].exit
    assert end is not None
    assert not end.stopped
    return end


# --- processes ---

BOMB = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
born = 0
until = time.monotonic() + 60
while time.monotonic() < until:
    try:
        if os.fork() == 0:
            os.setsid()  # gone from the session and the process group
        else:
            born += 1
    except OSError as problem:
        open(os.environ["SHOAL_RUN"] + "/refused", "w").close()
        time.sleep(0.001)
    if born > 200:  # the bound: a limit that does not hold ends here
        os._exit(3)
"""


async def test_a_fork_bomb_stays_within_its_limit_and_ends_when_told(kit: LocalKit) -> None:
    if not has(kit, "pids"):
        pytest.skip("the pids cgroup is not ours to write here (the engine says so)")
    gang = kit.python("a.1.run", BOMB, limits=Limits(processes=48), memory_bytes=256 * MIB)
    await kit.engine.launch(gang)
    await until_exists(kit.rank_dir("a.1.run") / "refused")
    roots = kit.engine._cgroups.roots()
    assert 1 < len(set(cgroups.pids(roots, "a.1.run", 0))) <= 48
    await kit.engine.stop("a.1.run", grace_s=0)
    status = await kit.settle("a.1.run")
    assert status.ranks[0].exit is not None
    assert status.ranks[0].exit.signal == signal.SIGKILL
    assert kit.processes("a.1.run") == []
    assert set(cgroups.pids(roots, "a.1.run", 0)) == set()


async def test_a_fork_bomb_whose_supervisor_was_killed_ends_too(kit: LocalKit) -> None:
    if not has(kit, "pids"):
        pytest.skip("the pids cgroup is not ours to write here (the engine says so)")
    await kit.engine.launch(kit.python("a.1.run", BOMB, limits=Limits(processes=48), memory_bytes=256 * MIB))
    await until_exists(kit.rank_dir("a.1.run") / "refused")
    os.kill(int(kit.engine._registry.gangs["a.1.run"].ranks[0].record["supervisor"]), signal.SIGKILL)
    end = await ended(kit, "a.1.run")
    assert end.lost
    assert kit.processes("a.1.run") == []


async def test_an_exit_after_refused_processes_says_so(kit: LocalKit) -> None:
    if not has(kit, "pids"):
        pytest.skip("the pids cgroup is not ours to write here (the engine says so)")
    source = """
import os, sys, time
try:
    for _ in range(40):
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
except OSError:
    sys.exit(9)
"""
    await kit.engine.launch(kit.python("a.1.run", source, limits=Limits(processes=8)))
    end = await ended(kit, "a.1.run")
    assert end.code == 9
    assert end.detail.startswith("left with exit code 9; it has a limit of 8 processes and threads, and 1 more were")


async def test_without_cgroups_too_many_processes_end_the_rank(bare: LocalKit) -> None:
    source = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
    await bare.engine.launch(bare.python("a.1.run", source, limits=Limits(processes=8)))
    end = await ended(bare, "a.1.run")
    assert (end.limit, end.detail) == ("processes", "it had 21 processes, over its 8")
    assert end.signal == signal.SIGKILL
    assert bare.processes("a.1.run") == []


async def test_without_cgroups_too_much_memory_ends_the_rank(bare: LocalKit) -> None:
    source = "import time\nx = bytearray(48 << 20)\ntime.sleep(60)"
    await bare.engine.launch(bare.python("a.1.run", source, memory_bytes=32 * MIB))
    end = await ended(bare, "a.1.run")
    assert end.oom
    assert 48 * MIB < end.memory_bytes < 96 * MIB


async def test_the_most_memory_that_a_rank_had_is_told(kit: LocalKit) -> None:
    if not has(kit, "memory"):
        pytest.skip("no memory controller is ours here")
    source = "x = bytearray(64 << 20)\nx[::4096] = bytes(len(x) // 4096)\ndel x"
    await kit.engine.launch(kit.python("a.1.run", source, memory_bytes=512 * MIB))
    end = await ended(kit, "a.1.run")
    assert end.code == 0
    assert 64 * MIB < end.memory_bytes < 256 * MIB


async def test_without_cgroups_a_modest_rank_runs_on(bare: LocalKit) -> None:
    source = "import time\nx = bytearray(8 << 20)\ntime.sleep(2.5)"
    limits = Limits(processes=1, disk_bytes=MIB)
    await bare.engine.launch(bare.python("a.1.run", source, memory_bytes=64 * MIB, limits=limits))
    assert await ended(bare, "a.1.run") == Exit(code=0)


# --- cores ---


async def test_a_rank_that_asks_for_no_core_runs_below_the_home_all_the_same(kit: LocalKit) -> None:
    if not has(kit, "cpu"):
        pytest.skip("the cpu cgroup is not ours to write here (the engine says so)")
    await kit.engine.launch(kit.gang("a.1.run", RunForever()))
    status = await kit.engine.status("a.1.run")
    assert status is not None
    assert status.phase is Phase.RUNNING
    root = kit.engine._cgroups.controllers["cpu"].root
    assert status.ranks[0].pid in set(cgroups.pids((str(root),), "a.1.run", 0))
    weight = [path.read_text().strip() for path in (root / "a.1.run.0").glob("cpu.[sw][eh]*[st]")]
    assert weight in (["2"], ["1"])  # v1's least share, v2's least weight


async def test_the_home_weighs_as_much_as_the_cores_promised_in_it(kit: LocalKit, tmp_path: Path) -> None:
    root = tmp_path / "home-group"
    root.mkdir()
    for version, name, one in ((1, "cpu.shares", 1024), (2, "cpu.weight", 100)):
        weight = root / name
        weight.write_text("")
        bare = cgroups.Cgroups({"cpu": cgroups.Controller("cpu", version, root)})
        bare.weigh(0)
        assert int(weight.read_text()) == one  # as a group that nobody weighed
        for cores in (2, 100):
            bare.weigh(1000 * cores)
            assert int(weight.read_text()) == cores * one
    if not has(kit, "cpu"):
        pytest.skip("the cpu cgroup is not ours to write here (the engine says so)")
    (weight,) = kit.engine._cgroups.controllers["cpu"].root.glob("cpu.[sw][eh]*[st]")
    one = {"cpu.shares": 1024, "cpu.weight": 100}[weight.name]

    def cores() -> float:
        return int(weight.read_text()) / one

    assert cores() == 1
    await kit.engine.launch(replace(kit.gang("a.1.run", RunForever(), ranks=2), cpu_milli=1500))
    assert cores() == 3
    await kit.engine.launch(replace(kit.gang("b.1.run", RunForever()), cpu_milli=1000))
    assert cores() == 4
    await kit.restart()
    assert cores() == 4
    await kit.engine.stop("a.1.run", grace_s=0)
    await kit.settle("a.1.run")
    await kit.engine.forget("a.1.run")
    assert cores() == 1


# --- open files ---


async def test_a_rank_runs_out_of_descriptors_before_the_machine_does(kit: LocalKit) -> None:
    source = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
try:
    for _ in range(500):
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as problem:
    print(len(held), problem.strerror)
"""
    await kit.engine.launch(kit.python("a.1.run", source, limits=Limits(open_files=64)))
    await ended(kit, "a.1.run")
    log = (await kit.engine.read("a.1.run", 0, "log", 0)).data.decode()
    count, _, what = log.partition(" ")
    assert what == "Too many open files\n"
    assert 56 <= int(count) < 64


# --- disk ---


@pytest.mark.parametrize("where", [".", "deep/er", "$SHOAL_RUN"])
async def test_a_rank_that_fills_the_disk_is_ended(kit: LocalKit, where: str) -> None:
    source = f"""
import os, time
place = os.path.expandvars({where!r})
os.makedirs(place, exist_ok=True)
for number in range(64):  # the bound
    with open(f"{{place}}/{{number}}", "wb") as file:
        file.write(b"x" * (256 << 10))
    time.sleep(0.02)
time.sleep(60)
"""
    await kit.engine.launch(kit.python("a.1.run", source, limits=Limits(disk_bytes=2 * MIB)))
    end = await ended(kit, "a.1.run")
    assert end.limit == "disk"
    assert end.detail.endswith("MiB on disk, over its 2 MiB")


async def test_a_rank_that_takes_all_inodes_with_empty_files_is_ended(kit: LocalKit) -> None:
    source = """
import os, time
os.mkdir("many")
for number in range(2000):  # the bound
    open(f"many/{number}", "w").close()
    time.sleep(0.002)
time.sleep(60)
"""
    await kit.engine.launch(kit.python("a.1.run", source, limits=Limits(disk_bytes=2 * MIB, files=200)))
    end = await ended(kit, "a.1.run")
    assert end.limit == "files"
    assert end.detail.endswith(" files, over its 200")


async def test_checkpoints_that_the_home_keeps_count_and_holes_do_not(kit: LocalKit) -> None:
    source = """
import os, sys, time
place = os.environ["SHOAL_CHECKPOINT_DIR"]
os.makedirs(place)
with open("sparse", "wb") as file:
    file.truncate(64 << 20)
time.sleep(2.2)
with open(place + "/model", "wb") as file:
    file.write(b"x" * (3 << 20))
open(os.environ["SHOAL_RUN"] + "/written", "w").close()
time.sleep(60)
"""
    checkpoints = kit.home / "checkpoints" / "a"
    env = {"SHOAL_CHECKPOINT_DIR": str(checkpoints)}
    gang = kit.python("a.1.run", source, limits=Limits(disk_bytes=2 * MIB), env=env, checkpoints=checkpoints)
    await kit.engine.launch(gang)
    assert (await ended(kit, "a.1.run")).limit == "disk"
    assert (kit.rank_dir("a.1.run") / "written").exists()


DEEP = """
import os, time
for _ in range(1500):
    os.mkdir("abcd")
    os.chdir("abcd")
"""


async def test_what_lies_too_deep_for_a_path_counts(kit: LocalKit) -> None:
    source = DEEP + 'open("big", "wb").write(b"x" * (6 << 20))\ntime.sleep(60)'
    await kit.engine.launch(kit.python("a.1.run", source, limits=Limits(disk_bytes=10 * MIB)))
    await kit.engine.launch(kit.python("b.1.run", DEEP + "time.sleep(60)", limits=Limits(files=1000)))
    assert (await ended(kit, "a.1.run")).limit == "disk"
    assert (await ended(kit, "b.1.run")).limit == "files"


@pytest.mark.parametrize("hold", ["kept = file", "kept = mmap.mmap(file.fileno(), 4 << 20); file.close()"])
async def test_a_file_without_a_name_counts_while_it_is_held(kit: LocalKit, hold: str) -> None:
    source = f"""
import mmap, os, time
file = open("gone", "w+b")
os.unlink("gone")
file.write(b"x" * (4 << 20))
file.flush()
{hold}
time.sleep(60)
"""
    await kit.engine.launch(kit.python("a.1.run", source, limits=Limits(disk_bytes=2 * MIB)))
    assert (await ended(kit, "a.1.run")).limit == "disk"


# --- logs ---

FLOOD = """
import sys, time
for number in range(40_000):  # 4 MiB
    sys.stdout.write(f"line {number:06d} " + "x" * 92 + "\\n")
    if number % 2000 == 0:
        time.sleep(0.1)
"""


async def test_a_log_that_floods_keeps_its_beginning_and_its_end(kit: LocalKit) -> None:
    await kit.engine.launch(kit.python("a.1.run", FLOOD, limits=Limits(log_bytes=512 << 10)))
    end = await ended(kit, "a.1.run")
    assert end.code == 0
    file = kit.rank_dir("a.1.run") / "log"
    assert file.stat().st_size > 4 * MIB
    assert file.stat().st_blocks * 512 <= (512 << 10) * 1.25
    pieces, offset = [], 0
    while True:
        chunk = await kit.engine.read("a.1.run", 0, "log", offset, 50_000)
        if not chunk.data and chunk.ended:
            break
        assert chunk.next_offset == chunk.offset + len(chunk.data)
        pieces.append(chunk.data)
        offset = chunk.next_offset
    log = b"".join(pieces)
    assert b"\0" not in log
    assert log.startswith(b"line 000000 ")
    assert log.endswith(b"line 039999 " + b"x" * 92 + b"\n")
    (note,) = [line for line in log.split(b"\n") if line.startswith(b"[shoal]")]
    removed = int(note.split()[1])
    assert note.endswith(b"bytes of this log were removed here: it may keep 0.5 MiB")
    assert removed + len(log) == file.stat().st_size
    assert len(log) <= (512 << 10) * 1.125 + 4096  # it is cut when it is an eighth over


async def test_a_log_within_its_limit_is_kept_whole(kit: LocalKit) -> None:
    await kit.engine.launch(kit.python("a.1.run", FLOOD, limits=Limits(log_bytes=8 * MIB)))
    await ended(kit, "a.1.run")
    file = kit.rank_dir("a.1.run") / "log"
    assert b"[shoal]" not in file.read_bytes()
    assert file.stat().st_blocks * 512 >= 4 * MIB


async def test_the_supervisor_notes_when_a_log_grew(kit: LocalKit) -> None:
    source = """
import os, time
run = os.environ["SHOAL_RUN"]
print("early", flush=True)
while not os.path.exists(run + "/log.times"):
    time.sleep(0.01)
with open(run + "/log.times", "a") as times:
    times.write("no entry\\n99999999 1000000000.000\\n2 99999999999999999999\\n")
print("late", flush=True)
"""
    await kit.engine.launch(kit.python("a.1.run", source, limits=Limits()))
    await ended(kit, "a.1.run")
    (early, first), (whole, last) = await kit.engine.log_times("a.1.run", 0)
    assert (early, whole) == (len(b"early\n"), len(b"early\nlate\n"))
    log = (kit.rank_dir("a.1.run") / "log").stat()
    # A file's time is that of the last tick, which may lie before a time that the supervisor has just read.
    assert last == max(first, log.st_mtime)
    await kit.engine.forget("a.1.run")
    assert await kit.engine.log_times("a.1.run", 0) == ((early, first), (whole, last))


# --- the fallback tells ---


def test_what_no_cgroup_holds_is_told_with_its_cost() -> None:
    told = {each.name: each for each in cgroups.Cgroups().capabilities()}
    assert "once a second" in told["cgroup-pids"].consequence
    assert "once a second" in told["cgroup-memory"].consequence
    assert "NOT enforced" in told["cgroup-cpu"].consequence
