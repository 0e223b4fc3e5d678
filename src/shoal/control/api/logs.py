"""Logs: a piece by offset, the next piece by long poll, or all of it as a stream that follows the job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Query, Response

from shoal.contract.lifecycle import JobState
from shoal.control.api.context import Context, Ctx
from shoal.control.api.jobs import Ref
from shoal.control.api.log_times import offset_since, stamp
from shoal.control.api.usage import CountedStream
from shoal.core import NotFound
from shoal.engine import LogChunk
from shoal.extension.describe import fails
from shoal.extension.routing import Router
from shoal.extension.web import TenantQuery, Wait, Who

router = Router(prefix="/v1/jobs", tags=["logs"])

ATTEMPT, OFFSET, NEXT, ENDED = "X-Shoal-Attempt", "X-Shoal-Offset", "X-Shoal-Next-Offset", "X-Shoal-Ended"
_PIECE = 256 * 1024
_TAIL_BYTES, _TAIL_MOST_BYTES = 64 * 1024, 4 << 20
"""The first and the greatest number of bytes at the end of a log that are searched for its last lines; each search
takes eight times as many as the one before."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of one attempt's log. `ended`: this attempt will write no more; `last`: nor will any other."""

    attempt: int
    chunk: LogChunk
    last: bool


@router.get(
    "/{ref}/logs",
    summary="Read a rank's log",
    response_class=Response,
    responses={
        200: {
            "content": {"text/plain": {"schema": {"type": "string"}}},
            "headers": {
                ATTEMPT: {"schema": {"type": "integer"}, "description": "whose log this is; 0: none has begun"},
                OFFSET: {"schema": {"type": "integer"}, "description": "where in the log this begins"},
                NEXT: {"schema": {"type": "integer"}, "description": "the offset to ask from next"},
                ENDED: {
                    "schema": {"type": "string", "enum": ["no", "attempt", "job"]},
                    "description": "what will write no more",
                },
            },
        },
        **fails(404, 409, 422, 503),
    },
)
async def logs(
    context: Ctx,
    who: Who,
    ref: Ref,
    tenant: TenantQuery = None,
    rank: Annotated[int, Query(ge=0, le=100_000)] = 0,
    attempt: Annotated[int | None, Query(ge=1, le=1_000_000, description="default: the current one")] = None,
    offset: Annotated[int, Query(ge=0, le=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=4 << 20)] = 65536,
    tail: Annotated[
        int | None,
        Query(
            ge=0, le=100_000, description="begin with this number of last lines, at most 4 MiB, instead of at `offset`"
        ),
    ] = None,
    since: Annotated[
        float | None,
        Query(ge=0, le=1e11, description="begin no earlier than with the first line that ended after this Unix time"),
    ] = None,
    timestamps: Annotated[
        bool, Query(description="each line behind the time when it began, to a second; offsets do not count the times")
    ] = False,
    wait_s: Wait = 0.0,
    follow: Annotated[bool, Query(description="stream from here to the job's end, later attempts included")] = False,
) -> Response:
    """Bytes as the rank wrote them. With `wait_s`, waits so long for something to read."""
    job = await context.find_own_job(who, ref, tenant=tenant)
    if rank >= job.ranks:
        raise NotFound(f"job {job.id} has no rank {rank}", where="rank", hint=f"ranks are 0 to {job.ranks - 1}")
    log = _Log(context, job.id, rank, timestamps=timestamps)
    if tail is not None:
        offset = await log.last_lines(attempt, tail)
    if since is not None:
        offset = max(offset, await log.first_line(attempt, since))
    if follow:
        first = await log.piece(attempt, offset, 1)
        stream = log.stream(attempt or first.attempt or None, offset, one=attempt is not None)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        counted = CountedStream(stream, media_type="text/plain; charset=utf-8", headers=headers)
        return counted.counted(context.usage, who.token_id)
    with context.usage.waiting(who.token_id) if wait_s > 0 else contextlib.nullcontext():
        piece = await log.wait(attempt, offset, limit, min(wait_s, context.limits.wait_s))
    headers = {
        ATTEMPT: str(piece.attempt),
        OFFSET: str(piece.chunk.offset),
        NEXT: str(piece.chunk.next_offset),
        ENDED: "job" if piece.last else "attempt" if piece.chunk.ended else "no",
    }
    return Response(piece.chunk.data, 200, headers, "text/plain; charset=utf-8")


