"""The live state in the API, for asking what another policy would decide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Response

from shoal.extension.describe import Responses, fails
from shoal.extension.web import Who

_LINES = "application/x-ndjson"
_SHOWN: Responses = {200: {"description": "JSON lines, as `shoal schedule` reads them", "content": {_LINES: {}}}}


def router_of(lines: Callable[[], Awaitable[list[str]]]) -> APIRouter:
    router = APIRouter(tags=["schedule"])

    @router.get(
        "/v1/schedule/snapshot",
        summary="The live jobs and accelerators as a snapshot for `shoal schedule` (admin)",
        response_class=Response,
        responses={**_SHOWN, **fails(403, 503)},
    )
    async def snapshot(who: Who) -> Response:
        """Best-effort jobs that ask for accelerators, with measured or predicted throughputs, on what guaranteed
        jobs and services leave of each type."""
        who.require_admin("see all tenants' jobs and speeds")
        return Response("".join(f"{line}\n" for line in await lines()), media_type=_LINES)

    return router
