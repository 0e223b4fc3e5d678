"""Driving the Ray engine on a real private cluster, with the small command of the local engine's kit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from clusters.ray import PrivateRay, missing

from shoal.engine.local.processes import marked
from shoal.engine.ray import RayEngine
from tests.engine.local_kit import LocalKit

needs_ray = pytest.mark.skipif(bool(missing()), reason=f"no Ray here: {missing()}")


class RayKit(LocalKit):
    """A kit on a cluster that others use too: each has a home of its own."""

    engine: RayEngine  # type: ignore[assignment]

    def __init__(self, root: Path, cluster: PrivateRay, **options: Any) -> None:
        self.cluster = cluster
        super().__init__(root, **options)

    def new_engine(self) -> None:
        options = {"lease_s": 3.0, "look_every_s": 0.3, "poll_s": 0.3, "ahead": 0.0, **self.options}
        del options["slots"], options["accelerators"]
        self.engine = RayEngine(self.home, bridge=self.cluster.bridge(), **options)

    @property
    def node(self) -> str:
        return "ray"

    @property
    def device(self) -> str:
        return "h200:"

    async def lose_device(self) -> None:
        """The one of the cluster's last node."""
        self.cluster.kill_node("n2")
        await self._until(8)

    async def restore_devices(self) -> None:
        if len((await self.engine.inventory()).nodes[0].devices) < 9:
            await asyncio.to_thread(self.cluster.start_node, "n2")
            await self._until(9)

    async def _until(self, devices: int) -> None:
        async with asyncio.timeout(60):
            while len((await self.engine.inventory()).nodes[0].devices) != devices:
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def ray_kit(
    root: Path, cluster: PrivateRay, make: type[RayKit] = RayKit, **options: Any
) -> AsyncIterator[RayKit]:
    """An open kit that leaves no process and no job behind, and fails the test that did."""
    kit = make(root, cluster, **options)
    await kit.engine.open()
    try:
        yield kit
    finally:
        for name in await kit.engine.gangs():
            await kit.engine.forget(name)
        left = await kit.engine.sweep(frozenset())
        await kit.engine.close()
    assert left == ()
    async with asyncio.timeout(20):
        while marked(kit.home):
            await asyncio.sleep(0.05)
