"""Reads the log of events and puts what it tells into the outbox. While the server runs it is told of each event; after
a restart it reads on from the position that the outbox keeps."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import orjson
import structlog
from pydantic import ValidationError

from shoal.base.loops import Turns
from shoal.contract.records import Event, JobRecord
from shoal.extension import LiveJob, Server
from shoal.notify.live.book import Book
from shoal.notify.live.outbox import Entry, Outbox
from shoal.notify.live.settings import NotifyJob
from shoal.notify.policy.telling import asked, ends, may_tell, told, wants
from shoal.notify.policy.times import due_at
from shoal.notify.records import News, Subscription

log = structlog.get_logger("shoal.notify")

MAIL, MISSING = "mailto:", "missing:"
"""How channels begin that are no subscription's: a mail address, and a name that none has."""

_BATCH = 500
_REREAD = 10_000
"""Events that a restart reads again at most where none of them told anybody anything."""
_PERIOD_S = 30.0
_SECTION = '"notify"'


class Reader:
    """`wake` is called when there is something new in the outbox."""

    def __init__(self, server: Server, book: Book, outbox: Outbox, wake: Callable[[], None]) -> None:
        self._server = server
        self._book = book
        self._outbox = outbox
        self._wake = wake
        self._turns = Turns(log, "events could not be read for news", server.on_fatal)
        self._queue: deque[Event] = deque()
        self._some = asyncio.Event()
        self._seen = 0
        self._kept: int | None = None
        self.sections: dict[str, NotifyJob] = {}
        """What the manifests of jobs ask for that are not over."""

    # --- on the event loop, often ---

    def committed(self, events: Iterable[Event]) -> None:
        for event in events:
            self._seen = event.seq
            if may_tell(event):
                self._queue.append(event)
        if self._queue:
            self._some.set()

    def idle(self) -> bool:
        """All events that were committed are told."""
        return self._kept is not None and not self._queue

    def moved(self, job: LiveJob) -> None:
        record = job.job
        if _SECTION not in record.manifest or record.id in self.sections or record.owner_id is not None:
            return
        if not record.state.terminal and (section := section_of(record)) is not None:
            self.sections[record.id] = section

    # --- the loop ---

    async def run(self) -> None:
        caught_up = False
        while True:
            with self._turns.turn() as turn:
                if not caught_up:
                    await self._catch_up()
                    caught_up = True
                await self._turn()
            if turn.over:
                return
            if turn.held_up:
                await asyncio.sleep(1.0)
                continue
            try:
                async with asyncio.timeout(_PERIOD_S):
                    await self._some.wait()
            except TimeoutError:
                continue

    async def _catch_up(self) -> None:
        """What was committed since the position was kept; a server that never told news begins with the next event."""
        store = self._server.store
        kept = await asyncio.to_thread(self._outbox.position)
        if kept is None:
            kept = await self._book.last_seq()
            await self._outbox.put([], kept)
        while events := await asyncio.to_thread(store.events, kept, limit=_BATCH):
            kept = events[-1].seq
            await self._tell([event for event in events if may_tell(event)], kept)
        self._kept = kept
        self._seen = max(self._seen, kept)

    async def _turn(self) -> None:
        while self._queue:
            batch = [self._queue[at] for at in range(min(_BATCH, len(self._queue)))]
            fresh = [event for event in batch if self._kept is None or event.seq > self._kept]
            heard = [event for event in fresh if event.job_id in self.sections or self._book.hears(event.tenant)]
            if heard:
                await self._tell(heard, batch[-1].seq)
                self._kept = batch[-1].seq
            for _ in batch:  # only now: after an error they are read again
                self._queue.popleft()
            for event in batch:
                if event.job_id is not None and ends(event):
                    self.sections.pop(event.job_id, None)
        self._some.clear()
        if self._kept is not None and self._seen - self._kept > _REREAD:
            seen = self._seen
            await self._outbox.put([], seen)
            self._kept = seen

    async def _tell(self, events: Sequence[Event], seq: int) -> None:
        subscriptions, now = self._book.of(None), self._server.clock.now()
        entries = await asyncio.to_thread(self._entries, events, subscriptions, now)
        await self._outbox.put(entries, seq)
        if entries:
            self._wake()

    def _entries(self, events: Sequence[Event], subscriptions: Sequence[Subscription], now: float) -> list[Entry]:
        store, found = self._server.store, list[Entry]()
        for event in events:
            job = None if event.job_id is None else store.job(event.job_id)
            array = None if job is None or job.array_id is None else store.ends(job.array_id)
            for news in told(event, job, array):
                found += [to(one, news, now) for one in subscriptions if wants(one, news, event.seq)]
            section = None if job is None else section_of(job)
            if section is not None:
                for news in told(event, job, array, tasks=section.array_tasks):
                    if asked(section.on, news.topic):
                        found += to_section(section, news, subscriptions, now)
        return found


def section_of(job: JobRecord) -> NotifyJob | None:
    """What its manifest asks for. Of an earlier version it may say what no longer is understood: then nothing."""
    if _SECTION not in job.manifest:
        return None
    sections: Mapping[str, object] = orjson.loads(job.manifest).get("extensions") or {}
    if "notify" not in sections:
        return None
    try:
        return NotifyJob.model_validate(sections["notify"])
    except ValidationError:
        log.warning("a job's section of news is not understood", job=job.id)
        return None


def to(subscription: Subscription, news: News, now: float) -> Entry:
    """News for a subscription."""
    return Entry(subscription.id, subscription.tenant, news, due_at(now, subscription.schedule))


def to_section(section: NotifyJob, news: News, subscriptions: Sequence[Subscription], now: float) -> list[Entry]:
    """News for all that a manifest names: mail addresses, and its tenant's subscriptions."""
    named = {one.name: one for one in subscriptions if one.tenant == news.tenant}
    found = []
    for name in section.to:
        if name in named:
            found.append(to(named[name], news, now))
        else:
            prefix = MAIL if "@" in name else MISSING
            found.append(Entry(f"{prefix}{news.tenant}:{name}", news.tenant, news, now))
    return found
