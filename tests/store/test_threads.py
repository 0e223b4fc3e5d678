"""Stores that have their writing threads in common."""

from __future__ import annotations

import asyncio

import pytest

from shoal.contract.records import JobFilter
from shoal.core import Unavailable
from shoal.store import WriterThreads, open_store


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
