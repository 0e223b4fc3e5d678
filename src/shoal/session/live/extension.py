"""Sessions as an extension of the server: wraps jobs that run at a terminal, and lets their tenants' people in."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from shoal.base.http.tunnel import Tunnel
from shoal.base.loops import BackgroundLoop, RunningLoop
from shoal.contract.events import EventKind, EventKinds
from shoal.contract.gangs import RUN, gang_name, parse_gang_name
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.pages import Page
from shoal.contract.principal import Principal
from shoal.contract.records import Event, JobRecord, NewEvent
from shoal.core import Capability, Conflict, DeviceUse, Invalid, NotFound, Overloaded, Unavailable
from shoal.engine import Beside, Enterable, Gang
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.session.frames import plain
from shoal.session.live.asking import socket_name
from shoal.session.live.commands import MAIN, agent_words, sshd_words
from shoal.session.live.events import SessionEvent
from shoal.session.live.listing import page_of, view_of
from shoal.session.live.needs import Entrance
from shoal.session.live.settings import SessionJob, SessionSection
from shoal.session.live.watching import Watching

if TYPE_CHECKING:
    from fastapi import APIRouter

    from shoal.session.models import ExecRequest, OpenSession

_LOOK_S = 0.5
_READY_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.05


class Sessions(Extension, Entrance):
    """What the routes ask for."""

    name: ClassVar[str] = "session"
    settings: ClassVar[type[Section]] = SessionSection
    manifest: ClassVar[type[BaseModel] | None] = SessionJob
    events: ClassVar[type[EventKinds] | None] = SessionEvent
    paths: ClassVar[Sequence[str]] = ("/v1/sessions",)
    in_planes: ClassVar[bool] = True

    def __init__(self, server: Server, settings: SessionSection) -> None:
        self._server = server
        self._settings = settings
        self._moved = asyncio.Event()
        self._open: Counter[str] = Counter()
        self._by_token: dict[str, set[Tunnel]] = {}
        self._closed = False
        self._watching = Watching(server, self._enterable, settings.idle)

    async def close(self) -> None:
        """A plane that is suspended or deleted shows out who is in its jobs; sessions go on, as their jobs do."""
        self._closed = True
        for tunnels in list(self._by_token.values()):
            for tunnel in tuple(tunnels):
                tunnel.abort()

    def loops(self) -> Sequence[BackgroundLoop]:
        return (RunningLoop("looks", self._watching.run),) if self.capability().available else ()

    def capabilities(self) -> Sequence[Capability]:
        found = self.capability()
        if not found.available:
            return (found,)
        missing = self._watching.devices.missing
        use = Capability("device use in sessions", True, "work on a device keeps a session open")
        if missing is not None:
            cost = "a session in which nothing is typed or written is idle, also while its job computes"
            use = Capability(use.name, False, missing, cost)
        return (found, use)

    def capability(self) -> Capability:
        engine = self._server.engine
        if isinstance(engine, Enterable):
            return Capability("sessions", True, "terminals, commands and ports of running jobs")
        detail, cost = f"the engine {engine.name} cannot enter running jobs", "no `run --pty`, `exec` or `forward`"
        return Capability("sessions", False, detail, cost)

    def routers(self) -> Sequence[APIRouter]:
        from shoal.session.live.api import router_of

        return (router_of(),)

    # --- the job's own command ---

    def accept(self, manifest: JobManifest) -> None:  # noqa: ARG002
        """It would run without a terminal, and nobody would see it."""
        found = self.capability()
        if not found.available:
            hint = "without --pty, `shoal run` follows the job's log"
            raise Invalid(found.detail, where="extensions.session", hint=hint)

    def _at_terminal(self, job: LiveJob, gang: Gang) -> SessionJob | None:
        section = section_of(job)
        named = parse_gang_name(gang.name)
        if section is None or named is None or named.phase != RUN or not self.capability().available:
            return None
        return section

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        section = self._at_terminal(job, gang)
        return gang if section is None else replace(gang, env={"TERM": section.term, **gang.env})

    def attend(self, job: LiveJob, gang: Gang) -> Sequence[str]:
        section = self._at_terminal(job, gang)
        if section is None:
            return ()
        return agent_words(
            MAIN, self._settings, main=True, rows=section.rows, columns=section.columns, idle=section.idle,
            time=section.time,
        )  # fmt: skip

    def moved(self, job: LiveJob) -> None:
        if job.job.state.terminal:
            self._watching.book.over(job.job.id)
        self._moved.set()
        self._moved = asyncio.Event()

    def answers(self) -> Mapping[type, object]:
        return {DeviceUse: self._watching}

    def committed(self, events: Iterable[Event]) -> None:
        """Whose token is revoked is shown out."""
        found = tuple(events)
        self._watching.book.read(found)
        for event in found:
            if event.kind == EventKind.TOKEN_REVOKED:
                for tunnel in tuple(self._by_token.get(str(event.data.get("token_id")), ())):
                    tunnel.abort()

    # --- who is there ---

    async def opened(
        self, tenant: str | None, job: str | None, may: Callable[[JobRecord], Awaitable[bool]]
    ) -> Sequence[OpenSession]:
        await self._watching.load()
        book, found = self._watching.book, []
        for one in book:
            live = self._server.job(one.job)
            if live is None or job not in (None, one.job) or tenant not in (None, live.job.tenant):
                continue
            if await may(live.job):
                found.append(one)
        await self._watching.look(found)
        now, still = self._server.clock.now(), [book.get(one.key) for one in found]
        views = [view_of(one, self._name_of(one.job), now) for one in still if one is not None]
        return sorted(views, key=lambda one: one.since)

    async def end(self, who: Principal, job_id: str, session: str, rank: int) -> None:
        """Raises NotFound where it is not open, Conflict for a job's own, and Unavailable where it does not listen."""
        self._engine()
        live = self._job(who, job_id)
        if session == MAIN:
            hint = f"`shoal cancel {job_id}`"
            raise Conflict("this terminal is the job's own, and ends with the job", where=session, hint=hint)
        await self._watching.load()
        one = self._watching.book.get((job_id, rank, session))
        if one is None:
            raise NotFound(f"job {job_id} has no open session {session}", where=session, hint="see `shoal sessions`")
        if await self._watching.ask(one, end=f"it was ended by {plain(who.actor.encode())}") is None:
            if self._watching.book.get(one.key) is None:
                raise NotFound(f"session {session} is over", where=session)
            hint = f"`shoal cancel {job_id}` ends it with its job"
            raise Unavailable(f"session {session} does not answer", where=session, hint=hint)
        await self._record(SessionEvent.ENDED, who, live, session=session, rank=rank)

    def _name_of(self, job_id: str) -> str:
        live = self._server.job(job_id)
        return job_id if live is None else live.job.name

    def page(self, tenant: str | None) -> Page | None:
        book = self._watching.book
        names = {one.job: self._name_of(one.job) for one in book}
        return page_of(book, names, tenant, self._server.clock.now())

    # --- being let in ---

    def _enterable(self) -> Enterable | None:
        engine = self._server.engine
        return engine if isinstance(engine, Enterable) else None

    def _engine(self) -> Enterable:
        engine = self._server.engine
        if not isinstance(engine, Enterable):
            raise Unavailable(self.capability().detail, hint="`shoal status` shows what the server can do")
        return engine

    def job(self, who: Principal, job_id: str) -> JobRecord:
        return self._job(who, job_id).job

    def _job(self, who: Principal, job_id: str) -> LiveJob:
        """Another tenant's job does not exist. Raises NotFound."""
        live = self._server.job(job_id)
        if live is None or not who.may_see(live.job.tenant):
            raise NotFound(f"there is no unfinished job {job_id}", where=job_id, hint="see `shoal jobs`")
        return live

    async def running(self, who: Principal, job_id: str, rank: int, wait_s: float) -> tuple[LiveJob, str]:
        """The job and its gang, once it runs. Raises NotFound where it is over, and Conflict where it still waits."""
        ends_at = self._server.clock.monotonic() + wait_s
        while True:
            live, moved = self._job(who, job_id), self._moved
            if not 0 <= rank < max(1, live.job.size or live.job.ranks):
                raise NotFound(f"job {job_id} has no rank {rank}", where="rank")
            if live.job.state is JobState.RUNNING and live.attempt is not None:
                return live, gang_name(live.job.id, live.attempt.number, RUN)
            left = ends_at - self._server.clock.monotonic()
            if left <= 0:
                raise Conflict(
                    f"job {job_id} is {live.job.state}, and does not run yet", where=job_id,
                    hint=f"`shoal explain {job_id}` says why",
                )  # fmt: skip
            try:
                async with asyncio.timeout(min(left, _LOOK_S)):
                    await moved.wait()
            except TimeoutError:
                continue

    async def attach(
        self, who: Principal, job_id: str, session: str, rank: int, wait_s: float, kind: type[Tunnel]
    ) -> Tunnel:  # fmt: skip
        """Raises NotFound where there is no such session, and as `running`."""
        engine = self._engine()
        live, gang = await self.running(who, job_id, rank, wait_s)
        if session == MAIN and section_of(live) is None:
            raise NotFound(
                f"job {job_id} has no terminal", where=job_id,
                hint=f"`shoal exec --pty {job_id} -- bash` opens one; `shoal run --pty` starts jobs with one",
            )  # fmt: skip
        ends_at = self._server.clock.monotonic() + (_READY_S if wait_s else 0.0)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                made = await engine.reach_socket(gang, rank, socket_name(session))
                break
            except (NotFound, Unavailable) as error:
                if session != MAIN and (why := await engine.why_not_beside(gang, rank, session)):
                    raise Conflict(f"the command could not be started: {why}", where=job_id) from None
                self._job(who, job_id)
                if self._server.clock.monotonic() > ends_at:
                    if isinstance(error, Unavailable):
                        raise
                    hint = "it may have ended"
                    raise NotFound(f"job {job_id} has no session {session}", where=session, hint=hint) from None
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
        try:
            await self._record(SessionEvent.ATTACHED, who, live, session=session, rank=rank)
            made.send(self._watching.introduction)
        except BaseException as error:
            made.close()
            if isinstance(error, OSError):
                raise Unavailable(f"the connection broke: {error.strerror}", where=session) from None
            raise
        return await self._tunnel(who, live, made, kind)

    async def execute(self, who: Principal, job_id: str, asked: ExecRequest) -> str:
        """Start an agent beside the rank; the name of its session. It begins when its client is there."""
        engine = self._engine()
        live, gang = await self.running(who, job_id, asked.rank, 0.0)
        session = f"x{secrets.token_hex(8)}"
        words = agent_words(session, self._settings, terminal=asked.terminal)
        if asked.ssh_key is not None:
            words = (*words, *sshd_words(asked.ssh_key))
        program = Path(asked.command[0]).name if asked.command else "sshd"
        await self._record(SessionEvent.EXEC, who, live, session=session, rank=asked.rank, program=program[:64])
        await engine.start_beside(gang, asked.rank, Beside(session, words, tuple(asked.command), asked.env))
        return session

    async def _record(self, kind: SessionEvent, who: Principal, live: LiveJob, **data: object) -> None:
        job = live.job
        event = NewEvent(self._server.clock.now(), kind, who.actor, tenant=job.tenant, job_id=job.id, data=data)
        await self._server.store.record([event])

    async def forward(self, who: Principal, job_id: str, port: int, rank: int) -> Tunnel:
        engine = self._engine()
        live, gang = await self.running(who, job_id, rank, 0.0)
        return await self._tunnel(who, live, await engine.reach_port(gang, rank, port), Tunnel)

    async def _tunnel(self, who: Principal, live: LiveJob, made: socket, kind: type[Tunnel]) -> Tunnel:
        counted = live.job.tenant if self._server.plane is None else ""  # a plane makes as many tenants as it likes
        if (count := self._open[counted]) >= self._settings.open:
            made.close()
            whose = f"tenant {counted} has" if counted else "all tenants together have"
            raise Overloaded(f"{whose} {count} connections to jobs", hint="close some of them")
        self._open[counted] += 1
        tunnels = self._by_token.setdefault(who.token_id, set())
        tunnel = kind(lambda: self._ended(who.token_id, counted, tunnel))
        tunnels.add(tunnel)
        try:
            await tunnel.connect(made)
        except OSError as error:
            self._ended(who.token_id, counted, tunnel)
            made.close()
            raise Unavailable(f"the connection broke: {error.strerror}") from None
        if self._closed:
            tunnel.abort()
            raise Unavailable("the server that was asked is closing", hint="try again")
        return tunnel

    def _ended(self, token_id: str, counted: str, tunnel: Tunnel) -> None:
        known = self._by_token.get(token_id, set())
        if tunnel in known:
            known.remove(tunnel)
            self._open[counted] -= 1
        if not known:
            self._by_token.pop(token_id, None)


def section_of(live: LiveJob) -> SessionJob | None:
    """The job's section of its manifest, which was checked when it came."""
    if '"session"' not in live.job.manifest:
        return None  # most jobs: their manifests are not read for this
    given = live.manifest.extensions.get("session")
    return None if given is None else SessionJob.model_validate(given)
