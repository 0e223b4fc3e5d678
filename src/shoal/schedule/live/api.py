"""The live state in the API, for asking what another policy would decide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Response

from shoal.core import NotFound
from shoal.extension.describe import Responses, fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import Who, answer
from shoal.schedule.live.page import PATH
from shoal.schedule.models import WhatIf

PolicyName = Annotated[str, Path(description="the policy's name", max_length=64)]

_LINES = "application/x-ndjson"
_SHOWN: Responses = {200: {"description": "JSON lines, as `shoal schedule` reads them", "content": {_LINES: {}}}}


def router_of(
    lines: Callable[[], Awaitable[list[str]]],
    ask: Callable[[str], Awaitable[WhatIf]],
    policies: Callable[[], Sequence[str]],
) -> APIRouter:
    router = Router(tags=["schedule"])

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

    @router.post(
        f"{PATH}/{{policy}}",
        summary="What another policy would do with the jobs that wait and run now (admin)",
        response_class=Response,
        responses={**shows(WhatIf), **fails(403, 404, 422, 503)},
    )
    async def what_if(who: Who, policy: PolicyName) -> Response:
        """Nothing is changed. The component's page shows the last answer."""
        who.require_admin("ask a policy about all tenants' jobs")
        if policy not in policies():
            known = ", ".join(policies())
            raise NotFound(f"there is no policy {policy!r}", where="policy", hint=f"one of {known}")
        return answer((await ask(policy)).model_dump())

    return router
