"""Real processes on two pretend types of accelerators, one of which is faster for some jobs: a policy that looks at
the difference needs less of the machine for the same steps. Counted in steps, so that a busy machine does no harm."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.contract.manifest import JobManifest
from shoal.control.plane import ControlPlane
from shoal.control.plane_settings import PlaneSettings
from shoal.core import Device
from shoal.engine.local import LocalEngine
from shoal.engine.local.inventory import Accelerators
from shoal.schedule.presets import ScheduleSettings
from shoal.serve.live.extension import Serve
from shoal.store import open_store
from tests.control.simulation import chosen

SECONDS = {"wide-fast": 0.02, "wide-slow": 0.16, "flat-fast": 0.05, "flat-slow": 0.05}
"""A step of each kind on each type."""

SCRIPT = f"""
import os, sys, time
from shoal import train

kind, steps, ledger = sys.argv[1], int(sys.argv[2]), sys.argv[3]
where = kind + "-" + os.environ["CUDA_VISIBLE_DEVICES"].rstrip("0123456789")
start = int(train.resume_path().read_text()) if train.resume_path() else 0
file = open(os.path.join(ledger, where), "ab", buffering=0)
for step in range(start + 1, steps + 1):
    time.sleep({SECONDS!r}[where])
    file.write(b".")
    train.report(step, total=steps)
    if train.should_checkpoint():
        path = train.checkpoint_dir() / str(step)
        path.write_text(str(step))
        train.checkpoint(path, step=step)
"""


def two_types() -> Accelerators:
    return Accelerators((Device("fast0", "fast", 0), Device("slow0", "slow", 0)), "pretended")


async def machine_seconds(folder: Path, schedule: ScheduleSettings) -> float:
    """What the steps of four jobs of each kind cost that came while both types were busy, after each kind had been
    tried on each type."""
    (ledger := folder / "ledger").mkdir(parents=True)
    (script := folder / "job.py").write_text(SCRIPT)
    home = folder / "home"
    home.mkdir()
    with contextlib.closing(open_store(f"sqlite:///{home}/shoal.db", tables=[Serve.tables])) as store:
        store.acquire("test")
        plane = ControlPlane(
            store,
            LocalEngine(home, accelerators=two_types),
            home,
            PlaneSettings(collect_every_s=0.1),
            extensions=chosen(schedule=schedule),
        )
        await plane.open()
        await plane.put_tenant("ada", actor="admin")

        async def run(*asked: tuple[str, str, int]) -> None:
            jobs = []
            for at, (kind, accelerator, steps) in enumerate(asked):
                found = JobManifest.model_validate({
                    "name": f"{kind}-{at}", "labels": {"kind": kind}, "resources": {"accelerators": accelerator},
                    "command": [sys.executable, str(script), kind, str(steps), str(ledger)],
                })  # fmt: skip
                record, _ = await plane.submit(found, tenant="ada", actor="ada")
                jobs.append(record.id)
            async with asyncio.timeout(90):
                while not all(plane.job(job).state.terminal for job in jobs):
                    await asyncio.sleep(0.05)
            assert {plane.job(job).state for job in jobs} == {"SUCCEEDED"}

        try:
            await run(*((kind, f"{on}:1", 10) for kind in ("wide", "flat") for on in ("fast", "slow")))
            tried = {path.name: path.stat().st_size for path in ledger.iterdir()}
            busy = [("flat", f"{on}:1", 20) for on in ("fast", "slow")]
            await run(*busy, *((kind, "any:1", 30) for _ in range(4) for kind in ("flat", "wide")))
        finally:
            await plane.close()
    done = {path.name: path.stat().st_size - tried[path.name] for path in ledger.iterdir()}
    assert sum(done.values()) >= 280
    return sum(steps * SECONDS[where] for where, steps in done.items())


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_the_policy_that_looks_at_types_needs_less_of_the_machine(tmp_path: Path) -> None:
    settings = ScheduleSettings("max-min", round_s=0.5, restart_cost_s=0.1)
    aware = await machine_seconds(tmp_path / "aware", settings)
    blind = await machine_seconds(tmp_path / "blind", replace(settings, agnostic=True))
    print(f"machine seconds: {aware:.2f} aware, {blind:.2f} blind")
    assert aware < blind
