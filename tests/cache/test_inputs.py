"""Inputs of jobs before and while they are read: prefetched, waited for, and kept from those who may not see them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shoal.cache.daemon import Connection, Daemon
from shoal.cache.daemon.protocol import remote_token_of, view_of
from shoal.cache.daemon.sets import Rate
from shoal.cache.daemon.waits import Waits
from shoal.cache.live.waits import Share
from shoal.core import Forbidden, ShoalError
from tests.cache.kit import Web, ask, cache
from tests.cache.test_daemon import daemon as daemon
from tests.cache.test_daemon import door
from tests.cache.test_daemon import web as web


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of five files, which every user can reach."""
    with TemporaryDirectory(prefix="shoal-set-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        for number in range(5):
            (Path(name) / f"{number}").write_bytes(os.urandom(1000))
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads files for others")
def test_inputs_of_waiting_jobs_are_fetched_after_a_round(folder: Path, daemon: Daemon) -> None:
    demand = {"tenant": "ann", "url": f"file://{folder}", "options": {}, "bytes_per_s": 1e6, "epochs": None}
    ask(daemon, "demands", demands=[{**demand, "prefetch": False}], weights={"ann": 1})
    rounds(daemon)
    assert daemon.cache.store.usage().files == 0  # its tenant has shown no credentials
    (folder / "3").chmod(0o600)
    ask(daemon, "demands", demands=[{**demand, "prefetch": True}], weights={"ann": 1})
    rounds(daemon)
    assert daemon.cache.store.usage().files == 4  # the rest is not for all users
    (folder / "2").unlink()
    for held in daemon.cache.store.objects():
        daemon.cache.store.drop(held.info.key)
    rounds(daemon)
    assert len(daemon.cache.store.objects()) == 3
    ask(daemon, "demands", demands=[], weights={"ann": 1})
    assert daemon.cache.inputs._wanted == {}


def test_what_is_on_a_web_server_is_fetched_for_all_who_wait(web: Web, daemon: Daemon) -> None:
    url = web.put("/set/a", b"x" * 1000)
    demand = {"url": url, "options": {}, "bytes_per_s": 1e6, "epochs": 3, "prefetch": True}
    demands = [{"tenant": name, **demand} for name in ("ann", "bob")]
    ask(daemon, "demands", demands=demands, weights={"ann": 1, "bob": 1})
    rounds(daemon)
    assert web.gets == {"/set/a": 1}
    assert daemon.cache.store.usage().files == 1


def rounds(daemon: Daemon) -> None:
    """One that lists, one that decides and one that fetches."""
    for _ in range(3):
        ask(daemon, "decide")
        thread = daemon.cache.inputs._prefetching
        assert thread is not None
        thread.join(20)
    while daemon.cache.fills.waiting:
        time.sleep(0.01)


def test_what_readers_wait_for_is_told_by_job(web: Web, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_JOB_ID", "j-7")
    web.delay_s = 0.2
    fs = door(daemon)
    assert fs.cat_file(web.put("/set/a", b"x")) == b"x"
    fs._node.report()
    while not (waits := ask(daemon, "status")["waits"]):
        time.sleep(0.01)
    (told,) = waits
    assert (told["tenant"], told["job"]) == (fs._node.tenant, "j-7")
    assert told["seconds"] >= 0.2


def test_waits_add_up_and_are_forgotten() -> None:
    now = [0.0]
    waits = Waits(lambda: now[0])
    for job, seconds in (("", 1.0), ("j-1", 1.0), ("j-2", 0.0), ("j-1", 2.0)):
        waits.add("ann", job, seconds)
    now[0] = 599.0
    assert waits.told() == [{"tenant": "ann", "job": "j-1", "seconds": 3.0}]
    now[0] = 601.0
    assert waits.told() == []


def test_a_tenant_that_sees_no_files_gets_none(tmp_path: Path) -> None:
    secret = b"0123456789abcdef"
    (tmp_path / "a").write_bytes(b"of the machine")
    with cache(tmp_path / "c", secret=secret) as made:
        connection = Connection(tmp_path / "c", "ann", remote_token_of(secret, "ann"))
        for do in ("open", "declare"):
            with pytest.raises(ShoalError, match="files of the machine") as refused:
                connection.ask(do, url=f"file://{tmp_path}/a", bytes_per_s=1)
            assert refused.value.code == "uncacheable"
        with pytest.raises(Forbidden, match="admin"):
            connection.ask("release", tenant="ann", view="j-1.1")
        for view in ("j-1.1", "j-1.1:", view_of(secret, "bob", "j-1.1"), view_of(b"another secret..", "ann", "j-1.1")):
            with pytest.raises(Forbidden, match="gives a job its view"):
                connection.ask("show", url="http://127.0.0.1/", view=view)
        connection.close()
        assert not list((made.cache.store.root / "views").iterdir())


def test_what_is_read_by_links_is_estimated_from_the_rest() -> None:
    rate = Rate(this_round=100.0, declared=50.0)
    rate.estimate(0.75, 10.0)
    assert rate.this_round == 400.0
    rate.estimate(0.95, 10.0)  # too little is left: the declaration stands
    assert rate.this_round == 500.0


def test_the_share_of_waits_is_between_two_looks_and_of_the_jobs_own_tenant() -> None:
    share = Share()
    share.look(100.0, {("ada", "j-1"): 50.0})
    assert share.of("ada", "j-1") is None
    share.look(110.0, {("ada", "j-1"): 52.5, ("bob", "j-1"): 9.0})
    assert share.of("ada", "j-1") == 0.25
    assert share.of("bob", "j-1") is None
    share.look(120.0, {("ada", "j-1"): 99.0, ("bob", "j-1"): 1.0})
    assert (share.of("ada", "j-1"), share.of("bob", "j-1")) == (1.0, 0.0)
    share.look(120.0, {("ada", "j-1"): 100.0})
    assert share.of("ada", "j-1") is None
