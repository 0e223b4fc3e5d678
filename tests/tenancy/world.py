"""A shared server with planes in virtual time: the real control planes, stores and engine adapter over simulated
machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.control.plane_settings import PlaneSettings
from shoal.core import Device, Node, PriorityClass, Quota
from shoal.engine import Gang
from shoal.engine.simulated import Script, SimulatedCluster, SimulatedEngine, VirtualClock, run
from shoal.extension import Server
from shoal.store import Store, open_store
from shoal.tenancy.live.extension import Tenancy, TenancySection
from shoal.tenancy.live.planes import Awake, Planes

QUARTER = Script(run_s=900.0)
"""A quarter of an hour."""


class SimulatedTenancy(Tenancy):
    fault: ClassVar[Callable[[str], None]] = staticmethod(lambda _: None)

    def __init__(self, server: Server, settings: TenancySection) -> None:
        super().__init__(server, settings)
        self.planes = Planes(server, settings.limits(), inline=True, fault=self.fault)


@dataclass
class World:
    folder: Path
    cluster: SimulatedCluster
    clock: VirtualClock
    settings: TenancySection = field(default_factory=TenancySection)
    fault: Callable[[str], None] = lambda _: None
    beside: Sequence[Chosen] = ()
    """Other extensions of the shared server."""
    plane: ControlPlane = field(init=False)
    store: Store = field(init=False)
    engine: SimulatedEngine = field(init=False)

    async def start(self) -> None:
        self.store = open_store(
            f"sqlite:///{self.folder / 'shared.db'}", clock=self.clock, inline=True, sync=False,
            tables=[one.tables for one in (SimulatedTenancy, *(each.kind for each in self.beside)) if one.tables],
        )  # fmt: skip
        self.store.acquire("shared")
        self.engine = SimulatedEngine(self.cluster)
        faulty = type("FaultyTenancy", (SimulatedTenancy,), {"fault": staticmethod(self.fault)})
        self.plane = ControlPlane(
            self.store, self.engine, self.folder, PlaneSettings(collect_every_s=10.0), clock=self.clock,
            fault=self.fault, extensions=[Chosen(faulty, self.settings), *self.beside],
        )  # fmt: skip
        await self.plane.open()

    async def kill(self) -> None:
        """What `kill -9` of the whole server leaves: databases and machines."""
        self.engine.drop()
        await self.plane.close()
        self.store.release()
        self.store.close()

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    @property
    def planes(self) -> Planes:
        found = self.plane.extensions.get(SimulatedTenancy)
        assert found is not None
        return found.planes

    async def make(self, name: str, quota: Quota | None = None) -> None:
        """A tenant of this name in the shared server, and a plane for it."""
        await self.plane.put_tenant(
            name, quota=quota or Quota(), max_priority_class=PriorityClass.GUARANTEED, actor="admin"
        )
        await self.planes.create(name, name, actor="admin")

    async def awake(self, name: str) -> Awake:
        async with self.planes.using(name):
            return self.planes._awake[name]

    async def submit(self, plane_name: str, count: int = 1, ranks: int = 1, **fields: object) -> str:
        """A job of the plane's first tenant."""
        asked = JobManifest.model_validate(
            {"name": "job", "command": ["train"], "ranks": ranks,
             "resources": {"accelerators": {"type": "a100", "count": count}}, **fields}
        )  # fmt: skip
        plane = (await self.awake(plane_name)).plane
        job, _ = await plane.submit(asked, tenant="default", actor="tenant:default")
        await asyncio.sleep(0.01)
        return job.id

    async def state(self, name: str, job_id: str) -> JobState:
        return (await self.awake(name)).plane.job(job_id).state

    async def until(self, name: str, job_id: str, state: JobState, *, within_s: float = 3600.0) -> None:
        async with asyncio.timeout(within_s):
            while await self.state(name, job_id) is not state:
                await asyncio.sleep(0.5)


def play(
    folder: Path, scene: Callable[[World], Awaitable[None]], behaviour: Callable[[Gang], Script] = lambda _: QUARTER,
    *, machines: int = 2, fault: Callable[[str], None] = lambda _: None, beside: Sequence[Chosen] = (),
    **settings: float | str,
) -> None:  # fmt: skip
    async def whole() -> None:
        clock = VirtualClock()
        nodes = [
            Node(f"n{at}", tuple(Device(f"g{index}", "a100", index) for index in range(4)), 32_000, 64 << 30)
            for at in range(machines)
        ]
        world = World(
            folder,
            SimulatedCluster(nodes, clock=clock, behaviour=behaviour),
            clock,
            TenancySection(**settings),
            fault,
            beside,
        )
        await world.start()
        await scene(world)
        await world.kill()

    run(whole(), start=1_700_000_000)