class _Log:
    def __init__(self, context: Context, job_id: str, rank: int, *, timestamps: bool = False) -> None:
        self._context = context
        self._job_id = job_id
        self._rank = rank
        self._timestamps = timestamps

    async def piece(self, attempt: int | None, offset: int, limit: int) -> Piece:
        plane = self._context.plane
        job = plane.job(self._job_id)
        number = attempt or job.attempt
        over = job.state.terminal or job.state is JobState.SUSPENDED
        if number == 0 or number == job.attempt + 1:
            # An attempt that may still come.
            return Piece(number, LogChunk(b"", offset, offset, ended=over), last=over)
        chunk = await plane.logs(self._job_id, rank=self._rank, attempt=number, offset=offset, limit=limit)
        ended = chunk.ended or (over and number == job.attempt and not chunk.data)
        return Piece(number, replace(chunk, ended=ended), last=ended and over and number == job.attempt)

    async def last_lines(self, attempt: int | None, lines: int) -> int:
        """The offset at which the last `lines` lines begin."""
        size = _TAIL_BYTES
        while True:
            begin, data = await self._span(attempt, -size, size)
            at = len(data) - data.endswith(b"\n") if lines else len(data)
            for _ in range(lines):
                at = data.rfind(b"\n", 0, at)
                if at < 0:
                    break
            if at >= 0 or len(data) < size or size >= _TAIL_MOST_BYTES:
                return begin + (at + 1 if lines else at)
            size *= 8

    async def first_line(self, attempt: int | None, since: float) -> int:
        """The offset of the first line that ended after that time, or of one shortly before."""
        times = await self._context.plane.log_times(self._job_id, rank=self._rank, attempt=attempt)
        offset = offset_since(times, since)
        size = min(offset, _TAIL_BYTES)
        begin, data = await self._span(attempt, offset - size, size)
        return begin + data.rfind(b"\n", 0, max(0, offset - begin)) + 1

    async def _span(self, attempt: int | None, begin: int, size: int) -> tuple[int, bytes]:
        """At most `size` bytes, and where they begin; no more than what follows a removed middle."""
        end, data = begin, b""
        while len(data) < size:
            chunk = await self._context.plane.logs(
                self._job_id, rank=self._rank, attempt=attempt, offset=end, limit=size - len(data)
            )
            if chunk.offset != end:
                begin, data = chunk.offset, b""
            data, end = data + chunk.data, chunk.next_offset
            if not chunk.data:
                break
        return begin, data

    async def wait(self, attempt: int | None, offset: int, limit: int, wait_s: float) -> Piece:
        """The next piece, with the times of its lines where they are wanted."""
        if not self._timestamps:
            return await self._wait(attempt, offset, limit, wait_s)
        piece = await self._wait(attempt, offset, min(limit, _PIECE), wait_s)
        if not piece.chunk.data:
            return piece
        at, number = piece.chunk.offset, piece.attempt
        begin, before = await self._span(number, max(0, at - 1), 1)
        fresh = begin == at or before == b"\n"  # at the log's beginning, behind its removed middle, or behind a line
        times = await self._context.plane.log_times(self._job_id, rank=self._rank, attempt=number)
        data = await asyncio.to_thread(stamp, piece.chunk.data, at, times, fresh=fresh)
        return replace(piece, chunk=replace(piece.chunk, data=data))

    async def _wait(self, attempt: int | None, offset: int, limit: int, wait_s: float) -> Piece:
        with self._context.feed.watch(job_id=self._job_id) as watch:
            return await watch.until(
                lambda: self.piece(attempt, offset, limit),
                lambda piece: bool(piece.chunk.data) or piece.chunk.ended,
                wait_s,
                every_s=self._context.limits.log_poll_s,  # a log grows without an event
            )

    async def stream(self, attempt: int | None, offset: int, *, one: bool) -> AsyncIterator[bytes]:
        """All there is from here on; `one` stops at the end of the attempt."""
        while not self._context.feed.closed:
            piece = await self.wait(attempt, offset, _PIECE, self._context.limits.wait_s)
            if piece.chunk.data:
                yield piece.chunk.data
            offset = piece.chunk.next_offset
            if not piece.chunk.ended:
                attempt = piece.attempt or None
                continue
            if piece.last or one:
                return
            attempt, offset = piece.attempt + 1, 0
