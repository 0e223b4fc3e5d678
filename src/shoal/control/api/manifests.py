"""Routes that come before a submission: a dry run, and the archive of working files."""

from __future__ import annotations

import asyncio

import orjson
from fastapi import Request, Response

from shoal.contract import models
from shoal.contract.manifest import manifest_schema, parse_manifest, with_line
from shoal.control.api.context import Ctx
from shoal.control.api.responses import reason_view
from shoal.core import Invalid
from shoal.extension.describe import fails, shows, takes_manifest
from shoal.extension.routing import Router
from shoal.extension.web import Asker, TenantQuery, Who, answer, owner, parse_body, read_body, tenant_of

router = Router(prefix="/v1", tags=["manifests"])


@router.get(
    "/manifests/schema",
    summary="The manifest's JSON Schema",
    tags=["manifests"],
    responses={422: fails(422)[422]},
)
async def schema() -> Response:
    """For editors; needs no token."""
    return answer(manifest_schema())


@router.post(
    "/manifests/check",
    summary="Check a job's manifest without submitting it",
    responses={**shows(models.CheckView), **fails(403, 404, 413, 422, 503)},
    openapi_extra={"requestBody": takes_manifest()},
)
async def check(request: Request, context: Ctx, who: Asker, tenant: TenantQuery = None) -> Response:
    """Answers with the manifest as it was understood, and remarks on what would happen to it here."""
    body = await read_body(request, context.limits.body_bytes)
    manifest = await parse_body(body, parse_manifest)
    name = owner(manifest.tenant, who, tenant)
    try:
        remarks = await context.plane.check(manifest, tenant=name)
    except Invalid as error:
        raise await asyncio.to_thread(with_line, error, body) from None
    manifest = context.plane.complete(manifest, tenant=name)
    return answer(
        {
            "name": manifest.name,
            "tenant": name,
            "manifest": orjson.loads(manifest.canonical_json()),
            "remarks": [reason_view(remark) for remark in remarks],
        }
    )


@router.post(
    "/bundles",
    summary="Upload working files",
    status_code=201,
    tags=["bundles"],
    responses={**shows(models.BundleView, 201), **fails(403, 404, 413, 422, 429, 503)},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload(request: Request, context: Ctx, who: Who, tenant: TenantQuery = None) -> Response:
    """A tar archive; the answer names it for a manifest's `bundle`. The same content has the same name, and each tenant
    that uses it has to upload it. An archive that cannot be unpacked within the limits is refused."""
    name = tenant_of(who, tenant)
    record = await context.plane.add_bundle(request.stream(), tenant=name, actor=who.actor)
    return answer(
        {"bundle": record.digest, "size_bytes": record.size_bytes, "unpacked_bytes": record.unpacked_bytes}, 201
    )
