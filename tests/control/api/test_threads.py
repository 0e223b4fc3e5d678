"""With real threads: what a request reads in one never disturbs the event loop's own picture of the cluster."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shoal.admission import ClusterIndex
from shoal.control.jobs.explaining import Explainer
from shoal.core import SystemClock
from shoal.engine.simulated import SimulatedCluster
from tests.admission.cases import NOW, devices, index_of, job, node, running
from tests.control.api.conftest import House, behave, furnished
from tests.control.simulation import World, nodes

SCRAPES = 25


@pytest.fixture
async def busy_house(tmp_path: Path) -> AsyncIterator[House]:
    """On the real clock, so that threads are threads."""
    clock = SystemClock()
    world = World(tmp_path, SimulatedCluster(nodes(4, 4), clock=clock, behaviour=behave), clock)
    async with furnished(world) as house:
        yield house


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
async def test_scraping_without_pause_loses_no_job_from_the_decisions_view(busy_house: House) -> None:
    async def scrape() -> set[int]:
        async with busy_house.client() as client:
            return {(await client.get("/metrics")).status_code for _ in range(SCRAPES)}

    scrapers = [asyncio.create_task(scrape()) for _ in range(3)]
    submitted = 0
    while not all(scraper.done() for scraper in scrapers):
        await busy_house.submit(("red", "blue")[submitted % 2], name=f"j-{submitted}", seconds=3600.0)
        await asyncio.sleep(0)
        submitted += 1
    assert set().union(*[await scraper for scraper in scrapers]) == {200}
    plane = busy_house.plane
    snapshot = plane.snapshot()
    decided_on = {job.job_id for queue in snapshot.pending.by_tenant.values() for group in queue for job in group.ready}
    assert decided_on | set(snapshot.running) == {live.job.id for live in plane.cache}
    assert len(plane.cache) == submitted > 20


def _full(waiting: int) -> ClusterIndex:
    held = running("r", {"n0": devices(0)}, end=NOW + 10)
    jobs = [job(f"j{at:03d}", at=float(at), expected_s=10.0) for at in range(waiting)]
    return index_of([node("n0", {"a100": 1})], jobs, [held])


async def test_the_event_loop_goes_on_while_jobs_are_explained() -> None:
    index = _full(waiting=300)
    explainer = Explainer(lambda: index.snapshot(NOW), SystemClock())
    task = asyncio.create_task(explainer.explain([f"j{at:03d}" for at in range(300)]))
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert [told.ahead for told in await task] == list(range(300))
    assert turns > 100


class SlowClock:
    """Each look at it takes a second."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return NOW

    def monotonic(self) -> float:
        self.at += 1.0
        return self.at


async def test_an_outlook_is_used_again_for_as_long_as_it_was_dear() -> None:
    index, clock = _full(waiting=3), SlowClock()
    explainer = Explainer(lambda: index.snapshot(NOW), clock)
    assert (await explainer.explain(["j002"]))[0].ahead == 2
    index.remove_pending("j000")
    assert (await explainer.explain(["j002"]))[0].ahead == 2
    index.add_pending(job("new", at=99.0))
    assert (await explainer.explain(["new"]))[0].ahead == 2
    index.remove_pending("j001")
    clock.at += 100.0
    assert [told.ahead for told in await explainer.explain(["j002", "j001"])] == [0]


def test_an_index_refuses_other_threads() -> None:
    index = ClusterIndex()
    refused: list[str] = []

    def ask() -> None:
        for touch in (
            lambda: index.snapshot(0.0), lambda: index.stop("j"), lambda: index.remove_pending("j"),
            lambda: index.update_running("j", stopping=True), lambda: index.set_nodes(()),
        ):  # fmt: skip
            try:
                touch()
            except RuntimeError as error:
                refused.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert len(refused) == 5
    assert "belongs to one thread" in refused[0]
