"""The event log: as lists, by long poll, and as server-sent events that resume where they broke off."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import orjson
from fastapi import Response

from shoal.contract.principal import Principal
from shoal.contract.records import Event
from shoal.control.api.context import Context, Ctx
from shoal.control.api.errors import Gone
from shoal.control.api.feed import Watch
from shoal.control.api.jobs import Ref
from shoal.control.api.responses import event_view
from shoal.control.api.usage import CountedStream, Usage
from shoal.extension.routing import Router
from shoal.extension.web import (
    EVENTS_ANSWERED,
    NEWEST,
    PAGE,
    AskedEvents,
    EventQuery,
    TenantQuery,
    Who,
    answer,
    filter_of,
)

router = Router(prefix="/v1", tags=["events"])


@router.get("/events", summary="All events that the token may see", responses=EVENTS_ANSWERED)
async def events(
    context: Ctx,
    who: Who,
    asked: AskedEvents,
    tenant: TenantQuery = None,
) -> Response:
    """`follow` without a position streams from now on; a list without one begins at the first event.

    With `wait_s`, an empty list is answered only when that time is over.
    """
    log = Log(context, filter_of(who, tenant))
    return await answer_log(log, who, asked)


@router.get("/jobs/{ref}/events", summary="The events of one job", responses=EVENTS_ANSWERED)
async def job_events(
    context: Ctx,
    who: Who,
    ref: Ref,
    asked: AskedEvents,
    tenant: TenantQuery = None,
) -> Response:
    """From the first event; a stream ends with the job's last event."""
    job = await context.find_job(who, ref, tenant=tenant)
    log = Log(context, job.tenant, job_id=job.id, over=lambda: context.plane.job(job.id).state.terminal)
    return await answer_log(log, who, replace(asked, after=asked.after or 0))


class Log:
    """The part of the event log that one request reads."""

    def __init__(
        self, context: Context, tenant: str | None, *, job_id: str | None = None, owner_id: str | None = None,
        over: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """`over` says whether nothing more can come."""
        self._context = context
        self._tenant = tenant
        self._job_id = job_id
        self._owner_id = owner_id
        self._over = over

    @property
    def usage(self) -> Usage:
        return self._context.usage

    async def end(self) -> int:
        return await self._context.read(self._context.plane.store.last_seq)

    async def check(self, after: int) -> None:
        """Raises Gone for a reader that might miss events if it went on where it stopped. An existing job has all its
        events. A reader that asks from the first event gets the oldest one that is left."""
        removed = await self._context.read(self._context.plane.store.removed_seq)
        if self._job_id is None and 0 < after < removed:
            raise Gone(
                f"some events after {after} were removed, up to {removed}", where="after",
                hint=f"ask for those after 0 for all that are left, or after {removed} for those that surely are",
            )  # fmt: skip

    async def page(self, after: int, limit: int) -> Sequence[Event]:
        read = self._context.plane.store.events
        return await self._context.read(
            read, after, tenant=self._tenant, job_id=self._job_id, owner_id=self._owner_id, limit=limit
        )

    def _watch(self) -> AbstractContextManager[Watch]:
        return self._context.feed.watch(tenant=self._tenant, job_id=self._job_id, owner_id=self._owner_id)

    async def poll(self, after: int, limit: int, wait_s: float) -> Sequence[Event]:
        with self._watch() as watch:
            return await watch.until(lambda: self.page(after, limit), bool, min(wait_s, self._context.limits.wait_s))

    async def stream(self, after: int) -> AsyncIterator[bytes]:
        """Server-sent events; a comment at each silence keeps proxies and clients from giving up."""
        metrics, heartbeat_s = self._context.metrics, self._context.limits.heartbeat_s
        metrics.stream_opened()
        try:
            yield b"retry: 500\n: from %d\n\n" % after
            with self._watch() as watch:
                while not watch.closed:
                    watch.clear()
                    page = await self.page(after, PAGE)
                    if page:
                        yield b"".join(_sent(event) for event in page)
                        after = page[-1].seq
                        continue
                    if self._over():
                        return
                    if not await watch.wait(heartbeat_s):
                        yield b": still here\n\n"
        finally:
            metrics.stream_closed()


def _sent(event: Event) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), orjson.dumps(event_view(event)))


async def answer_log(log: Log, who: Principal, asked: EventQuery) -> Response:
    after = asked.after
    if asked.follow:
        if asked.last_event_id is not None and asked.last_event_id.isdecimal():
            after = min(int(asked.last_event_id[:20]), NEWEST)
        if after is None:
            after = await log.end()
        await log.check(after)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        stream = CountedStream(log.stream(after), media_type="text/event-stream", headers=headers)
        return stream.counted(log.usage, who.token_id)
    if asked.limit == 0:
        return answer({"events": [], "next": await log.end()})
    position = after or 0
    await log.check(position)
    with log.usage.waiting(who.token_id) if asked.wait_s > 0 else contextlib.nullcontext():
        page = await log.poll(position, asked.limit, asked.wait_s)
    return answer({"events": [event_view(event) for event in page], "next": page[-1].seq if page else position})


class ServerApi:
    """See `shoal.extension.web.Api`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def until(self, done: Callable[[], bool], wait_s: float, who: Principal, *, owner_id: str) -> None:
        async def look() -> bool:
            return done()

        with self._context.usage.waiting(who.token_id), self._context.feed.watch(owner_id=owner_id) as watch:
            await watch.until(look, bool, min(wait_s, self._context.limits.wait_s))

    async def events(
        self, asked: EventQuery, who: Principal, *, tenant: str, owner_id: str, over: Callable[[], bool]
    ) -> Response:
        log = Log(self._context, tenant, owner_id=owner_id, over=over)
        return await answer_log(log, who, replace(asked, after=asked.after or 0))

    async def leaving(self) -> None:
        with self._context.feed.watch(owner_id="") as watch:
            while not watch.closed:
                watch.clear()
                await watch.wait(self._context.limits.wait_s)
