"""Shared memory regions: whose they are, what may become one, and what a hostile owner can do."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.core import Conflict, NotFound, Overloaded
from shoal.inference.errors import BadRequest
from shoal.inference.protocol.regions import Place
from shoal.serve.gateway.shared_memory import SharedRegions

Make = Callable[..., str]


@pytest.fixture
def regions(tmp_path: Path) -> Iterator[SharedRegions]:
    found = SharedRegions(folder=tmp_path, most_regions=3)
    yield found
    found.close()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(name: str = "a", size: int = 100, mode: int = 0o600) -> str:
        path = tmp_path / name
        path.write_bytes(bytes(range(size)))
        path.chmod(mode)
        return f"/{name}"

    return made


def test_what_is_registered_can_be_read_and_written(regions: SharedRegions, make: Make, tmp_path: Path) -> None:
    regions.register("ada", "r", make(), 10, 50)
    assert bytes(regions.read("ada", Place("r", 5, 3))) == bytes([15, 16, 17])
    regions.write("ada", Place("r", 48, 2), b"xy")
    assert (tmp_path / "a").read_bytes()[57:61] == b"9xy<"
    (told,) = regions.status("ada")
    assert (told.name, told.key, told.offset, told.size) == ("r", "/a", 10, 50)
    regions.unregister("ada", "r")
    regions.unregister("ada", "r")
    with pytest.raises(NotFound, match="region 'r': not registered"):
        regions.status("ada", "r")


@pytest.mark.parametrize(("offset", "size"), [(0, 51), (50, 1), (2**63, 1), (0, 2**63)])
def test_nothing_beyond_the_region_can_be_reached(regions: SharedRegions, make: Make, offset: int, size: int) -> None:
    regions.register("ada", "r", make(), 10, 50)
    place = Place("r", offset, size)
    for reach in (regions.check, regions.read, lambda tenant, place: regions.write(tenant, place, b"x")):
        with pytest.raises(BadRequest, match="reach beyond its 50 bytes"):
            reach("ada", place)


def test_a_region_belongs_to_its_tenant(regions: SharedRegions, make: Make, tmp_path: Path) -> None:
    regions.register("ada", "r", make(), 0, 100)
    with pytest.raises(BadRequest, match="not registered"):
        regions.read("bob", Place("r", 0, 1))
    assert regions.status("bob") == []
    os.link(tmp_path / "a", tmp_path / "b")
    for key in ("/a", "a", "/b"):
        with pytest.raises(Conflict, match="is in use"):
            regions.register("bob", "mine", key, 0, 100)
    regions.register("ada", "again", "/a", 0, 100)
    regions.register("bob", "r", make("c"), 0, 100)
    regions.unregister("bob")
    regions.read("ada", Place("r", 0, 1))
    regions.unregister("ada")
    regions.register("bob", "mine", "/a", 0, 100)


@pytest.mark.parametrize(
    "key", ["", "/", "..", "/../a", "a/b", "//a", "a\0b", "ä", "x" * 256, "shoal-replica-1", "/shoal-x"]
)
def test_keys_that_name_no_segment_of_a_caller(regions: SharedRegions, make: Make, key: str) -> None:
    make("shoal-x")
    with pytest.raises(BadRequest, match=r"no name of a shared memory segment|the server's own"):
        regions.register("ada", "r", key, 0, 10)


def test_what_cannot_become_a_region(regions: SharedRegions, make: Make, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    make()
    for key, offset, size, complaint in [
        ("none", 0, 10, "No such file"),
        ("link", 0, 10, "cannot open"),
        ("folder", 0, 10, "cannot open"),
        ("fifo", 0, 10, "no shared memory"),
        ("a", 0, 101, "it has 100 bytes, offset and byte_size reach to 101"),
        ("a", 91, 10, "reach to 101"),
        ("a", -1, 10, "must not be negative"),
        ("a", 0, 0, "byte_size positive"),
        ("a", 2**64, 2**64, "reach to"),
    ]:
        with pytest.raises(BadRequest, match=complaint):
            regions.register("ada", "r", key, offset, size)
    for name in ("", "x" * 256):
        with pytest.raises(BadRequest, match="1 to 255 characters"):
            regions.register("ada", name, "a", 0, 10)
    assert regions.status("ada") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make other users' files")
def test_other_users_segments_only_if_they_are_open_to_all(regions: SharedRegions, make: Make, tmp_path: Path) -> None:
    for name, mode in (("secret", 0o660), ("open", 0o666)):
        make(name, mode=mode)
        os.chown(tmp_path / name, 12345, 12345)
    with pytest.raises(BadRequest, match="another user's"):
        regions.register("ada", "r", "secret", 0, 10)
    regions.register("ada", "r", "open", 0, 10)


def test_a_segment_that_shrinks_is_an_error_and_no_crash(regions: SharedRegions, make: Make, tmp_path: Path) -> None:
    regions.register("ada", "r", make(), 0, 100)
    os.truncate(tmp_path / "a", 50)
    place = Place("r", 40, 20)
    with pytest.raises(BadRequest, match="became shorter"):
        regions.read("ada", place)
    with pytest.raises(BadRequest, match="became shorter"):
        regions.write("ada", place, bytes(20))
    assert (tmp_path / "a").stat().st_size == 50


def test_a_tenant_has_only_so_many(regions: SharedRegions, make: Make) -> None:
    make()
    for name in "abc":
        regions.register("ada", name, "a", 0, 10)
    with pytest.raises(Conflict, match="already registered"):
        regions.register("bob", "r", make("b"), 0, 10) or regions.register("bob", "r", "b", 0, 10)
    with pytest.raises(Overloaded, match="may register 3 regions"):
        regions.register("ada", "d", "a", 0, 10)


def test_segments_of_clients_that_died_make_room(make: Make, tmp_path: Path) -> None:
    """A segment without a name is in use as long as somebody holds a lock on it."""
    for name in ("dead", "alive", "other"):
        make(name)
    regions = SharedRegions(folder=tmp_path, most_regions=2)
    code = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_SH); print('locked', flush=True);"
        "sys.stdin.read()"
    )
    ask = [sys.executable, "-c", code, str(tmp_path / "dead")]
    with (
        (tmp_path / "alive").open() as alive,
        subprocess.Popen(ask, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        fcntl.flock(alive, fcntl.LOCK_SH)
        for name in ("dead", "alive"):
            regions.register("ada", name, name, 0, 100)
            (tmp_path / name).unlink()
        with pytest.raises(Overloaded):
            regions.register("ada", "other", "other", 0, 100)
        child.kill()
        child.wait()
        regions.register("ada", "other", "other", 0, 100)
        assert sorted(one.name for one in regions.status("ada")) == ["alive", "other"]
    regions.close()
