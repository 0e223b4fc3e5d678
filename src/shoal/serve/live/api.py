"""Services: deploy, list, show, scale, explain, undeploy."""

from __future__ import annotations

import contextlib
from typing import Annotated

import orjson
from fastapi import Depends, Path, Query, Request, Response

from shoal.contract.models import CheckView
from shoal.contract.principal import Principal
from shoal.core import Conflict, NotFound
from shoal.extension.describe import fails, shows, takes_manifest
from shoal.extension.routing import Router
from shoal.extension.web import (
    EVENTS_ANSWERED,
    NO_NUL,
    AskedEvents,
    Asker,
    Cause,
    FromApi,
    TenantQuery,
    Wait,
    Who,
    answer,
    extension_of,
    filter_of,
    key_and_tenant,
    owner,
    parse_body,
    queried,
    read_body,
    read_key,
)
from shoal.serve import models
from shoal.serve.lifecycle import ServiceState
from shoal.serve.live.manager import ServiceManager, Serving
from shoal.serve.live.records import ServiceFilter, ServiceRecord
from shoal.serve.live.responses import service_detail, service_view
from shoal.serve.manifest import SERVICE, parse_service, service_schema

router = Router(prefix="/v1/services", tags=["services"])
manifests = Router(prefix="/v1/service-manifests", tags=["manifests"])

ServiceRef = Annotated[str, Path(description="the service's name, or its id", max_length=128)]


async def get_services(request: Request) -> ServiceManager:
    return extension_of(request, Serving).services


Manager = Annotated[ServiceManager, Depends(get_services)]


async def find_service(
    services: ServiceManager, who: Principal, ref: str, *, tenant: str | None = None
) -> ServiceRecord:
    """The service by name (the live one, else the newest that was) or by id.

    Another tenant's does not exist. Raises NotFound, or Conflict when several tenants have a live one of the name.
    """
    owner = who.tenant or tenant
    if ref.isprintable():
        live = services.named(ref, owner)
        if len(live) > 1:
            tenants = ", ".join(sorted(service.tenant for service in live))
            raise Conflict(f"several tenants have a service {ref!r}: {tenants}", where=ref, hint="give the tenant")
        if live:
            return live[0]
        with contextlib.suppress(NotFound):
            service = services.service(ref)
            if who.may_see(service.tenant):
                return service
        past = await services.stored(ServiceFilter(tenant=owner, name=ref, limit=1))
        if past:
            return past[0]
    raise NotFound(f"there is no service {ref!r}", where=ref, hint="see `shoal services`")


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
        "requestBody": takes_manifest(SERVICE),
        "parameters": key_and_tenant("the same key twice is one deployment"),
    },
)
async def deploy(request: Request, services: Manager, who: Who) -> Response:
    """The body is a manifest, YAML or JSON. Answered once it is durable; asking for the service with `wait_s` then
    waits until it is ready."""
    key = read_key(request)
    manifest = await parse_body(await read_body(request), parse_service)
    tenant = owner(manifest.tenant, who, queried(request, "tenant"))
    service, created = await services.deploy(manifest, tenant=tenant, actor=who.actor, idempotency_key=key)
    snapshot = services.snapshot(service.id)
    return answer(service_view(snapshot), 201 if created else 200, {"Location": f"/v1/services/{service.id}"})


@manifests.get(
    "/schema", summary="The manifest's JSON Schema", responses={422: fails(422)[422]}, openapi_extra={"security": []}
)
async def schema() -> Response:
    """For editors; needs no token."""
    return answer(service_schema())


@manifests.post(
    "/check",
    summary="Check a service's manifest without deploying it",
    responses={**shows(CheckView), **fails(403, 404, 409, 413, 422, 503)},
    openapi_extra={"requestBody": takes_manifest(SERVICE)},
)
async def check(request: Request, services: Manager, who: Asker, tenant: TenantQuery = None) -> Response:
    """Answers with the manifest as it was understood, and remarks on what would happen to its replicas here."""
    manifest = await parse_body(await read_body(request), parse_service)
    name = owner(manifest.tenant, who, tenant)
    remarks = await services.check(manifest, tenant=name)
    return answer(
        {
            "name": manifest.name,
            "tenant": name,
            "manifest": orjson.loads(manifest.canonical_json()),
            "remarks": [remark.as_json() for remark in remarks],
        }
    )


