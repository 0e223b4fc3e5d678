"""In virtual time, a job that waits is told to start when the job before it is forecast to finish."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from pathlib import Path

import pytest

from shoal.contract.manifest import JobManifest
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.core import Device, Node
from shoal.engine import Gang
from shoal.engine.simulated import Line, Script, SimulatedCluster, SimulatedEngine, VirtualClock
from shoal.forecast.live.extension import Forecast, ForecastSection
from shoal.store import open_store

pytestmark = pytest.mark.virtual_time

NODE = Node("n0", (Device("d0", "a100", 0),), 16_000, 1 << 36)
WARM_UP, TOTAL = 10, 200


def reports(begin: float) -> tuple[Line, ...]:
    """A report a step. The first ones take five times as long."""
    draw, found, after = random.Random(2), [], 0.0
    for number in range(TOTAL):
        after += (5.0 if number < WARM_UP else 1.0) * draw.lognormvariate(0, 0.02)
        found.append(Line(after, json.dumps({"at": begin + after, "step": number + 1, "total": TOTAL}), "metrics"))
    return tuple(found)


async def test_a_waiting_job_starts_when_the_running_one_is_forecast_to_finish(tmp_path: Path) -> None:
    clock = VirtualClock()
    ends: list[float] = []

    def script(_: Gang) -> Script:
        lines = reports(clock.now())
        ends.append(clock.now() + lines[-1].at_s)
        return Script(run_s=lines[-1].at_s, lines=lines)

    engine = SimulatedEngine(SimulatedCluster((NODE,), clock=clock, behaviour=script))
    url = f"sqlite:///{tmp_path}/shoal.db"
    with contextlib.closing(open_store(url, clock=clock, inline=True, sync=False)) as store:
        store.acquire("test")
        chosen = [Chosen(Forecast, ForecastSection(enabled=True))]
        plane = ControlPlane(store, engine, tmp_path, clock=clock, extensions=chosen)
        await plane.open()
        await plane.put_tenant("ada", actor="admin")
        wants = {"accelerators": 1, "cpus": 1}
        names = ("first", "second")
        manifests = [JobManifest.model_validate({"name": n, "command": ["train"], "resources": wants}) for n in names]
        first, second = [(await plane.submit(one, tenant="ada", actor="ada"))[0].id for one in manifests]
        await asyncio.sleep(5 * WARM_UP + TOTAL / 4)
        told = await plane.explain(second)
        kept = plane.job(first).progress
        assert told.estimated_start == pytest.approx(kept["finish"]["median"], abs=1)
        left = ends[0] - clock.now()
        assert told.estimated_start == pytest.approx(ends[0], abs=0.05 * left)
        await plane.close()
