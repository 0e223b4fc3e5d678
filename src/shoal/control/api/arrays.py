"""Job arrays: show, wait for, and change all their tasks or some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Path, Query, Response
from pydantic_core import PydanticCustomError

from shoal.contract import models
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import parse_array
from shoal.contract.principal import Principal
from shoal.contract.records import ArrayRecord, AttemptRecord, Change, JobRecord
from shoal.control.api.context import Context, Ctx
from shoal.control.api.discretion import Discretion
from shoal.control.api.responses import array_view, explanation_view
from shoal.control.jobs import arrays, transitions
from shoal.control.jobs.repository import Step
from shoal.core import Invalid, NotFound
from shoal.extension.describe import Responses, fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import NO_NUL, Asker, Cause, TenantQuery, Wait, Who, answer

router = Router(prefix="/v1/arrays", tags=["arrays"])

Ref = Annotated[str, Path(description="the array's id, or its name: the newest of it", max_length=128)]
Tasks = Annotated[
    str | None, Query(max_length=65536, pattern=NO_NUL, description="only these indices: 3, 0-9 or 1,3,5-9:2")
]

_CHANGED: Responses = {**shows(models.ArrayChange), **fails(404, 422, 503)}

_POLL_S = 1.0
"""An array is looked at again at most this often: its tasks may end by the hundred."""


async def _find(context: Context, who: Principal, ref: str, tenant: str | None) -> ArrayRecord:
    """Another tenant's array does not exist. Raises NotFound."""
    found = await context.read(context.plane.store.find_arrays, ref, who.tenant or tenant) if ref.isprintable() else []
    if not found:
        raise NotFound(f"there is no job array {ref!r}", where=ref, hint="see `shoal jobs`")
    return found[0]


async def _view(context: Context, array: ArrayRecord) -> dict[str, Any]:
    counts = await context.read(context.plane.store.array_counts, [array.id])
    return array_view(array, counts.get(array.id, {}))


@router.get("/{ref}", summary="Show a job array", responses={**shows(models.ArrayView), **fails(404, 422, 503)})
async def show(context: Ctx, who: Who, ref: Ref, tenant: TenantQuery = None, wait_s: Wait = 0.0) -> Response:
    """With `wait_s`, answers when all tasks are over (or suspended), or when that time is."""
    array = await _find(context, who, ref, tenant)
    if wait_s <= 0:
        return answer(await _view(context, array))
    # No event is an array's own: this watch ends only with the server.
    with context.usage.waiting(who.token_id), context.feed.watch(job_id=array.id) as watch:
        longest_s = min(wait_s, context.limits.wait_s)
        return answer(await watch.until(lambda: _view(context, array), _over, longest_s, every_s=_POLL_S))


def _over(view: Mapping[str, Any]) -> bool:
    """Whether no task will go on by itself."""
    return all(state.terminal or state is JobState.SUSPENDED for state in view["states"])


@router.get(
    "/{ref}/explain",
    summary="Why its next task waits",
    responses={**shows(models.ExplanationView), **fails(404, 422, 503)},
)
async def explain(context: Ctx, who: Asker, ref: Ref, tenant: TenantQuery = None) -> Response:
    """Of the first task that waits; of the first one at all where none does."""
    array = await _find(context, who, ref, tenant)
    ids = await context.read(context.plane.store.array_tasks, array.id)
    known = [live for one in ids if (live := context.plane.cache.get(one)) is not None]
    waiting = next((live.job.id for live in known if live.job.state == "QUEUED"), ids[0])
    told = explanation_view(await context.plane.explain(waiting))
    return answer(Discretion(context, who).of(told))


@router.post("/{ref}/cancel", summary="Cancel tasks of a job array", responses=_CHANGED)
async def cancel(
    context: Ctx, who: Who, ref: Ref, tenant: TenantQuery = None, cause: Cause = "", tasks: Tasks = None
) -> Response:
    """All that are not over, or those of them with these indices."""
    told = cause or f"cancelled by {who.actor}"

    def step(job: JobRecord, attempt: AttemptRecord | None) -> Change | None:
        return transitions.cancel(job, attempt, context.plane.clock.now(), who.actor, told)

    return await _change(context, who, ref, tenant, tasks, step)


@router.post("/{ref}/suspend", summary="Suspend tasks of a job array", responses=_CHANGED)
async def suspend(
    context: Ctx, who: Who, ref: Ref, tenant: TenantQuery = None, cause: Cause = "", tasks: Tasks = None
) -> Response:
    told = cause or f"suspended by {who.actor}"

    def step(job: JobRecord, attempt: AttemptRecord | None) -> Change | None:
        if job.state is JobState.SUSPENDED:
            return None
        return transitions.suspend(job, attempt, context.plane.clock.now(), who.actor, told)

    return await _change(context, who, ref, tenant, tasks, step)


@router.post("/{ref}/resume", summary="Resume tasks of a job array", responses=_CHANGED)
async def resume(
    context: Ctx, who: Who, ref: Ref, tenant: TenantQuery = None, cause: Cause = "", tasks: Tasks = None
) -> Response:
    """Those that are suspended."""
    told = cause or f"resumed by {who.actor}"
    return await _change(
        context, who, ref, tenant, tasks,
        lambda job, _: transitions.resume(job, context.plane.clock.now(), who.actor, told),
    )  # fmt: skip


async def _change(
    context: Context, who: Principal, ref: str, tenant: str | None, tasks: str | None, step: Step
) -> Response:
    """The tasks are changed last index first: what is cancelled gives its turn to none that is cancelled next."""
    array = await _find(context, who, ref, tenant)
    chosen = None if tasks is None else _indices(tasks)
    unknown = sorted(chosen - set(parse_array(array.indices).indices)) if chosen is not None else []
    if unknown:
        raise NotFound(f"array {array.id} has no task {unknown[0]}", where="tasks", hint=f"it has {array.indices}")
    ids = await context.read(context.plane.store.array_tasks, array.id, finished=False)
    for one in ids[:1]:
        await context.require_own(who, context.plane.job(one))  # who submitted one task submitted all
    meant = [one for one in reversed(ids) if chosen is None or int(one.rpartition("-")[2]) in chosen]
    changed = await arrays.change_all(context.plane.repository, meant, step)
    return answer({"array": await _view(context, array), "changed": changed[::-1]})


def _indices(text: str) -> set[int]:
    try:
        return set(parse_array(text).indices)
    except PydanticCustomError as error:
        raise Invalid(error.message(), where="tasks", hint="such as 3, 0-9 or 1,3,5-9:2") from None
