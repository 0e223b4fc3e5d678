"""Looks for what no event tells: jobs that wait too long, objectives that are missed, budgets that are used up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from shoal.admission import Pending
from shoal.base.loops import Turns
from shoal.core import Budget, Budgets, Objectives, ShoalError
from shoal.extension import Server
from shoal.notify.live.book import Book
from shoal.notify.live.outbox import Entry, Outbox
from shoal.notify.live.reader import Reader, to, to_section
from shoal.notify.policy.telling import of_budget, of_late, of_miss, of_wait, wants
from shoal.notify.records import EVERYONE, News, Subscription, Topic

log = structlog.get_logger("shoal.notify")

LATE_S = 60.0
"""A job is late once its first forecast is over by so long: forecasts are of whole minutes at best."""

MET_S = 120.0
"""An objective is met again once it was not missed for so long."""

_FORECAST, _MISS = "forecast/", "miss/"
"""How the names of marks begin."""

_PERIOD_S = 5.0
_FORECASTS = 16
"""Forecasts of one turn: each takes milliseconds."""


class Watch:
    def __init__(self, server: Server, book: Book, outbox: Outbox, reader: Reader, wake: Callable[[], None]) -> None:
        self._server = server
        self._book = book
        self._outbox = outbox
        self._reader = reader
        self._wake = wake
        self._turns = Turns(log, "waits and budgets could not be looked at", server.on_fatal)
        self._marks: dict[str, float] = {}
        self._missed: dict[str, float] = {}
        """When each objective that is marked was seen missed last."""

        self._told: set[str] = set()
        """Entries that are in the outbox for certain."""

    async def open(self) -> None:
        """What is remembered is read."""
        self._marks = await asyncio.to_thread(self._outbox.marks)

    async def run(self) -> None:
        await self.open()
        while True:
            with self._turns.turn() as turn:
                await self.turn()
            if turn.over:
                return
            await asyncio.sleep(_PERIOD_S)

    async def turn(self) -> None:
        pending, now = self._server.snapshot().pending.by_id, self._server.clock.now()
        await self._forecast(pending)
        missed, well = await self._objectives(now)
        found = {one.id: one for one in (*self._waits(pending, now), *await self._budgets(now), *missed)}
        if new := [one for id_, one in found.items() if id_ not in self._told]:
            await self._outbox.put(new)
            self._wake()
        self._told = set(found)
        if well:
            await self._remember({}, well)

    # --- waits ---

    def _waits(self, pending: Mapping[str, Pending], now: float) -> Iterator[Entry]:
        timed = [one for one in self._book if one.waits_s is not None]
        late = [one for one in self._book if Topic.LATE in one.topics]
        sections = self._reader.sections
        for job_id in pending if timed or late else (pending.keys() & sections.keys()):
            live = self._server.job(job_id)
            if live is None or live.job.owner_id is not None:
                continue
            waited_s, promised = now - live.job.queued_at, self._marks.get(_FORECAST + job_id)
            is_late = promised is not None and now > promised + LATE_S
            why = "" if live.wait is None else live.wait.text
            for one in timed:
                if one.waits_s is not None and waited_s > one.waits_s:
                    yield from _to_one(one, of_wait(live.job, one.waits_s, now, why), now)
            if promised is not None and is_late:
                for one in late:
                    yield from _to_one(one, of_late(live.job, promised, now, why), now)
            section = sections.get(job_id)
            if section is None:
                continue
            own = self._book.of(live.job.tenant)
            if section.waits is not None and waited_s > section.waits:
                yield from to_section(section, of_wait(live.job, section.waits, now, why), own, now)
            if promised is not None and is_late and Topic.LATE in section.on:
                yield from to_section(section, of_late(live.job, promised, now, why), own, now)

    async def _forecast(self, pending: Mapping[str, Pending]) -> None:
        """The first forecast of each job that somebody wants to be told of when it is late."""
        tenants = {one.tenant for one in self._book if Topic.LATE in one.topics}
        asking = {id_ for id_, one in self._reader.sections.items() if Topic.LATE in one.on}
        wanted = [
            id_ for id_, one in pending.items()
            if _FORECAST + id_ not in self._marks and (id_ in asking or EVERYONE in tenants or one.tenant in tenants)
        ] if tenants or asking else []  # fmt: skip
        new: dict[str, float] = {}
        for job_id in wanted[:_FORECASTS]:
            try:
                at = (await self._server.explain(job_id)).estimated_start
            except ShoalError:
                continue  # it waits no more
            if at is not None:
                new[_FORECAST + job_id] = at
        known = (name for name in self._marks if name.startswith(_FORECAST))
        over = [name for name in known if name.removeprefix(_FORECAST) not in pending]
        if new or over:
            await self._remember(new, over)

    async def _remember(self, new: Mapping[str, float], over: Sequence[str]) -> None:
        await self._outbox.mark(new, over)
        self._marks = {name: at for name, at in {**self._marks, **new}.items() if name not in over}

    # --- objectives ---

    async def _objectives(self, now: float) -> tuple[list[Entry], list[str]]:
        """News of objectives that are missed and of those that are met again, and the marks of the latter."""
        if not self._book.asks(Topic.SERVICE):
            return [], [name for name in self._marks if name.startswith(_MISS)]
        seen = {
            f"{_MISS}{one.tenant}/{one.service}": one
            for answer in self._server.ask_all(Objectives) for one in answer.missed()
        }  # fmt: skip
        if new := {name: now for name in seen if name not in self._marks}:
            await self._remember(new, ())
        self._missed |= dict.fromkeys(seen, now)
        found, over = list[Entry](), list[str]()
        for name, since in self._marks.items():
            if not name.startswith(_MISS):
                continue
            last = self._missed.setdefault(name, now)
            tenant, _, service = name.removeprefix(_MISS).partition("/")
            miss = seen.get(name)
            if miss is not None:
                news = [of_miss(tenant, service, since, now, miss.text)]
            elif now - last >= MET_S or now < last:
                news = [of_miss(tenant, service, since, now, "")]
                over.append(name)
                del self._missed[name]
            else:
                continue
            found += [to(one, each, now) for each in news for one in self._book if wants(one, each)]
        return found, over

    # --- budgets ---

    async def _budgets(self, now: float) -> list[Entry]:
        if not self._book.asks(Topic.BUDGET):
            return []
        found = []
        for answer in self._server.ask_all(Budgets):
            for budget in await asyncio.to_thread(_read, answer):
                for news in of_budget(budget, now):
                    found += [to(one, news, now) for one in self._book if wants(one, news)]
        return found


def _read(asked: Budgets) -> list[Budget]:
    return list(asked.budgets())


def _to_one(one: Subscription, news: News, now: float) -> list[Entry]:
    return [to(one, news, now)] if wants(one, news) else []
