"""Routes for environments that were made. Tenants see their own, the admin sees all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Path, Request, Response

from shoal.core import Invalid, NotFound
from shoal.environment.live.needs import Keeping
from shoal.environment.models import EnvironmentList, EnvironmentView
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import TenantQuery, Who, answer, extension_of, filter_of

if TYPE_CHECKING:
    from shoal.environment.live.tables import Made


async def get_keeping(request: Request) -> Keeping:
    return extension_of(request, Keeping)  # type: ignore[type-var]


Kept = Annotated[Keeping, Depends(get_keeping)]


def router_of() -> APIRouter:
    router = Router(tags=["environments"])

    @router.get(
        "/v1/environments", summary="What was made for jobs to run with", response_class=Response,
        responses={**shows(EnvironmentList), **fails(404)},
    )  # fmt: skip
    async def listing(kept: Kept, who: Who, tenant: TenantQuery = None) -> Response:
        return _shown(kept, kept.repository.of(filter_of(who, tenant)))

    @router.delete(
        "/v1/environments/{key}", summary="Remove what no job runs with", response_class=Response,
        responses={**shows(EnvironmentList), **fails(404, 409, 422)},
    )  # fmt: skip
    async def remove(
        kept: Kept, who: Who, key: Annotated[str, Path(description="its key or a beginning of it", max_length=128)],
        tenant: TenantQuery = None,
    ) -> Response:  # fmt: skip
        found = [one for one in kept.repository.of(filter_of(who, tenant)) if one.key.startswith(key)]
        if not found:
            raise NotFound(f"there is no environment {key}", where=key, hint="`shoal environments` lists them")
        if len({one.key for one in found}) > 1:
            raise Invalid(f"{key} is the beginning of {len(found)} keys", where=key, hint="give more of it")
        shown = _shown(kept, found)
        await kept.remove(found, who.actor)
        return shown

    return router


def _shown(kept: Keeping, made: Iterable[Made]) -> Response:
    used = kept.repository.used()
    views = tuple(
        EnvironmentView(
            tenant=one.tenant, kind=one.kind, key=one.key, source=one.source, bytes=one.bytes, files=one.files,
            made_at=one.made_at, used_at=one.used_at, used=one.id in used,
        )
        for one in made
    )  # fmt: skip
    return answer(EnvironmentList(environments=views).model_dump(mode="json"))
