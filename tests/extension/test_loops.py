"""Loops of extensions: opened, watched and closed by the server; a defect in one costs no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from shoal.base.loops import BackgroundLoop, RunningLoop
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.core import LeaseLost
from shoal.engine.simulated import Script
from shoal.extension import Extension, NoSection, Server
from tests.control import simulation
from tests.control.simulation import World, nodes

pytestmark = pytest.mark.virtual_time


class Loops(Extension):
    """A loop that counts seconds, one that fails whenever it is started, one that fails once, one that ends."""

    name: ClassVar[str] = "loops"
    seen: ClassVar[list[str]] = []
    starts: ClassVar[dict[str, int]] = {}
    fatal: ClassVar[BaseException | None] = None

    def __init__(self, server: Server, settings: Any) -> None:
        self.ticks = 0
        self.seen.clear()
        self.starts.clear()

    async def open(self) -> None:
        self.seen.append("open")

    async def close(self) -> None:
        self.seen.append("close")

    def loops(self) -> Sequence[BackgroundLoop]:
        runs = (self._count, self._fail, self._fail_once, self._end)
        return tuple(RunningLoop(run.__name__.lstrip("_"), run) for run in runs)

    def _started(self, name: str) -> int:
        self.starts[name] = self.starts.get(name, 0) + 1
        self.seen.append(f"{name} starts")
        return self.starts[name]

    async def _count(self) -> None:
        self._started("count")
        try:
            while True:
                await asyncio.sleep(1.0)
                self.ticks += 1
        finally:
            self.seen.append("count ends")

    async def _fail(self) -> None:
        self._started("fail")
        await asyncio.sleep(0.1)
        raise self.fatal or ZeroDivisionError("a defect of an extension")

    async def _fail_once(self) -> None:
        if self._started("fail_once") == 1:
            raise ConnectionError("the network is away")
        await asyncio.Event().wait()

    async def _end(self) -> None:
        self._started("end")


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(simulation, "chosen", lambda **_: [Chosen(Loops, NoSection())])
    monkeypatch.setattr(Loops, "fatal", None)
    made = World.make(tmp_path, nodes(1, 1), lambda _: Script(run_s=1.0))
    yield made
    if made.plane is not None:
        await made.kill()


def missing(plane: ControlPlane) -> dict[str, str]:
    return {one.name: one.detail for one in plane.extensions.capabilities() if not one.available}


async def test_a_loop_that_fails_is_shown_and_started_again_and_stops_no_other(world: World) -> None:
    plane = await world.start()
    found = plane.extensions.get(Loops)
    assert found is not None
    await asyncio.sleep(30.0)
    assert found.ticks >= 29
    assert Loops.starts["end"] == 1
    assert Loops.starts["fail_once"] == 2
    assert Loops.starts["fail"] == 5  # after 1, 2, 4, 8 and 16 s
    told = missing(plane)
    assert told["loops: fail"] == "failed 5 times, last by ZeroDivisionError: a defect of an extension"
    assert told["loops: fail_once"] == "failed 1 times, last by ConnectionError: the network is away"
    assert plane.ready
    await asyncio.sleep(1000.0)
    assert "loops: fail_once" not in missing(plane)
    assert Loops.starts["fail"] >= 20, "the wait does not grow beyond a minute"


async def test_loops_start_after_open_and_end_before_close(world: World) -> None:
    plane = await world.start()
    await asyncio.sleep(5.0)
    await plane.close()
    assert Loops.seen[0] == "open"
    assert Loops.seen[-2:] == ["count ends", "close"]
    before = dict(Loops.starts)
    await asyncio.sleep(100.0)
    assert Loops.starts == before, "none is started again once the server closes"


async def test_a_lost_lease_ends_the_server(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loops, "fatal", LeaseLost("another server controls the database"))
    await world.start()
    await asyncio.wait_for(world.dead.wait(), 5.0)
