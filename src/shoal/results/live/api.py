"""Artifacts in the API: a tenant's people see and fetch their own, an admin all."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from shoal.contract.principal import Principal
from shoal.contract.records import NewEvent
from shoal.core import Conflict, Forbidden, Invalid, NotFound
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import (
    NO_NUL,
    TenantQuery,
    Who,
    answer,
    extension_of,
    filter_of,
    read_body,
    require_own,
    tenant_of,
)
from shoal.results.keeping.names import check_name
from shoal.results.keeping.retention import Kept
from shoal.results.live.artifact_store import Place
from shoal.results.live.events import ResultsEvent
from shoal.results.live.needs import Keeping
from shoal.results.live.uploads import PIECE
from shoal.results.models import DIGEST, ArtifactList, ArtifactView, PinRequest, UploadRequest, UploadView

SHA256 = "X-Shoal-Sha256"
_READ = 1 << 20
_LARGEST_RANGE = 16 << 20
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")
_MIN_PREFIX = 6


async def get_keeping(request: Request) -> Keeping:
    return extension_of(request, Keeping)  # type: ignore[type-var]


Here = Annotated[Keeping, Depends(get_keeping)]
ArtifactId = Annotated[str, Path(pattern="^f-[0-9a-f]{24}$", description="the artifact's id")]
Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="SHA-256 of the whole file")]


def router_of() -> APIRouter:
    router = Router(tags=["artifacts"])
    _reading(router)
    _changing(router)
    _uploading(router)
    return router


def _reading(router: APIRouter) -> None:
    @router.get(
        "/v1/artifacts", summary="List artifacts", response_class=Response,
        responses={**shows(ArtifactList), **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def listing(
        request: Request, here: Here, who: Who, tenant: TenantQuery = None,
        job: Annotated[str | None, Query(max_length=128, pattern=NO_NUL, description="a job's id, a unique beginning "
                                         "of it, or its name; left out: all artifacts")] = None,
        name: Annotated[str | None, Query(max_length=512, pattern=NO_NUL, description="this one, or those below it")]
        = None,
        attempt: Annotated[int | None, Query(ge=1, le=1_000_000, description="default: of each name the newest")]
        = None,
        uploads: Annotated[bool, Query(description="only what was uploaded alone")] = False,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:  # fmt: skip
        """The newest first. Of a job by name, of the newest of that name."""
        owner, taking = filter_of(who, tenant), False
        repository = here.artifact_store.repository
        if job is not None:
            job, found = await _of_job(here, owner, job)
            await _require(request, here, who, job)
            taking = any(one == job for one, _ in repository.pending) and here.server.job(job) is None
            found = [one for one in found if attempt in (None, one.attempt)]
            found = found if attempt is not None else _newest(found)
        else:
            read = repository.uploads if uploads else repository.all
            found = _visible(who, await asyncio.to_thread(read, owner))
        if name is not None:
            found = [one for one in found if one.name == name or one.name.startswith(f"{name.rstrip('/')}/")]
        shown = tuple(view(one) for one in found[offset : offset + limit])
        following = offset + limit if len(found) > offset + limit else None
        asked = owner or (found[0].tenant if job is not None and found else None)
        used = repository.used[asked].bytes if asked is not None and asked in here.server.tenants() else None
        allowed = here.artifact_store.allowance.bytes if used is not None else None
        return _shown(ArtifactList(
            artifacts=shown, next=following, taking=taking, used_bytes=used, allowed_bytes=allowed
        ))  # fmt: skip

    @router.get(
        "/v1/artifacts/{artifact}", summary="An artifact", response_class=Response,
        responses={**shows(ArtifactView), **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def show(request: Request, here: Here, who: Who, artifact: ArtifactId) -> Response:
        return _shown(view(await _find(request, here, who, artifact)))

    @router.get(
        "/v1/artifacts/{artifact}/content", summary="Read an artifact", response_class=Response,
        responses={
            200: {
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
                "headers": {
                    "ETag": {"schema": {"type": "string"}, "description": "its digest"},
                    SHA256: {"schema": {"type": "string"}, "description": "of these bytes; only with `Range`"},
                },
            },
            206: {"description": "the range that was asked for, of at most 16 MiB"},
            **fails(403, 404, 409, 422, 503),
        },
    )  # fmt: skip
    async def content(
        request: Request, here: Here, who: Who, artifact: ArtifactId,
        digest: Annotated[str | None, Query(pattern=DIGEST, description="refuse with 409 another content")] = None,
    ) -> Response:  # fmt: skip
        """Its bytes, or those of the header `Range`."""
        one = await _find(request, here, who, artifact)
        if digest is not None and digest.removeprefix("sha256:") != one.digest:
            raise Conflict(f"{one.name} is another file by now", where=one.id, hint="begin it again")
        headers = {
            "ETag": f'"sha256:{one.digest}"', "Accept-Ranges": "bytes", "X-Content-Type-Options": "nosniff",
            "Content-Disposition": "attachment",
        }  # fmt: skip
        asked = request.headers.get("range")
        if asked is None:
            headers["Content-Length"] = str(one.bytes)
            return StreamingResponse(_all(here, one), 200, headers, "application/octet-stream")
        begin, end = _range(asked, one.bytes)
        data = await here.artifact_store.read(one, begin, end - begin)
        headers |= {
            "Content-Range": f"bytes {begin}-{begin + len(data) - 1}/{one.bytes}" if data else f"bytes */{one.bytes}",
            SHA256: hashlib.sha256(data).hexdigest(),
        }  # fmt: skip
        return Response(data, 206, headers, "application/octet-stream")


def _changing(router: APIRouter) -> None:
    @router.delete(
        "/v1/artifacts/{artifact}", summary="Remove an artifact", response_class=Response,
        responses={**shows(ArtifactView), **fails(403, 404, 409, 422, 503)},
    )  # fmt: skip
    async def remove(request: Request, here: Here, who: Who, artifact: ArtifactId) -> Response:
        """Its content goes with the last artifact that has it."""
        one = await _find(request, here, who, artifact)
        if one.pinned:
            raise Conflict(f"{one.name} is pinned", where=one.id, hint="unpin it first")
        await here.artifact_store.remove(one.tenant, [one], actor=who.actor, cause=f"{who.actor} asked")
        return _shown(view(one))

    @router.post(
        "/v1/artifacts/{artifact}/pin", summary="Pin an artifact, or let it go", response_class=Response,
        responses={**shows(ArtifactView), **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def pin(request: Request, here: Here, who: Who, artifact: ArtifactId, asked: PinRequest) -> Response:
        """A pinned one stays until it is let go."""
        one = await _find(request, here, who, artifact)
        word = "pinned" if asked.pinned else "unpinned"
        told = NewEvent(
            here.server.clock.now(), ResultsEvent.PINNED, who.actor, f"{one.name} was {word}", one.tenant,
            one.job or None, one.attempt or None, data={"name": one.name, "pinned": asked.pinned},
        )  # fmt: skip
        one = replace(one, pinned=asked.pinned)
        await here.artifact_store.repository.pin(one, [told])
        return _shown(view(one))


def _uploading(router: APIRouter) -> None:
    @router.post(
        "/v1/artifact-uploads", summary="Begin, continue or complete an upload", response_class=Response,
        responses={**shows(UploadView), **fails(403, 404, 409, 422, 429, 503)},
    )  # fmt: skip
    async def begin(
        request: Request, here: Here, who: Who, asked: UploadRequest, tenant: TenantQuery = None
    ) -> Response:
        """Says where the upload of this content goes on; complete, it is kept under the name."""
        owner = tenant_of(who, tenant)
        if owner not in here.server.tenants():
            raise NotFound(f"there is no tenant {owner!r}", where="tenant")
        place = await _place(request, here, who, owner, asked.job)
        try:
            name = check_name(asked.name)
        except ValueError as problem:
            raise Invalid(str(problem), where="name") from None
        have, kept = await here.uploads.begin(place, name, asked.sha256, asked.bytes, who.actor, alone=who.own_only)
        return _shown(UploadView(have=have, artifact=None if kept is None else view(kept)))

    @router.put(
        "/v1/artifact-uploads/{sha256}", summary="Send a piece of an upload", response_class=Response,
        responses={**shows(UploadView), **fails(403, 404, 409, 422, 503)},
    )  # fmt: skip
    async def piece(
        request: Request, here: Here, who: Who, sha256: Digest,
        size: Annotated[int, Query(alias="bytes", ge=0, le=2**50, description="of the whole file")],
        offset: Annotated[int, Query(ge=0, le=2**50)],
        tenant: TenantQuery = None,
    ) -> Response:  # fmt: skip
        """The body is at most 8 MiB; the header `X-Shoal-Sha256` has its digest."""
        data = await read_body(request, PIECE)
        if hashlib.sha256(data).hexdigest() != request.headers.get(SHA256.lower()):
            raise Invalid("the piece did not arrive as it was sent", where=SHA256, hint="send it again")
        owner = who.actor if who.own_only else None
        have = await here.uploads.append(tenant_of(who, tenant), sha256, size, offset, data, owner=owner)
        return _shown(UploadView(have=have))


# --- finding ---


async def _of_job(here: Keeping, owner: str | None, ref: str) -> tuple[str, list[Kept]]:
    """A job's id, and its artifacts: they may outlive its record. Raises NotFound."""
    repository, store = here.artifact_store.repository, here.server.store
    known = await asyncio.to_thread(store.job, ref)
    found = await asyncio.to_thread(repository.of_job, ref)
    if (known is not None and owner in (None, known.tenant)) or any(owner in (None, one.tenant) for one in found):
        return ref, found
    named = await asyncio.to_thread(repository.of_name, owner, ref) if ref else []
    jobs = await asyncio.to_thread(store.find_jobs, ref, owner) if ref.isprintable() else []
    named_jobs = [one.id for one in jobs if one.name == ref]
    if named or named_jobs:
        newest = max([*(one.job for one in named), *named_jobs])
        return newest, [one for one in named if one.job == newest]
    begun = await asyncio.to_thread(repository.of_prefix, owner, ref) if len(ref) >= _MIN_PREFIX else []
    ids = {*(one.job for one in begun), *(one.id for one in jobs)}
    if len(ids) > 1:
        raise Conflict(f"{ref} is the beginning of {len(ids)} jobs' ids", where=ref, hint="give more of the id")
    if not ids:
        raise NotFound(
            f"there is no job {ref!r}", where=ref, hint="`shoal jobs` lists jobs, `shoal artifacts` artifacts"
        )
    return ids.pop(), begun


