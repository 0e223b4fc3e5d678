"""The outbox and what fills it without events, on a real store: nothing is told twice, also not after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import time
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.contract.lifecycle import JobState
from shoal.core import Budget, Budgets, ManualClock, Miss, NotFound, Objectives
from shoal.notify.live.book import Book
from shoal.notify.live.outbox import Entry, Outbox
from shoal.notify.live.reader import Reader
from shoal.notify.live.settings import NotifyJob
from shoal.notify.live.tables import TABLES
from shoal.notify.live.watch import MET_S, Watch
from shoal.notify.policy.batches import FLOOD, MOST_OPEN
from shoal.notify.policy.times import Schedule
from shoal.notify.records import EVERYONE, Kind, News, State, Subscription, Target, Topic
from shoal.store import Store, open_store

NOW = 1_800_000_000.0


@dataclass
class Answers:
    misses: list[Miss] = field(default_factory=list)
    spent: float = 0.0

    def missed(self) -> Iterable[Miss]:
        return self.misses

    def budgets(self) -> Iterable[Budget]:
        return [Budget("team", "dollars", self.spent, 100.0, "dollars")]


@dataclass
class Bench:
    store: Store
    clock: ManualClock
    answers: Answers = field(default_factory=Answers)
    waiting: dict[str, Any] = field(default_factory=dict)
    """Jobs by their ids; `starts` are the forecasts of when they do."""
    starts: dict[str, float | None] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    sections: dict[str, NotifyJob] = field(default_factory=dict)

    def job(self, id_: str, tenant: str = "team", queued_at: float = NOW, **more: Any) -> None:
        live = SimpleNamespace(
            id=id_, tenant=tenant, name=id_, queued_at=queued_at, state=JobState.QUEUED, array_id=None, attempt=1,
            owner_id=None, **more,
        )  # fmt: skip
        self.waiting[id_] = SimpleNamespace(job=live, wait=SimpleNamespace(text="no room"), tenant=tenant)

    async def explain(self, id_: str) -> Any:
        self.asked.append(id_)
        if id_ not in self.starts:
            raise NotFound("it waits no more")
        return SimpleNamespace(estimated_start=self.starts[id_])

    @property
    def server(self) -> Any:
        return SimpleNamespace(
            store=self.store, clock=self.clock, derive_secret=lambda _: "ab" * 32, job=self.waiting.get,
            on_fatal=pytest.fail, snapshot=lambda: SimpleNamespace(pending=SimpleNamespace(by_id=dict(self.waiting))),
            explain=self.explain,
            ask_all=lambda asked: [self.answers] if asked in (Budgets, Objectives) else [],
        )  # fmt: skip

    async def looks(self, turns: int = 1, step_s: float = 5.0, *more: Subscription) -> None:
        """A server that was started anew looks so often."""
        server, outbox = self.server, Outbox(self.store)
        book = Book(server)
        book.open()
        if not list(book):
            one = Subscription(
                "n-1", "team", "hook", Target(Kind.WEBHOOK, "https://x.org/"), frozenset({Topic.SERVICE, Topic.BUDGET}),
                NOW, "admin", 0,
            )  # fmt: skip
            for each in (one, *more):
                await book.add(each, actor="admin")
        reader = Reader(server, book, outbox, lambda: None)
        reader.sections.update(self.sections)
        watch = Watch(server, book, outbox, reader, lambda: None)
        await watch.open()
        for _ in range(turns):
            await watch.turn()
            self.clock.advance(step_s)

    async def told(self) -> list[str]:
        outbox = Outbox(self.store)
        while await outbox.form(["n-1"], NOW * 2, []) or outbox.waiting():
            for one in outbox.waiting():
                await outbox.tried(one.id, State.SENT, attempts=1, next_at=NOW, error="", ended_at=NOW)
        return [news.title for one in outbox.deliveries(None, limit=1000) for news in one.news]


@pytest.fixture
def bench() -> Iterable[Bench]:
    store = open_store("sqlite://", tables=(TABLES,))
    store.acquire("test")
    yield Bench(store, ManualClock(NOW))
    store.close()


async def test_an_objective_is_told_of_once_through_restarts_and_when_it_is_met_again(bench: Bench) -> None:
    bench.answers.misses = [Miss("team", "ocr", "p99 is 300 ms, 200 ms are promised"), Miss("other", "x", "y")]
    await bench.looks(3)
    await bench.looks(3)
    bench.answers.misses = []
    await bench.looks(2)  # it flickers
    bench.answers.misses = [Miss("team", "ocr", "p99 is 900 ms, 200 ms are promised")]
    await bench.looks(2)
    missed = "service ocr misses its objective: p99 is 300 ms, 200 ms are promised"
    assert await bench.told() == [missed]
    bench.answers.misses = []
    await bench.looks(int(MET_S / 5) + 2)
    await bench.looks(2)
    assert sorted(await bench.told()) == ["service ocr meets its objective again", missed]
    bench.answers.misses = [Miss("team", "ocr", "p99 is 300 ms, 200 ms are promised")]
    await bench.looks(2)
    assert sorted(await bench.told()) == ["service ocr meets its objective again", missed, missed]


async def test_a_budget_is_told_of_once_through_restarts(bench: Bench) -> None:
    for spent in (10.0, 81.0, 90.0, 100.0, 120.0):
        bench.answers.spent = spent
        await bench.looks(2)
    assert sorted(one[:5] for one in await bench.told()) == ["100 %", "80 % "]


def entry(number: int, due: float = NOW) -> Entry:
    return Entry("n-1", "team", News(Topic.ENDED, "team", NOW, f"job/{number}/ended", f"job {number} succeeded"), due)


async def test_news_are_kept_once_and_each_is_in_one_delivery(bench: Bench) -> None:
    outbox = Outbox(bench.store)
    assert outbox.position() is None
    await outbox.put([entry(1), entry(2)], 7)
    await outbox.put([entry(2), entry(3, NOW + 60)], 9)
    assert outbox.position() == 9
    assert await outbox.form(["n-1"], NOW, []) == 2
    assert await outbox.form(["n-1"], NOW, []) == 0
    assert outbox.due() == {"n-1": NOW + 60}
    await outbox.put([entry(1)], 9)  # read again after a crash
    assert await outbox.form(["n-1"], NOW + 60, []) == 1
    listed = outbox.deliveries("team")
    assert sorted(news.about for one in listed for news in one.news) == [f"job/{n}/ended" for n in (1, 2, 3)]
    assert outbox.deliveries("other") == []


async def test_a_flood_comes_in_few_messages_and_a_dead_receiver_has_few_open(bench: Bench) -> None:
    outbox = Outbox(bench.store)
    for number in range(3):
        await outbox.put([entry(number)])
        await outbox.form(["n-1"], NOW, [])
    await outbox.put([entry(number) for number in range(10, 500)])
    await outbox.form(["n-1"], NOW, [])
    waiting = outbox.waiting()
    assert len(waiting) == MOST_OPEN
    assert max(len(one.news) for one in outbox.deliveries(None)) > FLOOD
    assert len(await bench.told()) == 493


async def test_what_was_delivered_is_forgotten_after_a_time_and_what_waits_is_not(bench: Bench) -> None:
    outbox = Outbox(bench.store)
    await outbox.put([entry(1), entry(2, NOW + 99)])
    await outbox.form(["n-1"], NOW, [])
    (one,) = outbox.waiting()
    await outbox.forget([id_ for id_, _ in outbox.old(NOW + 10)], NOW + 10)
    assert outbox.waiting() == [one]
    await outbox.tried(one.id, State.SENT, attempts=1, next_at=NOW, error="", ended_at=NOW)
    await outbox.tried(one.id, State.GAVE_UP, attempts=9, next_at=NOW, error="late", ended_at=NOW)  # it is over
    assert outbox.deliveries(None)[0].state is State.SENT
    assert not await outbox.again(one.id, NOW)
    await outbox.forget([id_ for id_, _ in outbox.old(NOW + 10)], NOW + 10)
    assert outbox.deliveries(None) == []
    assert outbox.due() == {"n-1": NOW + 99}


async def test_removing_a_subscription_ends_what_is_on_its_way(bench: Bench) -> None:
    await bench.looks()
    outbox, book = Outbox(bench.store), Book(bench.server)
    book.open()
    await outbox.put([entry(1), entry(2, NOW + 99)])
    await outbox.form(["n-1"], NOW, [])
    await book.remove(book.find("team", "hook"), actor="admin")
    assert outbox.waiting() == []
    assert outbox.due() == {}
    assert [one.error for one in outbox.deliveries(None)] == ["the subscription was removed"]


async def test_writers_at_the_same_time_keep_all(bench: Bench) -> None:
    outbox = Outbox(bench.store)
    await asyncio.gather(*(outbox.put([entry(number), entry(0)], number) for number in range(1, 40)))
    assert len(await bench.told()) == 40


def hook(name: str, *topics: Topic, tenant: str = "team", waits_s: float | None = None) -> Subscription:
    target = Target(Kind.WEBHOOK, "https://x.org/")
    return Subscription(f"n-{name}", tenant, name, target, frozenset(topics), NOW, "admin", 0, waits_s=waits_s)


async def titles(bench: Bench, *channels: str) -> list[tuple[str, str]]:
    """What each of the channels was told, by the channel."""
    outbox = Outbox(bench.store)
    while await outbox.form([*channels], NOW * 2, []) or outbox.waiting():
        for one in outbox.waiting():
            await outbox.tried(one.id, State.SENT, attempts=1, next_at=NOW, error="", ended_at=NOW)
    found = outbox.deliveries(None, limit=1000)
    return sorted((one.channel, news.title) for one in found for news in one.news)


async def test_a_wait_is_told_of_once_to_who_asked_for_so_long_a_wait(bench: Bench) -> None:
    bench.job("j-1")
    bench.job("j-2", tenant="other")
    bench.job("j-3", queued_at=NOW + 20)
    bench.waiting["j-4"] = SimpleNamespace(job=SimpleNamespace(owner_id="svc-1"), wait=None, tenant="team")
    bench.sections = {"j-1": NotifyJob(to=("short", "a@x.org"), on=(Topic.WAITS,), waits=15.0)}
    subscriptions = hook("short", Topic.WAITS, waits_s=10.0), hook("long", Topic.WAITS, waits_s=1800.0)
    await bench.looks(3, 5.0, *subscriptions)  # at 0, 5 and 10 seconds
    assert await titles(bench, "n-short", "n-long") == []
    await bench.looks(1)
    assert await titles(bench, "n-short", "n-long") == [("n-short", "job j-1 waits for more than 10s: no room")]
    await bench.looks(2)
    await bench.looks(2)
    assert await titles(bench, "n-short", "n-long", "mailto:team:a@x.org") == [
        ("mailto:team:a@x.org", "job j-1 waits for more than 15s: no room"),
        ("n-short", "job j-1 waits for more than 10s: no room"),
        ("n-short", "job j-1 waits for more than 15s: no room"),
        ("n-short", "job j-3 waits for more than 10s: no room"),
    ]


async def test_a_job_is_late_by_its_first_forecast(bench: Bench) -> None:
    for name in ("j-1", "j-2", "j-3"):
        bench.job(name)
    bench.job("j-4", tenant="other")
    bench.starts = {"j-1": NOW + 100, "j-2": None, "j-4": NOW + 100}
    await bench.looks(1, 5.0, hook("late", Topic.LATE))
    assert bench.asked == ["j-1", "j-2", "j-3"]
    bench.starts["j-1"] = NOW + 9000
    await bench.looks(1, 155.0)
    assert await titles(bench, "n-late") == []
    assert bench.asked == ["j-1", "j-2", "j-3", "j-2", "j-3"], "the first forecast of a job is kept"
    await bench.looks(1)
    assert await titles(bench, "n-late") == []
    await bench.looks(2)
    late = ("n-late", "job j-1 waits 1m longer than its first forecast promised: no room")
    assert await titles(bench, "n-late") == [late]
    del bench.waiting["j-1"]
    await bench.looks(1)
    bench.job("j-1")
    await bench.looks(1)
    assert bench.asked[-3:].count("j-1") == 1, "it waits anew, and is forecast anew"


async def test_an_admin_of_all_is_told_of_jobs_of_every_tenant_that_are_late(bench: Bench) -> None:
    bench.job("j-4", tenant="other")
    bench.starts = {"j-4": NOW}
    bench.sections = {"j-4": NotifyJob(to=("b@x.org",), on=(Topic.LATE,))}
    await bench.looks(15, 5.0, hook("all", Topic.LATE, tenant=EVERYONE))
    told = "job j-4 waits 1m longer than its first forecast promised: no room"
    assert await titles(bench, "n-all", "mailto:other:b@x.org") == [("mailto:other:b@x.org", told), ("n-all", told)]


async def test_a_subscription_is_read_again_as_it_was_made(bench: Bench) -> None:
    book = Book(bench.server)
    book.open()
    plans = [Schedule(), Schedule("Europe/Berlin", (time(22), time(7, 30)), 600.0), Schedule(daily=time(8))]
    for number, (kind, plan) in enumerate(zip((Kind.WEBHOOK, Kind.SLACK, Kind.MAIL), plans, strict=True)):
        target = Target(kind, "https://x.org/" if kind is not Kind.MAIL else "a@x.org")
        one = hook(str(number), Topic.WAITS, Topic.FAILED, waits_s=60.0)
        await book.add(replace(one, target=target, schedule=plan, jobs="train-*", from_seq=number), actor="admin")
    again = Book(bench.server)
    again.open()
    assert again.of("team") == book.of("team")
    with pytest.raises(NotFound, match="there is no subscription 'none'") as refused:
        again.find("team", "none")
    assert (refused.value.where, refused.value.hint) == ("none", "`shoal notify list` lists them")
