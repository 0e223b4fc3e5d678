"""The context of every router: the plane, the caller, and how to find the job that is meant."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, ParamSpec, TypeVar

from fastapi import Depends, Request

from shoal.base.http.asgi import LOCAL_USER
from shoal.contract.manifest import MAX_BYTES
from shoal.contract.principal import Callers, Principal, User, submitter
from shoal.contract.records import Event, JobRecord
from shoal.control.api.feed import Feed
from shoal.control.api.prometheus import Metrics
from shoal.control.api.told import Told
from shoal.control.api.usage import Usage
from shoal.control.plane import ControlPlane
from shoal.control.tokens import TokenCache
from shoal.core import Conflict, Forbidden, NotFound, Unavailable
from shoal.extension.web import QUICK_PARSE_BYTES, Credentials

P = ParamSpec("P")
T = TypeVar("T")

MIN_PREFIX = 4
"""Shortest part of a job's id that is taken for one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`body_bytes` bounds JSON and manifests; `wait_s` long polls; `heartbeat_s` is the silence of an event stream."""

    body_bytes: int = MAX_BYTES
    wait_s: float = 60.0
    heartbeat_s: float = 15.0
    log_poll_s: float = 0.2


@dataclass(slots=True)
class Context:
    plane: ControlPlane
    feed: Feed
    tokens: TokenCache
    metrics: Metrics = field(default_factory=Metrics)
    limits: Limits = field(default_factory=Limits)
    usage: Usage = field(default_factory=Usage)
    told: Told = field(default_factory=Told)

    async def principal(self, request: Request) -> Principal:
        """The caller, unless its token is over its rate limit, or a viewer's and this changes something. Raises
        Unauthenticated, RateLimited and Forbidden."""
        who = await self._sender(request)
        self.usage.request(who.token_id)
        who.require_method(request.method)
        return who

    async def _sender(self, request: Request) -> Principal:
        """By its token; without one by another proof, or as the user of this machine who connected."""
        authorization, answers = request.headers.get("authorization"), self.plane.extensions.answers
        callers = answers.to(Callers)
        who = self._proved(request) if authorization is None else self.tokens.principal(authorization)
        if who is None:
            uid = request.scope.get(LOCAL_USER)
            if uid is not None and callers:
                return await callers[0].local(uid)
            who = self.tokens.principal(None)
        for one in callers:
            who = await one.holder(who)
        return who

    def _proved(self, request: Request) -> Principal | None:
        for one in self.plane.extensions.answers.to(Credentials):
            if (who := one.principal(request)) is not None:
                return who
        return None

    def follow(self) -> Callable[[], None]:
        """Keep the feed, the metrics and the known tokens up with what is committed; the result ends that."""
        self.reload_tokens()
        return self.plane.store.subscribe(self._committed)

    def reload_tokens(self) -> None:
        self.tokens.replace(self.plane.store.tokens())

    def _committed(self, events: Iterable[Event]) -> None:
        events = tuple(events)
        self.feed.committed(events)
        self.metrics.events(events)
        if any(event.kind.startswith("token.") for event in events):
            self.reload_tokens()

    async def read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A read that may take long, off the event loop."""
        return await asyncio.to_thread(function, *args, **kwargs)

    async def find_job(self, who: Principal, ref: str, *, tenant: str | None = None) -> JobRecord:
        """The job by id, by name (the newest of that name) or by a unique beginning of its id.

        Another tenant's job does not exist. Raises NotFound, or Conflict when several ids begin so.
        """
        return (await self._find_jobs(who, ref, tenant))[0]

    async def find_job_to_change(self, who: Principal, ref: str, *, tenant: str | None = None) -> JobRecord:
        """As `find_own_job`, but a name must not mean several unfinished jobs. Raises Conflict otherwise."""
        found = await self._own(who, await self._find_jobs(who, ref, tenant))
        unfinished = [job for job in found if not job.state.terminal]
        if len(unfinished) > 1:
            raise _ambiguous(ref, unfinished, "give the id")
        return (unfinished or found)[0]

    async def find_own_job(self, who: Principal, ref: str, *, tenant: str | None = None) -> JobRecord:
        """As `find_job`, for what is not for all of the tenant to see. Raises Forbidden for another user's."""
        return (await self._own(who, await self._find_jobs(who, ref, tenant)))[0]

    async def require_own(self, who: Principal, job: JobRecord) -> None:
        """Raises Forbidden where another user of its tenant submitted it, and the caller has only his own."""
        await self._own(who, [job])

    async def may_open(self, who: Principal, job: JobRecord) -> bool:
        """Whether the caller may read all of the job."""
        return not who.own_only or who.may_open(await self.submitter(job.id))

    async def _own(self, who: Principal, jobs: list[JobRecord]) -> list[JobRecord]:
        """Those that the caller may open and change; never empty."""
        if not who.own_only:
            return jobs
        by = [await self.submitter(job.id) for job in jobs]
        if own := [job for job, user in zip(jobs, by, strict=True) if who.may_open(user)]:
            return own
        raise Forbidden(
            f"job {jobs[0].id} is of the user {by[0].name if by[0] else ''}", where=jobs[0].id,
            hint="ask that user; who leads the tenant may do this too",
        )  # fmt: skip

    async def submitter(self, job_id: str) -> User | None:
        return submitter(await self.read(self.plane.store.events, job_id=job_id, limit=1))

    async def _find_jobs(self, who: Principal, ref: str, tenant: str | None) -> list[JobRecord]:
        """One job by its id or a beginning of it, or all of that name, newest first; never empty."""
        if not ref.isprintable():
            # PostgreSQL would not even take a NUL as a question.
            raise NotFound(f"there is no job {ref!r}", where=ref, hint="see `shoal jobs`")
        with contextlib.suppress(NotFound):
            job = self.plane.job(ref)
            if who.may_see(job.tenant):
                return [job]
        found = await self.read(self.plane.store.find_jobs, ref, who.tenant or tenant)
        named = [job for job in found if job.name == ref]
        begun = [job for job in found if job.name != ref] if len(ref) >= MIN_PREFIX else []
        if not named and len(begun) > 1:
            raise _ambiguous(ref, begun, "give more of the id")
        if not named and not begun:
            raise NotFound(f"there is no job {ref!r}", where=ref, hint="see `shoal jobs`")
        return [self.plane.job(job.id) for job in named or begun]


def _ambiguous(ref: str, jobs: list[JobRecord], hint: str) -> Conflict:
    some = ", ".join(job.id for job in jobs[:5])
    return Conflict(f"{ref!r} means {len(jobs)} jobs: {some}", where=ref, hint=hint)


async def get_context(request: Request) -> Context:
    context = request.app.state.context
    assert isinstance(context, Context)
    if not context.plane.ready:
        raise Unavailable("the server is starting or leaving", hint="ask again in a second")
    return context


async def find_principal(request: Request) -> Principal:
    """For `shoal.extension.web`."""
    return await (await get_context(request)).principal(request)


async def require_own(request: Request, principal: Principal, job: JobRecord) -> None:
    """For `shoal.extension.web`."""
    await request.app.state.context.require_own(principal, job)


def count_question(request: Request, principal: Principal) -> None:
    """For `shoal.extension.web`. The check of a small manifest costs no more than its submission, so it is a request as
    any other."""
    if (
        request.method == "POST"
        and int(request.headers.get("content-length", QUICK_PARSE_BYTES + 1)) <= QUICK_PARSE_BYTES
    ):
        return
    request.app.state.context.usage.question(principal.token_id)


Ctx = Annotated[Context, Depends(get_context)]
