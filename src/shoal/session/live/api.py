"""The routes of sessions. What they answer with is no document but the connection itself, upgraded (RFC 9110, 7.8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from shoal.base.http.asgi import LOCAL_USER
from shoal.base.http.handover import Handover
from shoal.base.http.tunnel import Tunnel
from shoal.contract.records import JobRecord
from shoal.core import Forbidden
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import (
    TenantQuery,
    Who,
    answer,
    extension_of,
    filter_of,
    parse_body,
    read_body,
    require_own,
)
from shoal.session.live.needs import Entrance
from shoal.session.models import ExecRequest, OpenSessions, SessionView, parse_exec

SESSION, FORWARD = b"shoal-session", b"shoal-forward"
"""The protocols that a client upgrades to: frames of an agent, and the bytes of a TCP connection."""
DIRECT = b"shoal-session-direct"
"""Of a client on this machine: the frames go by a socket that comes with the answer, for as long as its connection."""
_MOST_BODY = 1 << 20
_JOB = "/v1/jobs/{job_id}"


async def get_entrance(request: Request) -> Entrance:
    return extension_of(request, Entrance)  # type: ignore[type-var]


FromEntrance = Annotated[Entrance, Depends(get_entrance)]
JobId = Annotated[str, Path(description="the job's id", max_length=64)]
SessionId = Annotated[str, Path(description="`main`, or what `exec` answered", pattern=r"^[a-z0-9]{1,32}$")]
Rank = Annotated[int, Query(ge=0, le=100_000)]
WaitToRun = Annotated[float, Query(ge=0, le=60, description="wait so long for the job to run")]
_UPGRADED: dict[int | str, dict[str, Any]] = {
    101: {"description": "the connection is upgraded"},
    426: {"description": "the request offers no upgrade"},
}


class Upgraded(Response):
    """Gives the client's connection to a tunnel."""

    def __init__(self, request: Request, protocol: bytes, tunnel: Tunnel) -> None:
        super().__init__(status_code=101)
        self._offer = request.scope["extensions"]["upgrade"]
        self._protocol, self._tunnel = protocol, tunnel

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Any]],  # noqa: ARG002
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:  # fmt: skip
        await send({"type": "http.response.start", "status": 101, "headers": []})
        self._offer.accept(self._protocol, self._tunnel)


def router_of() -> APIRouter:
    router = Router(tags=["sessions"])

    @router.get(
        "/v1/sessions", summary="List the sessions that are open", response_class=Response,
        responses={**shows(OpenSessions), **fails(404, 422, 503)},
    )  # fmt: skip
    async def opened(
        request: Request, entrance: FromEntrance, who: Who, tenant: TenantQuery = None,
        job: Annotated[str | None, Query(description="of this job only: its id", max_length=64)] = None,
    ) -> Response:  # fmt: skip
        """Of the jobs that the caller may enter; an admin may enter all."""

        async def may(record: JobRecord) -> bool:
            try:
                await require_own(request, who, record)
            except Forbidden:
                return False
            return True

        found = await entrance.opened(filter_of(who, tenant), job, may)
        return answer(OpenSessions(sessions=tuple(found)).model_dump(mode="json"))

    @router.delete(
        _JOB + "/sessions/{session}", summary="End a session", status_code=204, response_class=Response,
        responses={204: {"description": "it was asked to end"}, **fails(403, 404, 409, 422, 503)},
    )  # fmt: skip
    async def end(
        request: Request, entrance: FromEntrance, who: Who, job_id: JobId, session: SessionId, rank: Rank = 0
    ) -> Response:
        """What runs in it gets SIGHUP, and SIGKILL ten seconds later."""
        await require_own(request, who, entrance.job(who, job_id))
        await entrance.end(who, job_id, session, rank)
        return Response(status_code=204)

    @router.post(
        _JOB + "/sessions", summary="Run a command beside a rank of a running job", response_class=Response,
        responses={**shows(SessionView), **fails(403, 404, 409, 422, 503)},
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {
            "schema": ExecRequest.model_json_schema()}}}},
    )  # fmt: skip
    async def execute(request: Request, entrance: FromEntrance, who: Who, job_id: JobId) -> Response:
        """It has the job's rights, limits, namespaces, directory and environment. It begins when its client attaches
        to the session that is answered."""
        await require_own(request, who, entrance.job(who, job_id))
        asked = await parse_body(await read_body(request, _MOST_BODY), parse_exec)
        session = await entrance.execute(who, job_id, asked)
        return answer(SessionView(id=session, job_id=job_id, rank=asked.rank).model_dump(mode="json"))

    @router.post(
        _JOB + "/sessions/{session}/attach", summary="Attach to a session", response_class=Response,
        responses={**_UPGRADED, **fails(403, 404, 409, 422, 503)},
    )  # fmt: skip
    async def attach(
        request: Request, entrance: FromEntrance, who: Who, job_id: JobId, session: SessionId, rank: Rank = 0,
        wait_s: WaitToRun = 0.0,
    ) -> Response:  # fmt: skip
        await require_own(request, who, entrance.job(who, job_id))
        protocol, kind = (
            (DIRECT, Handover) if _offers(request, DIRECT) and LOCAL_USER in request.scope else (SESSION, Tunnel)
        )
        return await _upgrade(request, protocol, lambda: entrance.attach(who, job_id, session, rank, wait_s, kind))

    @router.post(
        _JOB + "/ports/{port}", summary="Connect to a port that the job listens on", response_class=Response,
        responses={**_UPGRADED, **fails(403, 404, 409, 422, 503)},
    )  # fmt: skip
    async def forward(
        request: Request, entrance: FromEntrance, who: Who, job_id: JobId,
        port: Annotated[int, Path(ge=1, le=65535)], rank: Rank = 0,
    ) -> Response:  # fmt: skip
        await require_own(request, who, entrance.job(who, job_id))
        return await _upgrade(request, FORWARD, lambda: entrance.forward(who, job_id, port, rank))

    return router


def _offers(request: Request, protocol: bytes) -> bool:
    offer = request.scope.get("extensions", {}).get("upgrade")
    return offer is not None and protocol in offer.offered


async def _upgrade(request: Request, protocol: bytes, make: Callable[[], Awaitable[Tunnel]]) -> Response:
    if not _offers(request, protocol):
        return Response(status_code=426, headers={"Upgrade": protocol.decode()})
    return Upgraded(request, protocol, await make())
