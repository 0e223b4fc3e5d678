"""Stores that have their writing threads in common."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from shoal.contract.records import JobFilter
from shoal.core import Unavailable
from shoal.store import WriterThreads, open_store, writer


def test_stores_that_share_threads_write_all_that_each_was_asked_for(tmp_path, make):
    threads = WriterThreads(2)
    stores = [open_store(f"sqlite:///{tmp_path / f'{at}.db'}", threads=threads) for at in range(12)]

    async def submit_to_all():
        for at, store in enumerate(stores):
            store.acquire(f"holder-{at}")
        jobs = [(store, make.job(f"{at}-{n}")) for n in range(30) for at, store in enumerate(stores)]
        await asyncio.gather(*(store.submit(job, [make.event(job_id=job.id)]) for store, job in jobs))

    asyncio.run(submit_to_all())
    for at, store in enumerate(stores):
        assert sorted(job.id for job in store.jobs(JobFilter(limit=100))) == sorted(f"{at}-{n}" for n in range(30))
        store.close()
    threads.close()


def test_a_store_closes_without_the_threads_that_others_use(tmp_path, make):
    threads = WriterThreads()
    gone, stays = (open_store(f"sqlite:///{tmp_path / f'{name}.db'}", threads=threads) for name in ("gone", "stays"))

    async def scene():
        gone.acquire("a")
        stays.acquire("b")
        write = asyncio.ensure_future(gone.submit(make.job("last"), []))
        await asyncio.sleep(0)
        gone.close()
        assert (await write).id == "last"
        with pytest.raises(Unavailable, match="closed"):
            await gone.submit(make.job("late"), [])
        await stays.submit(make.job("other"), [])

    asyncio.run(scene())
    assert [job.id for job in stays.jobs(JobFilter())] == ["other"]
    stays.close()
    threads.close()


def test_a_write_is_acknowledged_once_it_is_on_disk(tmp_path, make, monkeypatch):
    flushed, on_disk, real = threading.Event(), [], os.fdatasync

    def slow(file):
        if str(Path(f"/proc/self/fd/{file}").readlink()).endswith("-wal"):
            flushed.wait(5)
            on_disk.append(file)
        real(file)

    threads = WriterThreads(2)
    one, other = (open_store(f"sqlite:///{tmp_path / f'{name}.db'}", threads=threads) for name in ("one", "other"))

    async def scene():
        one.acquire("a")
        other.acquire("b")
        monkeypatch.setattr(os, "fdatasync", slow)
        writes = [asyncio.ensure_future(store.submit(make.job("job"), [])) for store in (one, other)]
        while not (one.job("job") and other.job("job")):  # both are committed while neither is flushed
            await asyncio.sleep(0.01)
        assert not on_disk
        assert not any(write.done() for write in writes)
        flushed.set()
        await asyncio.gather(*writes)
        assert len(on_disk) == 2

    asyncio.run(scene())
    one.close()
    other.close()
    threads.close()


def test_what_cannot_be_flushed_is_not_acknowledged(tmp_path, make, monkeypatch):
    def fail(_):
        raise OSError(5, "Input/output error")

    threads = WriterThreads()
    store = open_store(f"sqlite:///{tmp_path / 'a.db'}", threads=threads)
    told = []

    async def scene():
        store.acquire("a")
        store.subscribe(told.extend)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail)
            with pytest.raises(Unavailable, match="Input/output error"):
                await store.submit(make.job("lost"), [make.event(job_id="lost")])
        assert not told
        await store.submit(make.job("kept"), [make.event(job_id="kept")])
        assert [event.job_id for event in told] == ["kept"]

    asyncio.run(scene())
    store.close()
    threads.close()


@pytest.mark.parametrize(("share", "waits"), [(0.0, True), (1e9, False)])
def test_only_in_a_flood_does_a_busy_store_wait_and_no_other_one(tmp_path, make, monkeypatch, share, waits):
    monkeypatch.setattr(writer, "_FLOOD", share)
    threads = WriterThreads(2)
    stores = [open_store(f"sqlite:///{tmp_path / f'{at}.db'}", threads=threads) for at in range(4)]

    async def scene():
        for at, store in enumerate(stores):
            store.acquire(f"holder-{at}")
        *busy, quiet = stores
        for n in range(3):
            await asyncio.gather(*(store.submit(make.job(f"{n}"), []) for store in busy))
        assert [store._writer.not_before > 0 for store in busy] == [waits] * 3
        assert quiet._writer.not_before == 0.0
        await asyncio.gather(*(store.submit(make.job("last"), []) for store in stores))

    asyncio.run(scene())
    assert all(store.job("last") for store in stores)
    for store in stores:
        store.close()
    threads.close()
