"""The planes of a server: made and removed, woken by the first request, put to sleep when they are idle."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from starlette.types import ASGIApp

from shoal.admission import Policy
from shoal.base import trees
from shoal.base.loops import Turns
from shoal.base.rates import Buckets
from shoal.contract.records import NewEvent
from shoal.control.door import Door
from shoal.control.extensions import Chosen
from shoal.control.plane import ControlPlane
from shoal.control.server import put_admin_token
from shoal.control.tokens import new_token
from shoal.core import Conflict, Invalid, NotFound, Overloaded, Unavailable
from shoal.extension import LiveJob, NoSection, Server
from shoal.store import Store, WriterThreads, open_store
from shoal.tenancy.events import PlaneEvent
from shoal.tenancy.live import copies
from shoal.tenancy.live.gate import Gate
from shoal.tenancy.live.inside import Inside
from shoal.tenancy.live.repository import PlaneRepository
from shoal.tenancy.live.shared_engine import SharedEngine
from shoal.tenancy.models import AuditList, UsageView
from shoal.tenancy.records import PlaneRecord, PlaneState
from shoal.tenancy.returning import cleared
from shoal.tenancy.usage import audited, usage_of

log = structlog.get_logger("shoal.tenancy")

_LOOK_S = 1.0
_WRITERS = 6
"""Threads that write for all planes: so many planes are flushed to the disk at once. More of them were measured to take
more of the processor, and to be no faster."""


_HANDED_AT_ONCE = 64
"""So many gangs are being handed over at a time, of all planes in turn: about as many as are written together."""
_STARTS = 32
"""A plane hands over so many gangs in a decision: between them others have their turns."""
_BEGIN = 64
"""So many requests begin in each round of the event loop, of all planes in turn."""
_WAKING = 16
"""So many planes are woken at once when the server starts: the disk serves them together."""
_NAMED = 5
"""So many jobs are named where a plane is not deleted because of them."""
_BUSY_RETRY_S = 5.0
"""A guess at when some of the requests that are held open will have ended."""


@dataclass(frozen=True, slots=True)
class PlaneLimits:
    """What one plane may take of the shared server."""

    sleep_after_s: float = 300.0
    requests_per_s: float = 500.0
    burst: int = 2000
    requests_at_once: int = 512


@dataclass(slots=True)
class Awake:
    """A plane that runs in this server now. `requests` are those that it is answering; `used_at` is monotonic."""

    record: PlaneRecord
    store: Store
    engine: SharedEngine
    plane: ControlPlane
    door: Door
    used_at: float
    requests: int = 0

    def idle(self, now: float, after_s: float) -> bool:
        return not len(self.plane.cache) and not self.requests and now >= self.used_at + after_s


class Planes:
    """A plane without work and without requests for a while sleeps: no task, no open file. `inline`: stores write in
    the caller's thread, which makes a simulation repeat exactly."""

    def __init__(self, server: Server, limits: PlaneLimits, *, inline: bool = False) -> None:
        self._server = server
        self._limits = limits
        self._requests = Buckets(limits.requests_per_s, limits.burst)
        self._repository = PlaneRepository(server.store)
        self._inline = inline
        self._threads = None if inline else WriterThreads(_WRITERS)
        self._gate = Gate(_HANDED_AT_ONCE)
        self._entrance = Gate(_BEGIN)
        self._records: dict[str, PlaneRecord] = {}
        self._names: dict[str, str] = {}
        self._awake: dict[str, Awake] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._loop = Turns(log, "waking a plane, or putting it to sleep, failed", server.on_fatal)
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Planes that had work when the last server ended are woken, for they hand it over, or wait for its end."""
        for record in self._repository.planes():
            self._keep(record)
        due = [record.name for record in self._records.values() if record.busy and record.state is PlaneState.ACTIVE]
        waking = asyncio.Semaphore(_WAKING)

        async def wake(name: str) -> None:
            async with waking:
                with self._loop.turn(plane=name):
                    await self._awaken(name)

        await asyncio.gather(*map(wake, due))
        self._task = asyncio.create_task(self._watch(), name="planes")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for name in list(self._awake):
            await self._leave(name)
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

    def engines(self) -> list[SharedEngine]:
        return [awake.engine for awake in self._awake.values()]

    def home(self, record: PlaneRecord) -> Path:
        return self._server.home / "planes" / record.name

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
        self.home(record).mkdir(parents=True, exist_ok=True, mode=0o700)
        if content is not None:
            await asyncio.to_thread(copies.restore, self.home(record), content)
        with contextlib.closing(self._open_store(record)) as store:
            store.acquire(f"plane-{name}")
            await put_admin_token(store, token, f"made with plane {name}", now)
        told = NewEvent(now, PlaneEvent.CREATED, actor, f"plane {name}", tenant=tenant, data={"plane": name})
        await self._repository.add(record, told)
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
            told = NewEvent(self._server.clock.now(), PlaneEvent.DELETED, actor, f"plane {name}", tenant=record.tenant,
                            data={"plane": name})  # fmt: skip
            await self._repository.remove(record, told)
            del self._records[name]
            self._names.pop(record.id, None)
        remains = await asyncio.to_thread(trees.remove, str(self.home(record)))
        if remains is not None:
            log.warning("files of a deleted plane cannot be removed", plane=name, left=remains)

    def usage(self, name: str, since: float) -> UsageView:
        """Blocks: to be called in a thread."""
        record = self.find(name)
        return usage_of(name, record.tenant, since, self._server.store.usage(record.id, since))

    async def audit(self, name: str, after: int, limit: int) -> AuditList:
        """What people did in it since that sequence number; it may be asleep or suspended."""
        record = self.find(name)
        async with self._lock(name):
            awake = self._awake.get(name)
            store = awake.store if awake is not None else self._open_store(record)
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
            now = self._server.clock.now()
            told = NewEvent(
                now, PlaneEvent.RESTORED, actor, f"plane {name}", tenant=record.tenant, data={"plane": name}
            )
            await self._repository.change(replace(self.find(name), updated_at=now), told)
        if record.state is PlaneState.ACTIVE:
            await self._awaken(name)
        return self.find(name)

    @contextlib.asynccontextmanager
    async def using(self, name: str) -> AsyncIterator[ASGIApp]:
        """The plane's application, for one request. Raises NotFound, Unavailable for one that is suspended, and
        Overloaded for one that is asked too much."""
        if self.find(name).state is not PlaneState.ACTIVE:
            raise Unavailable(
                f"plane {name} is suspended", where=name, hint="the admin of the shared server resumes it"
            )
        self._count(name)
        async with self._entrance.turn(name):
            pass  # others have their turns before its next request begins
        awake = self._awake.get(name) or await self._awaken_or_say(name)
        awake.requests += 1
        try:
            yield awake.door.app
        finally:
            awake.requests -= 1
            awake.used_at = self._server.clock.monotonic()

    # --- inside ---

    def _count(self, name: str) -> None:
        """A request to this plane. Raises Overloaded."""
        limits, awake = self._limits, self._awake.get(name)
        hint = "ask less often; the admin of the shared server can raise the settings below tenancy"
        if awake is not None and awake.requests >= limits.requests_at_once:
            raise Overloaded(
                f"plane {name} is answering {limits.requests_at_once} requests", where=name, hint=hint,
                retry_after_s=_BUSY_RETRY_S,
            )  # fmt: skip
        if retry_after_s := self._requests.take(name, self._server.clock.monotonic()):
            raise Overloaded(
                f"plane {name} may be asked {limits.requests_per_s:g} times a second", where=name, hint=hint,
                retry_after_s=retry_after_s,
            )  # fmt: skip

    def _keep(self, record: PlaneRecord) -> None:
        self._records[record.name] = record
        self._names[record.id] = record.name

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _open_store(self, record: PlaneRecord) -> Store:
        url = f"sqlite:///{self.home(record) / 'shoal.db'}"
        return open_store(
            url, clock=self._server.clock, inline=self._inline, sync=not self._inline, threads=self._threads
        )

    async def _set_state(self, name: str, state: PlaneState, kind: PlaneEvent, actor: str) -> PlaneRecord:
        record = self.find(name)
        if record.state is state:
            return record
        async with self._lock(name):
            now = self._server.clock.now()
            changed = replace(self.find(name), state=state, updated_at=now)
            told = NewEvent(now, kind, actor, f"plane {name}", tenant=record.tenant, data={"plane": name})
            await self._repository.change(changed, told)
            self._keep(changed)
            if state is PlaneState.SUSPENDED:
                await self._leave(name)
        return changed

    async def _awaken_or_say(self, name: str) -> Awake:
        """Who asks a plane hears why it cannot be opened, and nothing of the shared server's folders."""
        try:
            return await self._awaken(name)
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
                awake = self._awake[name] = self._make(record, store)
                await awake.plane.open()
                await awake.door.open()
            except BaseException:
                self._awake.pop(name, None)
                store.close()
                raise
            return awake

    async def _control_store(self, record: PlaneRecord) -> Store:
        """Opened and in control, beside the event loop: it waits for the disk several times."""

        def run() -> Store:
            store = self._open_store(record)
            try:
                store.acquire(f"plane-{record.name}")
            except BaseException:
                store.close()
                raise
            return store

        return run() if self._inline else await asyncio.to_thread(run)

    def _make(self, record: PlaneRecord, store: Store) -> Awake:
        engine = SharedEngine(record, self._server, self._gate, lambda job_id: plane.job(job_id))

        def fatal(error: BaseException) -> None:
            log.error("a plane cannot go on", plane=record.name, error=str(error))

        plane = ControlPlane(
            store, engine, self.home(record), clock=self._server.clock, on_fatal=fatal,
            extensions=[Chosen(Inside, NoSection())], policy=Policy(most_starts=_STARTS),
            least_sandbox=lambda: self._server.sandbox(record.tenant), outermost=self._server.home,
        )  # fmt: skip
        if (inside := plane.extensions.get(Inside)) is not None:
            inside.pool = engine.pool_says
        return Awake(record, store, engine, plane, Door(plane), self._server.clock.monotonic())

    async def _leave(self, name: str) -> None:
        """It goes on when it is woken; what it handed over goes on meanwhile."""
        awake = self._awake.pop(name, None)
        if awake is not None:
            awake.door.close()
            await awake.plane.close()
            awake.store.close()

    async def _sleep(self, name: str) -> None:
        await self._leave(name)
        record = replace(self.find(name), busy=False)
        await self._repository.change(record)
        self._keep(record)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            now = self._server.clock.monotonic()
            for name in [name for name, awake in self._awake.items() if awake.idle(now, self._limits.sleep_after_s)]:
                with self._loop.turn(plane=name):
                    async with self._lock(name):
                        if name in self._awake and self._awake[name].idle(now, self._limits.sleep_after_s):
                            await self._sleep(name)
