"""Sweeps in the API."""

from __future__ import annotations

import asyncio
import math
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from shoal.contract.manifest import parse_stored
from shoal.contract.records import ArrayRecord, JobFilter, JobRecord
from shoal.core import NotFound
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import NO_NUL, TenantQuery, Who, answer, extension_of
from shoal.sweep.asha import order
from shoal.sweep.live.needs import Watching
from shoal.sweep.models import SweepView, TrialView
from shoal.sweep.trials import Sweep, title

_MOST = 10_000


SweepRef = Annotated[str, Path(description="its array's id, or its name: the newest of it", max_length=128)]
MetricQuery = Annotated[
    str | None, Query(description="by this in place of its own metric", max_length=128, pattern=NO_NUL)
]


def find(watching: Watching, array: ArrayRecord, metric: str | None) -> SweepView:
    """Reads the database: to be called in a thread."""
    store = watching.server.store
    asked = JobFilter(tenant=array.tenant, name=f"{array.name}-*", since=array.submitted_at, limit=_MOST)
    jobs = sorted((job for job in store.jobs(asked) if job.array_id == array.id), key=lambda job: job.array_index or 0)
    section = parse_stored(jobs[0].manifest, source=array.id).extensions.get("sweep") if jobs else None
    if section is None:
        raise NotFound(f"job array {array.name} is no sweep", where=array.id, hint="`shoal show` shows it")
    sweep = Sweep.model_validate(section)
    chosen, stopped = metric or sweep.metric, watching.stopping.stopped(array.id)
    trials = [_trial(watching, sweep, job, chosen, job.id in stopped) for job in jobs if _is_trial(sweep, job)]
    if chosen is not None:
        trials = [trials[at] for at in order([one.best for one in trials], lower=sweep.lower)]
    return SweepView(
        array=array.id, name=array.name, tenant=array.tenant, metric=chosen, goal=sweep.goal, trials=tuple(trials)
    )


def _is_trial(sweep: Sweep, job: JobRecord) -> bool:
    return (job.array_index or 0) < sweep.count


def _trial(watching: Watching, sweep: Sweep, job: JobRecord, metric: str | None, stopped: bool) -> TrialView:
    values = sweep.trial(job.array_index or 0)
    live = watching.server.job(job.id)
    progress = live.job.progress if live is not None else job.progress
    points = watching.server.store.metrics(job.id, name=metric, limit=_MOST) if metric is not None else []
    numbers = [point.value for point in points if not math.isnan(point.value)]
    return TrialView(
        index=job.array_index or 0, job=job.id, title=title(values), values=dict(values), state=job.state,
        step=progress.get("step"), best=(min if sweep.lower else max)(numbers, default=None),
        last=numbers[-1] if numbers else None, stopped_early=stopped,
    )  # fmt: skip


def router_of() -> APIRouter:
    router = Router(tags=["sweeps"])

    @router.get(
        "/v1/sweeps/{ref}", summary="The trials of a sweep, the best first", response_class=Response,
        responses={**shows(SweepView), **fails(404, 422, 503)},
    )  # fmt: skip
    async def show(
        request: Request, who: Who, ref: SweepRef, metric: MetricQuery = None, tenant: TenantQuery = None
    ) -> Response:
        watching: Watching = extension_of(request, Watching)  # type: ignore[type-var]
        store = watching.server.store
        arrays = await asyncio.to_thread(store.find_arrays, ref, who.tenant or tenant) if ref.isprintable() else []
        if not arrays:
            raise NotFound(f"there is no sweep {ref!r}", where=ref, hint="`shoal jobs` lists job arrays")
        found = await asyncio.to_thread(find, watching, arrays[0], metric)
        return answer(found.model_dump(mode="json"))

    return router
