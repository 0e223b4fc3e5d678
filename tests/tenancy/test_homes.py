"""The folders of planes, whenever the server is killed: a plane is there with its own files, or it is not there."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.records import JobFilter
from shoal.core import NotFound, Unavailable
from shoal.store import database_files
from shoal.tenancy.live.homes import PlaneHomes

from .world import World, play

Scene = Callable[[World], Awaitable[None]]


def killed_at(folder: Path, place: str, scene: Scene) -> None:
    """Play a scene in a process that is killed at this place."""

    def run() -> None:
        def fault(here: str) -> None:
            if here == place:
                os.kill(os.getpid(), signal.SIGKILL)

        play(folder, scene, fault=fault)

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL


def folders(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "planes").iterdir() if path.name != ".by-id")


async def ids(world: World) -> list[str]:
    """Of all planes, once what is left over of others had time to be removed."""
    await asyncio.sleep(5.0)
    return sorted(plane.id for plane in world.planes.all())


@pytest.mark.few
@pytest.mark.parametrize("place", ["made", "filled", "recorded"])
def test_a_plane_whose_making_was_killed_is_there_with_its_files_or_not_at_all(tmp_path: Path, place: str) -> None:
    async def before(world: World) -> None:
        await world.make("red")

    async def after(world: World) -> None:
        assert await ids(world) == folders(tmp_path)
        if place == "recorded":
            assert await world.planes.new_token("red", actor="admin")  # that of its making was never shown
        else:
            assert folders(tmp_path) == []
            await world.planes.create("red", "red", actor="admin")
        job = await world.submit("red")
        await world.until("red", job, JobState.RUNNING)

    killed_at(tmp_path, place, before)
    play(tmp_path, after)


@pytest.mark.few
@pytest.mark.parametrize("place", ["retired", "unrecorded"])
def test_a_plane_whose_deletion_was_killed_has_all_its_files_or_is_gone_with_them(tmp_path: Path, place: str) -> None:
    async def before(world: World) -> None:
        await world.make("red")
        await world.until("red", await world.submit("red"), JobState.SUCCEEDED, within_s=2 * 3600)
        await world.planes.delete("red", actor="admin")

    async def after(world: World) -> None:
        assert await ids(world) == folders(tmp_path)
        if place == "retired":
            assert len((await world.awake("red")).plane.store.jobs(JobFilter())) == 1
            await world.planes.delete("red", actor="admin")
        with pytest.raises(NotFound):
            world.planes.find("red")
        await world.planes.create("red", "red", actor="admin")
        assert (await world.awake("red")).plane.store.jobs(JobFilter()) == []
        assert await ids(world) == folders(tmp_path)

    killed_at(tmp_path, place, before)
    play(tmp_path, after)


def test_a_folder_that_is_left_of_another_plane_is_never_taken(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        old = world.planes.home(world.planes.find("red"))
        kept = tmp_path / "kept"
        await world.submit("red")
        await world.planes.delete("red", actor="admin", force=True)
        (found,) = (tmp_path / "planes").glob(".deleted-*")
        found.rename(kept)
        for name in ("red", ".deleted-p-1", old.name):  # wherever a server of any version may have left it
            (tmp_path / "planes" / name).mkdir()
            for file in kept.glob("shoal.db*"):
                (tmp_path / "planes" / name / file.name).write_bytes(file.read_bytes())
        await world.planes.create("red", "red", actor="admin")
        assert (await world.awake("red")).plane.store.jobs(JobFilter()) == []
        await world.restart()
        assert (await world.awake("red")).plane.store.jobs(JobFilter()) == []
        await asyncio.sleep(5.0)
        assert not (tmp_path / "planes" / ".deleted-p-1").exists()

    play(tmp_path, scene)


def as_of_an_earlier_version(home: Path) -> None:
    """Folders named by their planes' names."""
    with closing(sqlite3.connect(home / "shared.db")) as connection:
        for plane_id, name in connection.execute("SELECT id, name FROM plane").fetchall():
            (home / "planes" / plane_id).rename(home / "planes" / name)
    (home / "planes" / ".by-id").unlink()


