"""Planes in the API: the shared server's admin makes and removes them; what is below a plane's path is its own."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from shoal.base.http import network_of
from shoal.contract.lifecycle import JobState
from shoal.contract.principal import Principal
from shoal.contract.view import View
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import NEWEST, Who, answer, extension_of
from shoal.tenancy.live.needs import Serving
from shoal.tenancy.live.planes import Planes
from shoal.tenancy.models import NAME, AuditList, NewPlaneView, PlaneList, PlaneRequest, PlaneView, UsageView
from shoal.tenancy.records import PlaneRecord

PREFIX = "/planes"
_OWN = ("path_params", "route", "endpoint", "router", "app")
"""What the shared server's routing left in a scope, and the plane's own is to fill."""
_BINARY = "application/octet-stream"
_FILE = {
    "requestBody": {"required": True, "content": {_BINARY: {"schema": {"type": "string", "format": "binary"}}}}
}  # fmt: skip


async def get_planes(request: Request) -> Planes:
    return extension_of(request, Serving).planes  # type: ignore[type-var]


Manager = Annotated[Planes, Depends(get_planes)]
PlaneName = Annotated[str, Path(description="the plane's name", max_length=64)]


def view(planes: Planes, record: PlaneRecord) -> PlaneView:
    handed = planes.handed_over(record)
    waiting = sum(live.job.state is JobState.QUEUED for live in handed)
    return PlaneView(
        id=record.id, name=record.name, tenant=record.tenant, state=record.state, awake=planes.is_awake(record.name),
        path=f"{PREFIX}/{record.name}", running=len(handed) - waiting, waiting=waiting, created_at=record.created_at,
        updated_at=record.updated_at,
    )  # fmt: skip


def shown(found: View, status: int = 200) -> Response:
    return answer(found.model_dump(mode="json"), status)


def _url(request: Request, name: str) -> str:
    """Where a plane answers, as seen by who asks: under its own name, if there is a domain for that."""
    base = request.base_url
    if domain := extension_of(request, Serving).domain:  # type: ignore[type-var]
        return str(base.replace(hostname=f"{name}.{domain}", path="")).rstrip("/")
    return f"{str(base).rstrip('/')}{PREFIX}/{name}"


def _with_token(request: Request, planes: Planes, record: PlaneRecord, token: str) -> Response:
    url = _url(request, record.name)
    return shown(NewPlaneView(**view(planes, record).model_dump(), url=url, token=token), 201)


def _actor(who: Principal) -> str:
    who.require_admin("manage planes")
    return "admin"


def router_of() -> APIRouter:
    router = Router(tags=["planes"])

    @router.post(
        "/v1/planes", summary="Make a plane (admin)", status_code=201, response_class=Response,
        responses={**shows(NewPlaneView, 201, "made; the token is shown once"), **fails(403, 409, 422, 503)},
    )  # fmt: skip
    async def create(request: Request, planes: Manager, who: Who, asked: PlaneRequest) -> Response:
        record, token = await planes.create(asked.name, asked.tenant, actor=_actor(who))
        return _with_token(request, planes, record, token)

    @router.get(
        "/v1/planes", summary="All planes (admin)", response_class=Response,
        responses={**shows(PlaneList, 200, "by name"), **fails(403)},
    )  # fmt: skip
    async def every(planes: Manager, who: Who) -> Response:
        _actor(who)
        return shown(PlaneList(planes=tuple(view(planes, record) for record in planes.all())))

    @router.get(
        "/v1/planes/{name}", summary="One plane (admin)", response_class=Response,
        responses={**shows(PlaneView, 200, "as it is now"), **fails(403, 404, 422)},
    )  # fmt: skip
    async def one(planes: Manager, who: Who, name: PlaneName) -> Response:
        _actor(who)
        return shown(view(planes, planes.find(name)))

    @router.post(
        "/v1/planes/{name}/suspend", summary="Suspend a plane (admin)", response_class=Response,
        responses={**shows(PlaneView, 200, "it answers no more; what runs goes on"), **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def suspend(planes: Manager, who: Who, name: PlaneName) -> Response:
        return shown(view(planes, await planes.suspend(name, actor=_actor(who))))

    @router.post(
        "/v1/planes/{name}/resume", summary="Resume a suspended plane (admin)", response_class=Response,
        responses={**shows(PlaneView, 200, "it answers again"), **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def resume(planes: Manager, who: Who, name: PlaneName) -> Response:
        return shown(view(planes, await planes.resume(name, actor=_actor(who))))

    @router.post(
        "/v1/planes/{name}/token", summary="A new token of a plane's admin (admin)", status_code=201,
        response_class=Response,
        responses={**shows(NewPlaneView, 201, "made; the token is shown once"), **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def token(request: Request, planes: Manager, who: Who, name: PlaneName) -> Response:
        """Tokens that were made before go on to count. The plane may be asleep or suspended."""
        made = await planes.new_token(name, actor=_actor(who))
        return _with_token(request, planes, planes.find(name), made)

    @router.delete(
        "/v1/planes/{name}", summary="Delete a plane with all that it knows (admin)", status_code=204,
        response_class=Response, responses=fails(403, 404, 409, 422, 503),
    )  # fmt: skip
    async def delete(
        planes: Manager, who: Who, name: PlaneName,
        force: Annotated[bool, Query(description="also end what it has in the shared pool")] = False,
    ) -> Response:  # fmt: skip
        await planes.delete(name, actor=_actor(who), force=force)
        return Response(status_code=204)

    @router.get(
        "/v1/planes/{name}/usage", summary="What a plane used of the shared pool (admin)", response_class=Response,
        responses={**shows(UsageView, 200, "of the jobs that are kept"), **fails(403, 404, 422)},
    )  # fmt: skip
    async def usage(
        planes: Manager, who: Who, name: PlaneName,
        since: Annotated[float, Query(ge=0, description="of jobs submitted since then, Unix seconds")] = 0.0,
    ) -> Response:  # fmt: skip
        _actor(who)
        return shown(await asyncio.to_thread(planes.usage, name, since))

    @router.get(
        "/v1/planes/{name}/audit", summary="Who did what in a plane (admin)", response_class=Response,
        responses={**shows(AuditList, 200, "in order"), **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def audit(
        planes: Manager, who: Who, name: PlaneName,
        after: Annotated[int, Query(ge=0, le=NEWEST, description="the sequence number to begin behind")] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000, description="events to look through")] = 1000,
    ) -> Response:  # fmt: skip
        """What is done by the plane itself is left out, and so is what a job runs and is told."""
        _actor(who)
        return shown(await planes.audit(name, after, limit))

    @router.get(
        "/v1/planes/{name}/backup", summary="A backup of a plane, as one file (admin)", response_class=Response,
        responses={200: {"content": {_BINARY: {}}, "description": "for `shoal plane restore|import`, `shoal restore`"},
                   **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def backup(planes: Manager, who: Who, name: PlaneName) -> Response:
        _actor(who)
        return Response(await planes.backup(name), media_type=_BINARY)

    @router.put(
        "/v1/planes/{name}/backup", summary="Restore a plane from a backup (admin)", response_class=Response,
        responses={**shows(PlaneView, 200, "as it is now"), **fails(403, 404, 409, 422, 503)}, openapi_extra=_FILE,
    )  # fmt: skip
    async def restore(request: Request, planes: Manager, who: Who, name: PlaneName) -> Response:
        actor = _actor(who)
        return shown(view(planes, await planes.restore(name, await request.body(), actor=actor)))

    @router.post(
        "/v1/planes/{name}/import", summary="Make a plane from a backup (admin)", status_code=201,
        response_class=Response, openapi_extra=_FILE,
        responses={**shows(NewPlaneView, 201, "made; the token is shown once"), **fails(403, 409, 422, 503)},
    )  # fmt: skip
    async def bring(
        request: Request, planes: Manager, who: Who,
        name: Annotated[str, Path(pattern=NAME)], tenant: Annotated[str, Query(description="as for a new plane")],
    ) -> Response:  # fmt: skip
        actor = _actor(who)
        record, token = await planes.create(name, tenant, actor=actor, content=await request.body())
        return _with_token(request, planes, record, token)

    router.routes.append(
        Route(PREFIX + "/{name}/{rest:path}", PlaneDoor(PREFIX), methods=None, include_in_schema=False)
    )
    return router


class PlaneDoor:
    """Hands requests at a plane's host name, or below its path where there is a `prefix`, to the plane. Its tokens are
    asked for there; those of the shared server count for nothing."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path_params"]["name"]
        planes = extension_of(Request(scope), Serving).planes  # type: ignore[type-var]
        own = {key: value for key, value in scope.items() if key not in _OWN and not key.startswith("fastapi")}
        if self._prefix:
            own["root_path"] = f"{scope.get('root_path', '')}{self._prefix}/{name}"
        address = network_of(scope.get("client"))
        async with planes.answering(name, Headers(scope=scope).get("authorization"), address) as app:
            await app(own, receive, send)
