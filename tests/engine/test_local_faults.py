"""Real faults against the local engine: killed supervisors, ranks and engines, stubborn processes, full disks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.core import Conflict, Fault, Invalid
from shoal.engine import LaunchFailed, Phase, TimeLimit
from shoal.engine.local import LocalEngine
from shoal.engine.local.environment import supervisor_environment, supervisor_spec
from shoal.engine.local.launcher import Launcher
from shoal.engine.local.layout import GangDir, Launched
from shoal.engine.local.processes import marked
from tests.engine.conformance import Fail, IgnoreTerm, Print, RunForever, exits
from tests.engine.local_kit import LocalKit, local_kit, until_exists

REPOSITORY = Path(__file__).parents[2]

DAEMONISE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        draft = os.environ["SHOAL_RUN"] + "/draft"
        open(draft, "w").write(str(os.getpid()))
        os.rename(draft, os.environ["SHOAL_RUN"] + "/daemon")
        os.execve({argv0!r}, [{argv0!r}, "-c", "sleep 1000"], {env})
    os._exit(0)
while not os.path.exists(os.environ["SHOAL_RUN"] + "/daemon"):
    time.sleep(0.01)
time.sleep({stay})
"""


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[LocalKit]:
    async with local_kit(tmp_path) as kit:
        yield kit


def supervisor_of(kit: LocalKit, name: str, rank: int = 0) -> int:
    (pid,) = [e.process.pid for e in marked(kit.home) if (e.gang, e.rank, e.supervisor) == (name, rank, True)]
    return pid


def alive(pid: int) -> bool:
    """Neither gone nor a zombie that its parent has not collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def has_cgroup(kit: LocalKit, controller: str) -> bool:
    return any(each.name == f"cgroup-{controller}" and each.available for each in kit.engine.capabilities())


# --- killed supervisors and ranks ---


async def test_a_rank_whose_supervisor_dies_while_no_engine_is_there_lived_until_its_last_sign(kit: LocalKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", RunForever()))
    record = kit.rank_dir("a.1.run") / "record"
    await kit.in_effect("a.1.run")
    supervisor, began = supervisor_of(kit, "a.1.run"), record.stat().st_mtime
    await kit.engine.close()
    while record.stat().st_mtime < began + 1.5:
        await asyncio.sleep(0.05)
    lived_until = record.stat().st_mtime
    os.kill(supervisor, signal.SIGKILL)
    while kit.processes("a.1.run"):
        await asyncio.sleep(0.05)
    kit.new_engine()
    await kit.engine.open()
    (rank,) = (await kit.settle("a.1.run")).ranks
    assert rank.exit is not None
    assert rank.exit.lost
    assert rank.ended_at is not None
    assert rank.ended_at >= lived_until - 0.001


@pytest.mark.few
@pytest.mark.parametrize(
    "limit", [TimeLimit("max-runtime", "too long", after_s=0.0), TimeLimit("deadline", "late", at=1.0)]
)
async def test_a_supervisor_keeps_the_time_of_its_rank_where_no_engine_does(kit: LocalKit, limit: TimeLimit) -> None:
    late = TimeLimit("other", "not yet", after_s=10_000.0), TimeLimit("other", "not yet", at=4e9)
    for name, limits in (("a.1.run", (*late, limit)), ("b.1.run", late)):
        await kit.engine.launch(replace(kit.gang(name, RunForever()), time_limits=limits))
    await kit.engine.close()
    while kit.processes("a.1.run"):
        await asyncio.sleep(0.05)
    kit.new_engine()
    await kit.engine.open()
    (rank,) = (await kit.settle("a.1.run")).ranks
    assert rank.exit is not None
    assert (rank.exit.limit, rank.exit.detail, rank.exit.ok) == (limit.name, limit.detail, False)
    assert (await kit.engine.status("b.1.run")).phase is Phase.RUNNING  # type: ignore[union-attr]


async def test_a_killed_supervisor_takes_its_rank_along(kit: LocalKit) -> None:
    launched = await kit.engine.launch(kit.gang("a.1.run", IgnoreTerm()))
    await kit.in_effect("a.1.run")
    os.kill(supervisor_of(kit, "a.1.run"), signal.SIGKILL)
    status = await kit.settle("a.1.run")
    end = status.ranks[0].exit
    assert end is not None
    assert end.lost
    assert not end.ok
    assert (end.code, end.signal, end.stopped) == (None, None, False)
    assert kit.processes() == []
    assert launched.ranks[0].pid is not None
    assert not alive(launched.ranks[0].pid)


async def test_a_killed_supervisor_ends_its_gang(kit: LocalKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", RunForever(), ranks=3))
    await kit.in_effect("a.1.run")
    os.kill(supervisor_of(kit, "a.1.run", 1), signal.SIGKILL)
    status = await kit.settle("a.1.run")
    assert [rank.exit.lost for rank in status.ranks if rank.exit] == [False, True, False]
    assert [rank.exit.stopped for rank in status.ranks if rank.exit] == [True, False, True]
    assert status.reason is not None
    assert status.reason.code == "rank-failed"
    assert "rank 1 was lost" in status.reason.text


async def test_a_lost_rank_stays_lost_after_a_restart(kit: LocalKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", RunForever()))
    os.kill(supervisor_of(kit, "a.1.run"), signal.SIGKILL)
    status = await kit.settle("a.1.run")
    await kit.restart()
    assert await kit.engine.status("a.1.run") == status


async def test_a_supervisor_killed_while_no_engine_was_there_is_found_lost(kit: LocalKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", IgnoreTerm()))
    await kit.in_effect("a.1.run")
    pid = supervisor_of(kit, "a.1.run")
    await kit.engine.close()
    os.kill(pid, signal.SIGKILL)
    killed_at = time.time()
    await asyncio.sleep(0.1)
    kit.new_engine()
    await kit.engine.open()
    status = await kit.engine.status("a.1.run")
    assert status is not None
    assert status.ranks[0].exit is not None
    assert status.ranks[0].exit.lost
    assert status.ranks[0].started_at is not None
    assert status.ranks[0].ended_at is not None
    assert status.ranks[0].started_at <= status.ranks[0].ended_at <= killed_at + 0.05  # not when it was found
    assert kit.processes() == []


async def test_a_killed_rank_is_a_signal_not_a_loss(kit: LocalKit) -> None:
    launched = await kit.engine.launch(kit.gang("a.1.run", RunForever()))
    assert launched.ranks[0].pid is not None
    os.kill(launched.ranks[0].pid, signal.SIGKILL)
    status = await kit.settle("a.1.run")
    assert exits(status) == {0: (None, signal.SIGKILL, False)}
    assert status.ranks[0].exit is not None
    assert not status.ranks[0].exit.lost
    assert not status.ranks[0].exit.oom


# --- supervisors that their rank would hold up ---

HOLD_UP = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
run = os.environ["SHOAL_RUN"]
open(run + "/cooperative", "w").close()
for name in ("log.times", ".notice-" + str(os.getppid()), "metrics.jsonl"):
    os.mkfifo(run + "/" + name)
print("a line", flush=True)
open(run + "/in-effect", "w").close()
time.sleep(1000)
"""