def test_planes_of_an_earlier_version_go_on_and_get_their_folders(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        for name in ("red", "blue"):
            await world.make(name)
        done = await world.submit("red")
        await world.until("red", done, JobState.SUCCEEDED, within_s=2 * 3600)
        await asyncio.sleep(600.0)
        long = await world.submit("blue")
        await world.until("blue", long, JobState.RUNNING)
        await world.kill()
        as_of_an_earlier_version(tmp_path)
        (tmp_path / "planes" / "blue" / "file").write_text("of the job that runs")
        await world.start()
        red, blue = world.planes.find("red"), world.planes.find("blue")
        assert await world.state("red", done) is JobState.SUCCEEDED
        assert await world.state("blue", long) is JobState.RUNNING
        assert world.planes.home(red).name == red.id
        # What runs knows its folder by the name that it had.
        assert (tmp_path / "planes" / "blue" / "file").read_text() == "of the job that runs"
        await world.restart()
        assert await world.state("blue", long) is JobState.RUNNING
        await world.until("blue", long, JobState.SUCCEEDED, within_s=2 * 3600)
        await asyncio.sleep(600.0)
        assert not world.planes.is_awake("blue")
        assert folders(tmp_path) == sorted([red.id, blue.id])
        assert (world.planes.home(blue) / "file").read_text() == "of the job that runs"
        assert await world.state("blue", long) is JobState.SUCCEEDED
        assert set(world.cluster.starts.values()) == {1}

    play(tmp_path, scene)


def test_a_plane_of_an_earlier_version_is_deleted_with_its_work_and_files(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("blue")
        await world.until("blue", await world.submit("blue"), JobState.RUNNING)
        await world.kill()
        as_of_an_earlier_version(tmp_path)
        await world.start()
        await world.planes.delete("blue", actor="admin", force=True)
        assert await ids(world) == folders(tmp_path) == []

    play(tmp_path, scene)


@pytest.mark.parametrize("killed", range(5))
def test_a_folder_of_an_earlier_version_is_moved_whole_whenever_that_is_killed(tmp_path: Path, killed: int) -> None:
    """`killed`: before which of its steps, each of which the file system takes whole."""
    homes = PlaneHomes(tmp_path)
    record_id, content = "p-1", tmp_path / "red" / "shoal.db"
    content.parent.mkdir()
    content.write_text("content")
    plane = type("Record", (), {"id": record_id, "name": "red"})
    steps = 0

    class Killed(BaseException):
        pass

    def count(act: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **named: object) -> object:
            nonlocal steps
            steps += 1
            if steps == killed + 1:
                raise Killed
            return act(*args, **named)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "unlink", "symlink_to"):
            patch.setattr(Path, name, count(getattr(Path, name)))
        try:
            homes.settle([plane], [])  # type: ignore[list-item]
        except Killed:
            pass
        else:
            assert killed >= steps
    again = PlaneHomes(tmp_path)
    again.settle([plane], [])  # type: ignore[list-item]
    assert (again.find(record_id) / "shoal.db").read_text() == "content"
    assert again.find(record_id) == tmp_path / record_id
    assert not again.left_over()


@pytest.mark.parametrize("left", ["nothing", "position", "older"])
def test_a_plane_that_lost_its_database_is_refused_until_a_backup_is_in_its_place(tmp_path: Path, left: str) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        await world.make("blue")
        job = await world.submit("red")
        await world.until("red", job, JobState.SUCCEEDED, within_s=2 * 3600)
        kept = await world.planes.backup("red")
        await asyncio.sleep(600.0)
        assert not world.planes.is_awake("red")
        database = world.planes.home(world.planes.find("red")) / "shoal.db"
        before = database.read_bytes()
        if left == "older":
            await world.until("red", await world.submit("red"), JobState.SUCCEEDED, within_s=2 * 3600)
            await asyncio.sleep(600.0)
        for part in database_files(database):
            if left == "nothing" or not part.name.endswith(".position"):
                part.unlink()
        if left == "older":
            database.write_bytes(before)
        for _ in range(2):
            with pytest.raises(Unavailable, match="plane red cannot be opened") as refused:
                await world.awake("red")
            assert str(tmp_path) not in str(refused.value)
            assert "shoal plane restore red FILE" in str(refused.value.hint)
        assert database.exists() == (left == "older")
        await world.awake("blue")
        await world.planes.restore("red", kept, actor="admin")
        assert await world.state("red", job) is JobState.SUCCEEDED

    play(tmp_path, scene)
