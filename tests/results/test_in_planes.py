"""What planes have of artifacts and news: below a place of their own, within one allowance, done before they sleep."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shoal.base.home import Home, running_server
from shoal.cli.app import app
from shoal.control.server import start_detached
from shoal.core import NotFound, Overloaded
from shoal.results.keeping.contents import contents_at, place_of, remove_place
from shoal.sdk import Client
from tests.notify.kit import receiver

WAIT_S = 100.0
SCRIPT = "open('model.bin', 'wb').write(b'm' * 3_000_000)"


def until(there: Callable[[], Any]) -> Any:
    give_up_at = time.monotonic() + WAIT_S
    while not (found := there()):
        assert time.monotonic() < give_up_at, "it never came"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("planes") / "home")
    words = ["--home", str(home.path), "--port", "0", "--slots", "4", "--set", "tenancy.sleep_after_s=1",
             "--set", f"results.store={home.path.parent / 'kept'}", "--set", "results.size=8MB",
             "--set", "notify.inward=127.0.0.0/8"]  # fmt: skip
    start_detached(words, home)
    try:
        yield home
    finally:
        CliRunner().invoke(app, ["down", "--stop-jobs", "--home", str(home.path)])


@contextlib.contextmanager
def plane(home: Home, admin: Client, name: str) -> Iterator[Client]:
    admin.create_tenant(name, sandbox="none")
    made = admin.planes.create(name, tenant=name)
    info = running_server(home)
    assert info is not None
    with Client(f"{info.url}{made.path}", made.token, environ={}) as inside:
        inside.create_tenant("red", sandbox="none")
        yield inside


def train(client: Client, **more: Any) -> str:
    job = client.submit({
        "name": "train", "tenant": "red", "command": [sys.executable, "-c", SCRIPT], "artifacts": ["model.bin"], **more,
    })  # fmt: skip
    assert client.wait(job.id, timeout_s=WAIT_S).state == "SUCCEEDED"
    until(lambda: not client.artifacts.list(job.id).taking)
    return job.id


def test_planes_keep_artifacts_and_tell_news_of_their_own(home: Home, tmp_path: Path) -> None:
    kept = home.path.parent / "kept"
    with receiver() as hook, Client(home=home.path, environ={}) as admin:
        admin.create_tenant("red", sandbox="none")
        with plane(home, admin, "vision") as vision, plane(home, admin, "speech") as speech:
            vision.notify.add("ops", kind="webhook", address=hook.url, topics=["ended"], tenant="red")
            above, one, other = train(admin), train(vision), train(speech)
            until(lambda: [news["job"] for news in hook.told("ended")] == [one])

            ids = {each.name: each.id for each in admin.planes.list().planes}
            files = {path.relative_to(kept).parts[:-2] for path in kept.rglob("*") if path.is_file()}
            assert files == {("red",), ("planes", ids["vision"], "red"), ("planes", ids["speech"], "red")}
            for client, job in ((admin, above), (vision, one), (speech, other)):
                assert [each.job for each in client.artifacts.list(tenant="red").artifacts] == [job]
            with pytest.raises(NotFound):
                speech.artifacts.get(vision.artifacts.list(one).artifacts[0].id)
            said = vision.status().model_dump_json() + str([page.model_dump() for page in vision.pages().values()])
            assert str(home.path.parent) not in said, "a plane learns no folder of the shared server"

            # One allowance for all tenants of a plane, however many it makes.
            vision.create_tenant("blue", sandbox="none")
            big = tmp_path / "big"
            big.write_bytes(b"b" * 6_000_000)
            with pytest.raises(Overloaded, match="all tenants together have"):
                list(vision.artifacts.upload(big, tenant="blue"))

            until(lambda: not any(each.awake for each in admin.planes.list().planes))
            assert [each.job for each in vision.artifacts.list(tenant="red").artifacts] == [one], "a request wakes it"
            admin.planes.delete("vision")
            until(lambda: not (kept / "planes" / ids["vision"]).exists())
            assert [each.job for each in speech.artifacts.list(tenant="red").artifacts] == [other]
            assert [each.job for each in admin.artifacts.list(tenant="red").artifacts] == [above]


def test_a_plane_stays_awake_until_its_news_are_delivered(home: Home) -> None:
    with receiver() as hook, Client(home=home.path, environ={}) as admin, plane(home, admin, "later") as later:
        refused = 0

        def answer(_: object) -> int:
            nonlocal refused
            refused += 1
            return 503 if refused < 3 else 204

        hook.answer = answer
        later.notify.add("ops", kind="webhook", address=hook.url, topics=["ended"], tenant="red")
        job = later.submit({"name": "j", "tenant": "red", "command": ["true"]})
        later.wait(job.id, timeout_s=WAIT_S)
        until(lambda: len(hook.requests) == 3)
        assert len({one.key for one in hook.requests}) == 1
        until(lambda: not any(each.awake for each in admin.planes.list().planes))
        with pytest.raises(NotFound, match="not in planes"):
            later.planes.list()


def test_artifacts_are_a_budget_that_is_told_of(home: Home, tmp_path: Path) -> None:
    with receiver() as hook, Client(home=home.path, environ={}) as admin:
        admin.create_tenant("green", sandbox="none")
        admin.notify.add("room", kind="webhook", address=hook.url, topics=["budget"], tenant="green")
        large = tmp_path / "large"
        large.write_bytes(b"l" * 6_500_000)
        list(admin.artifacts.upload(large, tenant="green"))
        [told] = until(lambda: hook.told("budget"))
        assert told["title"] == "80 % of the budget for megabytes of artifacts are used: 6.50 of 8.00"


@pytest.mark.parametrize("scheme", ["", "file://", "memory://"])
def test_contents_of_a_plane_are_none_of_the_servers(tmp_path: Path, scheme: str) -> None:
    where = f"{scheme}{tmp_path / 'kept'}"
    own, digest = contents_at(where, tmp_path), "ab" * 32
    inside = contents_at(place_of(where, "p-1"), tmp_path)
    for contents, tenant in ((own, "red"), (inside, "red"), (inside, "planes")):
        source = tmp_path / "source"
        source.write_bytes(b"some")
        contents.put(tenant, digest, source)
    assert set(own.listed()) == {("red", digest)}
    assert set(inside.listed()) == {("red", digest), ("planes", digest)}
    remove_place(place_of(where, "p-1"))
    remove_place(place_of(where, "p-1"))
    assert own.read("red", digest, 1, 2) == b"om"
    assert set(contents_at(place_of(where, "p-1"), tmp_path).listed()) == set()
    own.remove("red", digest)


def test_a_place_below_a_chained_url_keeps_its_chain() -> None:
    assert place_of("simplecache::s3://bucket/kept", "p-1") == "simplecache::s3://bucket/kept/planes/p-1"
    assert place_of("s3://bucket/", "p-1") == "s3://bucket/planes/p-1"
    assert place_of("", "p-1") == ""
