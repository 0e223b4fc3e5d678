"""What Slurm does to jobs behind our back, done for real: each end has the right fault, and nothing runs twice."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from clusters.slurm import PrivateSlurm

from shoal.core import Fault, Unavailable
from shoal.engine import EngineOptions, LaunchFailed, Phase, Refused
from shoal.engine.local.processes import marked
from shoal.engine.slurm import SlurmEngine, SlurmSettings, probe_cluster
from shoal.engine.slurm.commands import Commands
from shoal.engine.slurm.submission import Target
from tests.engine.conformance import Fail, IgnoreTerm, RunForever, Succeed
from tests.engine.local_kit import until_exists
from tests.engine.slurm_kit import SlurmKit, needs_slurm, slurm_kit

pytestmark = needs_slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateSlurm]:
    with PrivateSlurm((4, 4), node_timeout_s=4, kill_wait_s=2) as cluster:
        yield cluster


@pytest.fixture
async def kit(tmp_path: Path, cluster: PrivateSlurm) -> AsyncIterator[SlurmKit]:
    async with slurm_kit(tmp_path, cluster) as kit:
        yield kit


def _job(kit: SlurmKit, name: str) -> str:
    return (kit.home / "gangs" / name / "owner").readlink().name


def _only_exit(status: object) -> object:
    (rank,) = status.ranks  # type: ignore[attr-defined]
    return rank.exit


async def test_a_job_cancelled_in_slurm_is_lost_and_says_so(kit: SlurmKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", RunForever()))
    await kit.in_effect("a.1.run")
    kit.cluster.run("scancel", _job(kit, "a.1.run"))
    end = _only_exit(await kit.settle("a.1.run"))
    assert (end.lost, end.node_lost) == (True, False)
    assert "cancelled in Slurm" in end.detail


@pytest.mark.slow
async def test_a_preempted_job_is_lost_and_says_so(kit: SlurmKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", IgnoreTerm(), ranks=4))
    await kit.in_effect("a.1.run")
    kit.cluster.run("sbatch", "-p", "urgent", "-w", "n1", "--gres=gpu:4", "-o", "/dev/null", "--wrap", "true")
    status = await kit.settle("a.1.run")
    assert all(rank.exit is not None and rank.exit.lost for rank in status.ranks)
    assert "preempted" in _detail(status)


def _detail(status: object) -> str:
    return status.ranks[0].exit.detail  # type: ignore[attr-defined,no-any-return]


@pytest.mark.slow  # Slurm looks at time limits every half minute
async def test_slurms_time_limit_is_a_limit_of_the_job(kit: SlurmKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", RunForever()))
    await kit.in_effect("a.1.run")
    kit.cluster.run("scontrol", "update", f"jobid={_job(kit, 'a.1.run')}", "timelimit=0:01")
    end = _only_exit(await kit.settle("a.1.run", within_s=150))
    assert (end.lost, end.limit) == (False, "time")
    assert "time limit" in end.detail


@pytest.mark.slow
async def test_a_job_that_slurm_would_start_again_ends_at_once(kit: SlurmKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", RunForever()))
    await kit.in_effect("a.1.run")
    script = kit.home / "gangs" / "a.1.run"
    token = next(script.glob("spec.*")).suffix[1:]
    before = len(kit.processes("a.1.run"))
    from shoal.engine.slurm.submission import script as script_of

    text = script_of(
        script, token, python=os.path.realpath("/proc/self/exe"), runner=kit.home / "programs/rank.pyc", alone=True
    )
    path = kit.root / "again.sh"
    path.write_text(text)
    kit.cluster.run("sbatch", "--wait", "-o", "/dev/null", str(path))
    assert len(kit.processes("a.1.run")) == before
    assert (await kit.engine.status("a.1.run")).phase is Phase.RUNNING  # type: ignore[union-attr]


@pytest.mark.slow
async def test_when_slurms_own_supervisor_is_killed_the_rank_dies_with_it(kit: SlurmKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", IgnoreTerm()))
    await kit.in_effect("a.1.run")
    assert kit.cluster.kill_steps("n1")
    end = _only_exit(await kit.settle("a.1.run"))
    assert end.lost
    assert kit.processes() == []
    await _idle(kit, "n1")  # Slurm is told, since it does not notice by itself


@pytest.mark.slow
async def test_when_the_supervisor_of_one_step_is_killed_the_other_ranks_are_stopped(kit: SlurmKit) -> None:
    gang = kit.gang("a.1.run", RunForever(), ranks=2)
    ranks = tuple(replace(rank, node=node) for rank, node in zip(gang.ranks, ("n1", "n2"), strict=True))
    await kit.engine.launch(replace(gang, ranks=ranks))
    await kit.in_effect("a.1.run")
    assert kit.cluster.kill_steps("n2")
    first, second = (rank.exit for rank in (await kit.settle("a.1.run")).ranks)
    assert second is not None
    assert (second.lost, second.stopped) == (True, False)
    assert first is not None
    assert first.stopped
    assert kit.processes() == []
    await _idle(kit, "n2")


@pytest.mark.slow
async def test_a_killed_supervisor_leaves_nothing_that_writes(kit: SlurmKit) -> None:
    source = "import os,time\nif os.fork(): time.sleep(600)\nos.setsid()\nopen('child','w').close()\ntime.sleep(600)"
    await kit.engine.launch(kit.python("a.1.run", source))
    await until_exists(kit.root / "run/a.1.run/child")
    record = kit.engine._gangs.known["a.1.run"].ranks[0].record
    os.kill(int(record["supervisor"]), signal.SIGKILL)
    end = _only_exit(await kit.settle("a.1.run"))
    assert end.lost
    assert kit.processes() == []


async def test_a_rank_that_is_fenced_ends_though_its_node_lives_on(kit: SlurmKit) -> None:
    """Slurm has given the job up, and the rank does not know: the fence reaches it on the shared directory."""
    await kit.engine.launch(kit.gang("a.1.run", IgnoreTerm()))
    await kit.in_effect("a.1.run")
    kit.engine._gangs.known["a.1.run"].files.fence("given up", 1.0)
    end = _only_exit(await kit.settle("a.1.run"))
    assert end.lost
    assert "given up" in end.detail
    assert kit.processes() == []


async def test_a_rank_whose_directory_does_not_answer_is_ended_by_its_guard(kit: SlurmKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", IgnoreTerm()))
    await kit.in_effect("a.1.run")
    record = kit.engine._gangs.known["a.1.run"].ranks[0].record
    os.kill(int(record["supervisor"]), signal.SIGSTOP)  # as one that waits for the directory for ever
    end = _only_exit(await kit.settle("a.1.run"))
    assert end.lost
    assert "lease ran out" in end.detail
    assert kit.processes() == []


@pytest.mark.slow  # nodes take ten seconds to be known to a new controller
async def test_a_killed_controller_changes_nothing_for_what_runs(kit: SlurmKit, cluster: PrivateSlurm) -> None:
    await kit.engine.launch(kit.gang("a.1.run", RunForever()))
    await kit.in_effect("a.1.run")
    await _saved(cluster)
    cluster.kill_daemon("slurmctld")
    launching = asyncio.create_task(kit.engine.launch(kit.gang("b.1.run", Succeed())))
    async with asyncio.timeout(30):
        async for inventory in kit.engine.nodes():
            if inventory.closed:
                assert "does not answer" in inventory.closed["n1"]
                break
    assert not launching.done()
    cluster.start_daemon("slurmctld")
    await _idle(kit, "n2")
    assert {node.name for node in (await kit.engine.inventory()).nodes} == {"n1", "n2"}
    await launching
    assert _only_exit(await kit.settle("b.1.run")).ok  # type: ignore[attr-defined]
    assert (await kit.engine.status("a.1.run")).phase is Phase.RUNNING  # type: ignore[union-attr]


class Silenced(Commands):
    """What a command of `silent` prints is lost: it ends with 0 and without a word."""

    silent: frozenset[str] = frozenset()
    asked = 0

    async def run(self, *command: str, stdin: str = "", extra: Mapping[str, str] | None = None) -> str:
        printed = await super().run(*command, stdin=stdin, extra=extra)
        self.asked += command[0] == "squeue"
        return "" if " ".join(command).startswith(tuple(self.silent)) else printed


class SilencedKit(SlurmKit):
    def new_engine(self) -> None:
        super().new_engine()
        self.commands = Silenced({**os.environ, **self.cluster.environment})
        self.engine = SlurmEngine(self.home, commands=self.commands, lease_s=3.0, look_every_s=0.3, poll_s=0.1)


@pytest.mark.parametrize("silent", [{"squeue"}, {"squeue", "scontrol show job"}])
async def test_an_empty_list_ends_nothing_that_slurm_still_runs(
    tmp_path: Path, cluster: PrivateSlurm, silent: set[str]
) -> None:
    async with slurm_kit(tmp_path, cluster, SilencedKit) as kit:
        assert isinstance(kit, SilencedKit)
        await kit.engine.launch(kit.gang("a.1.run", RunForever()))
        await kit.in_effect("a.1.run")
        kit.commands.silent, kit.commands.asked = frozenset(silent), 0
        async with asyncio.timeout(60):
            while kit.commands.asked < 8:
                await asyncio.sleep(0.05)
        assert not (kit.home / "gangs" / "a.1.run" / "fenced").exists()
        assert (await kit.engine.status("a.1.run")).phase is Phase.RUNNING  # type: ignore[union-attr]
        kit.commands.silent = frozenset()
        await kit.engine.stop("a.1.run", grace_s=0)
        end = _only_exit(await kit.settle("a.1.run"))
        assert (end.stopped, end.lost) == (True, False)  # type: ignore[attr-defined]


async def test_a_job_that_slurm_has_purged_is_told_as_gone(kit: SlurmKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", RunForever()))
    await kit.in_effect("a.1.run")
    cluster = kit.engine._cluster
    job = _job(kit, "a.1.run")
    assert (await cluster.find(job, "a.1.run", "m")).name == "a.1.run"  # type: ignore[union-attr]
    assert await cluster.find("99999999", "a.1.run", "m") is None


async def test_secrets_reach_the_rank_and_no_file(kit: SlurmKit) -> None:
    gang = kit.script("a.1.run", "sh", "-c", 'test "${#TOKEN}" = 16', secrets={"TOKEN": "s3cr3t-of-a-test"})
    await kit.engine.launch(gang)
    assert _only_exit(await kit.settle("a.1.run")).ok  # type: ignore[attr-defined]
    for root in (kit.home, kit.cluster.root):
        for path in root.rglob("*"):
            if path.is_file():
                assert b"s3cr3t-of-a-test" not in path.read_bytes(), path


async def test_a_gang_over_two_nodes_has_one_address_for_all(kit: SlurmKit) -> None:
    gang = kit.script(
        "a.1.run",
        "sh",
        "-c",
        "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT",
        ranks=3,
    )
    ranks = tuple(replace(rank, node=node) for rank, node in zip(gang.ranks, ("n2", "n1", "n1"), strict=True))
    await kit.engine.launch(replace(gang, ranks=ranks))
    status = await kit.settle("a.1.run")
    assert [rank.node for rank in status.ranks] == ["n2", "n1", "n1"]
    told = [(await kit.log("a.1.run", rank)).split() for rank in range(3)]
    assert [line[:5] for line in told] == [
        ["0", "0", "1", "0", "3"], ["1", "0", "2", "1", "3"], ["2", "1", "2", "1", "3"],
    ]  # fmt: skip
    assert len({tuple(line[5:]) for line in told}) == 1
    assert told[0][5] == "127.0.0.1"


async def test_a_node_without_the_shared_directory_is_closed(kit: SlurmKit, tmp_path: Path) -> None:
    hidden = kit.home / "gangs" / "a.1.run"
    gang = kit.gang("a.1.run", Succeed())
    launching = asyncio.create_task(kit.engine.launch(gang))
    async with asyncio.timeout(30):
        while not list(hidden.glob("spec.*")):
            await asyncio.sleep(0)
    for path in hidden.glob("spec.*"):
        path.unlink()  # as it looks from a node that does not see it
    with pytest.raises(LaunchFailed, match="does not see") as failure:
        await launching
    assert failure.value.fault is Fault.PLATFORM
    assert "shared directory" in (await kit.engine.inventory()).closed["n1"]


async def test_a_refused_job_says_why(kit: SlurmKit) -> None:
    gang = kit.gang("a.1.run", Succeed(), memory_bytes=1 << 45)
    with pytest.raises(Refused, match="no node of the partition could ever run it") as failure:
        await kit.engine.launch(gang)
    assert failure.value.fault is Fault.USER


@pytest.mark.slow
async def test_an_exit_while_the_controller_is_away_is_seen(kit: SlurmKit, cluster: PrivateSlurm) -> None:
    await kit.engine.launch(kit.gang("a.1.run", Fail(3, after_s=0.5)))
    await _saved(cluster)
    cluster.kill_daemon("slurmctld")
    try:
        end = _only_exit(await kit.settle("a.1.run"))
        assert end.code == 3
    finally:
        cluster.start_daemon("slurmctld")
        await _idle(kit, "n1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": "nowhere"}, "there is no partition 'nowhere'.*shoal, urgent"),
        pytest.param({}, "does not answer", marks=pytest.mark.slow),  # Slurm's commands try for nine seconds
    ],
)
async def test_a_cluster_that_cannot_be_used_is_told_at_once(
    tmp_path: Path, cluster: PrivateSlurm, options: dict[str, str], message: str
) -> None:
    environ = {**os.environ, **cluster.environment}
    if not options:
        lonely = tmp_path / "slurm.conf"
        lonely.write_text(cluster.conf.read_text().replace("SlurmctldPort=", "SlurmctldPort=1 #"))
        environ["SLURM_CONF"] = str(lonely)
    engine = SlurmEngine(tmp_path / "home", commands=Commands(environ), target=Target(**options))
    with pytest.raises(Unavailable, match=message):
        await engine.open()
    await engine.close()


def test_doctor_names_a_home_that_cannot_be_made(
    tmp_path: Path, cluster: PrivateSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    found = {each.name: each for each in probe_cluster(EngineOptions(tmp_path / "file/home", None, SlurmSettings()))}
    assert found["slurm"].available
    assert not found["shared-directory"].available
    assert "Not a directory" in found["shared-directory"].detail


async def _saved(cluster: PrivateSlurm) -> None:
    """Until the controller has written down what it knows: it does so every few seconds only."""
    began = time.time()
    async with asyncio.timeout(30):
        while (cluster.root / "state/job_state").stat().st_mtime < began:
            await asyncio.sleep(0.1)


async def _idle(kit: SlurmKit, node: str) -> None:
    async with asyncio.timeout(60):
        while (
            kit.cluster.run("sinfo", "-h", "-N", "-p", "shoal", "-n", node, "-o", "%t", check=False).strip() != "idle"
        ):
            kit.cluster.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
            await asyncio.sleep(0.2)


async def test_an_orphan_of_a_lost_node_stops_writing_before_its_rank_is_lost(
    kit: SlurmKit, cluster: PrivateSlurm
) -> None:
    """The node's daemons die at once; the rank's own processes would live on. The last test: the node stays down."""
    await kit.engine.launch(kit.gang("a.1.run", IgnoreTerm()))
    await kit.in_effect("a.1.run")
    cluster.kill_daemon("n1")
    cluster.kill_steps("n1")
    status = await kit.settle("a.1.run")
    assert [each.process for each in marked(kit.home)] == []
    assert _only_exit(status).lost  # type: ignore[attr-defined]
