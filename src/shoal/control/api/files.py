"""Files of jobs: what a run directory holds and what the server kept, and their bytes, by offset or as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated

from fastapi import Query, Response

from shoal.contract import models
from shoal.control.api.context import Context, Ctx
from shoal.control.api.jobs import Ref
from shoal.control.api.usage import CountedStream
from shoal.control.attempts.results import FilePiece
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import NO_NUL, Asker, TenantQuery, Who, answer

router = Router(prefix="/v1/jobs", tags=["files"])

SIZE, VERSION, SHA256 = "X-Shoal-Size", "X-Shoal-Version", "X-Shoal-Sha256"
_PIECE = 1 << 20

FilePath = Annotated[str, Query(max_length=4096, pattern=NO_NUL, description="relative to the run directory")]
Attempt = Annotated[
    int | None, Query(ge=1, le=1_000_000, description="of this attempt's run directory alone; default: the newest, and "
                      "the outputs that were kept")
]  # fmt: skip


@router.get(
    "/{ref}/files",
    summary="List a job's files",
    responses={**shows(models.FileList), **fails(404, 409, 422, 503)},
)
async def files(
    context: Ctx,
    who: Asker,
    ref: Ref,
    tenant: TenantQuery = None,
    path: FilePath = "",
    attempt: Attempt = None,
    recursive: Annotated[bool, Query(description="what lies in its directories as well")] = False,
    after: Annotated[
        str | None, Query(max_length=4096, pattern=NO_NUL, description="continue behind this path")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """By path. Links are listed, and followed neither here nor anywhere."""
    job = await context.find_own_job(who, ref, tenant=tenant)
    found, following = await context.plane.files(
        job.id, path, attempt=attempt, recursive=recursive, after=after, limit=limit
    )
    return answer({"files": [asdict(one) for one in found], "next": following})


@router.get(
    "/{ref}/file",
    summary="Read a job's file",
    response_class=Response,
    responses={
        200: {
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            "headers": {
                SIZE: {"schema": {"type": "integer"}, "description": "of the whole file, in bytes"},
                VERSION: {"schema": {"type": "string"}, "description": "another once the file has changed"},
                SHA256: {"schema": {"type": "string"}, "description": "of these bytes; only with `limit`"},
            },
        },
        **fails(404, 409, 422, 503),
    },
)
async def file(
    context: Ctx,
    who: Who,
    ref: Ref,
    path: FilePath,
    tenant: TenantQuery = None,
    attempt: Attempt = None,
    offset: Annotated[int, Query(ge=0, le=2**62)] = 0,
    limit: Annotated[int | None, Query(ge=1, le=16 << 20, description="the most bytes to send; default: all")] = None,
    version: Annotated[
        str | None, Query(max_length=100, pattern=NO_NUL, description="refuse with 409 a file that is another by now")
    ] = None,
) -> Response:
    """Its bytes from `offset`."""
    job = await context.find_own_job(who, ref, tenant=tenant)
    piece = await context.plane.file(
        job.id, path, attempt=attempt, offset=offset, limit=limit or _PIECE, version=version
    )
    headers = {SIZE: str(piece.size_bytes), VERSION: piece.version, "X-Content-Type-Options": "nosniff"}
    if limit is not None:
        return Response(piece.data, 200, {**headers, SHA256: piece.sha256}, "application/octet-stream")
    headers["Content-Length"] = str(max(0, piece.size_bytes - offset))
    stream = _rest(context, job.id, path, attempt, offset, piece)
    counted = CountedStream(stream, media_type="application/octet-stream", headers=headers)
    return counted.counted(context.usage, who.token_id)


async def _rest(
    context: Context, job_id: str, path: str, attempt: int | None, offset: int, piece: FilePiece
) -> AsyncIterator[bytes]:
    """As many bytes as were promised; a file that changes meanwhile breaks the answer off."""
    left = piece.size_bytes - offset
    while left > 0:
        data = piece.data[:left]
        if not data:
            return
        yield data
        left, offset = left - len(data), offset + len(data)
        if left > 0:
            piece = await context.plane.file(
                job_id, path, attempt=attempt, offset=offset, limit=_PIECE, version=piece.version
            )
