"""In virtual time, a job that is held back has an event and an answer to `explain` with cause and remedy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

from shoal.contract.manifest import JobManifest
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.core import Device, Node
from shoal.engine import Gang
from shoal.engine.simulated import Line, Script, SimulatedCluster, SimulatedEngine, VirtualClock, run
from shoal.forecast.live.extension import Forecast, ForecastEvent, ForecastSection
from shoal.store import Store, open_store

FAST = SLOW = 60
NODE = Node("n0", (Device("d0", "a100", 0), Device("d1", "a100", 1)), 16_000, 1 << 36)


def reports(begin: float, *, waits: bool) -> tuple[Line, ...]:
    """A report each second; after sixty, steps take half as long again, and where it waits, the input comes late."""
    draw, found, after = random.Random(1), [], 0.0
    for number in range(FAST + SLOW):
        held = number >= FAST
        after += (1.5 if held else 1.0) * draw.lognormvariate(0, 0.02)
        metrics = {"input_wait_s": (0.4 if held else 0.01) * draw.gauss(1, 0.05)} if waits else {}
        told = {"at": begin + after, "step": 10 * (number + 1), "total": 10_000, "metrics": metrics}
        found.append(Line(after, json.dumps(told), "metrics"))
    return tuple(found)


@contextlib.asynccontextmanager
async def opened(folder: Path, *, waits: bool) -> AsyncIterator[tuple[ControlPlane, Store]]:
    clock = VirtualClock()

    def script(_: Gang) -> Script:
        return Script(run_s=400.0, lines=reports(clock.now(), waits=waits))

    engine = SimulatedEngine(SimulatedCluster((NODE,), clock=clock, behaviour=script))
    with contextlib.closing(open_store(f"sqlite:///{folder}/shoal.db", clock=clock, inline=True, sync=False)) as store:
        store.acquire("test")
        chosen = [Chosen(Forecast, ForecastSection(enabled=True))]
        plane = ControlPlane(store, engine, folder, clock=clock, extensions=chosen)
        await plane.open()
        await plane.put_tenant("ada", actor="admin")
        yield plane, store
        await plane.close()


async def submit(plane: ControlPlane, name: str) -> str:
    wants = {"accelerators": 1, "cpus": 1, "memory": "1GiB"}
    manifest = JobManifest.model_validate({"name": name, "command": ["train"], "resources": wants})
    job, _ = await plane.submit(manifest, tenant="ada", actor="ada")
    return job.id


def slowdowns(store: Store) -> list[tuple[str | None, str, object]]:
    return [(one.job_id, one.cause, one.data["cause"]) for one in store.events() if one.kind == ForecastEvent.SLOWDOWN]


def test_a_slow_input_is_named_with_its_remedy_in_events_and_explain(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path, waits=True) as (plane, store):
            job = await submit(plane, "train")
            await asyncio.sleep(FAST - 5)
            assert [one.cause for one in (await plane.explain(job)).causes] == ["finish"]
            assert slowdowns(store) == []
            await asyncio.sleep(5 + 1.2 * SLOW)
            (cause,) = [one for one in (await plane.explain(job)).causes if one.cause == "slowdown"]
            assert not cause.blocking
            assert "steps take 1.5" in cause.reason.text
            assert "input pipeline; give the job more cores, or cache its input" in cause.reason.text
            assert slowdowns(store) == [(job, cause.reason.text, "input pipeline")]

    run(main(), start=1_700_000_000)


def test_a_neighbour_that_came_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path, waits=False) as (plane, store):
            job = await submit(plane, "one")
            await asyncio.sleep(FAST)
            await submit(plane, "two")
            await asyncio.sleep(SLOW)
            assert [(one, cause) for one, _, cause in slowdowns(store)] == [(job, "neighbour")]

    run(main(), start=1_700_000_000)
