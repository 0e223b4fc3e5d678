"""Real gangs on four pretended accelerators: one job has them all, shrinks by checkpoint when a second one comes, and
grows again when that has ended. Each step is written down by whoever does it, so what was done can be counted."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from shoal.contract.lifecycle import Outcome
from shoal.contract.manifest import JobManifest
from shoal.contract.records import AttemptRecord
from shoal.control.plane import ControlPlane
from shoal.control.plane_settings import PlaneSettings
from shoal.core import Device
from shoal.engine.local import LocalEngine
from shoal.engine.local.inventory import Accelerators
from shoal.schedule.presets import ScheduleSettings
from shoal.serve.live.extension import Serve
from shoal.store import open_store
from tests.control.simulation import chosen, scheduler_of

STEP_S = 0.06
"""What one rank takes for a step; more of them share it."""

LONG = 600
"""Steps, so many that all of it happens before they are done, on a busy machine too."""

SCRIPT = f"""
import os, sys, time
from shoal import train

steps, ledger = int(sys.argv[1]), sys.argv[2]
size, attempt, folder = train.world_size(), train.attempt(), train.checkpoint_dir()
assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == 1
verdict = folder / f"verdict-{{attempt}}"  # of rank 0: how all of them end

def end(code):
    verdict.with_suffix(".draft").write_text(str(code))
    verdict.with_suffix(".draft").replace(verdict)

if train.rank():
    train.stop_requested()  # whoever looks is not killed before its grace is over
    while not verdict.exists():
        time.sleep(0.01)
    sys.exit(int(verdict.read_text()))

start = int(train.resume_path().read_text()) if train.resume_path() else 0
file = open(ledger, "ab", buffering=0)
for step in range(start + 1, steps + 1):
    time.sleep({STEP_S} / size)
    file.write(f"{{step}} {{size}} {{attempt}}\\n".encode())
    train.report(step, total=steps)
    if train.should_checkpoint():
        path = folder / str(step)
        path.write_text(str(step))
        end(75)
        train.checkpoint(path, step=step)
end(0)
"""


def four() -> Accelerators:
    return Accelerators(tuple(Device(f"a{at}", "a100", at) for at in range(4)), "pretended")


class Shop:
    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        self.folder = folder
        self.plane = plane
        (folder / "job.py").write_text(SCRIPT)

    async def submit(self, name: str, steps: int) -> str:
        asked = JobManifest.model_validate({
            "name": name, "resources": {"accelerators": "a100:1", "cpus": 0.1}, "ranks": {"min": 1, "max": 4},
            "command": [sys.executable, str(self.folder / "job.py"), str(steps), str(self.folder / name)],
        })  # fmt: skip
        record, _ = await self.plane.submit(asked, tenant="ada", actor="ada")
        return record.id

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(90):
            while not condition():
                await asyncio.sleep(0.02)

    def has(self, job: str) -> int:
        live = self.plane.cache.get(job)
        running = live is not None and live.job.state == "RUNNING"
        return len(live.attempt.placement) if running and live is not None and live.attempt is not None else 0

    def done(self, name: str) -> list[tuple[int, int, int]]:
        """(step, ranks, attempt) in the order in which they were done."""
        path = self.folder / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(step), int(size), int(attempt)) for step, size, attempt in map(str.split, lines)]


def overlap(one: AttemptRecord, other: AttemptRecord) -> bool:
    """Whether there was a time at which both attempts held something."""
    assert one.ended_at is not None
    assert other.ended_at is not None
    return one.created_at < other.ended_at and other.created_at < one.ended_at


@pytest.mark.slow
async def test_a_job_shrinks_for_another_by_checkpoint_and_grows_again(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    settings = ScheduleSettings("elastic", round_s=0.5, restart_cost_s=0.05)
    with contextlib.closing(open_store(f"sqlite:///{home}/shoal.db", tables=[Serve.tables])) as store:
        store.acquire("test")
        plane = ControlPlane(
            store,
            LocalEngine(home, accelerators=four),
            home,
            PlaneSettings(collect_every_s=0.1),
            extensions=chosen(schedule=settings),
        )
        await plane.open()
        shop = Shop(tmp_path, plane)
        try:
            await plane.put_tenant("ada", actor="admin")
            long = await shop.submit("long", LONG)
            await shop.until(lambda: shop.has(long) == 4 and len(shop.done("long")) > 20)
            short = await shop.submit("short", 40)
            await shop.until(lambda: plane.job(short).state.terminal)
            await shop.until(lambda: plane.job(long).state.terminal)
        finally:
            await plane.close()
        assert {plane.job(job).state for job in (long, short)} == {"SUCCEEDED"}
        for name, job, steps in (("long", long, LONG), ("short", short, 40)):
            done, attempts = shop.done(name), store.attempts(job)
            assert [step for step, _, _ in done] == list(range(1, steps + 1))
            # What each attempt was told of its size is what it holds, and an attempt that was made to give way did so
            # after a checkpoint.
            sizes = {attempt: {size for _, size, at in done if at == attempt} for _, _, attempt in done}
            held = {each.number: {len(each.placement)} for each in attempts if each.number in sizes}
            assert sizes == held
            assert {each.outcome for each in attempts[:-1]} <= {Outcome.PREEMPTED}
            assert attempts[-1].outcome is Outcome.SUCCEEDED
        course = [size for size, _ in groupby(size for _, size, _ in shop.done("long"))]
        assert course[0] == course[-1] == 4
        assert min(course) < 4
        causes = [each.stop_cause for each in store.attempts(long) if each.stop is not None]
        assert any(cause.startswith("shrinks from 4 to ") for cause in causes)
        assert any(cause.startswith("grows from ") for cause in causes)
        for before, after in pairwise(store.attempts(long)):
            assert before.ended_at is not None
            assert before.ended_at <= after.created_at
        both = [(one, other) for one in store.attempts(long) for other in store.attempts(short) if overlap(one, other)]
        assert both
        assert all(len(one.placement) + len(other.placement) <= 4 for one, other in both)
        assert scheduler_of(plane) is not None
        rates = [scheduler_of(plane).oracle.estimate(f"ada/long x{size}", "a100") for size in (4, min(course))]
        assert rates[0].throughput.per_s > rates[1].throughput.per_s
