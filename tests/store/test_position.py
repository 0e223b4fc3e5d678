"""The position beside SQLite's database: never ahead of it, and a witness of what it lost."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from shoal.contract.records import NewEvent
from shoal.core import Unavailable
from shoal.store import Store, open_store
from shoal.store.position import find_loss, last_sequence, position_file, read_position


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'shoal.db'}"


def opened(folder: Path) -> Store:
    store = open_store(url(folder), inline=True)
    store.acquire("test")
    return store


async def write(store: Store, count: int) -> None:
    for number in range(count):
        await store.record([NewEvent(float(number), "test.event", "test", f"number {number}")])


def as_after_a_kill(source: Path, target: Path) -> Path:
    """The files as `kill -9` leaves them: the log is not merged into the database."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*-shm"))
    return target


async def test_it_follows_every_commit_and_stays_over_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        store = opened(tmp_path)
        for _ in range(5):
            await write(store, 1)
            assert read_position(tmp_path / "shoal.db") == store.last_seq()
        store.close()
        assert find_loss(url(tmp_path)) is None


async def test_a_missing_log_is_noticed_and_nothing_is_changed_by_looking(tmp_path: Path) -> None:
    home = tmp_path / "home"
    store = opened(home)
    await write(store, 3)
    store.close()  # all of it is in the database proper
    store = opened(home)
    before = store.last_seq() - 1
    await write(store, 8)
    killed = as_after_a_kill(home, tmp_path / "killed")
    whole = as_after_a_kill(home, tmp_path / "whole")
    newest = store.last_seq()
    store.close()
    assert find_loss(url(whole)) is None
    assert (whole / "shoal.db-wal").stat().st_size > 0
    (killed / "shoal.db-wal").unlink()
    content = (killed / "shoal.db").read_bytes()
    for _ in range(2):
        loss = find_loss(url(killed))
        assert loss is not None
        assert (loss.acknowledged, loss.found) == (newest, before)
        told = str(loss.error())
        assert f"sequence {newest} was acknowledged, the database ends at {before}" in told
        assert "write-ahead log is missing or cut" in told
    assert (killed / "shoal.db").read_bytes() == content


async def test_a_log_that_was_cut_is_noticed_and_kept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    store = opened(home)
    await write(store, 40)
    killed = as_after_a_kill(home, tmp_path / "killed")
    store.close()
    log = killed / "shoal.db-wal"
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size // 2)
    left = log.read_bytes()
    loss = find_loss(url(killed))
    assert loss is not None
    assert loss.found is not None
    assert 0 < loss.found < loss.acknowledged
    assert log.read_bytes() == left


async def test_a_missing_database_is_noticed(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await write(store, 2)
    newest = store.last_seq()
    store.close()
    (tmp_path / "shoal.db").unlink()
    loss = find_loss(url(tmp_path))
    assert loss is not None
    assert (loss.acknowledged, loss.found) == (newest, None)
    assert f"the database is missing: sequence {newest}" in str(loss.error())


async def test_a_number_is_never_given_twice_whatever_was_lost(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await write(store, 5)
    newest = store.last_seq()
    store.close()
    (tmp_path / "shoal.db").unlink()
    store = opened(tmp_path)
    assert [event.seq for event in store.events()] == [newest + 1]
    store.close()


def test_a_new_database_and_other_kinds_have_lost_nothing(tmp_path: Path) -> None:
    assert find_loss(url(tmp_path)) is None
    assert find_loss("sqlite://") is None
    assert last_sequence(tmp_path / "shoal.db") is None
    assert not (tmp_path / "shoal.db").exists()


async def test_an_unreadable_position_raises_no_alarm_and_is_written_anew(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await write(store, 2)
    store.close()
    file = position_file(tmp_path / "shoal.db")
    file.write_bytes(file.read_bytes().replace(b"3", b"9", 1))
    assert read_position(tmp_path / "shoal.db") == 0
    assert find_loss(url(tmp_path)) is None
    opened(tmp_path).close()
    assert read_position(tmp_path / "shoal.db") == 4


def test_a_damaged_database_is_said_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "shoal.db").write_text("not a database, " * 1000)
    with pytest.raises(Unavailable, match="the database is damaged") as raised:
        find_loss(url(tmp_path))
    assert "shoal restore FILE --force" in str(raised.value.hint)


def test_a_database_without_our_tables_has_no_sequence(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "shoal.db")) as connection:
        connection.execute("CREATE TABLE other (x)")
    assert last_sequence(tmp_path / "shoal.db") == 0


async def test_events_that_retention_removed_are_not_lost(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await write(store, 3)
    newest = store.last_seq()
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "shoal.db")) as connection, connection:
        connection.execute("DELETE FROM event WHERE seq > 1")
        connection.commit()
        assert find_loss(url(tmp_path)) is not None
        connection.execute("CREATE TABLE IF NOT EXISTS removed_events (id INTEGER PRIMARY KEY, seq BIGINT NOT NULL)")
        connection.execute("INSERT INTO removed_events VALUES (1, ?)", (newest,))
    assert find_loss(url(tmp_path)) is None
