"""Cron jobs in the API."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice
from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Path, Request, Response

from shoal.calendar.live.crons import Crons
from shoal.calendar.live.needs import Planning
from shoal.calendar.live.records import CronRecord
from shoal.calendar.models import CronDetail, CronEntry, CronList, CronRequest, CronView, FiredView
from shoal.calendar.schedule import Schedule
from shoal.contract.calls import fresh_key
from shoal.contract.manifest import parse_manifest
from shoal.contract.principal import Principal, User
from shoal.contract.view import View
from shoal.core import Forbidden
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import TenantQuery, Who, answer, extension_of, filter_of, owner, read_key, tenant_of

_COMING = 5


async def get_planning(request: Request) -> Planning:
    return extension_of(request, Planning)  # type: ignore[type-var]


Plan = Annotated[Planning, Depends(get_planning)]
CronName = Annotated[str, Path(description="the cron job's name", max_length=64)]


def cron_view(crons: Crons, record: CronRecord) -> CronView:
    return CronView(
        id=record.id, name=record.name, tenant=record.tenant, at=record.expression, zone=record.zone,
        overlap=record.overlap, missed=record.missed, suspended=record.suspended, next_at=crons.next_at(record),
        last_at=record.last_at, last_job=record.last_job, trouble=crons.trouble(record),
        created_by=record.created_by, created_at=record.created_at, updated_at=record.updated_at,
    )  # fmt: skip


def cron_detail(crons: Crons, record: CronRecord) -> CronDetail:
    coming = () if record.suspended else tuple(islice(record.schedule.times(record.position), _COMING))
    history = tuple(
        CronEntry(at=one.at, kind=str(one.kind), text=one.text, job=one.job, due_at=one.due_at)
        for one in crons.history(record)
    )
    known = cron_view(crons, record).model_dump()
    return CronDetail(**known, manifest=orjson.loads(record.manifest), coming=coming, history=history)


def shown(found: View, status: int = 200) -> Response:
    return answer(found.model_dump(mode="json"), status)


def require_own(who: Principal, record: CronRecord) -> None:
    """Raises Forbidden where another user of the tenant made it, as whom its jobs run, and the caller has only his
    own."""
    maker = User.of(record.created_by)
    if not who.may_open(maker):
        raise Forbidden(
            f"cron job {record.name} is of the user {maker.name if maker else ''}", where=record.name,
            hint="ask that user; who leads the tenant may do this too",
        )  # fmt: skip


def _own(plan: Planning, who: Principal, name: str, tenant: str | None) -> CronRecord:
    """The cron job of this name, for its owner. Raises NotFound and Forbidden."""
    record = plan.crons.find(name, tenant_of(who, tenant))
    require_own(who, record)
    return record


def router_of() -> APIRouter:
    router = Router(prefix="/v1/crons", tags=["calendar"])

    @router.post(
        "", summary="Make a cron job", status_code=201, response_class=Response,
        responses={
            **shows(CronView, 201, "made, and durable"),
            **shows(CronView, 200, "it is there already, or was changed as `replace` asks"),
            **fails(403, 404, 409, 413, 422, 503),
        },
    )  # fmt: skip
    async def add(plan: Plan, who: Who, asked: CronRequest, tenant: TenantQuery = None) -> Response:
        """Its manifest is checked as a submission would be."""
        manifest = await asyncio.to_thread(parse_manifest, orjson.dumps(asked.manifest), source="manifest")
        record, created = await plan.crons.add(
            asked.name, manifest, Schedule(asked.at, asked.zone or plan.zone),
            tenant=owner(manifest.tenant, who, tenant), actor=who.actor, overlap=asked.overlap, missed=asked.missed,
            again=asked.replace, require=partial(require_own, who),
        )  # fmt: skip
        return shown(cron_view(plan.crons, record), 201 if created else 200)

    @router.get("", summary="List cron jobs", response_class=Response, responses={**shows(CronList), **fails(404, 503)})
    async def every(plan: Plan, who: Who, tenant: TenantQuery = None) -> Response:
        records = plan.crons.of(filter_of(who, tenant))
        return shown(CronList(crons=tuple(cron_view(plan.crons, one) for one in records)))

    @router.get(
        "/{name}", summary="Show a cron job", response_class=Response,
        responses={**shows(CronDetail), **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def one(plan: Plan, who: Who, name: CronName, tenant: TenantQuery = None) -> Response:
        return shown(cron_detail(plan.crons, _own(plan, who, name, tenant)))

    @router.post(
        "/{name}/suspend", summary="Suspend a cron job", response_class=Response,
        responses={**shows(CronView), **fails(403, 404, 409, 422, 503)},
    )  # fmt: skip
    async def suspend(plan: Plan, who: Who, name: CronName, tenant: TenantQuery = None) -> Response:
        record = _own(plan, who, name, tenant)
        return shown(cron_view(plan.crons, await plan.crons.set_suspended(record, True, actor=who.actor)))

    @router.post(
        "/{name}/resume", summary="Resume a suspended cron job", response_class=Response,
        responses={**shows(CronView), **fails(403, 404, 409, 422, 503)},
    )  # fmt: skip
    async def resume(plan: Plan, who: Who, name: CronName, tenant: TenantQuery = None) -> Response:
        record = _own(plan, who, name, tenant)
        return shown(cron_view(plan.crons, await plan.crons.set_suspended(record, False, actor=who.actor)))

    @router.post(
        "/{name}/run", summary="Submit the job of a cron job now", status_code=201, response_class=Response,
        responses={
            **shows(FiredView, 201, "accepted and durable"),
            **shows(FiredView, 200, "the same request came before; nothing was done"),
            **fails(403, 404, 409, 422, 503),
        },
    )  # fmt: skip
    async def run(request: Request, plan: Plan, who: Who, name: CronName, tenant: TenantQuery = None) -> Response:
        """With an `Idempotency-Key`, the same key twice is one job."""
        record = _own(plan, who, name, tenant)
        job, created = await plan.crons.run_now(record, read_key(request) or fresh_key(), actor=who.actor)
        return shown(FiredView(job=job, created=created), 201 if created else 200)

    @router.delete(
        "/{name}", summary="Remove a cron job", status_code=204, response_class=Response,
        responses={204: {"description": "removed; its jobs stay as they are"}, **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def remove(plan: Plan, who: Who, name: CronName, tenant: TenantQuery = None) -> Response:
        await plan.crons.remove(_own(plan, who, name, tenant), actor=who.actor)
        return Response(status_code=204)

    return router
