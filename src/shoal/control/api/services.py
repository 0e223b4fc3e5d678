"""Services: deploy, list, show, scale, explain, undeploy."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from shoal.contract import models
from shoal.contract.manifest import parse_service
from shoal.contract.service_lifecycle import ServiceState
from shoal.contract.service_records import ServiceFilter
from shoal.control.api.context import (
    NO_NUL,
    Context,
    Ctx,
    ServiceRef,
    TenantQuery,
    Who,
    answer,
    filter_of,
    read_body,
)
from shoal.control.api.describe import fails, shows, takes_manifest
from shoal.control.api.jobs import Cause, Wait, key_and_tenant, owner, parse_body, read_key
from shoal.control.api.service_views import explanation_view, service_detail, service_view
from shoal.control.services.book import ServiceLook

router = APIRouter(prefix="/v1/services", tags=["services"])


@router.post(
    "",
    summary="Deploy a service, or update the one of this name",
    status_code=201,
    response_class=Response,
    responses={
        **shows(models.ServiceView, 201, "accepted and durable"),
        **shows(models.ServiceView, 200, "there was one of this name: it is updated, or as asked for already"),
        **fails(403, 404, 409, 413, 422, 503),
    },
    openapi_extra={
        "requestBody": takes_manifest("ServiceManifest"),
        "parameters": key_and_tenant("the same key twice is one deployment"),
    },
)
async def deploy(request: Request, context: Ctx, who: Who) -> Response:
    """The body is a manifest, YAML or JSON. Answered once it is durable; asking for the service with `wait_s` then
    waits until it is ready."""
    key = read_key(request)
    manifest = await parse_body(await read_body(request, context.limits.body_bytes), parse_service)
    tenant = owner(manifest, who, request.query_params.get("tenant"))
    service, created = await context.plane.services.deploy(
        manifest, tenant=tenant, actor=who.actor, idempotency_key=key
    )
    look = context.plane.services.look(service.id)
    return answer(service_view(look), 201 if created else 200, {"Location": f"/v1/services/{service.id}"})


@router.get("", summary="List services, newest first", responses={**shows(models.ServiceList), **fails(404, 422, 503)})
async def list_services(
    context: Ctx,
    who: Who,
    tenant: TenantQuery = None,
    state: Annotated[list[ServiceState] | None, Query(description="only in these states; else all but STOPPED")] = None,
    name: Annotated[str | None, Query(max_length=63, pattern=NO_NUL)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[str | None, Query(description="continue before this id", max_length=128, pattern=NO_NUL)] = None,
) -> Response:
    asked = ServiceFilter(
        tenant=filter_of(who, tenant),
        states=frozenset(state) if state else frozenset(ServiceState) - {ServiceState.STOPPED},
        name=name,
        limit=limit,
        before_id=before,
    )
    found = await context.read(context.plane.store.services, asked)
    looks = [context.plane.services.look_at(service) for service in found]
    following = found[-1].id if len(found) == limit else None
    return answer({"services": [service_view(look) for look in looks], "next": following})


@router.get(
    "/{ref}",
    summary="Show a service with its replicas",
    responses={**shows(models.ServiceDetail), **fails(404, 409, 422, 503)},
)
async def show(context: Ctx, who: Who, ref: ServiceRef, tenant: TenantQuery = None, wait_s: Wait = 0.0) -> Response:
    """With `wait_s`, answers when the service is ready, or will not be by waiting, or has stopped; or when that time is
    over."""
    service = await context.find_service(who, ref, tenant=tenant)
    look = context.plane.services.look(service.id)
    if wait_s > 0:
        look = await _wait_until_settled(context, service.id, min(wait_s, context.limits.wait_s))
    return answer(service_detail(look))


async def _wait_until_settled(context: Context, service_id: str, wait_s: float) -> ServiceLook:
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    with context.feed.watch(service_id=service_id) as watch:
        while True:
            watch.clear()
            look = context.plane.services.look(service_id)
            left = until - loop.time()
            if look.record.settled or watch.closed or left <= 0 or not await watch.wait(left):
                return look


@router.post(
    "/{ref}/scale",
    summary="Change how many replicas are wanted",
    responses={**shows(models.ServiceView), **fails(404, 409, 422, 503)},
)
async def scale(
    context: Ctx, who: Who, ref: ServiceRef, body: models.ScaleGiven, tenant: TenantQuery = None, cause: Cause = ""
) -> Response:
    service = await context.find_service(who, ref, tenant=tenant)
    services = context.plane.services
    await services.scale(service.id, body.replicas, actor=who.actor, cause=cause)
    return answer(service_view(services.look(service.id)))


@router.delete(
    "/{ref}", summary="Undeploy a service", responses={**shows(models.ServiceView), **fails(404, 409, 422, 503)}
)
async def undeploy(context: Ctx, who: Who, ref: ServiceRef, tenant: TenantQuery = None, cause: Cause = "") -> Response:
    """Its replicas are asked to end; it is STOPPED, and its name free, when all have."""
    service = await context.find_service(who, ref, tenant=tenant)
    services = context.plane.services
    await services.undeploy(service.id, actor=who.actor, cause=cause)
    return answer(service_view(services.look(service.id)))


@router.get(
    "/{ref}/explain",
    summary="Why it is not ready",
    responses={**shows(models.ServiceExplanationView), **fails(404, 409, 422, 503)},
)
async def explain(context: Ctx, who: Who, ref: ServiceRef, tenant: TenantQuery = None) -> Response:
    """The gateway's reasons and each replica's, with what would have to change."""
    service = await context.find_service(who, ref, tenant=tenant)
    return answer(explanation_view(await context.plane.services.explain(service.id)))