@router.get("", summary="List services, newest first", responses={**shows(models.ServiceList), **fails(404, 422, 503)})
async def list_services(
    services: Manager,
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
    found = await services.stored(asked)
    looks = [services.snapshot_of(service) for service in found]
    following = found[-1].id if len(found) == limit else None
    return answer({"services": [service_view(snapshot) for snapshot in looks], "next": following})


@router.get(
    "/{ref}",
    summary="Show a service with its replicas",
    responses={**shows(models.ServiceDetail), **fails(404, 409, 422, 503)},
)
async def show(
    api: FromApi, services: Manager, who: Who, ref: ServiceRef, tenant: TenantQuery = None, wait_s: Wait = 0.0
) -> Response:
    """With `wait_s`, answers when the service is ready, or will not be by waiting, or has stopped; or when that time is
    over."""
    service = await find_service(services, who, ref, tenant=tenant)
    if wait_s > 0:
        await api.until(lambda: services.service(service.id).settled, wait_s, who, owner_id=service.id)
    return answer(service_detail(services.snapshot(service.id)))


@router.post(
    "/{ref}/scale",
    summary="Change how many replicas are wanted",
    responses={**shows(models.ServiceView), **fails(404, 409, 422, 503)},
)
async def scale(
    services: Manager,
    who: Who,
    ref: ServiceRef,
    body: models.ScaleGiven,
    tenant: TenantQuery = None,
    cause: Cause = "",
) -> Response:
    service = await find_service(services, who, ref, tenant=tenant)
    await services.scale(service.id, body.replicas, actor=who.actor, cause=cause)
    return answer(service_view(services.snapshot(service.id)))


@router.delete(
    "/{ref}", summary="Undeploy a service", responses={**shows(models.ServiceView), **fails(404, 409, 422, 503)}
)
async def undeploy(
    services: Manager, who: Who, ref: ServiceRef, tenant: TenantQuery = None, cause: Cause = ""
) -> Response:
    """Its replicas are asked to end; it is STOPPED, and its name free, when all have."""
    service = await find_service(services, who, ref, tenant=tenant)
    await services.undeploy(service.id, actor=who.actor, cause=cause)
    return answer(service_view(services.snapshot(service.id)))


@router.get(
    "/{ref}/explain",
    summary="Why it is not ready",
    responses={**shows(models.ServiceExplanationView), **fails(404, 409, 422, 503)},
)
async def explain(services: Manager, who: Asker, ref: ServiceRef, tenant: TenantQuery = None) -> Response:
    """The gateway's reasons and each replica's, with what would have to change."""
    service = await find_service(services, who, ref, tenant=tenant)
    return answer(await services.explain(service.id))


@router.get(
    "/{ref}/history", summary="How a service did over time",
    responses={**shows(models.ServiceHistory), **fails(404, 409, 422, 503)},
)  # fmt: skip
async def history(
    request: Request, services: Manager, who: Asker, ref: ServiceRef, tenant: TenantQuery = None
) -> Response:
    """Latency, rate and refusals as the gateway measured them, of a day at most."""
    service = await find_service(services, who, ref, tenant=tenant)
    return answer(extension_of(request, Serving).histories.view(service.id).model_dump())


@router.get("/{ref}/events", summary="The events of one service and its replicas", responses=EVENTS_ANSWERED)
async def events(
    api: FromApi, services: Manager, who: Who, ref: ServiceRef, asked: AskedEvents, tenant: TenantQuery = None
) -> Response:
    """From the first event; a stream ends with the service's last event."""
    service = await find_service(services, who, ref, tenant=tenant)
    return await api.events(
        asked, who, tenant=service.tenant, owner_id=service.id,
        over=lambda: services.service(service.id).state.terminal,
    )  # fmt: skip
