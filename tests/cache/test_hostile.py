"""Disks that fill up or vanish, and sets without end: readers get their bytes, and the cache stays bounded."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.cache.daemon import Daemon, Planner, Planning
from shoal.cache.daemon.sets import DataSet
from shoal.cache.door.filesystem import ShoalFileSystem
from shoal.core import ShoalError
from tests.cache.kit import CHUNK, Web, ask, cache
from tests.cache.test_daemon import daemon as daemon
from tests.cache.test_daemon import door, eventually
from tests.cache.test_daemon import web as web


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """One of its own: 1 MiB and 60 files."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    path = tmp_path / "disk"
    path.mkdir()
    _mount("-t", "tmpfs", "-o", "size=1m,nr_inodes=60", "none", path)
    yield path
    while subprocess.run(["umount", "-l", path], check=False, stderr=subprocess.DEVNULL).returncode == 0:
        pass  # one may lie on the other


def _mount(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def read_all(fs: ShoalFileSystem, urls: dict[str, bytes]) -> None:
    for url, data in urls.items():
        assert fs.cat_file(url) == data, url


def test_a_disk_that_is_too_small_or_goes_away_costs_readers_nothing(web: Web, disk: Path) -> None:
    large = {web.put(f"/large/{at}", os.urandom(CHUNK - at)): b"" for at in range(20)}
    small = {web.put(f"/small/{at}", os.urandom(9 + at)): b"" for at in range(60)}
    urls = {url: web.objects[url.removeprefix(web.url)] for url in large | small}
    with cache(disk / "c", size=64 * CHUNK) as made:
        fs = door(made)
        read_all(fs, urls)  # neither the bytes nor the files have room
        assert made.cache.store.usage().files < 50
        _mount("-o", "remount,size=16m,nr_inodes=1000", disk)
        eventually(lambda: ask(made, "status")["broken"] is None)
        read_all(fs, urls)
        assert made.cache.store.usage().files == len(urls)
        subprocess.run(["umount", "-l", disk], check=True)
        read_all(fs, urls)


def test_a_disk_that_is_read_only_serves_what_it_holds(web: Web, disk: Path) -> None:
    urls = {web.put(f"/d/{at}", b"%d" % at): b"%d" % at for at in range(4)}
    with cache(disk / "c", size=16 * CHUNK) as made:
        fs = door(made)
        read_all(fs, urls)
        _mount("--bind", disk, disk)
        _mount("-o", "remount,bind,ro", disk)
        gets = dict(web.gets)
        read_all(fs, urls)
        assert web.gets == gets
        late = {web.put("/d/late", b"late"): b"late"}
        read_all(fs, late)
        assert ask(made, "status")["used"]["files"] == 4
        subprocess.run(["umount", "-l", disk], check=True)
        eventually(lambda: read_all(fs, late) or made.cache.store.usage().files == 5)


@pytest.mark.slow
def test_a_million_tiny_objects_are_told_in_one_row(tmp_path: Path) -> None:
    """No status and no round walks over all of them but to add up and to sort numbers."""
    with cache(tmp_path / "c", size=1 << 30, files=1_000_000) as made:
        planner = made.cache.planner
        planner.sets["s3://data/set"] = DataSet("s3://data/set", {f"{at:07x}": at % 100 for at in range(1_000_000)})
        planner.declare("ann", "s3://data/set", 1e8, None)
        (row,) = ask(made, "status")["sets"]
        assert (row["objects"], row["bytes"]) == (1_000_000, 49_500_000)
        kept = ask(made, "decide")["kept"]["s3://data/set"]
        assert kept == pytest.approx((1 << 30) / 4096 / 1_000_000, rel=0.01)  # each takes a block
        assert len(json.dumps(ask(made, "status"))) < 10_000


def test_a_set_without_end_is_known_in_part(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.cache.daemon.planner.MOST_OBJECTS", 5000)
    monkeypatch.setattr(
        "shoal.cache.daemon.inputs._children", lambda _: ((f"sub/{at}", at % 7) for at in range(100_000))
    )
    told = ask(daemon, "declare", url="s3://data/set", options={"key": "k", "secret": "s"}, bytes_per_s=1e6)
    assert told["objects"] == 5000
    ask(daemon, "decide")
    (row,) = ask(daemon, "status")["sets"]
    assert (row["objects"], row["held_bytes"]) == (5000, 0)


def test_a_round_without_tenants_and_one_whose_tenant_was_removed() -> None:
    planner = Planner(Planning(round_s=1.0), 4096, 1 << 20, 100)
    assert planner.round({}).gap == 0.0
    planner.see("file:///set", "key", 8192)
    for name in ("ann", "bob"):
        planner.declare_all({(name, "file:///set"): (1e6, None)})
    planner.weights = {"bob": 0.0}
    assert planner.round({}).kept == {"file:///set": 0.0}  # ann is gone, and bob has no claim
    planner.weights = {}
    assert planner.round({}).kept == {"file:///set": 1.0}  # not known to a server, a tenant counts as one


def test_what_a_tenant_declares_counts_for_no_more_than_its_devices_read() -> None:
    planner = Planner(Planning(round_s=1.0), 4096, 1 << 20, 1 << 20)
    planner.devices = {"ann": 0, "bob": 4}
    for name in ("ann", "bob", "eve"):
        planner.see(f"file:///{name}", "key", 8192)
    planner.declare_all({(name, f"file:///{name}"): (1e300, None) for name in ("ann", "bob", "eve")})
    planner.round({})
    ann, bob, eve = (-planner.order(f"file:///{name}") for name in ("ann", "bob", "eve"))
    assert ann == eve == pytest.approx(bob / 4)
    assert bob == pytest.approx(4 * 10e9 / 8192 * 3600)


@pytest.mark.parametrize("absurd", [float("nan"), float("inf"), -1.0, 1e308, "nan", "abc", []])
def test_no_number_that_a_tenant_tells_stops_the_rounds(daemon: Daemon, tmp_path: Path, absurd: object) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").write_bytes(b"0" * 5000)
    url = f"file://{tmp_path}/set"
    for do, given in (
        ("declare", {"url": url, "bytes_per_s": 1e6}),
        ("declare", {"url": url, "bytes_per_s": 1e6, "epochs": absurd}),
        ("report", {"bytes": {f"{url}/a": absurd}, "waited_s": absurd, "job": "j"}),
        ("declare", {"url": url, "bytes_per_s": absurd, "epochs": absurd}),
    ):
        with suppress(ShoalError):
            ask(daemon, do, **given)
        assert ask(daemon, "decide")["gap"] == pytest.approx(0.0, abs=1e-3)
    status = ask(daemon, "status")
    assert all(math.isfinite(one["read_bytes"]) for one in status["tenants"])
    assert all(math.isfinite(one["seconds"]) for one in status["waits"])


@pytest.mark.parametrize("size", [-1, 10**400])
def test_an_absurd_size_that_a_source_tells_is_not_remembered(size: int) -> None:
    planner = Planner(Planning(round_s=1.0), 4096, 1 << 20, 100)
    assert not planner.see("s3://data/set", "key", size)
    planner.declare_all({("ann", "s3://data/set"): (1e6, None)})
    assert planner.round({}).gap == 0.0


@pytest.mark.parametrize(
    "absurd",
    [
        {"url": "ftp://x/y"}, {"url": "s3://"}, {"url": "file://relative"}, {"url": ""}, {"url": "http://[::1"},
        {"url": "http://a/b\nc"}, {"url": "x" * 5000},
        {"bytes_per_s": "nan"}, {"epochs": "nan"},
    ],
)  # fmt: skip
def test_a_job_that_declares_nonsense_stops_no_other(daemon: Daemon, tmp_path: Path, absurd: dict[str, str]) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").write_bytes(b"0" * 5000)
    url = f"file://{tmp_path}/set"
    ask(daemon, "declare", url=url, bytes_per_s=1.0)
    good = {"tenant": "ann", "url": url, "bytes_per_s": 1e6}
    ask(daemon, "demands", demands=[{**good, "tenant": "eve", **absurd}, good], weights={})
    assert set(ask(daemon, "decide")["kept"]) == {url}
    assert daemon.cache.planner.declared("ann", url) == 1e6
    assert daemon.cache.planner.declared("eve", url) == 0.0
