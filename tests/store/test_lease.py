"""One process controls a database; one that lost control writes nothing more."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from shoal.core import Conflict, LeaseLost, ManualClock

HOLDER = """
import sys
from shoal.store import open_store
store = open_store(sys.argv[1])
print(store.acquire("other"), flush=True)
sys.stdin.read()
"""


def take_the_lock_away(url: str, opened) -> None:
    """What must never happen happens: the lock goes while its holder lives."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        Path(f"{parsed.database}.lock").unlink()
        return
    with psycopg.connect(url, autocommit=True) as connection:
        holders = connection.execute("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted").fetchall()
        for (pid,) in holders:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


async def test_the_epoch_grows_with_every_holder(opened):
    first = opened(clock=ManualClock(1000.0))
    assert first.epoch == 0
    assert first.acquire("one") == first.acquire("one") == first.epoch == 1
    second = opened()
    with pytest.raises(Conflict, match=re.escape(f"one controls this database: pid {os.getpid()} on ")) as caught:
        second.acquire("two")
    assert "since 1970-01-01T00:16:40+00:00" in caught.value.what
    with pytest.raises(Conflict, match="one controls"):
        second.acquire("two", wait_s=0.1)
    first.release()
    assert second.acquire("two") == 2
    assert [(event.kind, event.actor) for event in second.events()] == [
        ("control.lease-taken", "one"), ("control.lease-taken", "two"),
    ]  # fmt: skip


async def test_who_released_writes_only_after_taking_it_again(opened, make):
    store = opened()
    store.release()
    store.acquire("one")
    store.release()
    with pytest.raises(LeaseLost, match="was released"):
        await store.record([make.event()])
    assert store.acquire("one") == 2
    await store.record([make.event()])
    other = opened()
    store.release()
    assert other.acquire("other") == 3
    with pytest.raises(Conflict, match="other controls"):
        store.acquire("one")
    with pytest.raises(LeaseLost, match="was released"):
        await store.record([make.event()])


def test_the_lease_ends_with_its_process(opened, url):
    store = opened()
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"1\n"
    with pytest.raises(Conflict, match=f"other controls this database: pid {holder.pid} on "):
        store.acquire("one")
    holder.kill()
    holder.communicate()
    assert store.acquire("one", wait_s=30) == 2


async def test_a_fenced_store_writes_nothing_and_refuses_from_then_on(opened, url, make):
    old = opened()
    old.acquire("old")
    job = await old.submit(make.job("j1"), [make.event()])
    take_the_lock_away(url, opened)
    new = opened()
    assert new.acquire("new", wait_s=30) == 2
    seq = new.last_seq()
    results = await asyncio.gather(
        *(old.submit(make.job(f"late{n}"), [make.event()]) for n in range(10)),
        old.apply(make.change(job)),
        old.record([make.event()]),
        return_exceptions=True,
    )
    assert {type(result) for result in results} == {LeaseLost}
    assert "lost control of the database" in str(results[0])
    assert len({id(result) for result in results}) == len(results)
    assert old.epoch == 0
    assert new.last_seq() == seq
    assert len(new.unfinished_jobs()) == 1
    with pytest.raises(LeaseLost):
        await old.record([make.event()])
    with pytest.raises(Conflict):
        old.acquire("old")
    assert await new.apply(make.change(job))
    assert old.job("j1") == new.job("j1")


async def test_writers_of_two_processes_number_events_without_gaps(opened, make):
    one, two = opened(), opened()
    await asyncio.gather(*(store.record([make.event()] * 3) for _ in range(40) for store in (one, two)))
    assert [event.seq for event in one.events()] == list(range(1, 241))
