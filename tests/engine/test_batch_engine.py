"""The engine of a cluster that answers badly: one in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shoal.core import Capability, Device, Node, SystemClock, Unavailable
from shoal.engine import Gang, Inventory, RankSpec
from shoal.engine.batch.cluster import BatchCluster
from shoal.engine.batch.engine import BatchEngine
from shoal.engine.batch.job import BatchJob
from shoal.engine.slurm.jobs import SlurmJob

EVERY_S = 0.01


class Moody(BatchCluster):
    """The next answer to each of `mistaken` cannot be read."""

    pool = "moody"

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.there = True
        self.mistaken: set[str] = set()
        self.read_well: set[str] = set()

    async def open(self) -> None:
        if not self.there:
            raise Unavailable("nobody answers")
        await self.look()

    async def _read(self) -> Inventory:
        self._answer("nodes")
        return Inventory((Node("n1", (Device("gpu0", "h200", 0),), 1000, 1 << 30),))

    async def jobs(self, mark: str) -> tuple[BatchJob, ...]:
        del mark
        self._answer("jobs")
        return ()

    def _answer(self, what: str) -> None:
        if what in self.mistaken:
            self.mistaken.remove(what)
            raise ValueError("'1Q' is no quantity")
        self.read_well.add(what)

    def capabilities(self) -> tuple[Capability, ...]:
        return ()

    def own_address(self) -> str:
        return "127.0.0.1"

    async def submit(self, gang: Gang, gang_dir: Path, token: str, runner: Path, key: str, mark: str) -> str:
        raise NotImplementedError

    async def find(self, job: str, gang: str, mark: str) -> BatchJob | None:
        raise NotImplementedError

    async def cancel(self, job: str) -> None:
        raise NotImplementedError


class Forgetful(Moody):
    """Its list is empty. `known` are the jobs that it has; None: it does not answer who asks for one."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] | None = set()
        self.asked: list[str] = []

    async def submit(self, gang: Gang, gang_dir: Path, token: str, runner: Path, key: str, mark: str) -> str:
        assert self.known is not None
        self.known.add(f"job-{gang.name}")
        return f"job-{gang.name}"

    async def find(self, job: str, gang: str, mark: str) -> BatchJob | None:
        assert job == f"job-{gang}"
        self.asked.append(job)
        if self.known is None:
            raise Unavailable("nobody answers")
        waiting = SlurmJob(job, "PENDING", mark, "", gang)
        return waiting if job in self.known else None

    async def cancel(self, job: str) -> None:
        assert self.known is not None
        self.known.discard(job)


class Forgotten:
    """An engine whose cluster lists nothing, with gangs that it was given. Its lists are made by hand."""

    def __init__(self, home: Path) -> None:
        self.cluster = Forgetful()
        self.engine = BatchEngine("moody", home, self.cluster, look_every_s=1000, poll_s=1000)

    async def launch(self, *names: str) -> None:
        for name in names:
            ranks = (RankSpec(0, "moody"),)
            await self.engine.launch(Gang(name, ("true",), ranks, run_dir=self.engine._home / "runs" / name))
        self.cluster.asked.clear()

    async def list(self) -> None:
        await self.engine.sweep(frozenset(await self.engine.gangs()))

    async def ended(self) -> set[str]:
        return {name for name, status in (await self.engine.gangs()).items() if status.ended}

    def holds(self) -> bool:
        return bool(self.cluster.present.value.closed)


@pytest_asyncio.fixture
async def forgotten(tmp_path: Path) -> AsyncIterator[Forgotten]:
    made = Forgotten(tmp_path)
    await made.engine.open()
    yield made
    await made.engine.close()


def engine_of(cluster: Moody, home: Path) -> BatchEngine:
    return BatchEngine("moody", home, cluster, look_every_s=EVERY_S, poll_s=EVERY_S)


async def test_a_cluster_that_does_not_answer_leaves_the_home_to_another_engine(tmp_path: Path) -> None:
    cluster = Moody()
    cluster.there = False
    with pytest.raises(Unavailable, match="nobody answers"):
        await engine_of(cluster, tmp_path).open()
    other = engine_of(Moody(), tmp_path)
    await other.open()
    await other.close()


async def test_jobs_that_a_list_lacks_are_kept_as_long_as_the_cluster_knows_them(forgotten: Forgotten) -> None:
    await forgotten.launch("a.1.run", "b.1.run")
    for _ in range(5):
        await forgotten.list()
        assert not await forgotten.ended()
        assert not forgotten.holds()
    assert forgotten.cluster.asked == ["job-a.1.run", "job-b.1.run"] * 5


async def test_a_job_is_gone_when_the_cluster_said_so_twice_in_a_row(forgotten: Forgotten) -> None:
    await forgotten.launch("a.1.run", "b.1.run")
    assert forgotten.cluster.known is not None
    forgotten.cluster.known = {"job-b.1.run"}
    await forgotten.list()
    assert not await forgotten.ended()
    assert forgotten.holds()
    forgotten.cluster.known = {"job-a.1.run", "job-b.1.run"}
    await forgotten.list()
    forgotten.cluster.known = {"job-b.1.run"}
    await forgotten.list()
    assert not await forgotten.ended()
    await forgotten.list()
    assert await forgotten.ended() == {"a.1.run"}
    await forgotten.engine.inventory()
    assert not forgotten.holds()


async def test_without_an_answer_for_single_jobs_nothing_is_given_up(forgotten: Forgotten) -> None:
    await forgotten.launch("a.1.run")
    forgotten.cluster.known = None
    for _ in range(5):
        await forgotten.list()
        assert forgotten.holds()
    assert not await forgotten.ended()


async def test_of_many_missing_jobs_some_are_asked_for_after_each_list(forgotten: Forgotten) -> None:
    names = [f"j{number:02}.1.run" for number in range(50)]
    await forgotten.launch(*names)
    forgotten.cluster.known = set()
    lists = 0
    while await forgotten.ended() != set(names):
        asked = len(forgotten.cluster.asked)
        await forgotten.list()
        assert 0 < len(forgotten.cluster.asked) - asked <= 20
        assert forgotten.holds()
        lists += 1
    assert lists <= 10


@pytest.mark.parametrize("what", ["nodes", "jobs"])
async def test_an_answer_that_cannot_be_read_is_not_the_last(tmp_path: Path, what: str) -> None:
    cluster = Moody()
    engine = engine_of(cluster, tmp_path)
    await engine.open()
    cluster.mistaken.add(what)
    async with asyncio.timeout(10):
        while cluster.mistaken:
            await asyncio.sleep(EVERY_S)
        cluster.read_well.clear()
        while what not in cluster.read_well:
            await asyncio.sleep(EVERY_S)
    await engine.close()
