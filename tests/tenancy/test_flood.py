"""Many planes with many jobs at once, over stores that write in threads of their own, as the server's do."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobFilter
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.core import Device, Node, SystemClock
from shoal.engine.simulated import Script, SimulatedCluster, SimulatedEngine
from shoal.store import open_store
from shoal.tenancy.live.extension import Tenancy, TenancySection

JOB = JobManifest.model_validate({"name": "job", "command": ["true"], "resources": {"accelerators": "a100:1"}})
PLANES, JOBS = 10, 100


def test_every_job_of_a_flood_ends_and_is_handed_over_once(tmp_path: Path) -> None:
    async def scene() -> None:
        store = open_store(f"sqlite:///{tmp_path / 'shared.db'}", tables=[Tenancy.tables] if Tenancy.tables else [])
        store.acquire("shared")
        nodes = [
            Node(f"n{at}", tuple(Device(f"g{d}", "a100", d) for d in range(8)), 64_000, 1 << 40) for at in range(4)
        ]
        engine = SimulatedEngine(SimulatedCluster(nodes, clock=SystemClock(), behaviour=lambda _: Script(run_s=0.0)))
        shared = ControlPlane(store, engine, tmp_path, extensions=[Chosen(Tenancy, TenancySection())])
        await shared.open()
        found = shared.extensions.get(Tenancy)
        assert found is not None
        below = []
        for name in (f"team-{at}" for at in range(PLANES)):
            await shared.put_tenant(name, actor="admin")
            await found.planes.create(name, name, actor="admin")
            async with found.planes.using(name):
                below.append(found.planes._awake[name].plane)
        await asyncio.gather(*(below[at % PLANES].submit(JOB, tenant="default", actor="t") for at in range(JOBS)))
        async with asyncio.timeout(60):
            while any(len(plane.cache) for plane in below):
                await asyncio.sleep(0.05)
        ends = [job.state for plane in below for job in plane.store.jobs(JobFilter(limit=JOBS))]
        assert ends == [JobState.SUCCEEDED] * JOBS
        assert [job.state for job in store.jobs(JobFilter(owned=True, limit=2 * JOBS))] == [JobState.SUCCEEDED] * JOBS
        await shared.close()
        store.close()

    asyncio.run(scene())
