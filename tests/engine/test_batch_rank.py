"""A rank under the cluster's own supervisor, which a shell stands for: what is told of its end when that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest_asyncio

from shoal.core import Capability, Device, Node, SystemClock
from shoal.engine import Exit, Gang, Inventory, Phase, RankSpec
from shoal.engine.batch import handover
from shoal.engine.batch.cluster import BatchCluster
from shoal.engine.batch.engine import BatchEngine
from shoal.engine.protocol import TimeLimit
from shoal.engine.slurm.jobs import SlurmJob

STUBBORN = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, lambda *_: pathlib.Path("asked").touch())
pathlib.Path(f"master-{os.getpid()}").write_text(f"{os.environ['MASTER_ADDR']} {os.environ['MASTER_PORT']}")
pathlib.Path("up").touch()
while True:
    time.sleep(60)
"""


class Steps(BatchCluster):
    """Runs each job below a shell on this machine; `steps` are the shells."""

    pool = "steps"

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.steps: list[asyncio.subprocess.Process] = []

    async def open(self) -> None:
        await self.look()

    async def _read(self) -> Inventory:
        return Inventory((Node("n1", (Device("gpu0", "h200", 0),), 1000, 1 << 30),))

    def capabilities(self) -> tuple[Capability, ...]:
        return ()

    def own_address(self) -> str:
        return "127.0.0.1"

    async def submit(self, gang: Gang, gang_dir: Path, token: str, runner: Path, key: str, mark: str) -> str:
        command = handover.command(gang_dir, token, python=os.path.realpath(sys.executable), runner=runner)
        told = {**os.environ, "SHOAL_SEAL": key, "SHOAL_TASK_JOB": "1", "SHOAL_TASK_NODE": "n1"}
        for rank in gang.ranks:
            own = {**told, "SHOAL_TASK_RANK": str(rank.rank)}
            self.steps.append(await asyncio.create_subprocess_shell(f"( {command} ) & wait", env=own))
        return "1"

    async def jobs(self, mark: str) -> tuple[SlurmJob, ...]:
        runs = any(step.returncode is None for step in self.steps)
        return (SlurmJob("1", "RUNNING", mark, "n1", "a.1.run"),) if runs else ()

    async def find(self, job: str, gang: str, mark: str) -> SlurmJob | None:
        return next(iter(await self.jobs(mark)), None)

    async def cancel(self, job: str) -> None:
        await self.kill()

    async def kill(self) -> None:
        for step in self.steps:
            if step.returncode is None:
                step.kill()
                await step.wait()


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Steps]:
    made = Steps()
    yield made
    await made.kill()


@pytest_asyncio.fixture
async def engine(tmp_path: Path, cluster: Steps) -> AsyncIterator[BatchEngine]:
    made = BatchEngine("steps", tmp_path, cluster, look_every_s=0.2, poll_s=0.05)
    await made.open()
    yield made
    await made.stop("a.1.run", grace_s=0.0)
    await until(lambda: over(made))
    await made.close()


async def launch(engine: BatchEngine, home: Path, *limits: TimeLimit, ranks: int = 1) -> None:
    gang = Gang(
        "a.1.run", (sys.executable, "-c", STUBBORN), tuple(RankSpec(rank, "steps") for rank in range(ranks)),
        run_dir=home / "run", grace_s=60.0, time_limits=limits,
    )  # fmt: skip
    await engine.launch(gang)

    async def handles_signals() -> bool:
        return (home / "run" / "up").exists() and len(masters(home)) == ranks

    await until(handles_signals)


def masters(home: Path) -> list[str]:
    return [one.read_text() for one in (home / "run").glob("master-*") if one.stat().st_size]


async def until(met: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await met():
            await asyncio.sleep(0.02)


async def asked_to_leave(home: Path) -> None:
    async def asked() -> bool:
        return (home / "run" / "asked").exists()

    await until(asked)


async def phase(engine: BatchEngine) -> Phase:
    status = await engine.status("a.1.run")
    assert status is not None
    return status.phase


async def ended(engine: BatchEngine) -> Exit:
    await until(lambda: over(engine))
    status = await engine.status("a.1.run")
    assert status is not None
    (rank,) = status.ranks
    assert rank.exit is not None
    return rank.exit


async def test_a_rank_whose_step_was_killed_is_lost(engine: BatchEngine, cluster: Steps, tmp_path: Path) -> None:
    await launch(engine, tmp_path)
    await cluster.kill()
    end = await ended(engine)
    assert (end.lost, end.limit, end.detail) == (True, "", "the cluster's own supervisor of it was killed")


async def test_one_that_was_over_a_limit_before_its_step_was_killed_ended_for_that(
    engine: BatchEngine, cluster: Steps, tmp_path: Path
) -> None:
    await launch(engine, tmp_path, TimeLimit("time", "it ran too long", at=0.0))
    await asked_to_leave(tmp_path)
    await cluster.kill()
    end = await ended(engine)
    assert (end.lost, end.limit, end.detail) == (False, "time", "it ran too long")
    assert end.signal == signal.SIGKILL


async def test_signals_reach_the_main_process_and_a_stop_ends_it_after_its_grace(
    engine: BatchEngine, tmp_path: Path
) -> None:
    await launch(engine, tmp_path)
    await engine.signal("a.1.run", signal.SIGTERM)
    await asked_to_leave(tmp_path)
    assert await phase(engine) is Phase.RUNNING
    await engine.stop("a.1.run", grace_s=0.0)
    end = await ended(engine)
    assert (end.signal, end.stopped, end.lost) == (signal.SIGKILL, True, False)


async def test_ranks_start_together_and_know_where_the_first_one_listens(engine: BatchEngine, tmp_path: Path) -> None:
    await launch(engine, tmp_path, ranks=2)
    (told,) = set(masters(tmp_path))
    host, port = told.split()
    assert host
    assert 0 < int(port) < 1 << 16


async def test_a_rank_whose_supervisor_was_killed_is_lost_and_leaves_nothing(
    engine: BatchEngine, cluster: Steps, tmp_path: Path
) -> None:
    await launch(engine, tmp_path)
    below = psutil.Process(cluster.steps[0].pid).children(recursive=True)
    supervisor = next(one for one in below if "rank.py" in " ".join(one.cmdline()))
    program = next(one for one in below if STUBBORN in one.cmdline())
    supervisor.kill()
    end = await ended(engine)
    assert (end.lost, end.detail) == (True, "its supervisor was killed")
    assert not program.is_running() or program.status() == psutil.STATUS_ZOMBIE


async def over(engine: BatchEngine) -> bool:
    return await phase(engine) is Phase.ENDED