async def test_fifos_in_its_directory_hold_up_neither_a_stop_nor_a_read(kit: LocalKit) -> None:
    await kit.engine.launch(replace(kit.python("a.1.run", HOLD_UP), grace_s=0.2))
    await kit.in_effect("a.1.run")
    log = kit.rank_dir("a.1.run") / "record"
    began = log.stat().st_mtime
    while log.stat().st_mtime == began:  # the supervisor has noted the time of the line, or tried to, and goes on
        await asyncio.sleep(0.05)
    assert (await kit.engine.read("a.1.run", 0, "metrics", 0)).data == b""
    assert len(await kit.engine.log_times("a.1.run", 0)) == 1
    await kit.engine.stop("a.1.run", reason="canceled")
    status = await kit.settle("a.1.run")
    assert exits(status) == {0: (None, signal.SIGKILL, True)}
    assert status.ranks[0].exit is not None
    assert not status.ranks[0].exit.lost
    assert kit.processes() == []


async def test_fifos_in_its_directory_do_not_hold_up_a_limit_of_time(kit: LocalKit) -> None:
    limit = TimeLimit("max-runtime", "too long", after_s=0.0)
    await kit.engine.launch(replace(kit.python("a.1.run", HOLD_UP), grace_s=0.2, time_limits=(limit,)))
    (rank,) = (await kit.settle("a.1.run")).ranks
    assert rank.exit is not None
    assert rank.exit.limit == "max-runtime"


