"""The engine of a cluster that answers badly: one in memory, without jobs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.core import Capability, Device, Node, SystemClock, Unavailable
from shoal.engine import Gang, Inventory
from shoal.engine.batch.cluster import BatchCluster
from shoal.engine.batch.engine import BatchEngine
from shoal.engine.batch.job import BatchJob

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

    async def cancel(self, job: str) -> None:
        raise NotImplementedError


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
