"""What a lost node of Ray does to ranks, done for real: it is seen, given up, and nothing of it writes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clusters.ray import PrivateRay

from shoal.core import Unavailable
from shoal.engine import GangStatus, Phase
from shoal.engine.ray import RayEngine
from shoal.engine.ray.client import Bridge
from tests.engine.conformance import IgnoreTerm, RunForever
from tests.engine.local_kit import until_exists
from tests.engine.ray_kit import RayKit, needs_ray, ray_kit

pytestmark = [needs_ray, pytest.mark.slow]

WRITES = """
import os, time
with open("out", "a", buffering=1) as out:
    while True:
        print(time.time(), file=out)
        time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateRay]:
    """The head has no device: a node that is lost is never the one with Ray's own tables."""
    with PrivateRay((0, 1, 1)) as cluster:
        yield cluster


@pytest.fixture
async def kit(tmp_path: Path, cluster: PrivateRay) -> AsyncIterator[RayKit]:
    async with ray_kit(tmp_path, cluster) as kit:
        yield kit
        for name in cluster.names[1:]:  # whatever the test left of a node makes way for a new one
            cluster.kill_node(name)
        await _devices(kit, 0)
        for name in cluster.names[1:]:
            await asyncio.to_thread(cluster.start_node, name)
        await _devices(kit, 2)


async def _devices(kit: RayKit, count: int) -> None:
    async with asyncio.timeout(60):
        while len((await kit.engine.inventory()).nodes[0].devices) != count:
            await asyncio.sleep(0.05)


async def _lost(kit: RayKit, name: str) -> GangStatus:
    """The status by which the gang ended; no process of it may be left by then."""
    status = await kit.settle(name, within_s=60)
    assert kit.processes(name) == []
    return status


async def test_a_dead_nodes_rank_is_given_up_and_begins_again_on_another(kit: RayKit, cluster: PrivateRay) -> None:
    launched = await kit.launch(kit.gang("a.1.run", RunForever()))
    first = launched.ranks[0].node
    cluster.kill_node(first)
    (rank,) = (await _lost(kit, "a.1.run")).ranks
    assert rank.exit is not None
    assert (rank.exit.lost, rank.exit.node_lost, rank.node) == (True, True, first)
    assert rank.exit.detail == f"its node {first} failed"
    again = await kit.launch(kit.gang("a.2.run", RunForever()))
    assert again.phase is Phase.RUNNING
    assert again.ranks[0].node in set(cluster.names[1:]) - {first}


async def test_when_one_node_of_a_gang_dies_the_other_ranks_are_stopped(kit: RayKit, cluster: PrivateRay) -> None:
    launched = await kit.launch(replace(kit.gang("a.1.run", RunForever(), ranks=2), ranks_per_node=1))
    await kit.in_effect("a.1.run")
    cluster.kill_node(launched.ranks[1].node)
    stopped, lost = (rank.exit for rank in (await _lost(kit, "a.1.run")).ranks)
    assert lost is not None
    assert (lost.lost, lost.node_lost) == (True, True)
    assert stopped is not None
    assert not stopped.node_lost


class Forgetful(Bridge):
    """What Ray says of all our jobs is `lost`: there is none, or no answer. Single ones it knows."""

    lost = ""
    asked = 0

    async def ask(self, do: str, **request: object) -> Any:
        answer = await super().ask(do, **request)
        if do != "jobs" or not self.lost:
            return answer
        self.asked += 1
        if self.lost == "answers":
            raise Unavailable("nobody answers")
        return {**answer, "jobs": []}


class ForgetfulKit(RayKit):
    def new_engine(self) -> None:
        plain = self.cluster.bridge()
        self.bridge = Forgetful(plain.address, python=plain._python, prefix=plain._prefix, environ=plain._environ)
        self.engine = RayEngine(self.home, bridge=self.bridge, lease_s=3.0, look_every_s=0.3, poll_s=0.3, ahead=0.0)


@pytest.fixture
async def forgetful(tmp_path: Path, cluster: PrivateRay) -> AsyncIterator[ForgetfulKit]:
    async with ray_kit(tmp_path, cluster, ForgetfulKit) as made:
        assert isinstance(made, ForgetfulKit)
        yield made


@pytest.mark.parametrize("lost", ["jobs", "answers"])
async def test_an_empty_list_ends_nothing_that_ray_still_runs(forgetful: ForgetfulKit, lost: str) -> None:
    kit = forgetful
    await kit.launch(kit.gang("a.1.run", RunForever()))
    await kit.in_effect("a.1.run")
    kit.bridge.lost, kit.bridge.asked = lost, 0
    async with asyncio.timeout(60):
        while kit.bridge.asked < 6:
            await asyncio.sleep(0.05)
    assert not (kit.home / "gangs" / "a.1.run" / "fenced").exists()
    assert kit.engine._gangs.known["a.1.run"].status.phase is Phase.RUNNING
    kit.bridge.lost = ""
    await kit.engine.stop("a.1.run", grace_s=0)
    (rank,) = (await kit.settle("a.1.run")).ranks
    assert rank.exit is not None
    assert (rank.exit.stopped, rank.exit.lost) == (True, False)


async def test_a_job_that_ray_has_no_more_is_given_up(forgetful: ForgetfulKit) -> None:
    kit = forgetful
    await kit.launch(kit.gang("a.1.run", RunForever()))
    await kit.in_effect("a.1.run")
    job = kit.engine._gangs.known["a.1.run"].job_id
    assert job
    kit.bridge.lost = "jobs"
    await kit.bridge.ask("cancel", job=job)
    (rank,) = (await _lost(kit, "a.1.run")).ranks
    assert rank.exit is not None


@pytest.mark.parametrize("frozen", ["raylet", "supervisor"])
async def test_an_orphan_of_a_node_that_is_cut_off_stops_writing_first(
    kit: RayKit, cluster: PrivateRay, frozen: str
) -> None:
    """The node lives on, and so would its ranks. The fence ends them, or the lease, where the shared directory does
    not answer: as for a supervisor that waits for it for ever."""
    gang = kit.python("a.1.run", WRITES)
    rank = replace(gang.ranks[0], devices=("h200:0",))
    launched = await kit.launch(replace(gang, ranks=(rank,)))
    written = gang.run_dir / "out"
    await until_exists(written)
    record = kit.engine._gangs.known["a.1.run"].ranks[0].record
    if frozen == "supervisor":
        os.kill(int(record["supervisor"]), signal.SIGSTOP)
    cluster.cut_off(launched.ranks[0].node)
    (ended,) = (await _lost(kit, "a.1.run")).ranks
    assert ended.exit is not None
    assert ended.exit.lost
    size = written.stat().st_size
    again = await kit.launch(kit.gang("a.2.run", IgnoreTerm()))
    assert again.ranks[0].node != launched.ranks[0].node
    await kit.in_effect("a.2.run")
    assert written.stat().st_size == size > 0
