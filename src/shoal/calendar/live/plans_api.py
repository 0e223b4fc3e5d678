"""Reservations and maintenance in the API. An admin plans; everybody sees when nodes are taken."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from shoal.calendar.live.api import Plan, shown
from shoal.calendar.live.enforcement import capacities
from shoal.calendar.live.plans import HORIZON_S
from shoal.calendar.models import PlanList, PlanRequest, PlanView
from shoal.calendar.schedule import zone_of
from shoal.calendar.windows import Plan as PlanRecord
from shoal.calendar.windows import moment, windows_of
from shoal.contract.principal import Principal
from shoal.core import NotFound
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import Who

PlanName = Annotated[str, Path(description="the plan's name", max_length=64)]


def plan_view(plan: PlanRecord, now: float, who: Principal) -> PlanView:
    coming = next(windows_of(plan, now, now + 400 * 86_400.0), None)
    own = plan.tenant is None or who.may_see(plan.tenant)
    return PlanView(
        id=plan.id if own else "", name=plan.name if own else "", tenant=plan.tenant if own else None,
        maintenance=plan.tenant is None, begin=plan.begin, end=plan.end, nodes=plan.nodes,
        accelerators=plan.accelerators, kind=plan.kind, repeat=plan.repeat, last=plan.last, zone=plan.zone,
        because=plan.because if own else "", next_begin=coming.begin if coming else None,
        next_end=coming.end if coming else None,
    )  # fmt: skip


def plans_router() -> APIRouter:
    router = Router(prefix="/v1/plans", tags=["calendar"])

    @router.post(
        "", summary="Reserve devices, or plan maintenance (admin)", status_code=201, response_class=Response,
        responses={
            **shows(PlanView, 201, "made, and durable"), **shows(PlanView, 200, "it is there already"),
            **fails(403, 404, 409, 422, 503),
        },
    )  # fmt: skip
    async def add(plan: Plan, who: Who, asked: PlanRequest) -> Response:
        who.require_admin("plan what devices are for")
        zone = asked.zone or plan.zone
        zone_of(zone)
        if asked.tenant is not None and asked.tenant not in plan.server.tenants():
            raise NotFound(f"there is no tenant {asked.tenant!r}", where="tenant")
        begin = moment(asked.begin, zone, "begin")
        made = PlanRecord(
            plan.server.new_id("w"), asked.name, asked.tenant, begin, moment(asked.end, zone, "end", begin),
            tuple(sorted(set(asked.nodes))), asked.accelerators, asked.kind, asked.repeat,
            None if asked.last is None else moment(asked.last, zone, "last", begin), zone, asked.because,
        )  # fmt: skip
        nodes = capacities(plan.server.snapshot())
        found, created = await plan.plans.add(made, nodes, actor=who.actor)
        return shown(plan_view(found, plan.server.clock.now(), who), 201 if created else 200)

    @router.get(
        "", summary="What devices are planned for", response_class=Response, responses={**shows(PlanList), **fails(503)}
    )
    async def every(plan: Plan, who: Who) -> Response:
        """What is reserved for another tenant has no name."""
        now = plan.server.clock.now()
        views = [plan_view(one, now, who) for one in plan.plans.all()]
        views.sort(key=lambda one: (one.next_begin or now + HORIZON_S * 10, one.name))
        return shown(PlanList(plans=tuple(views)))

    @router.delete(
        "/{name}", summary="Remove a reservation or maintenance (admin)", status_code=204, response_class=Response,
        responses={204: {"description": "removed"}, **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def remove(plan: Plan, who: Who, name: PlanName) -> Response:
        who.require_admin("plan what devices are for")
        await plan.plans.remove(plan.plans.find(name), actor=who.actor)
        return Response(status_code=204)

    return router
