"""Jobs: submit, list, show, change, explain, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response

from shoal.contract import models
from shoal.contract.lifecycle import JobOrder, JobState
from shoal.contract.manifest import parse_manifest, with_line
from shoal.contract.principal import Principal
from shoal.contract.records import AttemptRecord, Change, JobFilter, JobRecord
from shoal.control.api.context import Context, Ctx, get_context
from shoal.control.api.discretion import Discretion
from shoal.control.api.responses import (
    array_view,
    explanation_view,
    job_detail,
    job_view,
    memory_from,
    metric_view,
    reason_view,
)
from shoal.control.jobs import arrays, transitions
from shoal.core import Forbidden, Invalid, NotFound, ShoalError
from shoal.extension.describe import Responses, fails, shows, takes_manifest
from shoal.extension.routing import Router
from shoal.extension.web import (
    NO_NUL,
    Asker,
    Cause,
    TenantQuery,
    Wait,
    Who,
    answer,
    filter_of,
    key_and_tenant,
    owner,
    parse_body,
    queried,
    read_body,
    read_key,
)

router = Router(prefix="/v1/jobs", tags=["jobs"])

Ref = Annotated[str, Path(description="the job's id, a unique beginning of it, or a name", max_length=128)]


# The one busy operation: it takes the bare request, so that nothing is validated or serialised twice.
@router.post(
    "",
    summary="Submit a job",
    status_code=201,
    response_class=Response,
    responses={
        **shows(models.SubmittedView, 201, "accepted and durable"),
        **shows(models.SubmittedView, 200, "the same submission came before; nothing was done"),
        **fails(403, 404, 409, 413, 422, 429, 503),
    },
    openapi_extra={
        "requestBody": takes_manifest(),
        "parameters": key_and_tenant("the same key twice is one job"),
    },
)  # fmt: skip
async def submit(request: Request) -> Response:
    """The body is a manifest, YAML or JSON. Answered once it is durable."""
    context = await get_context(request)
    who = await context.principal(request)
    key = read_key(request)
    body = await read_body(request, context.limits.body_bytes)
    manifest = await parse_body(body, parse_manifest)
    tenant = owner(manifest.tenant, who, queried(request, "tenant"))
    try:
        job, created = await context.plane.submit(manifest, tenant=tenant, actor=who.actor, idempotency_key=key)
    except Invalid as error:
        raise await asyncio.to_thread(with_line, error, body) from None
    warnings = [reason_view(reason) for reason in context.plane.obstacles(job)]
    body_out = {**job_view(job), "warnings": warnings, "memory_from": memory_from(job), "array": None}
    if job.array_id is not None and (array := context.plane.store.array(job.array_id)) is not None:
        counts = await context.read(context.plane.store.array_counts, [array.id])
        body_out["array"] = array_view(array, counts[array.id])
    return answer(body_out, 201 if created else 200, {"Location": f"/v1/jobs/{job.id}"})


@router.get("", summary="List jobs", responses={**shows(models.JobList), **fails(404, 422, 503)})
async def list_jobs(
    context: Ctx,
    who: Who,
    tenant: TenantQuery = None,
    state: Annotated[list[JobState] | None, Query(description="only in these states")] = None,
    name: Annotated[
        str | None,
        Query(max_length=63, pattern=NO_NUL, description="of this name; * stands for any text, ? for any character"),
    ] = None,
    since: Annotated[float, Query(ge=0, le=1e11, description="submitted at this Unix time or later")] = 0.0,
    sort: Annotated[JobOrder, Query(description="the newest, latest or longest first; or by the alphabet")] = (
        JobOrder.SUBMITTED
    ),
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[
        str | None, Query(description="continue after the job of this id (`next`)", max_length=128, pattern=NO_NUL)
    ] = None,
    owned: Annotated[bool, Query(description="replicas of services and the like as well")] = False,
    fold: Annotated[
        bool, Query(description="job arrays in place of their tasks; only newest first, of any state and name")
    ] = False,
) -> Response:
    asked = JobFilter(
        tenant=filter_of(who, tenant),
        states=frozenset(state) if state else None,
        name=name,
        limit=limit,
        before_id=before,
        since=since,
        order=sort,
        owned=owned,
    )
    if fold:
        if state or name is not None or sort is not JobOrder.SUBMITTED:
            raise Invalid(
                "arrays stand in place of their tasks only where all jobs are listed, newest first", where="fold",
                hint="leave out `fold`, or leave out `state`, `name` and `sort`",
            )  # fmt: skip
        return answer(await _folded(context, who, asked))
    jobs = await context.read(context.plane.store.jobs, asked)
    following = jobs[-1].id if len(jobs) == limit else None
    return answer({"jobs": _listed(context, who, jobs), "arrays": [], "next": following})


async def _folded(context: Context, who: Principal, asked: JobFilter) -> dict[str, object]:
    store = context.plane.store
    jobs, arrays = await context.read(store.folded, asked)
    counts = await context.read(store.array_counts, [array.id for array in arrays])
    oldest = min([(one.submitted_at, one.id) for many in (jobs, arrays) for one in many[-1:]], default=None)
    full = oldest is not None and len(jobs) + len(arrays) == asked.limit
    return {
        "jobs": _listed(context, who, jobs),
        "arrays": [array_view(array, counts.get(array.id, {})) for array in arrays],
        "next": oldest[1] if full and oldest is not None else None,
    }


def _listed(context: Context, who: Principal, jobs: Iterable[JobRecord]) -> list[dict[str, Any]]:
    discretion = Discretion(context, who)
    return [discretion.job(_view(context, job)) for job in jobs]


def _view(context: Context, job: JobRecord) -> dict[str, Any]:
    """Of a job that is not over as the plane has it, with the reason it waits for now."""
    live = None if job.state.terminal else context.plane.cache.get(job.id)
    return job_view(job if job.state.terminal else context.plane.job(job.id), live)


@router.get(
    "/{ref}",
    summary="Show a job",
    responses={**shows(models.JobDetail), **fails(404, 409, 422, 503)},
)
async def show(context: Ctx, who: Who, ref: Ref, tenant: TenantQuery = None, wait_s: Wait = 0.0) -> Response:
    """With `wait_s`, answers when the job is over (or suspended), or when that time is."""
    job = await context.find_job(who, ref, tenant=tenant)
    if wait_s > 0:
        with context.usage.waiting(who.token_id):
            job = await _wait_for_end(context, job.id, min(wait_s, context.limits.wait_s))
    attempts = await context.read(context.plane.store.attempts, job.id)
    told = job_detail(job, context.plane.cache.get(job.id), attempts, context.plane.run_dir(job))
    if not await context.may_open(who, job):
        told["manifest"] = {**told["manifest"], "env": {}}  # people write there what is for nobody else
    return answer(Discretion(context, who).job(told))


async def _wait_for_end(context: Context, job_id: str, wait_s: float) -> JobRecord:
    async def look() -> JobRecord:
        return context.plane.job(job_id)

    with context.feed.watch(job_id=job_id) as watch:
        return await watch.until(look, lambda job: job.state.terminal or job.state is JobState.SUSPENDED, wait_s)


_CHANGED: Responses = {**shows(models.JobView), **fails(404, 409, 422, 503)}


@router.post("/{ref}/cancel", summary="Cancel a job", responses=_CHANGED)
async def cancel(context: Ctx, who: Who, ref: Ref, tenant: TenantQuery = None, cause: Cause = "") -> Response:
    """A running job is asked to stop, and killed when its grace is over."""
    job = await context.find_job_to_change(who, ref, tenant=tenant)
    found = await context.plane.cancel(job.id, actor=who.actor, cause=cause)
    return answer(Discretion(context, who).job(job_view(found, context.plane.cache.get(found.id))))


@router.post("/cancel", summary="Cancel many jobs", responses={**shows(models.JobsChange), **fails(403, 422, 503)})
async def cancel_many(context: Ctx, who: Who, body: models.JobsToCancel, cause: Cause = "") -> Response:
    """All in few transactions, whose jobs they are; as if each was cancelled alone. What is refused of one holds up no
    other."""
    told = cause or f"cancelled by {who.actor}"
    plane = context.plane
    refused: dict[str, ShoalError] = {}
    meant = list(dict.fromkeys(body.jobs))
    live = {job_id: one.job for job_id in meant if (one := plane.cache.get(job_id)) is not None}
    over = await context.read(plane.store.jobs_by_id, [job_id for job_id in meant if job_id not in live])
    for job_id in meant:
        try:
            job = live.get(job_id) or over.get(job_id)
            if job is None or not who.may_see(job.tenant):
                raise NotFound(f"no job {job_id}", where=job_id, hint="`shoal jobs` lists them")
            if who.own_only:
                await context.require_own(who, job)
        except (NotFound, Forbidden) as error:
            refused[job_id] = error

    def step(job: JobRecord, attempt: AttemptRecord | None) -> Change | None:
        return transitions.cancel(job, attempt, plane.clock.now(), who.actor, told)

    await arrays.change_all(plane.repository, [one for one in meant if one not in refused], step)
    now = await context.read(plane.store.jobs_by_id, [one for one in meant if one not in refused])
    for job in now.values():
        if job.state.terminal and job.state is not JobState.CANCELLED:
            refused[job.id] = transitions.JobOver(job)
    return answer(
        {
            "jobs": _listed(context, who, [now[one] for one in meant if one not in refused]),
            "refused": [
                {"code": error.code, "what": error.what, "where": job_id, "hint": error.hint}
                for job_id, error in refused.items()
            ],
        }
    )


@router.post("/{ref}/suspend", summary="Suspend a job; it can be resumed", responses=_CHANGED)
async def suspend(context: Ctx, who: Who, ref: Ref, tenant: TenantQuery = None, cause: Cause = "") -> Response:
    job = await context.find_job_to_change(who, ref, tenant=tenant)
    found = await context.plane.suspend(job.id, actor=who.actor, cause=cause)
    return answer(Discretion(context, who).job(job_view(found, context.plane.cache.get(found.id))))


@router.post("/{ref}/resume", summary="Put a suspended job back into the queue", responses=_CHANGED)
async def resume(context: Ctx, who: Who, ref: Ref, tenant: TenantQuery = None, cause: Cause = "") -> Response:
    job = await context.find_job_to_change(who, ref, tenant=tenant)
    found = await context.plane.resume(job.id, actor=who.actor, cause=cause)
    return answer(Discretion(context, who).job(job_view(found, context.plane.cache.get(found.id))))


@router.get(
    "/{ref}/explain",
    summary="Why it waits",
    responses={**shows(models.ExplanationView), **fails(404, 409, 422, 503)},
)
async def explain(context: Ctx, who: Asker, ref: Ref, tenant: TenantQuery = None) -> Response:
    """Every cause in the order that admission asks, what would have to change, and the estimated start."""
    job = await context.find_job(who, ref, tenant=tenant)
    told = explanation_view(await context.plane.explain(job.id))
    return answer(Discretion(context, who).of(told))


@router.get(
    "/{ref}/metrics",
    summary="What the job reported",
    responses={**shows(models.MetricList), **fails(404, 409, 422, 503)},
)
async def metrics(
    context: Ctx,
    who: Who,
    ref: Ref,
    tenant: TenantQuery = None,
    name: Annotated[str | None, Query(max_length=64, pattern=NO_NUL)] = None,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
) -> Response:
    """The newest points, oldest of them first."""
    job = await context.find_job(who, ref, tenant=tenant)
    points = await context.read(context.plane.store.metrics, job.id, name=name, limit=limit)
    return answer({"metrics": [metric_view(point) for point in points]})
