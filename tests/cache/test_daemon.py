"""The daemon and the door in front of it, beside sources that change, fail and refuse."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import fsspec
import pytest

from shoal.cache.daemon import Connection, Daemon, Planning, token_of
from shoal.cache.daemon.sets import DataSet, order_of
from shoal.cache.door.filesystem import ShoalFileSystem
from shoal.cache.door.node import Node
from shoal.cache.sources import key_of, source_of
from shoal.core import Conflict, Forbidden, Invalid, NotFound, ShoalError
from tests.cache.kit import CHUNK, Web, ask, cache


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    yield made
    made.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with cache(tmp_path / "c", recheck_s=60.0) as made:
        yield made


def door(daemon: Daemon, tenant: str = "ann", protocol: str = "http", **options: object) -> ShoalFileSystem:
    return ShoalFileSystem(
        target_protocol=protocol, target_options=options, cache_root=str(daemon.cache.store.root), tenant=tenant,
        skip_instance_cache=True,
    )  # fmt: skip


def links(daemon: Daemon, tenant: str = "ann") -> list[str]:
    folder = daemon.cache.store.root / "links" / tenant
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


# --- hits and misses ---


def test_a_miss_is_fetched_once_and_a_hit_is_an_ordinary_file(web: Web, daemon: Daemon) -> None:
    url = web.put("/d/a", b"hello")
    fs = door(daemon)
    assert fs.open(url).read() == b"hello"
    with fs.open(url) as file:
        assert file.read() == b"hello"
        assert os.fstat(file.fileno()).st_nlink == 2
    assert web.gets == {"/d/a": 1}


def test_concurrent_misses_of_one_object_fetch_it_once(web: Web, daemon: Daemon) -> None:
    web.delay_s = 0.3
    url = web.put("/d/a", bytes(5000))
    with ThreadPoolExecutor(12) as threads:
        found = list(threads.map(lambda at: door(daemon, f"t{at % 3}").open(url).read(), range(12)))
    assert set(found) == {bytes(5000)}
    assert web.gets == {"/d/a": 1}
    assert daemon.cache.store.usage().files == 1


def test_a_large_object_is_read_by_chunks_and_in_any_order(web: Web, daemon: Daemon) -> None:
    data = os.urandom(3 * CHUNK + 1234)
    url = web.put("/d/big", data)
    fs = door(daemon)
    with fs.open(url) as file:
        for start, count in ((CHUNK - 5, 10), (3 * CHUNK, 2000), (0, 7), (2 * CHUNK + 1, CHUNK)):
            file.seek(start)
            assert file.read(count) == data[start : start + count]
    assert fs.cat_file(url) == data
    assert fs.cat_file(url, -10) == data[-10:]
    assert fs.cat_file(url, 5, -5) == data[5:-5]
    gets = web.gets["/d/big"]
    assert fs.cat_file(url) == data
    assert web.gets["/d/big"] == gets == 4


def test_the_chain_of_fsspec_and_its_directories(tmp_path: Path, daemon: Daemon) -> None:
    folder = tmp_path / "source" / "x"
    folder.mkdir(parents=True)
    for at in range(3):
        (folder / f"{at}.bin").write_bytes(bytes([at]))
    root = str(daemon.cache.store.root)
    with fsspec.open(f"shoal::file://{folder}/1.bin", cache_root=root) as file:
        assert file.read() == b"\x01"
    fs, path = fsspec.core.url_to_fs(f"shoal::file://{tmp_path}/source", cache_root=root)
    assert [Path(name).name for name in fs.find(path)] == ["0.bin", "1.bin", "2.bin"]
    assert [Path(name).name for name in fs.glob(f"{path}/x/[01].bin")] == ["0.bin", "1.bin"]
    assert fs.isdir(f"{path}/x")
    assert fs.size(f"{path}/x/2.bin") == 1
    with fsspec.open(f"shoal://file://{folder}/2.bin", cache_root=root) as file:
        assert file.read() == b"\x02"
    with pytest.raises(NotImplementedError, match="read-only"):
        fs.open(f"{path}/x/2.bin", "wb")


def test_the_cache_serves_while_its_daemon_is_dead(web: Web, tmp_path: Path) -> None:
    one, other, big = web.put("/d/1", b"one"), web.put("/d/2", b"two"), web.put("/d/b", os.urandom(2 * CHUNK))
    with cache(tmp_path / "c") as daemon:
        fs = door(daemon)
        for url in (one, big):
            fs.cat_file(url)
    gets = dict(web.gets)
    fs = ShoalFileSystem(target_protocol="http", cache_root=str(tmp_path / "c"), tenant="ann", skip_instance_cache=True)
    assert fs.cat_file(one) == b"one"
    with pytest.warns(RuntimeWarning, match="reading from the source itself"):
        found = [fs.cat_file(big), fs.cat_file(other)]
    assert found == [web.objects["/d/b"], b"two"]
    assert web.gets == gets | {"/d/2": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fs.cat_file(other)  # one warning only


def test_reads_are_reported_and_counted(web: Web, daemon: Daemon) -> None:
    url = web.put("/d/a", bytes(1000))
    fs = door(daemon)
    for _ in range(5):
        fs.cat_file(url)
    fs._node.report()
    status = eventually(lambda: next(
        (one for one in ask(daemon, "status")["tenants"] if one["tenant"] == "ann" and one["read_bytes"] >= 5000), None
    ))  # fmt: skip
    assert status["read_bytes"] == 5000
    assert status["saved_bytes"] == 4000
    assert status["loads"] == 1
    assert status["held_bytes"] == 1000


def test_what_two_tenants_read_is_one_copy_charged_to_both(web: Web, daemon: Daemon) -> None:
    url = web.put("/d/a", bytes(1000))
    for tenant in ("ann", "bob"):
        door(daemon, tenant).cat_file(url)
    assert web.gets == {"/d/a": 1}
    assert daemon.cache.held_by_tenant() == {"ann": 500, "bob": 500}


# --- rights ---


def test_knowing_a_url_is_not_enough(web: Web, daemon: Daemon) -> None:
    url = web.put("/private/a", b"secret")
    web.secret["/private/a"] = "Bearer ann"
    ann = door(daemon, "ann", headers={"Authorization": "Bearer ann"})
    assert ann.cat_file(url) == b"secret"
    for wrong in ({}, {"headers": {"Authorization": "Bearer bob"}}):
        bob = door(daemon, "bob", **wrong)
        with pytest.raises(PermissionError, match="may not read"):
            bob.cat_file(url)
    assert links(daemon, "bob") == []
    assert daemon.cache.accounts["bob"].refused == 2


def test_a_grant_is_for_the_credentials_that_were_tried(web: Web, daemon: Daemon) -> None:
    """A tenant that may read is asked again when it comes with other credentials."""
    url = web.put("/private/a", b"secret")
    web.secret["/private/a"] = "Bearer ann"
    good, bad = {"headers": {"authorization": "Bearer ann"}}, {"headers": {"authorization": "Bearer no"}}
    connection = Connection(daemon.cache.store.root, "ann")
    assert connection.ask("open", url=url, options=good)["outcome"] == "held"
    with pytest.raises(Forbidden):
        connection.ask("open", url=url, options=bad)
    assert links(daemon) == []
    connection.close()


@pytest.mark.parametrize("how", ["deleted", "forbidden"])
def test_what_the_source_takes_back_is_gone_within_a_recheck(web: Web, tmp_path: Path, how: str) -> None:
    with cache(tmp_path / "c", recheck_s=2.0) as daemon:
        url = web.put("/d/a", b"data")
        door(daemon).cat_file(url)
        assert links(daemon) == [key_of(url)]
        if how == "deleted":
            del web.objects["/d/a"]
        else:
            web.behaviour["/d/a"] = "403"
        eventually(lambda: links(daemon) == [])
        with pytest.raises(OSError, match=r"no such object|may not read"):
            door(daemon).cat_file(url)
        told = ask(daemon, "explain", url=f"{web.url}/d")
        assert list(told["lost"]) == [url]
        assert "may be read no more" in told["text"]
        web.behaviour.clear()
        web.put("/d/a", b"data")
        assert door(daemon).cat_file(url) == b"data"
        assert ask(daemon, "explain", url=f"{web.url}/d")["lost"] == {}


@pytest.mark.slow
def test_what_is_rechecked_stays_and_a_source_that_is_away_takes_nothing_back(web: Web, tmp_path: Path) -> None:
    with cache(tmp_path / "c", recheck_s=2.0) as daemon:
        url = web.put("/d/a", b"data")
        door(daemon).cat_file(url)
        for how in ("", "500"):
            web.behaviour["/d/a"] = how
            heads = web.heads["/d/a"]
            eventually(lambda heads=heads: web.heads["/d/a"] > heads + 2)
            assert links(daemon) == [key_of(url)]
            assert door(daemon).cat_file(url) == b"data"


def test_names_of_tenants_are_proved(web: Web, tmp_path: Path) -> None:
    secret = b"0123456789abcdef"
    with cache(tmp_path / "c", secret=secret) as daemon:
        root = daemon.cache.store.root
        for tenant, token in (("ann", ""), ("ann", token_of(secret, "bob")), ("", "wrong")):
            with pytest.raises(Forbidden):
                Connection(root, tenant, token)
        ann = Connection(root, "ann", token_of(secret, "ann"))
        assert ann.hello["tenant"] == "ann"
        for do in ("pin", "drop", "decide"):
            with pytest.raises(Forbidden, match="admin"):
                ann.ask(do, url="x")
        admin = Connection(root, "", token_of(secret, ""))
        assert admin.ask("decide")["gap"] == 0
        for one in (ann, admin):
            one.close()


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"null", b'{"do": 1}', b'{"do": "open"}', b'{"do": "open", "url": 3}', b"\xff\xfe",
     b'{"do": "open", "url": "s3://b/k", "options": []}', b'{"do": "nothing"}', b'{"do":"report","hits":[1]}',
     b'{"do":"report","hits":{"a":"nan"}}', b"[" * 5000],
)  # fmt: skip
def test_nonsense_is_answered_or_ended_and_harms_none(daemon: Daemon, web: Web, line: bytes) -> None:
    connection = Connection(daemon.cache.store.root, "ann")
    connection._socket.sendall(line + b"\n")
    url = web.put("/d/a", b"fine")
    assert door(daemon, "bob").cat_file(url) == b"fine"
    connection.close()


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest", "http://metadata.google.internal/x", "http://[fe80::1]/"]
)
def test_a_clouds_metadata_is_not_fetched(daemon: Daemon, url: str) -> None:
    with pytest.raises(PermissionError, match="reads nothing from"):
        door(daemon).cat_file(url)


def test_headers_that_could_change_the_contents_are_refused(daemon: Daemon, web: Web) -> None:
    url = web.put("/d/a", b"x")
    with pytest.raises(OSError, match="cannot be sent along"):
        door(daemon, headers={"Accept-Language": "eo"}).cat_file(url)


@pytest.mark.parametrize(
    "url",
    [
        *(f"file://{path}" for path in ("relative", "/a/../b", "/a\nb", "/" + "x" * 5000, "/nul\0")),
        *(f"{protocol}://a/b{character}" for protocol in ("s3", "gs", "http") for character in "\n\0"),
    ],
)
def test_addresses_that_could_mean_something_else(url: str) -> None:
    with pytest.raises(Invalid):
        source_of(url, {}, os.geteuid())


def test_keys_are_kept_apart_exactly(web: Web, daemon: Daemon) -> None:
    names = ["/d/a", "/d/A", "/d/%2e%2e", "/d/a%20b", "/d/a/", "/d/" + "k" * 1024, "/d/é%0a"]
    fs = door(daemon)
    for at, name in enumerate(names):
        web.put(name.replace("é", "%C3%A9"), bytes([at]))
    for at, name in enumerate(names):
        assert fs.cat_file(web.url + name) == bytes([at])
    assert [fs.cat_file(web.url + name) for name in names] == [bytes([at]) for at in range(len(names))]


# --- sources that fail ---


@pytest.mark.parametrize(
    ("how", "text"),
    [("500", "answers 500"), ("503", "answers 503"), ("403", "may not read"), ("loop", "not answer"),
     ("short", "does not answer|ended after")],
)  # fmt: skip
def test_a_source_that_fails_leaves_nothing_half(web: Web, daemon: Daemon, how: str, text: str) -> None:
    url = web.put("/d/a", bytes(5000))
    web.behaviour["/d/a"] = how
    with pytest.raises(OSError, match=text):
        door(daemon).cat_file(url)
    assert daemon.cache.store.usage().bytes == 0
    assert list((daemon.cache.store.root / "fills").iterdir()) == []
    web.behaviour.clear()
    assert door(daemon).cat_file(url) == bytes(5000)


@pytest.mark.parametrize("how", ["long", "endless", "no version", "no range", "weak"])
def test_what_a_strange_source_sends_is_read_right_or_not_at_all(web: Web, daemon: Daemon, how: str) -> None:
    data = os.urandom(3000)
    url = web.put("/d/a", data)
    web.behaviour["/d/a"] = how
    assert door(daemon).cat_file(url)[:3000] == data
    if how in ("long", "no version"):  # nothing tells one version from the next, or where it ends
        assert daemon.cache.store.usage().bytes == 0
    assert daemon.cache.store.usage().bytes <= 4096


@pytest.mark.slow
def test_a_slow_source_is_given_up_and_what_is_cached_is_served(
    web: Web, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.cache.sources.source.PATIENCE_S", 1.5)
    good, slow = web.put("/d/good", b"good"), web.put("/d/slow", bytes(1000))
    fs = door(daemon)
    fs.cat_file(good)
    web.behaviour["/d/slow"] = "slow"
    failed = []

    def read() -> None:
        try:
            door(daemon, "bob").cat_file(slow)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert fs.cat_file(good) == b"good"
    thread.join(30)
    assert "given up" in str(failed[0])


def test_an_object_that_changes_between_two_chunks_is_never_mixed(web: Web, daemon: Daemon) -> None:
    old, new = b"o" * (3 * CHUNK), b"n" * (3 * CHUNK)
    url = web.put("/d/big", old)
    fs = door(daemon)
    with fs.open(url) as file:
        assert file.read(10) == old[:10]
        web.put("/d/big", new)
        daemon.cache.grants.forget("ann")  # as when the recheck comes
        with pytest.raises(OSError, match="changed"):
            file.read()
    assert fs.cat_file(url) == new


def test_an_object_that_changes_during_a_fill_is_thrown_away(tmp_path: Path, daemon: Daemon) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"old" * 1000)
    source = source_of(f"file://{path}", {}, os.geteuid())
    version = source.head()
    parts = source.read(0, 3000, version)
    time.sleep(0.01)
    path.write_bytes(b"new" * 1000)
    with pytest.raises(Conflict, match="changed"):
        list(parts)
    assert door(daemon, protocol="file").cat_file(str(path)) == b"new" * 1000


def test_a_changed_object_is_seen_after_a_recheck(web: Web, tmp_path: Path) -> None:
    with cache(tmp_path / "c", recheck_s=2.0) as daemon:
        url = web.put("/d/a", b"old")
        fs = door(daemon)
        assert fs.cat_file(url) == b"old"
        web.put("/d/a", b"new!")
        eventually(lambda: fs.cat_file(url) == b"new!")


# --- limits ---


def test_an_object_larger_than_the_cache_is_read_through(web: Web, tmp_path: Path) -> None:
    with cache(tmp_path / "c", size=CHUNK) as daemon:
        data = os.urandom(3 * CHUNK)
        assert door(daemon).cat_file(web.put("/d/big", data)) == data
        assert daemon.cache.store.usage().bytes <= CHUNK


def test_a_disk_that_fails_costs_the_cache_and_not_the_reader(
    web: Web, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = web.put("/d/a", b"data")
    real = os.write
    monkeypatch.setattr(
        "shoal.cache.store.store.os.write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    fs = door(daemon)
    assert fs.cat_file(url) == b"data"
    assert "No space" in ask(daemon, "status")["broken"]
    monkeypatch.setattr("shoal.cache.store.store.os.write", real)
    eventually(lambda: ask(daemon, "status")["broken"] is None)
    fs.cat_file(url)
    assert links(daemon) == [key_of(url)]


# --- decisions ---


def test_rounds_keep_what_is_read_most_and_say_why(web: Web, tmp_path: Path) -> None:
    planning = Planning(round_s=3600.0)
    with cache(tmp_path / "c", size=20 * 4096, planning=planning) as daemon:
        urls = {name: [web.put(f"/{name}/{at}", os.urandom(4096)) for at in range(16)] for name in ("hot", "cold")}
        ann, bob = door(daemon, "ann"), door(daemon, "bob")
        for _ in range(9):
            for url in urls["hot"]:
                ann.cat_file(url)
        for _ in range(3):
            for url in urls["cold"]:
                bob.cat_file(url)
        for fs in (ann, bob):
            fs._node.report()
        eventually(lambda: {"ann", "bob"} <= {one["tenant"] for one in ask(daemon, "status")["tenants"]})
        time.sleep(0.1)
        last = ask(daemon, "decide")
        assert last["gap"] <= 1e-3
        kept = {name.rsplit("/", 1)[1]: part for name, part in last["kept"].items()}
        assert sum(kept.values()) * 16 == pytest.approx(20, abs=0.1)
        assert all(0.5 < part < 0.8 for part in kept.values())  # whoever reads more often: the weights are equal
        for _ in range(2):
            for fs, name in ((ann, "hot"), (bob, "cold")):
                for url in urls[name]:
                    fs.cat_file(url)
        held = {name.rsplit("/", 1)[1]: count // 4096 for name, count in daemon.cache.held_by_set().items()}
        assert held["cold"] == pytest.approx(16 * kept["cold"], abs=1.01)
        assert daemon.cache.store.usage().bytes <= 20 * 4096
        told = ask(daemon, "explain", url=f"{web.url}/hot")
        assert told["code"] == "partly"
        assert "ann would keep" in told["text"]
        with pytest.raises(NotFound):
            ask(daemon, "explain", url="s3://nothing/here")


def test_what_is_declared_is_fetched_before_it_is_read(tmp_path: Path, daemon: Daemon) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for at in range(8):
        (folder / str(at)).write_bytes(os.urandom(1000))
    found = ask(daemon, "declare", url=f"file://{folder}", bytes_per_s=1e6, fetch=True)
    assert (found["objects"], found["bytes"]) == (8, 8000)
    eventually(lambda: daemon.cache.store.usage().files == 8)
    ask(daemon, "decide")
    assert ask(daemon, "explain", url=f"file://{folder}")["wanted"] == 1


def test_pins_hold_and_drops_let_go(web: Web, daemon: Daemon) -> None:
    url = web.put("/d/a", b"data")
    door(daemon).cat_file(url)
    ask(daemon, "pin", url=f"{web.url}/d")
    ask(daemon, "decide")
    assert ask(daemon, "explain", url=f"{web.url}/d")["code"] == "pinned"
    ask(daemon, "unpin", url=f"{web.url}/d")
    assert ask(daemon, "drop", url=f"{web.url}/d") == 1
    assert links(daemon) == []
    with pytest.raises(NotFound):
        ask(daemon, "pin", url="s3://nothing/here")


def test_a_larger_share_only_adds() -> None:
    one = DataSet("s")
    for at in range(200):
        one.add(f"{at:040x}", 4096 * (1 + at % 7))
    kept: list[set[tuple[str, int]]] = []
    for part in (0.0, 0.1, 0.35, 0.35, 0.8, 1.0):
        one.keep(part, 1 << 20, 1.0)
        wanted = {(key, number) for key, number, _ in one.chunks(1 << 20) if one.wants(key, number)}
        count = sum(one.objects[key] for key, _ in wanted)
        assert count <= part * one.size(1 << 20, 1.0) + 1
        assert count >= part * one.size(1 << 20, 1.0) - 7 * 4096
        kept.append(wanted)
    assert all(before <= after for before, after in pairwise(kept))
    assert 0 <= order_of("a", 0) < 1


def test_a_tenant_knows_its_own_figures_only(web: Web, tmp_path: Path) -> None:
    secret = b"0123456789abcdef"
    with cache(tmp_path / "c", secret=secret) as daemon:
        for tenant in ("ann", "bob"):
            connection = Connection(daemon.cache.store.root, tenant, token_of(secret, tenant))
            connection.ask("open", url=web.put(f"/{tenant}/x", b"data"))
            found = connection.ask("status")
            assert [one["tenant"] for one in found["tenants"]] == [tenant]
            assert found["sets"] == []
            if tenant == "bob":
                with pytest.raises(NotFound, match="of yours"):
                    connection.ask("explain", url=f"{web.url}/ann")
            connection.close()


def test_nothing_is_declared_that_cannot_be_listed(web: Web, daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for url in (f"file://{tmp_path}/none", f"file://{tmp_path}/empty", web.url):
        with pytest.raises(ShoalError):
            ask(daemon, "declare", url=url, bytes_per_s=1e6)
    assert daemon.cache.planner.sets == {}


def test_status_as_json_and_for_people(web: Web, daemon: Daemon) -> None:
    from typer.testing import CliRunner

    from shoal.cli.app import app

    door(daemon).cat_file(web.put("/d/a", b"data"))
    root = str(daemon.cache.store.root)

    def call(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["cache", *words, "--root", root])
        assert result.exit_code == code, result.output
        return result.output

    assert json.loads(call("status", "--json"))["used"]["files"] == 1
    assert f"{web.url}/d" in call("status")
    assert "undecided" in call("explain", f"{web.url}/d", "--json")
    assert call("top", "--looks", "2", "--every", "0.1").count("files; gap") == 2
    assert "is pinned" in call("pin", f"{web.url}/d")
    assert "no longer" in call("unpin", f"{web.url}/d")
    assert "1 objects" in call("drop", f"{web.url}/d")
    assert "leases" in call("doctor")
    assert "no such data set" in call("explain", "s3://nothing/x", code=3)
    assert "no cache runs there" in CliRunner().invoke(app, ["cache", "status", "--root", "/nonexistent"]).output


def test_a_node_that_was_away_is_found_again(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.cache.door.node._AGAIN_S", 0.0)
    found = Node(str(tmp_path / "c"), "ann")
    with pytest.warns(RuntimeWarning):
        assert found.ask("status") is None
    with cache(tmp_path / "c"):
        assert found.ask("status")["root"] == str(tmp_path / "c")
    with pytest.warns(RuntimeWarning):
        assert found.ask("status") is None


def eventually(found: object, timeout_s: float = 20.0) -> object:
    """The first answer of `found()` that is true."""
    ends = time.monotonic() + timeout_s
    while time.monotonic() < ends:
        value = found()  # type: ignore[operator]
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("it did not come true")


def test_errors_keep_their_kind() -> None:
    from shoal.cache.daemon.protocol import error_of

    assert isinstance(error_of({"code": "not-found", "what": "x"}), NotFound)
    strange = error_of({"code": "strange", "what": "x"})
    assert (type(strange), strange.code) == (ShoalError, "strange")


def test_a_full_disk_is_told_with_the_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from shoal.cli.app import app

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shoal.cache.daemon.server.write_whole", full)
    (tmp_path / "secret").write_bytes(b"0123456789abcdef")
    words = ["cache", "serve", "--root", str(tmp_path / "c"), "--secret-file", str(tmp_path / "secret")]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 2
    assert f"No space left on device\n  where: {tmp_path / 'c'}" in ended.output
