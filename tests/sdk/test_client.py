"""The clients against a scripted transport: what they send, what they make of answers, when they try again."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import shoal
from shoal.base.home import Home, ServerInfo, write_server
from shoal.base.listening import listen_locally
from shoal.base.processes import start_ticks
from shoal.core import Conflict, DiskFull, Forbidden, Invalid, NotFound, Overloaded, ShoalError, Unavailable
from shoal.sdk import AsyncClient, Client, NoServer
from shoal.sdk.client import Operation, Stream
from shoal.sdk.locate import locator

JOB = {
    "id": "j-1", "tenant": "red", "name": "x", "state": "QUEUED", "version": 1, "desired": "run",
    "priority_class": "best-effort", "priority": 0, "resources": {}, "ranks": 1, "attempt": 0, "submitted_at": 1.0,
    "updated_at": 1.0, "queued_at": 1.0,
}  # fmt: skip

Answer = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


class Server:
    """Answers with a script, one entry a request, and keeps what it was sent."""

    def __init__(self, *answers: Answer) -> None:
        self._answers: Iterator[Answer] = iter(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    def client(self, **options: Any) -> Client:
        return Client("http://shoal", "t", environ={}, transport=httpx.MockTransport(self), **options)

    def async_client(self, **options: Any) -> AsyncClient:
        return AsyncClient("http://shoal", "t", environ={}, transport=httpx.MockTransport(self), **options)


def ok(value: object = JOB, status: int = 200, **headers: str) -> httpx.Response:
    return httpx.Response(status, json=value, headers=headers)


def failed(status: int, code: str = "x", **headers: str) -> httpx.Response:
    error = {"code": code, "what": "w", "where": "f", "hint": "h", "problems": [{"what": "p", "where": "q"}]}
    return httpx.Response(status, json={"error": error}, headers=headers)


def piece(data: bytes, attempt: int, ended: str, *, at: int) -> httpx.Response:
    headers = {
        "x-shoal-attempt": str(attempt), "x-shoal-offset": str(at), "x-shoal-next-offset": str(at + len(data)),
        "x-shoal-ended": ended,
    }  # fmt: skip
    return httpx.Response(200, content=data, headers=headers)


def test_both_clients_have_the_same_methods_with_the_same_signatures() -> None:
    names = [name for name, one in inspect.getmembers(Client, lambda one: isinstance(one, Operation | Stream))]
    sync, other = Client(environ={}), AsyncClient(environ={})
    assert len(names) > 20
    for name in names:
        assert inspect.signature(getattr(sync, name)) == inspect.signature(getattr(other, name))
        assert "exchange" not in inspect.signature(getattr(sync, name)).parameters
    assert shoal.Client is Client


def test_a_submission_carries_a_token_and_a_key_of_its_own() -> None:
    server = Server(ok(), ok())
    with server.client() as client:
        client.submit({"name": "x", "command": ["true"]})
        client.submit({"name": "x", "command": ["true"]})
    keys = [request.headers["idempotency-key"] for request in server.requests]
    assert len(set(keys)) == 2
    assert server.requests[0].headers["authorization"] == "Bearer t"
    assert json.loads(server.requests[0].content) == {"name": "x", "command": ["true"]}


def test_an_unsure_submission_is_repeated_with_the_same_key() -> None:
    server = Server(httpx.ConnectError("no"), httpx.ReadError("cut"), failed(503), ok())
    with server.client() as client:
        assert client.submit("name: x\ncommand: [true]\n").id == "j-1"
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1
    assert len(server.requests) == 4


def test_what_cannot_be_repeated_is_not_sent_again_once_it_may_have_arrived() -> None:
    server = Server(httpx.ConnectError("no"), httpx.ReadError("cut"))
    with server.client() as client, pytest.raises(NoServer, match="broke"):
        client.resume("j-1")
    assert len(server.requests) == 2


def test_a_full_disk_is_told_at_once_for_waiting_frees_none() -> None:
    server = Server(failed(503, "disk-full"), failed(503), failed(503, "disk-full"))
    with server.client(patience_s=60) as client:
        for _ in range(2):
            with pytest.raises(DiskFull, match="w") as told:
                client.submit({"name": "x", "command": ["true"]})
            assert told.value.hint == "h"
    assert len(server.requests) == 3


def test_patience_ends() -> None:
    server = Server(httpx.ConnectError("no"))
    with server.client(patience_s=0) as client, pytest.raises(NoServer, match="no server answers"):
        client.status()


def test_a_server_that_never_answered_is_waited_for_less_long_than_one_that_restarts() -> None:
    away = httpx.ConnectError("no")
    with Server(away).client(first_s=0) as client, pytest.raises(NoServer, match="no server answers"):
        client.job("j-1")
    server = Server(ok(), away, ok())
    with server.client(first_s=0) as client:
        assert client.job("j-1").id == client.job("j-1").id
    assert len(server.requests) == 3
    starting = Server(failed(503), away, ok())
    with starting.client(first_s=0) as client:
        assert client.job("j-1").id == "j-1"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, Forbidden), (403, Forbidden), (404, NotFound), (409, Conflict), (413, Invalid), (422, Invalid),
     (429, Overloaded), (500, ShoalError), (503, Unavailable)],
)  # fmt: skip
def test_errors_come_back_as_they_were_raised(status: int, kind: type[ShoalError]) -> None:
    server = Server(failed(status, **{"retry-after": "7"}))
    with server.client(patience_s=0) as client, pytest.raises(kind) as raised:
        client.job("j-1")
    error = raised.value
    assert (error.what, error.where, error.hint) == ("w", "f", "h")
    if isinstance(error, Invalid):
        assert [problem.where for problem in error.problems] == ["q"]
    if isinstance(error, Overloaded):
        assert error.retry_after_s == 7


def test_who_asks_too_often_waits_as_told_but_not_beyond_patience() -> None:
    limited = failed(429, "rate-limited", **{"retry-after": "1"})
    server = Server(limited, ok())
    with server.client() as client:
        began = time.monotonic()
        assert client.job("j-1").id == "j-1"
        assert time.monotonic() - began >= 1
    for answer in (failed(429, "rate-limited", **{"retry-after": "60"}), failed(429, **{"retry-after": "1"})):
        server = Server(answer)
        with server.client() as client, pytest.raises(Overloaded):
            client.submit({"name": "x", "command": ["true"]})
        assert len(server.requests) == 1


def test_a_manifest_that_is_too_large_is_named(tmp_path: Path) -> None:
    (tmp_path / "big.yaml").write_text("name: big")
    body = {"error": {"code": "too-large", "what": "the body is over 1048576 bytes", "where": None, "hint": None}}
    with Server(httpx.Response(413, json=body)).client() as client, pytest.raises(Invalid) as raised:
        client.submit(tmp_path / "big.yaml")
    assert raised.value.where == str(tmp_path / "big.yaml")


def test_an_answer_that_is_not_shoals_is_called_that() -> None:
    server = Server(httpx.Response(404, text="<html>"))
    with server.client() as client, pytest.raises(ShoalError, match="not as Shoal does"):
        client.job("j-1")


@pytest.mark.parametrize("body", [b"{}", b"<html>", b""])
def test_a_success_that_is_not_shoals_is_called_that(body: bytes) -> None:
    client = Server(httpx.Response(200, content=body)).client()
    with pytest.raises(ShoalError, match="not as Shoal does"):
        client.job("j-1")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../tenants"])
def test_names_that_would_lead_elsewhere_are_never_sent(name: str) -> None:
    server = Server(ok())
    client = server.client()
    for asked in (client.job, client.cancel, client.services.get, client.tenant, client.tokens, client.delete_secret):
        with pytest.raises(Invalid, match="cannot be the name of"):
            asked(name)
    assert server.requests == []


@pytest.mark.parametrize("url", ["127.0.0.1:7070", "ftp://host", "localhost"])
def test_an_address_without_http_is_wrong_usage_and_not_a_broken_connection(url: str) -> None:
    with pytest.raises(Invalid, match="is no address"):
        Client(url, "token").jobs()


@pytest.mark.parametrize("token", ["a\nb", "t\u00f6ken"])
def test_a_token_that_no_header_can_carry_is_named_and_not_shown(token: str) -> None:
    with pytest.raises(Invalid) as caught:
        Client("http://127.0.0.1:1", token).jobs()
    assert caught.value.where == "SHOAL_TOKEN"
    assert token not in str(caught.value)


def test_unknown_fields_of_a_newer_server_are_ignored() -> None:
    server = Server(ok({**JOB, "colour": "red"}))
    with server.client() as client:
        assert client.cancel("j-1").name == "x"


def test_files_are_packed_uploaded_and_named_in_the_manifest(tmp_path: Path) -> None:
    digest = "sha256:" + "a" * 64
    (tmp_path / "train.py").write_text("print()")
    path = tmp_path / "job.yaml"
    path.write_text("name: x\ncommand: [python, train.py]\nfiles: [train.py]\n")
    server = Server(ok({"bundle": digest, "size_bytes": 1}, 201), ok())
    with server.client() as client:
        client.submit(path)
    upload, submission = server.requests
    assert upload.url.path == "/v1/bundles"
    assert b"print()" in upload.content
    sent = json.loads(submission.content)
    assert sent["bundle"] == digest
    assert not sent.get("files")


def test_a_wrong_manifest_with_files_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: x\nfiles: [train.py]\n")
    server = Server()
    with server.client() as client, pytest.raises(Invalid) as refused:
        client.submit(path)
    assert str(path) in (refused.value.where or "")
    with server.client() as client, pytest.raises(Invalid, match="cannot be read"):
        client.submit(tmp_path / "absent.yaml")
    assert server.requests == []


def test_following_a_log_goes_through_breaks_and_attempts_without_losing_a_byte() -> None:
    server = Server(
        piece(b"", 0, "no", at=0),
        piece(b"one", 1, "no", at=0),
        httpx.ReadError("cut"),
        piece(b" two", 1, "no", at=3),
        piece(b"", 1, "attempt", at=7),
        piece(b"again", 2, "no", at=0),
        piece(b"", 2, "job", at=5),
    )
    with server.client() as client:
        found = [(one.attempt, one.offset, one.data) for one in client.logs("j-1", follow=True)]
    assert found == [(1, 0, b"one"), (1, 3, b" two"), (2, 0, b"again")]
    asked = [(request.url.params.get("attempt"), request.url.params["offset"]) for request in server.requests]
    assert asked == [(None, "0"), (None, "0"), ("1", "3"), ("1", "3"), ("1", "7"), ("2", "0"), ("2", "5")]


def test_reading_a_log_stops_at_what_there_is() -> None:
    server = Server(piece(b"one", 1, "no", at=0), piece(b"", 1, "no", at=3))
    with server.client() as client:
        assert [one.text for one in client.logs("j-1")] == ["one"]


def event(seq: int, **fields: Any) -> dict[str, Any]:
    return {"seq": seq, "at": 1.0, "kind": "job.state", "actor": "admin", **fields}


def page(*events: dict[str, Any], after: int) -> httpx.Response:
    return ok({"events": events, "next": events[-1]["seq"] if events else after})


def test_following_events_begins_now_and_gives_each_once_through_breaks() -> None:
    server = Server(
        page(after=7), page(event(8), event(9), after=7), httpx.RemoteProtocolError("cut"), page(after=9),
        page(event(12), after=9),
    )  # fmt: skip
    with server.client() as client:
        stream = client.events(follow=True)
        assert [next(stream).seq for _ in range(3)] == [8, 9, 12]
    assert [request.url.params.get("after") for request in server.requests] == [None, "7", "9", "9", "9"]


def test_events_of_all_hold_those_of_services_too() -> None:
    deployed = event(2, kind="service.state", job_id=None, owner_id="s-1", old_state=None, new_state="DEPLOYING")
    server = Server(page(event(1), deployed, after=2), page(after=2))
    assert [one.seq for one in server.client().events()] == [1, 2]


def test_following_a_jobs_events_ends_with_the_job() -> None:
    server = Server(page(event(3, new_state="RUNNING"), after=0), page(event(5, new_state="FAILED"), after=3))
    with server.client() as client:
        assert [one.seq for one in client.events("j-1", follow=True)] == [3, 5]


def test_following_ends_although_something_was_noted_after_the_end() -> None:
    removed = event(6, kind="reconcile.orphan-removed", new_state=None)
    server = Server(page(event(5, new_state="FAILED"), removed, after=3))
    with server.client() as client:
        assert [one.seq for one in client.events("j-1", follow=True)] == [5, 6]


def test_waiting_polls_until_the_end_and_gives_up_in_time() -> None:
    server = Server(ok({**JOB, "state": "RUNNING"}), ok({**JOB, "state": "SUCCEEDED"}), ok(JOB))
    with server.client() as client:
        assert client.wait("j-1").state == "SUCCEEDED"
        assert [request.url.params.get("wait_s") for request in server.requests] == ["25.0", "25.0"]
        with pytest.raises(Unavailable, match="still QUEUED"):
            client.wait("j-1", timeout_s=0)


async def test_the_async_client_does_the_same() -> None:
    server = Server(
        httpx.ConnectError("no"), ok(), piece(b"one", 1, "no", at=0), piece(b"", 1, "job", at=3),
        ok({**JOB, "state": "FAILED"}), failed(404),
    )  # fmt: skip
    async with server.async_client() as client:
        assert (await client.submit({"name": "x", "command": ["true"]})).id == "j-1"
        assert [one.data async for one in client.logs("j-1", follow=True)] == [b"one"]
        assert (await client.wait("j-1")).state == "FAILED"
        with pytest.raises(NotFound):
            await client.job("j-2")


async def test_an_abandoned_stream_leaves_nothing_behind() -> None:
    server = Server(*[page(event(n), after=n - 1) for n in range(1, 5)])
    async with server.async_client() as client:
        stream = client.events("j-1", follow=True)
        assert (await anext(stream)).seq == 1
        await stream.aclose()  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    assert len(server.requests) == 1


def test_the_server_is_found_by_argument_then_environment_then_home(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(NoServer, match="no server runs here"):
        locator(environ={"SHOAL_HOME": str(tmp_path)})()
    write_server(home, ServerInfo(1, 0, "http://home:1"))
    home.token_file.write_text("secret\n")
    environ = {"SHOAL_HOME": str(tmp_path), "SHOAL_URL": "http://env:2/", "SHOAL_TOKEN": "env"}
    at_home = locator(environ={"SHOAL_HOME": str(tmp_path)})()
    assert (at_home.url, at_home.token, at_home.alive) == ("http://home:1", "secret", False)
    by_env = locator(environ=environ)()
    assert (by_env.url, by_env.token) == ("http://env:2", "env")
    by_argument = locator("http://arg:3", "arg", environ=environ)()
    assert (by_argument.url, by_argument.token) == ("http://arg:3", "arg")
    by_home = locator(home=tmp_path, environ={"SHOAL_URL": "http://env:2", "SHOAL_TOKEN": "env"})()
    assert (by_home.url, by_home.token) == ("http://home:1", "secret")
    as_tenant = locator(home=tmp_path, environ={"SHOAL_TOKEN": "env"})()
    assert (as_tenant.url, as_tenant.token) == ("http://home:1", "env")


def test_without_a_token_the_server_is_asked_by_a_socket_of_root_or_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home, shared = Home(tmp_path / ".shoal"), tmp_path / "shared.sock"
    home.path.mkdir()
    shared.write_text("no socket")
    with pytest.raises(NoServer, match="no server runs here"):
        locator(environ={}, shared=shared)()
    shared.unlink()
    with listen_locally(shared, 0o666), listen_locally(home.socket_file, 0o666):
        found = locator(environ={}, shared=shared)()
        assert (found.socket, found.token) == (shared, None)
        for named in ({"home": tmp_path}, {"environ": {"SHOAL_HOME": str(tmp_path)}}):
            with pytest.raises(NoServer):
                locator(**{"environ": {}, **named}, shared=shared)()  # type: ignore[arg-type]
        for url in (f"unix:{shared}", f"unix://{shared}"):
            assert locator(url, environ={})().socket == shared
        by_env = locator(environ={"SHOAL_URL": f"unix:{shared}", "SHOAL_TOKEN": "env"})()
        assert (by_env.socket, by_env.token) == (shared, "env")
        write_server(home, ServerInfo(1, 0, "http://home:1"))
        home.token_file.write_text("secret\n")
        at_home = locator(environ={}, shared=shared)()
        assert (at_home.socket, at_home.token, at_home.url) == (home.socket_file, "secret", "http://home:1")
        assert locator(token="other", home=home.path, environ={})().socket is None
        if os.geteuid() == 0:
            os.chown(home.socket_file, 4711, 4711)
            assert locator(environ={})().socket is None


async def test_both_clients_speak_through_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\nconnection: close\r\n\r\n" + b'{"tenants":[]}')
        await writer.drain()
        writer.close()

    asked: list[bytes] = []
    async with await asyncio.start_unix_server(answer, path):
        async with AsyncClient(f"unix:{path}", home=tmp_path, environ={}) as client:
            assert await client.tenants() == []
        with Client(f"unix:{path}", home=tmp_path, environ={}) as client:
            assert await asyncio.to_thread(client.tenants) == []
    assert len(asked) == 2
    assert all(b"authorization" not in one.lower() for one in asked)


def test_a_server_that_came_back_elsewhere_is_found_there(tmp_path: Path) -> None:
    home = Home(tmp_path)
    me = start_ticks(1) or 0
    write_server(home, ServerInfo(1, me, "http://old:1"))

    def move(request: httpx.Request) -> httpx.Response:
        if request.url.host == "old":
            write_server(home, ServerInfo(1, me, "http://new:2"))
            raise httpx.ConnectError("gone")
        return ok({"version": "1", "ready": True})

    with Client(home=tmp_path, environ={}, transport=httpx.MockTransport(move)) as client:
        assert client.status().ready
