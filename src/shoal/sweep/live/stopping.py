"""Trials at their rungs: each is written down with what was decided, and then what was decided is done."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from shoal.contract.records import NewEvent
from shoal.extension import LiveJob, Server
from shoal.sweep.asha import goes_on, rungs
from shoal.sweep.live.events import SweepEvent
from shoal.sweep.live.tables import rung as table
from shoal.sweep.median import above_median
from shoal.sweep.trials import Stop, Sweep

ACTOR = "sweep"
_SECTION = '"sweep"'
_MOST_POINTS = 10_000


def _goes_on(stop: Stop, value: float, before: Sequence[float], *, lower: bool) -> bool:
    if stop.rule == "median":
        return above_median(value, before, least=stop.least, lower=lower)
    return goes_on(value, before, stop.eta, lower=lower)


class Stopping:
    """What trials have reached, by their array."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._values: dict[str, dict[int, dict[str, float]]] = {}
        """By array and rung the value of each trial that has reached it."""
        self._sweeps: dict[str, Sweep | None] = {}
        self._told: set[tuple[str, int]] = set()
        self._due: asyncio.Queue[tuple[LiveJob, int]] = asyncio.Queue()

    async def load(self) -> None:
        """What is remembered. What was decided and not done when the last server ended is done now."""
        store = self._server.store
        found = store.rows(select(table))
        gone = {array for array in {row.array_id for row in found} if store.array(array) is None}
        for row in found:
            if row.array_id in gone:
                continue
            value = math.nan if row.value is None else row.value
            self._values.setdefault(row.array_id, {}).setdefault(row.rung, {})[row.job_id] = value
            self._told.add((row.job_id, row.rung))
            if not row.goes_on:
                await self._end(row.job_id, row.rung)
        if gone:

            def run(connection: Connection) -> bool:
                connection.execute(delete(table).where(table.c.array_id.in_(gone)))
                return True

            await store.transact(run)

    def stopped(self, array_id: str) -> set[str]:
        """The jobs that did not go on from a rung."""
        rows = self._server.store.rows(select(table.c.job_id).where(table.c.array_id == array_id, table.c.goes_on == 0))
        return {row[0] for row in rows}

    def reported(self, job: LiveJob) -> None:
        """Quick: what follows is done by `watch`."""
        array, progress = job.job.array_id, job.job.progress
        step, metrics = progress.get("step"), progress.get("metrics", {})
        if array is None or not isinstance(step, int) or _SECTION not in job.job.manifest:
            return
        sweep = self._sweep(array, job)
        if sweep is None or sweep.stop is None or sweep.metric not in metrics:
            return
        for rung in rungs(sweep.stop.first, sweep.stop.eta, -1, step):
            if (job.job.id, rung) not in self._told:
                self._told.add((job.job.id, rung))
                self._due.put_nowait((job, rung))

    def _sweep(self, array: str, job: LiveJob) -> Sweep | None:
        if array not in self._sweeps:
            section = job.manifest.extensions.get("sweep")
            self._sweeps[array] = None if section is None else Sweep.model_validate(section)
        return self._sweeps[array]

    async def watch(self) -> None:
        """Decide about the trials that have reached a rung, in the order in which they did."""
        while True:
            job, rung = await self._due.get()
            sweep = self._sweeps[job.job.array_id or ""]
            assert sweep is not None
            await self._decide(sweep, job, rung)

    async def _decide(self, sweep: Sweep, job: LiveJob, rung: int) -> None:
        assert sweep.stop is not None
        job_id, array = job.job.id, job.job.array_id or ""
        value = await asyncio.to_thread(self._value, job_id, sweep, sweep.stop.first * sweep.stop.eta**rung)
        before = self._values.setdefault(array, {}).setdefault(rung, {})
        kept = await asyncio.to_thread(_goes_on, sweep.stop, value, tuple(before.values()), lower=sweep.lower)
        text = f"at rung {rung} with {sweep.metric} {value:.6g}: it {'goes on' if kept else 'ends early'}"
        told = NewEvent(
            self._server.clock.now(), SweepEvent.RUNG, ACTOR, text, tenant=job.job.tenant, job_id=job_id,
            data={"rung": rung, "value": None if math.isnan(value) else value, "goes_on": kept},
        )  # fmt: skip
        row: dict[str, Any] = {
            "job_id": job_id, "rung": rung, "array_id": array, "value": None if math.isnan(value) else value,
            "goes_on": int(kept),
        }  # fmt: skip

        def run(connection: Connection) -> bool:
            connection.execute(insert(table).values(row))
            return True

        await self._server.store.transact(run, [told])
        before[job_id] = value
        if not kept:
            await self._end(job_id, rung)

    def _value(self, job_id: str, sweep: Sweep, step: int) -> float:
        """What it reported first at this step or behind it: reports come several at a time."""
        points = self._server.store.metrics(job_id, name=sweep.metric, limit=_MOST_POINTS)
        found = (point.value for point in points if point.step is not None and point.step >= step)
        return next(found, math.nan)

    async def _end(self, job_id: str, rung: int) -> None:
        if self._server.job(job_id) is not None:
            await self._server.cancel(job_id, actor=ACTOR, cause=f"hopeless at rung {rung}: others did better")
