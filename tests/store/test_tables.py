"""Tables of an extension: written with events and jobs in one transaction, and of a revision of their own."""

from __future__ import annotations

import pytest
from sqlalchemy import Column, Table, Text, insert, select

from shoal.core import Conflict, Unavailable
from shoal.store import Key, Tables, new_metadata, open_store
from tests.store.test_migrations import execute

metadata = new_metadata()
note = Table("note", metadata, Column("id", Key, primary_key=True), Column("said", Text, nullable=False))
NOTES = Tables("notes", metadata, living=select(note.c.id).where(note.c.said == "on"))


@pytest.fixture
def store(opened):
    return opened(tables=[NOTES])


def put(note_id, said="on", current=True):
    def run(connection):
        if current:
            connection.execute(insert(note).values(id=note_id, said=said))
        return current

    return run


async def test_rows_events_and_jobs_are_written_together_or_not_at_all(store, make):
    job = make.job("j-1", owner_id="n-1")
    assert await store.transact(put("n-1"), [make.event(job_id="j-1")], owner_id="n-1", jobs=[job])
    assert store.rows(select(note)) == [("n-1", "on")]
    assert store.job("j-1") == job
    assert [(event.job_id, event.owner_id) for event in store.events(owner_id="n-1")] == [("j-1", "n-1")]
    with pytest.raises(Conflict):
        await store.transact(put("n-2"), [make.event()], jobs=[job])
    with pytest.raises(Conflict):
        await store.transact(put("n-1"), [make.event()], jobs=[make.job("j-2")])
    assert not await store.transact(put("n-3", current=False), [make.event()], jobs=[make.job("j-3")])
    assert store.rows(select(note.c.id)) == [("n-1",)]
    assert [store.job(job_id) for job_id in ("j-2", "j-3")] == [None, None]
    assert store.last_seq() == 1


async def test_what_goes_wrong_in_a_step_is_its_callers_alone(store, make):
    def refuse(_connection):
        raise Conflict("not like this")

    with pytest.raises(Conflict, match="not like this"):
        await store.transact(refuse, [make.event()])
    assert await store.transact(put("n-1"))


async def test_old_events_are_kept_of_what_any_extension_says_lives(opened, make):
    other = new_metadata()
    table = Table("thing", other, Column("id", Key, primary_key=True))
    store = opened(tables=[NOTES, Tables("things", other, living=select(table.c.id))])
    await store.transact(put("n-1"))
    await store.transact(put("n-2", said="off"))
    await store.transact(lambda connection: bool(connection.execute(insert(table).values(id="t-1"))))
    owners = [None, "n-1", "n-2", "t-1", "t-2", None]
    await store.record([make.event(owner_id=owner) for owner in owners])
    assert store.count_events(200.0) == await store.remove_events(200.0, 10) == 3
    assert [event.owner_id for event in store.events()] == ["n-1", "t-1", None]


def test_an_extension_that_is_new_to_a_database_gets_its_tables_there(opened):
    opened()
    assert opened(tables=[NOTES]).rows(select(note)) == []


def test_tables_that_a_newer_extension_wrote_are_refused(url):
    open_store(url, tables=[NOTES]).close()
    execute(url, "UPDATE alembic_version_notes SET version_num = '0002'")
    with pytest.raises(Conflict, match="revision '0002' of the tables of notes, which this Shoal does not know"):
        open_store(url, tables=[NOTES])
    open_store(url).close()


def test_a_table_that_belongs_to_another_is_not_taken_over(url):
    taken = new_metadata()
    Table("job", taken, Column("id", Key, primary_key=True))
    with pytest.raises(Unavailable, match="job"):
        open_store(url, tables=[Tables("greedy", taken)])
