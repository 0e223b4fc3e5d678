"""Driving the Slurm engine on a real private cluster, with the small command of the local engine's kit."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from clusters.slurm import PrivateSlurm, missing

from shoal.engine import GangStatus, RankSpec
from shoal.engine.local.processes import marked
from shoal.engine.slurm import SlurmEngine
from shoal.engine.slurm.commands import Commands
from tests.engine.local_kit import LocalKit

needs_slurm = pytest.mark.skipif(bool(missing()), reason=f"no Slurm here: {', '.join(missing())} not found")


class SlurmKit(LocalKit):
    """A kit on a cluster that others use too: each has a home of its own."""

    engine: SlurmEngine  # type: ignore[assignment]

    def __init__(self, root: Path, cluster: PrivateSlurm, **options: Any) -> None:
        self.cluster = cluster
        super().__init__(root, **options)

    def new_engine(self) -> None:
        options = {"lease_s": 3.0, "look_every_s": 0.3, "poll_s": 0.3, "ahead": 0.0, **self.options}
        del options["slots"], options["accelerators"]
        commands = Commands({**os.environ, **self.cluster.environment})
        self.engine = SlurmEngine(self.home, commands=commands, **options)

    @property
    def node(self) -> str:
        return "n1"

    @property
    def device(self) -> str:
        return "gpu"

    async def until(self, holds: Callable[[GangStatus], bool], name: str) -> GangStatus:
        async with asyncio.timeout(60):
            async for status in self.engine.changes():
                if status.name == name and holds(status):
                    return status
        raise AssertionError("the engine was closed")

    async def lose_device(self) -> None:
        """The one of the cluster's last node."""
        self.cluster.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
        await self.engine.inventory()

    async def restore_devices(self) -> None:
        self.cluster.run("scontrol", "update", "nodename=n2", "state=resume", check=False)
        async with asyncio.timeout(60):
            while self.cluster.run("sinfo", "-h", "-N", "-p", "shoal", "-n", "n2", "-o", "%t").strip() != "idle":
                await asyncio.sleep(0.05)
        await self.engine.inventory()


@contextlib.asynccontextmanager
async def slurm_kit(
    root: Path, cluster: PrivateSlurm, kind: type[SlurmKit] = SlurmKit, **options: Any
) -> AsyncIterator[SlurmKit]:
    """An open kit that leaves no process and no job behind, and fails the test that did."""
    kit = kind(root, cluster, **options)
    await kit.engine.open()
    try:
        yield kit
    finally:
        for name in await kit.engine.gangs():
            await kit.engine.forget(name)
        left = await kit.engine.sweep(frozenset())
        await kit.engine.close()
    assert left == ()
    async with asyncio.timeout(10):  # what Slurm itself has not cleared up yet
        while marked(kit.home):
            await asyncio.sleep(0.05)


__all__ = ["RankSpec", "SlurmKit", "needs_slurm", "slurm_kit"]
