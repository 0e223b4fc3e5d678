"""The event log, and word of it to subscribers."""

import asyncio

import pytest

from shoal.core import Unavailable


async def test_events_come_back_in_order_and_filtered(store, make):
    given = [
        make.event("job.state", tenant="red", job_id="j1", old_state="QUEUED", new_state="ADMITTED", attempt=2),
        make.event("job.waiting", tenant="blue", job_id="j2", cause="needs 8, 5 free", data={"free": 5, "on": ["a"]}),
        make.event("node.lost"),
    ]
    await store.record(given)
    await store.record([])
    events = store.events()
    assert [event.seq for event in events] == [1, 2, 3]
    for event, new in zip(events, given, strict=True):
        for field in ("at", "kind", "actor", "cause", "tenant", "job_id", "attempt", "old_state", "new_state", "data"):
            assert getattr(event, field) == getattr(new, field)
    assert store.events(after=1, limit=1) == [events[1]]
    assert store.events(tenant="red") == [events[0]]
    assert store.events(job_id="j2") == [events[1]]
    assert store.events(after=3) == []


@pytest.mark.parametrize("inline", [False, True])
async def test_subscribers_hear_every_event_once_and_in_order(opened, make, inline):
    store = opened(inline=inline)
    heard, also, broken = [], [], []

    def fails(events):
        broken.append(len(events))
        raise RuntimeError("a listener's own trouble")

    store.subscribe(fails)
    end = store.subscribe(heard.extend)
    store.subscribe(also.extend)
    await asyncio.gather(*(store.record([make.event(data={"n": n}), make.event()]) for n in range(100)))
    assert heard == also == store.events()
    assert [event.seq for event in heard] == list(range(1, 201))
    end()
    await store.record([make.event()])
    assert len(heard) == 200
    assert len(also) == sum(broken) == 201


async def test_a_subscriber_hears_before_the_writer_goes_on(opened, make):
    store = opened()
    heard = []
    store.subscribe(lambda events: heard.extend(event.kind for event in events))
    await store.record([make.event("first")])
    assert heard == ["first"]


def test_a_subscriber_without_a_loop_is_called_on_the_writers_loop(opened, make):
    store = opened()
    heard = []
    store.subscribe(lambda events: heard.append((asyncio.get_running_loop(), len(events))))

    async def write():
        await store.record([make.event()])
        return asyncio.get_running_loop()

    assert asyncio.run(write()) is heard[0][0]


async def test_a_cancelled_caller_does_not_disturb_the_others(store, make):
    tasks = [asyncio.create_task(store.record([make.event(f"e{n}")])) for n in range(20)]
    await asyncio.sleep(0)
    tasks[7].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[7], asyncio.CancelledError)
    assert [result for n, result in enumerate(results) if n != 7] == [None] * 19
    await store.record([make.event()])
    assert store.last_seq() in (20, 21)


async def test_closing_writes_what_is_queued_and_refuses_the_rest(opened, make):
    store = opened()
    tasks = [asyncio.create_task(store.submit(make.job(f"j{n}"), [make.event()])) for n in range(50)]
    await asyncio.sleep(0)
    await asyncio.to_thread(store.close)
    assert len(await asyncio.gather(*tasks)) == 50
    with pytest.raises(Unavailable, match="the store is closed"):
        await store.record([make.event()])
    store.close()
    assert opened().last_seq() == 50
