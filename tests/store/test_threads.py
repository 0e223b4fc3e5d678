"""Stores that have their writing threads in common."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal.contract.records import JobFilter
from shoal.core import Unavailable
from shoal.store import WriterThreads, open_store, writer_threads
from shoal.store.announcing import announce
from shoal.store.writer import Writer
from shoal.store.writer_threads import whose_turn


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


def test_a_store_that_gave_its_memory_back_flushes_the_log_that_is_there(tmp_path, make, monkeypatch):
    threads, real, flushed = WriterThreads(), os.fdatasync, []
    path = tmp_path / "one.db"
    store = open_store(f"sqlite:///{path}", threads=threads)

    def noted(file):
        if str(Path(f"/proc/self/fd/{file}").readlink()).startswith(f"{path}-wal"):
            flushed.append(os.fstat(file).st_ino == Path(f"{path}-wal").stat().st_ino)
        real(file)

    async def scene():
        store.acquire("a")
        monkeypatch.setattr(os, "fdatasync", noted)
        for number in range(3):
            await store.submit(make.job(f"job-{number}"), [])
            store.release_memory()

    asyncio.run(scene())
    assert flushed == [True] * 3
    assert sorted(job.id for job in store.jobs(JobFilter())) == ["job-0", "job-1", "job-2"]
    store.close()
    threads.close()


def test_a_write_is_acknowledged_once_it_is_on_disk(tmp_path, make, monkeypatch):
    flushed, on_disk, real = threading.Event(), [], os.fdatasync

    def slow(file):
        if str(Path(f"/proc/self/fd/{file}").readlink()).endswith("-wal"):
            flushed.wait(60)
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


def test_after_a_pause_the_first_are_told_before_the_last_are_written(tmp_path, make, monkeypatch):
    threads, steps = WriterThreads(2), []
    stores = [open_store(f"sqlite:///{tmp_path / f'{at}.db'}", threads=threads) for at in range(30)]
    committed = Writer.commit

    def commit(writer, limit):
        steps.append("written")
        return committed(writer, limit)

    def tell(told):
        steps.append("told")
        return announce(told)

    async def scene():
        for at, store in enumerate(stores):
            store.acquire(f"holder-{at}")
        await asyncio.gather(*(store.submit(make.job("job"), []) for store in stores))

    monkeypatch.setattr(Writer, "commit", commit)
    monkeypatch.setattr(writer_threads, "announce", tell)
    asyncio.run(scene())
    for store in stores:
        store.close()
    threads.close()
    assert "told" in steps[: len(stores)]


@dataclass(eq=False)
class Asking:
    """A store with so many rows to write."""

    backlog: int


def test_the_usual_stores_write_all_they_have_in_a_round():
    stores = [Asking(rows) for rows in (1, 5, 10, 20, 20, 19, 38)]
    assert list(whose_turn(dict.fromkeys(stores, 0)).values()) == [1024] * 7


@pytest.mark.parametrize(("left_out", "rows"), [(0, None), (2, None), (3, 10), (4, 10)])
def test_a_store_with_much_more_work_than_the_others_is_left_out_of_some_rounds_and_then_writes_little(left_out, rows):
    others, flooding = [Asking(10), Asking(10), Asking(12)], Asking(500)
    turns = whose_turn({flooding: left_out, **dict.fromkeys(others, 0)})
    assert [turns.get(one) for one in others] == [1024] * 3
    assert turns.get(flooding) == rows
    assert whose_turn({(more := Asking(21)): 3, **dict.fromkeys(others, 0)})[more] == 10


def test_little_is_never_much():
    stores = [Asking(1), Asking(1), Asking(8), Asking(9)]
    assert [one.backlog for one in whose_turn(dict.fromkeys(stores, 0))] == [1, 1, 8]
    assert whose_turn({stores[3]: 3, stores[0]: 0, stores[1]: 0})[stores[3]] == 8


def test_a_store_that_asks_alone_writes_at_once_all_it_has():
    store = Asking(5000)
    assert whose_turn({store: 0}) == {store: 1024}
    assert whose_turn({}) == {}
