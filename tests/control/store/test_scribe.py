"""Large groups are written by a scribe, a process of its own; nobody can tell but by its speed."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.control.lifecycle import JobState
from shoal.control.records import MetricPoint
from shoal.control.store import Store, open_store
from shoal.control.store.database import Database
from shoal.control.store.dictation import Dictation, ScribeGone
from shoal.core import Conflict, Invalid, LeaseLost, ShoalError, Unavailable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shoal.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{path}")
    store.acquire("tester")
    yield store
    store.close()
    assert not scribes(path)


def scribes(path: Path) -> list[int]:
    """Pids of the scribes of this database."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            argv = (entry / "cmdline").read_bytes().split(b"\0")
            if b"shoal.control.scribe" in argv and os.fsencode(path) in argv:
                found.append(int(entry.name))
    return found


def the_scribe(path: Path) -> int:
    (pid,) = scribes(path)
    return pid


async def crowd(store, make, name, size=40, **fields):
    """Many submissions at once, and two steps and a report of each job."""

    async def one(number):
        job = make.job(f"{name}-{number}", **fields)
        await store.submit(job, [make.event(job_id=job.id)])
        change = make.change(job, JobState.ADMITTED, JobState.PLACED, attempt=make.attempt(job.id))
        assert await store.apply(change)
        started = make.change(change.after, JobState.STARTING, message="ünïcode \0 and more", reason={"code": "x"})
        assert await store.apply(started)
        await store.update_progress(job.id, {"step": number})
        await store.add_metrics([MetricPoint(job.id, 1, 0.1 + number, None, "loss", 1 / 3)])
        return job.id

    return await asyncio.gather(*(one(number) for number in range(size)))