async def _find(request: Request, here: Keeping, who: Principal, id_: str) -> Kept:
    one = await asyncio.to_thread(here.artifact_store.repository.get, id_)
    if one is None or not who.may_see(one.tenant):
        raise NotFound(f"there is no artifact {id_}", where=id_, hint="`shoal artifacts` lists them")
    if one.job:
        await _require(request, here, who, one.job)
    elif who.own_only and one.by != who.actor:
        raise Forbidden(f"{one.name} is {one.by}'s", where=one.id, hint="ask who uploaded it")
    return one


async def _require(request: Request, here: Keeping, who: Principal, job: str) -> None:
    """Raises Forbidden where the caller may not read what the job left."""
    if not who.own_only:
        return
    live = here.server.job(job)
    record = live.job if live is not None else await asyncio.to_thread(here.server.store.job, job)
    if record is None:
        raise Forbidden(f"whose job {job} was is not known any more", where=job, hint="ask who leads the tenant")
    await require_own(request, who, record)


def _visible(who: Principal, found: list[Kept]) -> list[Kept]:
    """Of a user who may open only what is his, what was uploaded by him: jobs are asked for one by one."""
    if not who.own_only:
        return found
    return [one for one in found if not one.job and one.by == who.actor]


async def _place(request: Request, here: Keeping, who: Principal, owner: str, job: str | None) -> Place:
    if job is None:
        return Place(owner)
    live = here.server.job(job)
    record = live.job if live is not None else await asyncio.to_thread(here.server.store.job, job)
    if record is None or record.tenant != owner:
        raise NotFound(f"there is no job {job!r}", where="job", hint="give its whole id")
    await require_own(request, who, record)
    return Place(owner, record.id, record.name, record.attempt)


