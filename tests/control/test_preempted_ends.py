"""Real processes that are preempted as they end: what left with 0 by itself is done, and runs once."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from shoal.contract.lifecycle import JobState, Stop
from shoal.contract.manifest import JobManifest
from shoal.control.jobs import transitions
from shoal.control.plane import ControlPlane
from shoal.engine.local import LocalEngine
from shoal.engine.local.inventory import Accelerators
from shoal.store import open_store

ROUNDS, BESIDE = 6, 4
AIMED_MS = (0, 5, 10, 15, 20, 30)
"""How long after its effect a job is preempted, in each round: about when its shell leaves."""


async def test_a_job_that_ended_well_while_it_was_preempted_does_not_run_again(tmp_path: Path) -> None:
    home, effects = tmp_path / "home", tmp_path / "effects"
    home.mkdir()
    effects.mkdir()
    none = Accelerators((), "none in tests")
    with contextlib.closing(open_store(f"sqlite:///{home}/shoal.db")) as store:
        store.acquire("test")
        plane = ControlPlane(store, LocalEngine(home, slots=BESIDE, accelerators=lambda: none), home)
        await plane.open()
        await plane.put_tenant("ada", actor="admin")

        async def aim(number: int, after_ms: int) -> str:
            effect = effects / str(number)
            found = JobManifest.model_validate({
                "name": f"short-{number}", "command": ["sh", "-c", f"echo $SHOAL_ATTEMPT >> {effect}; sleep 0.01"],
                "resources": {"accelerators": 0, "cpus": 0},
            })  # fmt: skip
            record, _ = await plane.submit(found, tenant="ada", actor="ada")
            while not effect.exists():
                await asyncio.sleep(0.001)
            await asyncio.sleep(after_ms / 1000)
            with contextlib.suppress(transitions.JobOver):
                await plane.repository.change(
                    record.id,
                    lambda job, attempt: (
                        attempt
                        and transitions.request_stop(
                            job, attempt, Stop.PREEMPT, now=plane.clock.now(), actor="test", cause="aimed at its end"
                        )
                    ),
                )
            while plane.job(record.id).state is not JobState.SUCCEEDED:
                await asyncio.sleep(0.01)
            return record.id

        try:
            async with asyncio.timeout(90):
                jobs = []
                for at in range(ROUNDS):
                    numbers = range(at * BESIDE, (at + 1) * BESIDE)
                    jobs += await asyncio.gather(*(aim(number, AIMED_MS[at]) for number in numbers))
            for number, job in enumerate(jobs):
                attempts = store.attempts(job)
                done = [str(each.number) for each in attempts if each.ranks[0]["exit_code"] == 0]
                assert done == [str(attempts[-1].number)]
                ran = (effects / str(number)).read_text().split()
                assert ran.count(done[0]) == 1
                killed = {str(each.number) for each in attempts if each.ranks[0]["signal"] is not None}
                assert set(ran) <= {*done, *killed}
        finally:
            await plane.close()