def tables(path: Path) -> dict[str, list[tuple]]:
    """All rows; the numbers of events and metrics, which follow the order of arrival, aside."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        columns = {"job": "*", "attempt": "*", "event": "kind, job_id, old_state, new_state, data", "metric": "*"}
        return {
            name: sorted(row[name == "metric" :] for row in connection.execute(f"SELECT {what} FROM {name}"))
            for name, what in columns.items()
        }


def numbers(path: Path) -> list[int]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [seq for (seq,) in connection.execute("SELECT seq FROM event ORDER BY seq")]


def test_what_a_scribe_writes_is_what_the_server_writes(make, store, path, tmp_path, monkeypatch):
    asyncio.run(crowd(store, make, "a"))  # the first large group calls the scribe
    pid = the_scribe(path)
    heard = []
    store.subscribe(heard.extend)
    asyncio.run(crowd(store, make, "b"))
    assert the_scribe(path) == pid
    assert store._writer._scribe.written > 0

    monkeypatch.setattr("shoal.control.store.writer.SCRIBE_FROM", 10_000)
    alone = tmp_path / "alone.db"
    with contextlib.closing(open_store(f"sqlite:///{alone}")) as other:
        other.acquire("tester")
        for name in "ab":
            asyncio.run(crowd(other, make, name))
    assert not scribes(alone)
    ours, theirs = tables(path), tables(alone)
    lease_taken = [row for row in ours["event"] if row[0] == "control.lease-taken"]
    for found in (ours, theirs):
        found["event"] = [row for row in found["event"] if row[0] != "control.lease-taken"]
    assert len(lease_taken) == 1
    assert ours == theirs
    assert numbers(path) == list(range(1, len(numbers(path)) + 1))
    stored = store.events(limit=10_000)
    assert heard == stored[-len(heard) :]


def test_an_idle_server_has_none(make, store, path):
    asyncio.run(crowd(store, make, "few", size=5))
    assert not scribes(path)


def test_a_scribe_killed_again_and_again_costs_nothing(make, store, path):
    killed = set()

    async def scene():
        await crowd(store, make, "first")
        for round_ in range(6):
            load = asyncio.create_task(crowd(store, make, f"round{round_}", size=120))
            while not load.done():
                scribe = store._writer._scribe
                if scribe is not None and scribe.written and scribe.pid not in killed:
                    os.kill(scribe.pid, signal.SIGKILL)
                    killed.add(scribe.pid)
                await asyncio.sleep(0.001)
            await load
            await crowd(store, make, f"after{round_}")

    asyncio.run(scene())
    assert len(killed) > 1
    jobs = store.unfinished_jobs()
    assert len(jobs) == 40 + 6 * 160
    assert {job.version for job in jobs} == {3}
    assert numbers(path) == list(range(1, 1 + 1 + len(jobs) * 4))  # the lease, and each job's submission and steps
    with contextlib.closing(sqlite3.connect(path)) as check:
        assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("committed", [True, False])
def test_one_that_ends_without_an_answer_wrote_all_or_nothing(make, store, path, monkeypatch, committed):
    write = Dictation.write
    ended = []

    def end(self, epoch, packed):
        ended.append(len(packed))
        if committed:
            write(self, epoch, packed)
        raise ScribeGone

    asyncio.run(crowd(store, make, "a"))
    monkeypatch.setattr(Dictation, "write", end)
    asyncio.run(crowd(store, make, "b"))
    assert ended
    assert len(store.unfinished_jobs()) == 80
    assert len(numbers(path)) == 1 + 80 * 4


def test_what_is_stale_or_doubled_in_a_large_group_stands_or_falls_alone(make, store, path):
    async def scene():
        await crowd(store, make, "a")
        first = await asyncio.gather(
            *(store.submit(make.job(f"k{n}", idempotency_key=f"k{n}"), [make.event()]) for n in range(20))
        )
        again = await asyncio.gather(
            *(store.submit(make.job(f"again{n}", idempotency_key=f"k{n}"), [make.event()]) for n in range(20)),
            *(store.submit(make.job(f"new{n}", idempotency_key=f"new{n}"), [make.event()]) for n in range(20)),
            store.submit(make.job("other", idempotency_key="k3", fingerprint="0" * 64), [make.event()]),
            store.submit(make.job("k4"), [make.event()]),
            store.apply(make.change(first[0], JobState.ADMITTED)),
            store.apply(make.change(first[0], JobState.CANCELLED)),
            store.submit(make.job("half", tenant="\ud800"), [make.event()]),
            return_exceptions=True,
        )
        assert [job.id for job in again[:20]] == [f"k{n}" for n in range(20)]
        assert [job.id for job in again[20:40]] == [f"new{n}" for n in range(20)]
        assert isinstance(again[40], Conflict)
        assert isinstance(again[41], Conflict)
        assert again[42:44] == [True, False]
        assert isinstance(again[44], Invalid)

    asyncio.run(crowd(store, make, "before"))
    pid = the_scribe(path)
    asyncio.run(scene())
    assert the_scribe(path) == pid
    assert store.job("k0").state is JobState.ADMITTED
    assert numbers(path) == list(range(1, len(numbers(path)) + 1))


def test_a_full_disk_is_told_and_gone_once_there_is_room(make, path, monkeypatch):
    pragmas = Database.writing_pragmas
    pages = 300
    monkeypatch.setattr(Database, "writing_pragmas", lambda self: {**pragmas(self), "max_page_count": pages})
    with contextlib.closing(open_store(f"sqlite:///{path}")) as store:
        store.acquire("tester")
        asyncio.run(crowd(store, make, "a"))

        async def flood():
            jobs = [make.job(f"big{n}", manifest="x" * 20_000) for n in range(100)]
            return await asyncio.gather(
                *(store.submit(job, [make.event(job_id=job.id)]) for job in jobs), return_exceptions=True
            )

        results = asyncio.run(flood())
        refused = [result for result in results if isinstance(result, ShoalError)]
        assert refused
        assert all(isinstance(error, Unavailable) and "full" in str(error) for error in refused)
        stored = {job.id for job in store.unfinished_jobs()}
        assert {result.id for result in results if not isinstance(result, ShoalError)} == stored - {
            f"a-{n}" for n in range(40)
        }
        pages = 10_000
        os.kill(the_scribe(path), signal.SIGKILL)
        store._database.discard_writer()  # both connect again, to a larger disk
        asyncio.run(crowd(store, make, "b"))
        assert len(store.unfinished_jobs()) == len(stored) + 40


def test_a_new_server_fences_the_old_ones_scribe_out(make, store, path):
    asyncio.run(crowd(store, make, "a"))
    with contextlib.closing(sqlite3.connect(path)) as usurper, usurper:
        usurper.execute("UPDATE control_lease SET epoch = epoch + 1")

    async def late():
        jobs = [make.job(f"late{n}") for n in range(40)]
        return await asyncio.gather(*(store.submit(job, []) for job in jobs), return_exceptions=True)

    assert all(isinstance(result, LeaseLost) for result in asyncio.run(late()))
    assert not [job for job in store.unfinished_jobs() if job.id.startswith("late")]


def test_where_no_process_can_be_made_the_server_writes_by_itself(make, store, path, monkeypatch, caplog):
    def refuse(*_args, **_options):
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    for name in "abc":
        asyncio.run(crowd(store, make, name))
    assert len(store.unfinished_jobs()) == 120
    assert caplog.text.count("no more processes") == 1


def test_one_that_cannot_run_is_not_asked_for_again(make, store, path, monkeypatch, caplog):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for name in "abc":
        asyncio.run(crowd(store, make, name))
    assert len(store.unfinished_jobs()) == 120
    assert caplog.text.count("is gone") == 1


SERVER = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from conftest import Make
from test_scribe import crowd
from shoal.control.store import open_store

store = open_store(sys.argv[1])
store.acquire("victim")
asyncio.run(crowd(store, Make(), "a"))
asyncio.run(crowd(store, Make(), "b"))
print("written", flush=True)
sys.stdin.read()
"""


def test_it_leaves_when_its_server_is_killed(path, request):
    here = str(request.path.parent)
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, f"sqlite:///{path}", here], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdout.readline() == b"written\n"
    assert scribes(path)
    server.kill()
    server.communicate()
    waited(lambda: not scribes(path))
    with contextlib.closing(open_store(f"sqlite:///{path}")) as heir:
        heir.acquire("heir")
        assert len(heir.unfinished_jobs()) == 80


def waited(condition: Callable[[], bool], limit_s: float = 30) -> None:
    give_up_at = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
