"""Looks at the open sessions now and then: which are over, how long each is idle, whether its job's devices work."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable

from shoal.contract.gangs import RUN, gang_name
from shoal.contract.lifecycle import JobState
from shoal.contract.records import Event
from shoal.core import CPU_SLOT, DeviceUse, Share
from shoal.engine import Enterable
from shoal.extension import LiveJob, Server
from shoal.session.frames import ASK, frame, write_fields
from shoal.session.live.asking import Asking, Gone, State
from shoal.session.live.book import Book, Open
from shoal.session.live.devices import Devices

_TURN_S = 5.0
"""Between two looks at devices."""
_ASK_S = 30.0
"""Between two questions to a session."""
_BEGINS_S = 60.0
"""An agent that nobody attaches to gives up after so long."""
_PAGE = 1000


class Watching:
    """`idle_s` is the limit after which a session ends; its agents are asked often enough to know of use before."""

    def __init__(
        self, server: Server, engine: Callable[[], Enterable | None], idle_s: float, devices: Devices | None = None
    ) -> None:
        self._server = server
        self._engine = engine
        self._ask_s = min(_ASK_S, idle_s / 4) if idle_s else _ASK_S
        self._asking = Asking()
        self._run = secrets.token_hex(8)
        self._used: set[str] = set()
        """Jobs whose devices worked since their sessions were asked last."""
        self._wanted: set[str] = set()
        """Jobs of which somebody else asked whether they work on devices, since the last look at those."""
        self._worked: set[str] = set()
        """Of these, those that did since they were asked of."""
        self._loaded: asyncio.Task[None] | None = None
        self.book = Book()
        self.devices = devices or Devices()

    @property
    def introduction(self) -> bytes:
        """What an agent is told first on each connection. A client may hold the connection itself: one that this server
        did not make, and so could not end, is ended by the agent when it hears of this server."""
        return frame(ASK, write_fields(server=self._run))

    # --- what is open ---

    async def load(self) -> None:
        """Read what people started in the jobs that run, once: the server may have been another one then."""
        if self._loaded is None:
            self._loaded = asyncio.create_task(self._load())
        await asyncio.shield(self._loaded)

    async def _load(self) -> None:
        known = {one.key for one in self.book}
        for live in list(self._server.active_jobs()):
            events = await asyncio.to_thread(self._events_of, live.job.id)
            self.book.read(event for event in events if _key_of(event) not in known)
            await asyncio.sleep(0)

    def _events_of(self, job_id: str) -> list[Event]:
        found: list[Event] = []
        while page := self._server.store.events(found[-1].seq if found else 0, job_id=job_id, limit=_PAGE):
            found += page
        return found

    # --- looking ---

    async def run(self) -> None:
        """Endless."""
        await self.load()
        turn_s = min(_TURN_S, self._ask_s)
        await self._look_at_devices()
        while True:
            await self.look(self.book)
            for _ in range(max(1, round(self._ask_s / turn_s))):
                await asyncio.sleep(turn_s)
                await self._look_at_devices()

    async def look(self, wanted: Iterable[Open]) -> None:
        """Ask these sessions how they are; those that are gone are no longer listed."""
        asked = list(wanted)
        used, self._used = self._used, self._used - {one.job for one in asked}
        await asyncio.gather(*(self.ask(one, busy=one.job in used) for one in asked))

    async def ask(self, one: Open, *, busy: bool = False, end: str = "") -> State | None:
        engine, live = self._engine(), self._server.job(one.job)
        if engine is None or live is None or live.attempt is None or live.job.state is not JobState.RUNNING:
            self.book.closed(one.key)
            return None
        told: dict[str, object] = {
            "server": self._run,
            **({"busy": 1} if busy else {}),
            **({"end": end} if end else {}),
        }
        gang = gang_name(live.job.id, live.attempt.number, RUN)
        try:
            state = await self._asking.state(engine, gang, one.rank, one.id, **told)
        except Gone:
            if one.state is not None or self._server.clock.now() - one.since > _BEGINS_S:
                self.book.closed(one.key)
            return None
        if state is not None and state.over:
            self.book.closed(one.key)
        self.book.looked(one.key, state, self._server.clock.now())
        return state

    def uses_device(self, job_id: str) -> bool | None:
        """Of a job that has its devices alone, and no session here: see `shoal.core.DeviceUse`."""
        live = self._server.job(job_id)
        if live is None or not self._has_alone(live):
            return None
        self._wanted.add(job_id)
        worked = job_id in self._worked
        self._worked.discard(job_id)
        return worked

    def _has_alone(self, live: LiveJob) -> bool:
        """Whether this server knows the devices of a job, which nothing else uses. A plane does not: it has places."""
        return self._server.plane is None and live.job.resources.share is Share.EXCLUSIVE

    async def _look_at_devices(self) -> None:
        own: dict[str, list[str]] = {}
        wanted, self._wanted = self._wanted, set()
        open_jobs = {one.job for one in self.book}
        if open_jobs | wanted:  # the library of devices is loaded for sessions only
            await asyncio.to_thread(self.devices.probe)
        for job_id in open_jobs | wanted:
            live = self._server.job(job_id)
            if live is None or live.attempt is None:
                continue
            if self._has_alone(live):
                own[job_id] = _devices_of(live)
            elif any(one.uses_device(job_id) for one in self._server.ask_all(DeviceUse)):
                self._used.add(job_id)
        devices = {device for devices in own.values() for device in devices}
        if devices:
            busy = await asyncio.to_thread(self.devices.busy, devices)
            worked = {job for job, devices in own.items() if not busy.isdisjoint(devices)}
            self._used |= worked & open_jobs
            self._worked |= worked & wanted


def _devices_of(live: LiveJob) -> list[str]:
    placement = live.attempt.placement if live.attempt is not None else ()
    return [device for rank in placement for device in rank.devices if not device.startswith(CPU_SLOT)]


def _key_of(event: Event) -> tuple[str, int, str]:
    return event.job_id or "", int(event.data.get("rank", 0)), str(event.data.get("session", ""))