def _newest(found: list[Kept]) -> list[Kept]:
    """Of each name that of the last attempt which has it."""
    newest: dict[str, Kept] = {}
    for one in sorted(found, key=lambda one: one.attempt):
        newest[one.name] = one
    return [one for one in found if newest[one.name] is one]


# --- telling ---


def view(one: Kept) -> ArtifactView:
    alone = not one.job
    return ArtifactView(
        id=one.id, tenant=one.tenant, job=None if alone else one.job, job_name=None if alone else one.job_name,
        attempt=None if alone else one.attempt, name=one.name, digest=f"sha256:{one.digest}", bytes=one.bytes,
        taken_at=one.taken_at, pinned=one.pinned, by=one.by,
    )  # fmt: skip


def _range(asked: str, size: int) -> tuple[int, int]:
    """Begin and end of what is answered. Raises Invalid."""
    found = _RANGE.fullmatch(asked.strip())
    if found is None or int(found[1]) > size or (found[2] and int(found[2]) < int(found[1])):
        raise Invalid(f"{asked!r} is no range of a file of {size} bytes", where="Range", hint="such as bytes=0-1048575")
    begin = int(found[1])
    end = min(size, int(found[2]) + 1 if found[2] else size)
    return begin, min(end, begin + _LARGEST_RANGE)


async def _all(here: Keeping, one: Kept) -> AsyncIterator[bytes]:
    at = 0
    while at < one.bytes:
        data = await here.artifact_store.read(one, at, min(_READ, one.bytes - at))
        if not data:
            return
        at += len(data)
        yield data


def _shown(value: ArtifactList | ArtifactView | UploadView) -> Response:
    return answer(value.model_dump(mode="json"))
