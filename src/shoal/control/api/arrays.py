"""Job arrays: show, wait for, and change all their tasks or some."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic_core import PydanticCustomError

from shoal.contract import models
from shoal.contract.manifest import parse_array
from shoal.contract.principal import Principal
from shoal.contract.records import ArrayRecord, JobRecord
from shoal.control.api.context import Context, Ctx
from shoal.control.api.responses import array_view, explanation_view
from shoal.core import Conflict, Invalid, NotFound
from shoal.extension.describe import Responses, fails, shows
from shoal.extension.web import NO_NUL, Asker, Cause, TenantQuery, Wait, Who, answer

router = APIRouter(prefix="/v1/arrays", tags=["arrays"])

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


async def _view(context: Context, array: ArrayRecord) -> dict[str, object]:
    counts = await context.read(context.plane.store.array_counts, [array.id])
    return array_view(array, counts.get(array.id, {}))


@router.get("/{ref}", summary="Show a job array", responses={**shows(models.ArrayView), **fails(404, 422, 503)})
async def show(context: Ctx, who: Who, ref: Ref, tenant: TenantQuery = None, wait_s: Wait = 0.0) -> Response:
    """With `wait_s`, answers when all tasks are over (or suspended), or when that time is."""
    array = await _find(context, who, ref, tenant)
    loop = asyncio.get_running_loop()
    until = loop.time() + min(wait_s, context.limits.wait_s)
    while True:
        view = await _view(context, array)
        left = until - loop.time()
        if left <= 0 or all(state.terminal or state == "SUSPENDED" for state in view["states"]):  # type: ignore[attr-defined]
            return answer(view)
        await asyncio.sleep(min(_POLL_S, left))


@router.get(
    "/{ref}/explain", summary="Why its next task waits", responses={**shows(models.ExplanationView), **fails(404, 503)}
)
async def explain(context: Ctx, who: Asker, ref: Ref, tenant: TenantQuery = None) -> Response:
    """Of the first task that waits; of the first one at all where none does."""
    array = await _find(context, who, ref, tenant)
    ids = await context.read(context.plane.store.array_tasks, array.id)
    known = [live for one in ids if (live := context.plane.cache.get(one)) is not None]
    waiting = next((live.job.id for live in known if live.job.state == "QUEUED"), ids[0])
    return answer(explanation_view(await context.plane.explain(waiting)))


@router.post("/{ref}/cancel", summary="Cancel tasks of a job array", responses=_CHANGED)
async def cancel(
    context: Ctx, who: Who, ref: Ref, tenant: TenantQuery = None, cause: Cause = "", tasks: Tasks = None
) -> Response:
    """All that are not over, or those of them with these indices."""
    plane = context.plane
    return await _change(
        context, who, ref, tenant, tasks, lambda job: plane.cancel(job.id, actor=who.actor, cause=cause)
    )


@router.post("/{ref}/suspend", summary="Suspend tasks of a job array", responses=_CHANGED)
async def suspend(
    context: Ctx, who: Who, ref: Ref, tenant: TenantQuery = None, cause: Cause = "", tasks: Tasks = None
) -> Response:
    plane = context.plane
    return await _change(
        context, who, ref, tenant, tasks, lambda job: plane.suspend(job.id, actor=who.actor, cause=cause)
    )


@router.post("/{ref}/resume", summary="Resume tasks of a job array", responses=_CHANGED)
async def resume(
    context: Ctx, who: Who, ref: Ref, tenant: TenantQuery = None, cause: Cause = "", tasks: Tasks = None
) -> Response:
    """Those that are suspended."""
    plane = context.plane
    return await _change(
        context, who, ref, tenant, tasks, lambda job: plane.resume(job.id, actor=who.actor, cause=cause),
        only="SUSPENDED",
    )  # fmt: skip


async def _change(
    context: Context, who: Principal, ref: str, tenant: str | None, tasks: str | None,
    act: Callable[[JobRecord], Awaitable[JobRecord]], *, only: str | None = None,
) -> Response:  # fmt: skip
    """The tasks are changed last index first: what is cancelled gives its turn to none that is cancelled next."""
    array = await _find(context, who, ref, tenant)
    chosen = None if tasks is None else _indices(tasks)
    unknown = sorted(chosen - set(parse_array(array.indices).indices)) if chosen is not None else []
    if unknown:
        raise NotFound(f"array {array.id} has no task {unknown[0]}", where="tasks", hint=f"it has {array.indices}")
    ids = await context.read(context.plane.store.array_tasks, array.id, finished=False)
    changed = []
    for job_id in reversed(ids):
        live = context.plane.cache.get(job_id)
        if live is None or (chosen is not None and live.job.array_index not in chosen):
            continue
        if only is not None and live.job.state != only:
            continue
        try:
            await act(live.job)
        except (Conflict, NotFound):  # it came to its end meanwhile
            continue
        changed.append(job_id)
    return answer({"array": await _view(context, array), "changed": changed[::-1]})


def _indices(text: str) -> set[int]:
    try:
        return set(parse_array(text).indices)
    except PydanticCustomError as error:
        raise Invalid(error.message(), where="tasks", hint="such as 3, 0-9 or 1,3,5-9:2") from None
