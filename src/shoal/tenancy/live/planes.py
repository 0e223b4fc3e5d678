"""The planes of a server: made and removed, woken by the first request, put to sleep when they are idle."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import structlog

from shoal.admission import Policy
from shoal.base.loops import Turns
from shoal.contract.records import NewEvent
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.control.plane_settings import PlaneSettings
from shoal.control.server import put_admin_token
from shoal.control.tokens import TokenCache, Unauthenticated, new_token
from shoal.core import Conflict, Invalid, NotFound, Unavailable
from shoal.engine import Enterable
from shoal.extension import LiveJob, NoSection, Server
from shoal.store import Store, WriterThreads, open_store, read_tokens
from shoal.tenancy.live import copies
from shoal.tenancy.live.entered import EnteredEngine
from shoal.tenancy.live.entrance import Asleep, Entrance, PlaneLimits
from shoal.tenancy.live.homes import PlaneHomes
from shoal.tenancy.live.inside import Inside
from shoal.tenancy.live.news import News
from shoal.tenancy.live.repository import PlaneRepository
from shoal.tenancy.live.shared_engine import HandedOver, SharedEngine
from shoal.tenancy.live.taken_up import take_up
from shoal.tenancy.records import PlaneEvent, PlaneRecord, PlaneState
from shoal.tenancy.translate import cleared
from shoal.tenancy.usage import audited, usage_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from shoal.control.door import Door
    from shoal.tenancy.models import AuditList, UsageView

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("shoal.tenancy")

_LOOK_S = 1.0
_WRITERS = 6
"""Threads that write for all planes: each flushes one plane to the disk at a time. More of them were measured to take
more of the processor, and to be no faster."""

_STARTS = 32
"""The most gangs that a plane hands over in one decision: other planes have their turns in between."""
_WAKING = 16
"""The number of planes that are woken at once when the server starts: the disk serves them together."""
_NAMED = 5
"""The most jobs that are named where a plane is not deleted because of them."""
_SWEEP_S = 600.0
"""What is left over of deleted planes and could not be removed is tried again so often."""


@dataclass(slots=True)
class Awake:
    """A plane that runs in this server now, `opened` once it can answer. `requests` are those that it is answering;
    `used_at` is monotonic."""

    record: PlaneRecord
    store: Store
    engine: SharedEngine
    plane: ControlPlane
    door: Door
    used_at: float
    requests: int = 0
    opened: bool = False

    def idle(self, now: float, after_s: float) -> bool:
        quiet = not len(self.plane.cache) and not self.requests and now >= self.used_at + after_s
        return quiet and self.plane.extensions.idle()


class Planes:
    """A plane without work and without requests for a while sleeps: no task, no open file. `inline`: stores write in
    the caller's thread, which makes a simulation repeat exactly. `fault` is called with the name of each place at which
    a test kills the server."""

    def __init__(
        self, server: Server, limits: PlaneLimits, *, inline: bool = False,
        fault: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._server = server
        self._limits = limits
        self._fault = fault
        self._entrance = Entrance(limits, server.clock)
        self._homes = PlaneHomes(server.home / "planes", forget=self._forget)
        self._sweep_at = 0.0
        self._tokens: dict[str, TokenCache] = {}
        self._repository = PlaneRepository(server.store)
        self._inline = inline
        self._threads = None if inline else WriterThreads(_WRITERS)
        self._records: dict[str, PlaneRecord] = {}
        self._names: dict[str, str] = {}
        self._awake: dict[str, Awake] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._news = News[HandedOver](
            lambda handed: handed.engine.tell(handed), lambda handed: handed.engine.changes_above(handed)
        )
        self._loop = Turns(log, "waking a plane, or putting it to sleep, failed", server.on_fatal)

    async def open(self) -> None:
        """Planes that had work when the last server ended are woken, for they hand it over, or wait for its end."""
        for record in self._repository.planes():
            self._keep(record)
        busy = {record.id for record in self.all() if self.handed_over(record)}
        await self._beside(self._homes.settle, self.all(), busy)
        due = [record.name for record in self._records.values() if record.busy and record.state is PlaneState.ACTIVE]
        waking = asyncio.Semaphore(_WAKING)

        async def wake(name: str) -> None:
            async with waking:
                with self._loop.turn(plane=name):
                    await self._awaken(name)

        await asyncio.gather(*map(wake, due))

    async def close(self) -> None:
        for name in list(self._awake):
            await self._leave(name)
        self._news.close()
        if self._threads is not None:
            self._threads.close()

    # --- what there is ---

    def all(self) -> list[PlaneRecord]:
        return sorted(self._records.values(), key=lambda record: record.name)

    def find(self, name: str) -> PlaneRecord:
        """Raises NotFound."""
        record = self._records.get(name)
        if record is None:
            raise NotFound(f"there is no plane {name!r}", where=name, hint="see `shoal plane list`")
        return record

    def is_awake(self, name: str) -> bool:
        return name in self._awake

    def handed_over(self, record: PlaneRecord) -> list[LiveJob]:
        return list(self._server.owned(record.id))

    def owner(self, owner_id: str | None) -> PlaneRecord | None:
        """The plane with this id."""
        return self._records.get(self._names.get(owner_id or "", ""))

    def engine_of(self, name: str) -> SharedEngine | None:
        """If it is awake."""
        awake = self._awake.get(name)
        return awake.engine if awake is not None else None

    def awake(self) -> list[Awake]:
        return list(self._awake.values())

    def home(self, record: PlaneRecord) -> Path:
        return self._homes.find(record.id)

    # --- what is done to them ---

    async def create(
        self, name: str, tenant: str, *, actor: str, content: bytes | None = None
    ) -> tuple[PlaneRecord, str]:  # fmt: skip
        """The plane, and the token of an admin. `content` is a backup of a plane or of a server, which it is to go on
        from. Raises Conflict for a name that is taken, Invalid for a tenant that there is not or a damaged backup."""
        if name in self._records:
            raise Conflict(f"there is a plane {name!r} already", where="name", hint="choose another name")
        if tenant not in self._server.tenants():
            raise Invalid(
                f"there is no tenant {tenant!r}", where="tenant", hint=f"make it first: shoal tenant create {tenant}"
            )
        now = self._server.clock.now()
        record = PlaneRecord(self._server.new_id("p"), name, tenant, PlaneState.ACTIVE, True, now, now)
        token = new_token(None)
        home = self._homes.make(record.id)
        try:
            self._fault("made")
            if content is not None:
                await asyncio.to_thread(copies.restore, home, content)
            with contextlib.closing(self._open(f"sqlite:///{home / 'shoal.db'}")) as store:
                store.acquire(f"plane-{name}")
                await put_admin_token(store, token, f"made with plane {name}", now)
            self._fault("filled")
            await self._repository.add(record, self._told(PlaneEvent.CREATED, actor, record))
        except Exception:
            self._homes.drop(record.id)
            self._sweep_at = 0.0
            raise
        self._fault("recorded")
        self._homes.publish(record.id)
        self._keep(record)
        return record, token

    async def suspend(self, name: str, *, actor: str) -> PlaneRecord:
        """It answers no more and nothing new of it starts; what runs goes on."""
        return await self._set_state(name, PlaneState.SUSPENDED, PlaneEvent.SUSPENDED, actor)

    async def resume(self, name: str, *, actor: str) -> PlaneRecord:
        record = await self._set_state(name, PlaneState.ACTIVE, PlaneEvent.RESUMED, actor)
        if record.busy:
            await self._awaken(name)
        return record

    async def delete(self, name: str, *, actor: str, force: bool = False) -> None:
        """Raises Conflict while something that it handed over is not over, unless `force` ends that too."""
        record = self.find(name)
        left = self.handed_over(record)
        if left and not force:
            first = ", ".join(f"{live.job.name} ({live.job.state})" for live in left[:_NAMED])
            more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
            raise Conflict(
                f"plane {name} has {len(left)} jobs in the shared pool that are not over: {first}{more}", where=name,
                hint="end them first, or give --force, which ends them",
            )  # fmt: skip
        async with self._lock(name):
            await self._sleep(name)
            for live in left:
                await self._server.cancel(live.job.id, actor=actor, cause=f"plane {name} was deleted")
            self._homes.retire(record.id)
            self._fault("retired")
            try:
                await self._repository.remove(record, self._told(PlaneEvent.DELETED, actor, record))
            except Exception:
                self._homes.restore(record.id)
                raise
            self._fault("unrecorded")
            self._homes.drop(record.id)
            del self._records[name]
            self._names.pop(record.id, None)
            self._tokens.pop(name, None)
        self._sweep_at = 0.0

    async def new_token(self, name: str, *, actor: str) -> str:
        """The token of another admin of the plane; it may be asleep or suspended."""
        record, token, label = self.find(name), new_token(None), "made by the admin of the shared server"
        async with self._lock(name):
            now, awake = self._server.clock.now(), self._awake.get(name)
            store = awake.store if awake is not None else await self._control_store(record)
            try:
                await put_admin_token(store, token, label, now)
            finally:
                if awake is None:
                    store.close()
            self._tokens.pop(name, None)
            await self._repository.change(self.find(name), self._told(PlaneEvent.TOKEN_CREATED, actor, record))
        return token

    def usage(self, name: str, since: float) -> UsageView:
        """Blocks: to be called in a thread."""
        record = self.find(name)
        return usage_of(name, record.tenant, since, self._server.store.usage(record.id, since))

    async def audit(self, name: str, after: int, limit: int) -> AuditList:
        """What people did in it since that sequence number; it may be asleep or suspended."""
        from shoal.tenancy.models import AuditList

        record = self.find(name)
        async with self._lock(name):
            awake = self._awake.get(name)
            store = awake.store if awake is not None else self._open(self._homes.url(record.id))
            try:
                events = await asyncio.to_thread(store.events, after, limit=limit)
            finally:
                if awake is None:
                    store.close()
        there = events[-1].seq if len(events) == limit else None
        return AuditList(plane=name, entries=tuple(audited(events)), next=there)

    async def backup(self, name: str) -> bytes:
        """Its database and its key, as `shoal restore` takes them; it may be awake. Files of jobs are not in it."""
        return await asyncio.to_thread(copies.backup, self.home(self.find(name)))

    async def restore(self, name: str, content: bytes, *, actor: str) -> PlaneRecord:
        """Put a backup in the place of what the plane knows, which is moved aside. What it handed over since is ended,
        and what it handed over before is not run again. Raises Invalid for a damaged backup."""
        record = self.find(name)
        async with self._lock(name):
            await self._leave(name)
            await asyncio.to_thread(copies.restore, self.home(record), content)
            self._tokens.pop(name, None)
            changed = replace(self.find(name), updated_at=self._server.clock.now())
            await self._repository.change(changed, self._told(PlaneEvent.RESTORED, actor, record))
        if record.state is PlaneState.ACTIVE:
            await self._awaken(name)
        return self.find(name)

    @contextlib.asynccontextmanager
    async def answering(self, name: str, authorization: str | None, address: str) -> AsyncIterator[ASGIApp]:
        """What answers one request with this `Authorization`, of a client at this address: the plane's application.
        A request without a token that the plane knows wakes no plane and counts against none, but against its address.
        Raises as `using` does."""
        self._find_active(name)
        try:
            tokens = await self._tokens_of(name) if authorization else TokenCache()
            tokens.principal(authorization)
        except Unauthenticated as error:
            refusal = error
        else:
            async with self.using(name) as app:
                yield app
            return
        self._entrance.count_unknown(address)
        awake = self._awake.get(name)
        yield awake.door.app if awake is not None and awake.opened else Asleep(refusal)

    @contextlib.asynccontextmanager
    async def using(self, name: str) -> AsyncIterator[ASGIApp]:
        """The plane's application, for one request. Raises NotFound, Unavailable for one that is suspended, and
        Overloaded for one that is asked too much."""
        self._find_active(name)
        awake = self._awake.get(name)
        self._entrance.count(name, 0 if awake is None else awake.requests)
        async with self._entrance.turn(name):
            pass
        awake = self._awake.get(name)
        if awake is None or not awake.opened:
            async with self._explained(name):
                awake = await self._awaken(name)
        awake.requests += 1
        try:
            yield awake.door.app
        finally:
            awake.requests -= 1
            awake.used_at = self._server.clock.monotonic()

    # --- inside ---

    def _find_active(self, name: str) -> None:
        if self.find(name).state is not PlaneState.ACTIVE:
            raise Unavailable(
                f"plane {name} is suspended", where=name, hint="the admin of the shared server resumes it"
            )

    async def _tokens_of(self, name: str) -> TokenCache:
        """Those that count in a plane. One that sleeps need not wake for that."""
        awake = self._awake.get(name)
        if awake is not None and awake.opened:
            return awake.door.context.tokens
        if name not in self._tokens:
            async with self._lock(name), self._explained(name):
                if (awake := self._awake.get(name)) is not None:
                    return awake.door.context.tokens
                record = self.find(name)
                self._tokens[name] = await self._beside(lambda: TokenCache(read_tokens(self._homes.url(record.id))))
        return self._tokens[name]

    def _told(self, kind: PlaneEvent, actor: str, plane: PlaneRecord) -> NewEvent:
        now = self._server.clock.now()
        return NewEvent(now, kind, actor, f"plane {plane.name}", tenant=plane.tenant, data={"plane": plane.name})

    async def _beside(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What waits for the disk, beside the event loop."""
        return function(*args, **kwargs) if self._inline else await asyncio.to_thread(function, *args, **kwargs)

    def _keep(self, record: PlaneRecord) -> None:
        self._records[record.name] = record
        self._names[record.id] = record.name

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _open(self, url: str) -> Store:
        return open_store(
            url, clock=self._server.clock, inline=self._inline, sync=not self._inline, threads=self._threads,
            tables=[one.kind.tables for one in self._chosen() if one.here and one.kind.tables is not None],
        )  # fmt: skip

    def _chosen(self) -> list[Chosen]:
        """The extensions of the server, which planes have or not."""
        return [Chosen(kind, section, kind.in_planes) for kind, section in self._server.chosen()]

    def _forget(self, plane_id: str) -> None:
        """What a plane that is deleted kept elsewhere goes too."""
        for kind, section in self._server.chosen():
            if kind.in_planes:
                kind.plane_deleted(section, plane_id)

    async def _set_state(self, name: str, state: PlaneState, kind: PlaneEvent, actor: str) -> PlaneRecord:
        record = self.find(name)
        if record.state is state:
            return record
        async with self._lock(name):
            changed = replace(self.find(name), state=state, updated_at=self._server.clock.now())
            await self._repository.change(changed, self._told(kind, actor, record))
            self._keep(changed)
            if state is PlaneState.SUSPENDED:
                await self._leave(name)
        return changed

    @contextlib.asynccontextmanager
    async def _explained(self, name: str) -> AsyncIterator[None]:
        """Who asks a plane hears why it cannot be opened, and nothing of the shared server's folders."""
        try:
            yield
        except Unavailable as error:
            log.error("a plane cannot be opened", plane=name, error=str(error), where=error.where)
            why = cleared(error.what, None, str, paths=True)
            hint = f"the admin of the shared server can put a backup in its place: shoal plane restore {name} FILE"
            raise Unavailable(f"plane {name} cannot be opened: {why}", where=name, hint=hint) from error

    async def _awaken(self, name: str) -> Awake:
        async with self._lock(name):
            awake = self._awake.get(name)
            if awake is not None:
                return awake
            record = self.find(name)
            opening = asyncio.ensure_future(self._control_store(record))
            try:
                if not record.busy:
                    record = replace(record, busy=True)
                    await self._repository.change(record)
                    self._keep(record)
            finally:
                store = await opening
            try:
                await take_up(store, self._server, record)
                awake = self._awake[name] = self._make(record, store)
                await awake.plane.open()
                await awake.door.open()
                awake.opened = True
                self._tokens.pop(name, None)
            except BaseException:
                self._awake.pop(name, None)
                store.close()
                raise
            return awake

    async def _control_store(self, record: PlaneRecord) -> Store:
        """Opened and in control, beside the event loop: it waits for the disk several times."""

        def run() -> Store:
            store = self._open(self._homes.url(record.id))
            try:
                store.acquire(f"plane-{record.name}")
            except BaseException:
                store.close()
                raise
            return store

        return await self._beside(run)

    def _make(self, record: PlaneRecord, store: Store) -> Awake:
        kind = EnteredEngine if isinstance(self._server.engine, Enterable) else SharedEngine
        engine = kind(record, self._server, lambda job_id: plane.job(job_id), self._news)

        def fatal(error: BaseException) -> None:
            log.error("a plane cannot go on", plane=record.name, error=str(error))

        plane = ControlPlane(
            store, engine, self.home(record),
            PlaneSettings(policy=Policy(most_starts=_STARTS), outermost=self._server.home, plane=record.id),
            clock=self._server.clock, extensions=[Chosen(Inside, NoSection()), *self._chosen()],
            least_sandbox=lambda: self._server.sandbox(record.tenant), on_fatal=fatal, fault=self._fault,
        )  # fmt: skip
        if (inside := plane.extensions.get(Inside)) is not None:
            inside.pool, inside.uses_device = engine.pool_says, engine.uses_device
        from shoal.control.door import Door

        return Awake(record, store, engine, plane, Door(plane), self._server.clock.monotonic())

    async def _leave(self, name: str) -> None:
        """It goes on when it is woken; what it handed over goes on meanwhile."""
        awake = self._awake.pop(name, None)
        if awake is not None:
            self._tokens[name] = awake.door.context.tokens
            awake.door.close()
            await awake.plane.close()
            awake.store.close()

    async def _sleep(self, name: str) -> None:
        await self._leave(name)
        record = replace(self.find(name), busy=False)
        await self._repository.change(record)
        self._keep(record)
        await self._beside(self._homes.move, record.id)

    async def watch(self) -> None:
        """Put idle planes to sleep, and remove what deleted ones left."""
        while True:
            await asyncio.sleep(_LOOK_S)
            now = self._server.clock.monotonic()
            if now >= self._sweep_at:
                self._sweep_at = now + _SWEEP_S
                with self._loop.turn(left_over=True):
                    await self._beside(self._homes.sweep)
            for name in [name for name, awake in self._awake.items() if awake.idle(now, self._limits.sleep_after_s)]:
                with self._loop.turn(plane=name):
                    async with self._lock(name):
                        if name in self._awake and self._awake[name].idle(now, self._limits.sleep_after_s):
                            await self._sleep(name)
