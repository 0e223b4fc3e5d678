"""What was acknowledged stays; what was not leaves no half; and the store goes on when the fault is over."""

import asyncio
import os
import sqlite3
import subprocess
import sys

import psycopg
import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.records import JobFilter
from shoal.core import DiskFull, LeaseLost, Unavailable
from shoal.store import open_store

SUBMITTER = """
import asyncio, sys
from itertools import count
sys.path.insert(0, sys.argv[2])
from conftest import Make
from shoal.contract.lifecycle import JobState
from shoal.store import open_store

async def client(store, make, number):
    for n in count():
        job_id = f"{number}-{n}"
        job = await store.submit(make.job(job_id, idempotency_key=job_id), [make.event(job_id=job_id)])
        print("submitted", job_id, flush=True)
        change = make.change(job, JobState.ADMITTED, JobState.PLACED, attempt=make.attempt(job_id))
        assert await store.apply(change)
        print("placed", job_id, flush=True)

async def main():
    store = open_store(sys.argv[1])
    store.acquire("victim")
    await asyncio.gather(*(client(store, Make(), number) for number in range(40)))

asyncio.run(main())
"""


def test_a_killed_writer_loses_nothing_it_acknowledged(url, make, request):
    here = str(request.path.parent)
    victim = subprocess.Popen([sys.executable, "-c", SUBMITTER, url, here], stdout=subprocess.PIPE)
    acknowledged = [victim.stdout.readline() for _ in range(2000)]
    victim.kill()
    acknowledged += victim.communicate()[0].splitlines(keepends=True)
    said = [tuple(line.decode().split()) for line in acknowledged if line.endswith(b"\n")]
    assert len(said) >= 2000

    store = open_store(url)
    store.acquire("heir", wait_s=30)
    stored = {job.id: job for job in store.unfinished_jobs()}
    for what, job_id in said:
        assert job_id in stored
        if what == "placed":
            assert stored[job_id].state is JobState.PLACED
    # Row, attempt and events stand or fall together.
    events = store.events(limit=1_000_000)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    states = {}
    for event in events:
        if event.kind == "job.state":
            states[event.job_id] = event.new_state
    assert states == {job_id: job.state for job_id, job in stored.items() if job.version == 2}
    store.close()
    if url.startswith("sqlite"):
        check = sqlite3.connect(url.removeprefix("sqlite:///"))
        assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert check.execute("PRAGMA foreign_key_check").fetchall() == []
        assert check.execute("SELECT count(*) FROM attempt").fetchone() == (len(states),)
        check.close()


@pytest.fixture
def small_disk(tmp_path):
    """A directory with room for 3 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("a small file system to fill can be mounted by root only")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "shoal-test", place], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("inline", [False, True])
async def test_a_full_disk_refuses_writes_and_the_store_goes_on_when_there_is_room(small_disk, make, inline):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (1 << 20))
    store = open_store(f"sqlite:///{small_disk / 'shoal.db'}", inline=inline)
    store.acquire("one")
    kept, refused = [], []
    for n in range(200):
        batch = [make.job(f"{n}-{m}", manifest='"' + "x" * 9_000 + '"') for m in range(5)]
        results = await asyncio.gather(
            *(store.submit(job, [make.event(job_id=job.id)]) for job in batch), return_exceptions=True
        )
        kept += [job.id for job, result in zip(batch, results, strict=True) if result == job]
        refused += [(job, result) for job, result in zip(batch, results, strict=True) if result != job]
        if refused:
            break
    assert kept
    for job, error in refused:
        assert type(error) is DiskFull
        assert "the disk is full" in str(error)
        assert "free some space" in error.hint
        assert store.job(job.id) is None
    assert {event.job_id for event in store.events()} == {None, *kept}

    ballast.unlink()
    for job, _ in refused:
        assert await store.submit(job, [make.event(job_id=job.id)]) == job
    assert len(store.jobs(JobFilter(limit=1000))) == len(kept) + len(refused)
    store.close()
    check = sqlite3.connect(small_disk / "shoal.db")
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()


def end_sessions(url: str) -> None:
    """As a restart of PostgreSQL would, for this test's database alone."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_postgresql_may_restart_under_a_store_without_the_lease(url, opened, make):
    store = opened()
    await store.submit(make.job("j1"), [make.event()])
    assert store.job("j1") is not None
    end_sessions(url)
    assert store.job("j1") is not None
    await store.submit(make.job("j2"), [make.event()])
    assert store.last_seq() == 2


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_who_loses_the_session_of_the_lease_is_fenced_even_without_an_heir(url, opened, make):
    store = opened()
    store.acquire("one")
    end_sessions(url)
    with pytest.raises(LeaseLost, match="its session with the database ended"):
        await store.record([make.event()])
    assert store.last_seq() == 1


async def test_a_broken_database_is_unavailable_until_it_is_mended(tmp_path, make):
    path = tmp_path / "shoal.db"
    store = open_store(f"sqlite:///{path}")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("ALTER TABLE job RENAME TO job_away")
    with pytest.raises(Unavailable, match="no such table"):
        store.job("j1")
    with pytest.raises(Unavailable, match="no such table"):
        await store.submit(make.job("j1"), [make.event()])
    other.execute("ALTER TABLE job_away RENAME TO job")
    other.close()
    assert await store.submit(make.job("j1"), [make.event()])
    assert store.last_seq() == 1
    store.close()