async def test_a_fifo_instead_of_its_record_does_not_hold_up_the_engine(kit: LocalKit) -> None:
    replaced = """
import os, time
run = os.environ["SHOAL_RUN"]
os.unlink(run + "/record")
os.mkfifo(run + "/record")
open(run + "/in-effect", "w").close()
time.sleep(1000)
"""
    await kit.engine.launch(replace(kit.python("a.1.run", replaced), grace_s=0.2))
    await kit.in_effect("a.1.run")
    await kit.engine.stop("a.1.run", reason="canceled")
    assert (await kit.settle("a.1.run")).ranks[0].exit is not None
    assert kit.processes() == []


@pytest.mark.parametrize("restarted", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_a_supervisor_that_does_not_stop_its_rank_is_killed_with_all_that_is_below_it(
    kit: LocalKit, restarted: bool
) -> None:
    await kit.engine.launch(kit.python("a.1.run", DAEMONISE.format(argv0="/bin/sh", env="{}", stay=1000)))
    daemon = int(await until_exists(kit.rank_dir("a.1.run") / "daemon"))
    os.kill(supervisor_of(kit, "a.1.run"), signal.SIGSTOP)
    await kit.engine.stop("a.1.run", grace_s=0.1, reason="canceled")
    if restarted:
        await kit.restart()
    (rank,) = (await kit.settle("a.1.run")).ranks
    assert rank.exit is not None
    assert (rank.exit.lost, rank.exit.stopped) == (True, True)
    assert "within its grace" in rank.exit.detail
    assert not alive(daemon)
    assert kit.processes() == []


# --- leaks ---


@pytest.mark.parametrize("env", ["dict(os.environ)", "{}"], ids=["marked", "env-cleared"])
async def test_daemonised_processes_end_with_their_rank(kit: LocalKit, env: str) -> None:
    await kit.engine.launch(kit.python("a.1.run", DAEMONISE.format(argv0="/bin/sh", env=env, stay=0)))
    daemon = int(await until_exists(kit.rank_dir("a.1.run") / "daemon"))
    assert exits(await kit.settle("a.1.run")) == {0: (0, None, False)}
    assert not alive(daemon)


@pytest.mark.parametrize("env", ["dict(os.environ)", "{}"], ids=["marked", "env-cleared"])
async def test_daemonised_processes_end_with_a_killed_supervisor(kit: LocalKit, env: str) -> None:
    if env == "{}" and not has_cgroup(kit, "pids"):
        pytest.skip("without a pids cgroup such a process cannot be found (the engine says so)")
    await kit.engine.launch(kit.python("a.1.run", DAEMONISE.format(argv0="/bin/sh", env=env, stay=1000)))
    daemon = int(await until_exists(kit.rank_dir("a.1.run") / "daemon"))
    os.kill(supervisor_of(kit, "a.1.run"), signal.SIGKILL)
    status = await kit.settle("a.1.run")
    assert status.ranks[0].exit is not None
    assert status.ranks[0].exit.lost
    assert not alive(daemon)


async def test_a_sweep_finds_processes_whose_records_are_gone(kit: LocalKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", IgnoreTerm()))
    await kit.in_effect("a.1.run")
    await kit.engine.close()
    (kit.home / "gangs" / "a.1.run" / "gang.json").unlink()
    kit.new_engine()
    await kit.engine.open()
    assert await kit.engine.gangs() == {}
    assert await kit.engine.sweep(frozenset()) == ("a.1.run",)
    assert kit.processes() == []


# --- killed engines ---

_ENGINE_THAT_DIES = """
import asyncio, os, signal, sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {repository!r})
from tests.engine.conformance import *
from tests.engine.local_kit import LocalKit

async def main():
    kit = LocalKit(Path({root!r}))
    await kit.engine.open()
    await kit.engine.launch(kit.gang("a.1.run", {behaviour}, ranks={ranks}))
    await kit.in_effect("a.1.run")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def launch_and_die(root: Path, behaviour: str, ranks: int = 1) -> None:
    """In a process of its own: open an engine, launch, and be killed with no chance to tidy up."""
    source = _ENGINE_THAT_DIES.format(repository=str(REPOSITORY), root=str(root), behaviour=behaviour, ranks=ranks)
    assert subprocess.run([sys.executable, "-c", source]).returncode == -signal.SIGKILL
    (root / "bin" / "behave").unlink()
    (root / "bin").rmdir()


async def test_a_killed_engine_costs_nothing(tmp_path: Path) -> None:
    launch_and_die(tmp_path, "Print(('one',), after_s=0.5)", ranks=2)
    async with local_kit(tmp_path) as kit:
        found = await kit.engine.status("a.1.run")
        assert found is not None
        first = await kit.engine.read("a.1.run", 1, "log", 0)
        assert exits(await kit.settle("a.1.run")) == {0: (0, None, False), 1: (0, None, False)}
        last = await kit.engine.read("a.1.run", 1, "log", first.next_offset)
        assert first.data + last.data == b"one\n"
        assert last.ended


async def test_an_exit_while_the_killed_engine_was_away_is_seen(tmp_path: Path) -> None:
    launch_and_die(tmp_path, "Fail(5)")
    async with local_kit(tmp_path) as kit:
        assert exits(await kit.settle("a.1.run")) == {0: (5, None, False)}


async def test_a_failed_rank_stops_its_gang_though_the_engine_was_away(tmp_path: Path) -> None:
    root = tmp_path
    async with local_kit(root) as kit:
        await kit.engine.launch(kit.gang("a.1.run", RunForever(), ranks=2, by_rank={1: Fail(5, after_s=0.3)}))
        await kit.in_effect("a.1.run")
        await kit.restart(down_s=0.6)
        assert exits(await kit.settle("a.1.run")) == {0: (None, signal.SIGTERM, True), 1: (5, None, False)}


# --- stops that meet an end ---

_WAITS = """
import os, signal, sys, time
{setup}
open(os.environ["SHOAL_RUN"] + "/in-effect", "w").close()
{wait}
"""
BLOCKS = """
import threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
"""
FINISHES = 'while not os.path.exists(os.environ["SHOAL_RUN"] + "/finish"): time.sleep(0.01)'


async def test_a_rank_that_had_ended_when_the_stop_was_read_ended_by_itself(kit: LocalKit) -> None:
    await kit.engine.launch(kit.python("a.1.run", _WAITS.format(setup="", wait=FINISHES)))
    await kit.in_effect("a.1.run")
    supervisor = supervisor_of(kit, "a.1.run")
    status = await kit.engine.status("a.1.run")
    assert status is not None
    assert status.ranks[0].pid is not None
    os.kill(supervisor, signal.SIGSTOP)
    (kit.rank_dir("a.1.run") / "finish").touch()
    async with asyncio.timeout(30):
        while alive(status.ranks[0].pid):
            await asyncio.sleep(0.01)
    await kit.engine.stop("a.1.run", reason="preempted")
    os.kill(supervisor, signal.SIGCONT)
    assert exits(await kit.settle("a.1.run")) == {0: (0, None, False)}


@pytest.mark.parametrize(
    ("setup", "wait", "expected"),
    [
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", FINISHES, (0, None, False)),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))", FINISHES, (0, None, True)),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))", FINISHES, (3, None, True)),
        (BLOCKS, "signal.sigwait([signal.SIGTERM])", (0, None, True)),
        ("", FINISHES, (None, signal.SIGTERM, True)),
    ],
)  # fmt: skip
async def test_an_exit_is_an_answer_only_to_a_signal_that_is_handled(
    kit: LocalKit, setup: str, wait: str, expected: tuple[int | None, int | None, bool]
) -> None:
    await kit.engine.launch(kit.python("a.1.run", _WAITS.format(setup=setup, wait=wait), grace_s=60))
    await kit.in_effect("a.1.run")
    await kit.engine.stop("a.1.run")
    await asyncio.sleep(0.1)  # the signal first, where it changes anything
    (kit.rank_dir("a.1.run") / "finish").touch()
    assert exits(await kit.settle("a.1.run")) == {0: expected}


STAYS = "signal.signal(signal.SIGTERM, lambda *_: open(os.environ['SHOAL_RUN'] + '/term', 'w').close())"


async def test_a_stop_that_began_may_be_shortened(kit: LocalKit) -> None:
    await kit.engine.launch(kit.python("a.1.run", _WAITS.format(setup=STAYS, wait=FINISHES), grace_s=600))
    await kit.in_effect("a.1.run")
    await kit.engine.stop("a.1.run")
    await until_exists(kit.rank_dir("a.1.run") / "term")  # the supervisor has read it
    await kit.engine.stop("a.1.run", grace_s=0.1)
    assert exits(await kit.settle("a.1.run")) == {0: (None, signal.SIGKILL, True)}


async def test_a_stop_that_began_is_not_lengthened_by_a_later_one(kit: LocalKit) -> None:
    await kit.engine.launch(kit.python("a.1.run", _WAITS.format(setup=STAYS, wait=FINISHES), grace_s=600))
    await kit.in_effect("a.1.run")
    await kit.engine.stop("a.1.run", grace_s=2)
    await until_exists(kit.rank_dir("a.1.run") / "term")
    os.kill(supervisor_of(kit, "a.1.run"), signal.SIGTERM)  # stop with the gang's own grace
    assert exits(await kit.settle("a.1.run")) == {0: (None, signal.SIGKILL, True)}


async def test_a_stop_completes_without_the_engine(kit: LocalKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", IgnoreTerm()))
    await kit.in_effect("a.1.run")
    await kit.engine.stop("a.1.run", grace_s=0.2)
    await kit.engine.close()
    async with asyncio.timeout(30):
        while kit.processes():
            await asyncio.sleep(0.02)
    kit.new_engine()
    await kit.engine.open()
    assert exits(await kit.settle("a.1.run")) == {0: (None, signal.SIGKILL, True)}


async def test_one_home_has_one_engine(kit: LocalKit) -> None:
    with pytest.raises(Conflict, match="another engine has this home open"):
        await LocalEngine(kit.home).open()


async def test_a_damaged_list_of_users_is_told_and_leaves_the_home_to_others(tmp_path: Path) -> None:
    (tmp_path / "sandbox-users.json").write_text("[1]")
    for _ in range(2):  # the first one does not keep the home
        with pytest.raises(Invalid, match="the list of the tenants' users is damaged"):
            await LocalEngine(tmp_path).open()
    (tmp_path / "sandbox-users.json").write_text("{}")
    engine = LocalEngine(tmp_path)
    await engine.open()
    await engine.close()


# --- launches cut short ---


def begin_launch(kit: LocalKit, name: str, *, ranks: int, launch_timeout_s: float) -> GangDir:
    """What a launch leaves when the engine dies before the barrier: records and waiting supervisors."""
    gang = kit.gang(name, Print(("ran",)), ranks=ranks, launch_timeout_s=launch_timeout_s)
    gang.run_dir.mkdir(parents=True)
    directory = GangDir(kit.home / "gangs" / name)
    directory.create(Launched.of(gang, master_port=1, created_at=0.0))
    launcher = Launcher(kit.home)
    launcher.open()
    for rank in range(ranks):
        env = dict(gang.ranks[rank].env)
        spec = supervisor_spec(
            gang,
            rank,
            home=kit.home,
            gang_dir=directory.path,
            rank_dir=directory.rank_dir(rank),
            env=env,
            cgroups=[],
            enforced=frozenset(),
        )
        launcher.start(spec, supervisor_environment(kit.home, name, rank))
    return directory


async def test_supervisors_that_hear_no_go_leave_by_themselves(kit: LocalKit) -> None:
    directory = begin_launch(kit, "a.1.run", ranks=2, launch_timeout_s=0.2)
    async with asyncio.timeout(30):
        while kit.processes():
            await asyncio.sleep(0.02)
    assert directory.decision() == "abort"
    assert [directory.record(rank)["state"] for rank in (0, 1)] == ["aborted", "aborted"]
    assert [(directory.rank_dir(rank) / "log").exists() for rank in (0, 1)] == [False, False]


async def test_a_launch_cut_short_is_rolled_back_and_may_be_repeated(kit: LocalKit) -> None:
    await kit.engine.close()
    begin_launch(kit, "a.1.run", ranks=2, launch_timeout_s=600)
    kit.new_engine()
    await kit.engine.open()
    rolled_back = await kit.settle("a.1.run")
    assert rolled_back.reason is not None
    assert rolled_back.reason.code == "rolled-back"
    assert kit.processes() == []
    await kit.engine.launch(kit.gang("a.1.run", Print(("ran",)), ranks=2))
    assert exits(await kit.settle("a.1.run")) == {0: (0, None, False), 1: (0, None, False)}
    assert [await kit.log("a.1.run", rank) for rank in (0, 1)] == ["ran\n", "ran\n"]


async def test_a_rollback_is_remembered_over_a_restart(kit: LocalKit) -> None:
    gang = kit.script("a.1.run", "no-such-command-anywhere", ranks=2)
    with pytest.raises(LaunchFailed) as first:
        await kit.engine.launch(gang)
    await kit.restart()
    with pytest.raises(LaunchFailed) as second:
        await kit.engine.launch(gang)
    assert str(second.value) == str(first.value)
    assert second.value.fault is Fault.USER
    assert "'no-such-command-anywhere' was not found on PATH" in str(first.value)


async def test_a_cancelled_launch_leaves_nothing(kit: LocalKit) -> None:
    launch = asyncio.create_task(kit.engine.launch(kit.gang("a.1.run", RunForever(), ranks=4)))
    await asyncio.sleep(0)
    launch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launch
    if await kit.engine.status("a.1.run") is not None:
        await kit.settle("a.1.run")
    assert kit.processes() == []


async def test_a_stop_during_the_launch_ends_it(kit: LocalKit) -> None:
    launch = asyncio.create_task(kit.engine.launch(kit.gang("a.1.run", Print(("ran",)), ranks=4)))
    while await kit.engine.status("a.1.run") is None:
        await asyncio.sleep(0)
    await kit.engine.stop("a.1.run", reason="changed my mind")
    with pytest.raises(LaunchFailed, match="given up before all ranks were ready: changed my mind"):
        await launch
    assert (await kit.settle("a.1.run")).phase is Phase.ENDED
    assert [await kit.log("a.1.run", rank) for rank in range(4)] == [""] * 4


# --- memory ---


async def test_a_rank_over_its_memory_limit_is_reported_as_such(kit: LocalKit) -> None:
    if not has_cgroup(kit, "memory"):
        pytest.skip("the memory cgroup is not ours to write here (the engine says so)")
    greedy = "x = bytearray(1)\nwhile True: x += bytes(8 << 20)"
    await kit.engine.launch(kit.python("a.1.run", greedy, memory_bytes=96 << 20))
    status = await kit.settle("a.1.run")
    end = status.ranks[0].exit
    assert end is not None
    assert end.oom
    assert end.signal == signal.SIGKILL
    assert not end.lost


async def test_limits_are_set_on_the_rank_and_removed_with_it(kit: LocalKit) -> None:
    if not (has_cgroup(kit, "memory") and has_cgroup(kit, "cpu")):
        pytest.skip("the memory and cpu cgroups are not ours to write here (the engine says so)")
    gang = kit.gang("a.1.run", RunForever(), cpu_milli=500, memory_bytes=128 << 20)
    await kit.engine.launch(gang)
    roots = {each.detail.split(" at ")[1] for each in kit.engine.capabilities() if each.name.startswith("cgroup")}
    groups = [Path(root) / "a.1.run.0" for root in roots]
    texts = [path.read_text().strip() for group in groups for path in group.iterdir() if path.name in LIMIT_FILES]
    assert str(128 << 20) in texts
    assert "512" in texts or "50" in texts  # half a core's share, v1 or v2
    await kit.engine.stop("a.1.run")
    await kit.settle("a.1.run")
    assert not any(group.exists() for group in groups)


LIMIT_FILES = {"memory.max", "memory.limit_in_bytes", "cpu.weight", "cpu.shares"}


# --- full disk ---


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB for the home."""
    home = tmp_path / "home"
    home.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(home)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield home
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def fill(home: Path) -> None:
    with (home / "ballast").open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


async def test_a_full_disk_loses_no_exit_and_refuses_launches(small_disk: Path, tmp_path: Path) -> None:
    wait_then_fail = "import os, sys, time\nwhile not os.path.exists('gone'): time.sleep(0.01)\nsys.exit(7)"
    async with local_kit(tmp_path) as kit:
        await kit.engine.launch(kit.python("a.1.run", wait_then_fail))
        await kit.engine.launch(kit.gang("b.1.run", IgnoreTerm()))
        await kit.in_effect("b.1.run")
        fill(small_disk)
        with pytest.raises(LaunchFailed) as refused:
            await kit.engine.launch(kit.gang("c.1.run", RunForever()))
        assert refused.value.fault is Fault.PLATFORM
        assert "No space left on device" in str(refused.value)
        (tmp_path / "run" / "a.1.run" / "gone").touch()
        assert exits(await kit.settle("a.1.run")) == {0: (7, None, False)}
        await kit.engine.stop("b.1.run", grace_s=0.1)
        assert exits(await kit.settle("b.1.run")) == {0: (None, signal.SIGKILL, True)}
        await kit.restart()
        assert exits(await kit.settle("a.1.run")) == {0: (7, None, False)}
        (small_disk / "ballast").unlink()
        await kit.engine.launch(kit.gang("c.1.run", Print(("fine again",))))
        await kit.settle("c.1.run")
        assert await kit.log("c.1.run") == "fine again\n"
