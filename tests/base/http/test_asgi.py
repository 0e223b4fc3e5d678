"""ASGI applications behind the front, spoken to over raw sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.base.http import Limits
from shoal.base.http.asgi import App, AsgiFront, Exchange
from shoal.base.http.errors import status_of

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

QUICK = Limits(
    head=2048, idle_s=0.3, head_s=0.3, body_s=0.3, slowest_bytes_per_s=1 << 20, linger_s=0.3, sweep_s=0.02
)  # fmt: skip


def failure(error: Exception) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    return status_of(error), [(b"content-type", b"text/plain")], str(error).encode()


class Served:
    def __init__(self, front: AsgiFront, port: int) -> None:
        self.front = front
        self.port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return Wire(reader, writer)

    async def ask(self, raw: bytes) -> tuple[int, dict[str, str], bytes]:
        wire = await self.connect()
        wire.send(raw)
        return await wire.answer(head_only=raw.startswith(b"HEAD"))

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, raw: bytes) -> None:
        self.writer.write(raw)

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.close()

    async def head(self) -> tuple[int, dict[str, str]]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), headers

    async def chunk(self) -> bytes:
        size = int(await self.reader.readline(), 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def answer(self, *, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
        status, headers = await self.head()
        body = b""
        if head_only or status in (100, 204, 304):
            pass
        elif headers.get("transfer-encoding") == "chunked":
            parts = []
            while data := await self.chunk():
                parts.append(data)
            body = b"".join(parts)
        elif "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = await self.reader.read()
        return status, headers, body

    async def ended(self) -> bool:
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(1), 10) == b""
        return True


@contextlib.asynccontextmanager
async def serving(app: App, limits: Limits | None = None) -> AsyncIterator[Served]:
    front = AsgiFront(app, limits or Limits(sweep_s=0.05), failure)
    served = Served(front, await front.start(port=0))
    try:
        yield served
    finally:
        served.close()
        await front.stop(0.0)


async def whole_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        assert message["type"] == "http.request", message
        body += message["body"]
        if not message["more_body"]:
            return bytes(body)


async def reply(send: Send, body: bytes = b"", status: int = 200, headers: Any = ()) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Any, receive: Receive, send: Send) -> None:
    await reply(send, scope["path"].encode() + b" " + await whole_body(receive))


def post(body: bytes, more: bytes = b"") -> bytes:
    return b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n%b" % (len(body), more, body)


async def test_the_scope_says_what_was_asked() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await reply(send)

    async with serving(app) as served:
        wire = await served.connect()
        wire.send(b"GET http://h/a%20b/%C3%A9?x=%20&y HTTP/1.0\r\nX-A: 1\r\nX-A: 2\r\n\r\n")
        await wire.answer()
        assert await wire.ended()
        client = wire.writer.get_extra_info("sockname")
        await served.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    scope = seen[0]
    assert (scope["type"], scope["method"], scope["http_version"]) == ("http", "GET", "1.0")
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b/é", b"/a%20b/%C3%A9", b"x=%20&y")
    assert scope["headers"] == [(b"x-a", b"1"), (b"x-a", b"2")]
    assert (scope["client"], scope["server"]) == (client, ("127.0.0.1", served.port))
    assert seen[1]["http_version"] == "1.1"


async def test_answers_of_all_forms() -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/plain":
                await reply(send, b"hello", 418, [(b"X-Tea", b"pot")])
            case "/none":
                await reply(send, status=204)
            case "/sized":
                await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
                await send({"type": "http.response.body", "body": b"abc", "more_body": True})
                await send({"type": "http.response.body", "body": b"def"})
            case "/streamed":
                await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
                for part in (b"abc", b"", b"def"):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body"})

    async with serving(app) as served:
        wire = await served.connect()
        get = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"
        for path in (b"plain", b"none", b"sized", b"streamed", b"plain"):
            wire.send(get % path)
        told = [await wire.answer() for _ in range(5)]
        assert [(status, body) for status, _, body in told] == [
            (418, b"hello"), (204, b""), (200, b"abcdef"), (200, b"abcdef"), (418, b"hello"),
        ]  # fmt: skip
        assert told[0][1]["x-tea"] == "pot"
        assert "content-length" not in told[1][1]
        assert (told[3][1]["transfer-encoding"], told[3][1].get("connection")) == ("chunked", None)
        for path, length in ((b"plain", "5"), (b"sized", "6"), (b"streamed", None)):
            wire.send(b"HEAD /%b HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            assert (await wire.answer(head_only=True))[1].get("content-length") == length
        old = await served.connect()
        old.send(b"GET /streamed HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        status, headers, body = await old.answer()
        assert (status, headers["connection"], body) == (200, "close", b"abcdef")
        old = await served.connect()
        old.send((b"GET /plain HTTP/1.0\r\nConnection: keep-alive\r\n\r\n") * 2)
        assert [(await old.answer())[2] for _ in range(2)] == [b"hello", b"hello"]


@settings(max_examples=25)
@given(
    st.lists(st.binary(max_size=200) | st.integers(0, 200_000).map(bytes), min_size=1, max_size=4),
    st.lists(st.integers(1, 70_000), min_size=1, max_size=6),
    st.booleans(),
)
def test_bodies_come_whole_however_they_are_cut(bodies: list[bytes], sizes: list[int], chunked: bool) -> None:
    raw = b""
    for body in bodies:
        if chunked:
            parts = [body[at : at + sizes[0]] for at in range(0, len(body), sizes[0])]
            coded = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
            raw += b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + coded
        else:
            raw += post(body)

    async def run() -> None:
        async with serving(echo) as served:
            wire = await served.connect()

            async def send() -> None:
                at, turn = 0, 0
                while at < len(raw):
                    size = sizes[turn % len(sizes)]
                    wire.send(raw[at : at + size])
                    await wire.writer.drain()
                    at, turn = at + size, turn + 1

            sending = asyncio.create_task(send())
            for body in bodies:
                assert (await wire.answer())[::2] == (200, b"/echo " + body)
            await sending

    asyncio.run(run())


async def test_an_upload_waits_for_the_application() -> None:
    go_on = asyncio.Event()
    sizes: list[int] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        exchange = receive.__self__  # type: ignore[attr-defined]
        assert isinstance(exchange, Exchange)
        await go_on.wait()
        sizes.append(exchange.queued)
        await reply(send, b"%d" % len(await whole_body(receive)))

    size = 20 << 20
    async with serving(app) as served:
        wire = await served.connect()
        wire.send(post(bytes(size)))
        await asyncio.sleep(0.2)
        go_on.set()
        assert (await wire.answer())[2] == b"%d" % size
    assert 0 < sizes[0] < 1 << 20


async def test_a_stream_waits_for_a_slow_reader() -> None:
    sent = 0

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(400):
            await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
            sent += 1
        await send({"type": "http.response.body"})

    async with serving(app) as served:
        wire = await served.connect()
        wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 200  # the rest waits: the system's own buffers hold a few megabytes
        assert len((await wire.answer())[2]) == 400 * 100_000
        wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert len((await wire.answer())[2]) == 400 * 100_000


async def test_100_continue_is_said_when_the_body_is_wanted() -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        if scope["path"] == "/no":
            await reply(send, b"no", 403)
        else:
            await echo(scope, receive, send)

    async with serving(app) as served:
        wire = await served.connect()
        wire.send(post(b"body", b"Expect: 100-continue\r\n")[:-4])
        assert (await wire.answer())[0] == 100
        wire.send(b"body")
        assert (await wire.answer())[2] == b"/echo body"
        wire.send(post(b"body", b"Expect: 100-continue\r\n").replace(b"/echo", b"/no")[:-4])
        status, headers, _ = await wire.answer()
        assert (status, headers["connection"]) == (403, "close")
        assert await wire.ended()


async def test_an_answer_before_the_body_reaches_the_sender() -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await reply(send, b"too large", 413)

    async with serving(app) as served:
        wire = await served.connect()
        wire.send(post(bytes(3 << 20)))
        status, headers, body = await wire.answer()
        assert (status, headers["connection"], body) == (413, "close", b"too large")
        wire = await served.connect()
        wire.send(post(b"short") * 2)  # all of it was there, so that the connection can go on
        assert [(await wire.answer())[0] for _ in range(2)] == [413, 413]


@pytest.mark.parametrize("when", ["body", "answer", "stream"])
async def test_a_client_that_disappears_is_a_disconnect(when: str) -> None:
    told: asyncio.Queue[Any] = asyncio.Queue()

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        if when == "stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await told.put("began")
        while (message := await receive())["type"] == "http.request":
            pass
        await reply_quietly(send)
        await told.put(message["type"])

    async def reply_quietly(send: Send) -> None:
        await send({"type": "http.response.body", "body": b"to nobody"})

    async with serving(app) as served:
        wire = await served.connect()
        wire.send(post(b"body")[: -2 if when == "body" else None])
        assert await told.get() == "began"
        if when == "stream":
            await wire.head()
        wire.reset()
        assert await asyncio.wait_for(told.get(), 10) == "http.disconnect"
        async with asyncio.timeout(10):
            while served.front._connections or served.front.tasks:
                await asyncio.sleep(0.01)


async def test_a_client_that_only_ends_its_side_gets_the_answer() -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await go_on.wait()
        await echo(scope, receive, send)

    async with serving(app) as served:
        wire = await served.connect()
        wire.send(post(b"one") + post(b"two"))
        wire.writer.write_eof()
        await asyncio.sleep(0.1)
        go_on.set()
        assert [(await wire.answer())[2] for _ in range(2)] == [b"/echo one", b"/echo two"]
        assert await wire.ended()


async def test_server_sent_events_arrive_one_by_one_and_end_with_the_client() -> None:
    given: asyncio.Queue[bytes] = asyncio.Queue()

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        while data := await given.get():
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body"})

    async with serving(app, QUICK) as served:  # its patience is for clients, not for streams in which nothing happens
        wire = await served.connect()
        wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for number in range(3):
            await asyncio.sleep(0.3)
            await given.put(b"data: %d\n\n" % number)
            if not number:
                await wire.head()
            assert await wire.chunk() == b"data: %d\n\n" % number
        await given.put(b"")
        assert await wire.chunk() == b""


async def test_a_defect_is_an_answer_or_a_broken_one(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/early":
                raise ZeroDivisionError("early")
            case "/none":
                return
            case "/order":
                await send({"type": "http.response.body", "body": b""})
            case "/split":
                await reply(send, headers=[(b"x", b"a\r\nSet-Cookie: b")])
            case "/long":
                await reply(send, b"abc", headers=[(b"content-length", b"2")])
            case "/late":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
                raise ZeroDivisionError("late")
            case _:
                await reply(send, b"fine")

    async with serving(app) as served:
        for path in (b"early", b"none", b"order", b"split"):
            wire = await served.connect()
            wire.send(b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % path + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await wire.answer())[0] == 500, path
            assert (await wire.answer())[2] == b"fine"
        for path in (b"long", b"late"):
            wire = await served.connect()
            wire.send(b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            with contextlib.suppress(ConnectionError):
                assert not (await wire.reader.read()).endswith(b"0\r\n\r\n")
    assert "ZeroDivisionError: early" in caplog.text
    assert "ZeroDivisionError: late" in caplog.text


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 3000, 431),
        (b"GET nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n", 415),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: ", 408),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\nabc", 408),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", 408),
    ],
)
async def test_what_the_server_refuses_itself(raw: bytes, status: int) -> None:
    async with serving(echo, QUICK) as served:
        wire = await served.connect()
        wire.send(raw)
        found, headers, _ = await wire.answer()
        assert (found, headers["connection"]) == (status, "close")
        assert await wire.ended()


async def test_an_application_may_take_longer_than_a_client() -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await asyncio.sleep(1.0)
        await echo(scope, receive, send)

    async with serving(app, QUICK) as served:
        assert (await served.ask(post(b"x")))[2] == b"/echo x"
        body = bytes(1 << 20)  # more than is queued: its sender waits, which is not its fault
        assert (await served.ask(post(body)))[2] == b"/echo " + body


async def test_who_does_not_read_a_stream_is_cut_off() -> None:
    ended = asyncio.Event()

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not ended.is_set():
            await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
            message = asyncio.create_task(receive())
            await asyncio.sleep(0)
            if message.done() and message.result()["type"] == "http.disconnect":
                ended.set()
            message.cancel()

    async with serving(app, QUICK) as served:
        wire = await served.connect()
        wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(ended.wait(), 30)
        async with asyncio.timeout(10):
            while served.front._connections:
                await asyncio.sleep(0.01)


async def test_stopping_ends_what_is_left() -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        if scope["path"] == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await asyncio.Event().wait()

    async with serving(app) as served:
        stream, waiting, idle = [await served.connect() for _ in range(3)]
        stream.send(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        waiting.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await stream.head())[0] == 200
        await served.front.stop(0.1)
        assert (await waiting.answer())[0] == 503
        assert await idle.ended()
        assert await stream.chunk() == b"x"
        assert await stream.ended()
        with pytest.raises(ConnectionRefusedError):
            await served.connect()


async def test_a_finished_answer_lets_the_application_work_on() -> None:
    done = asyncio.Event()

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await reply(send, b"ok")
        await asyncio.sleep(0.05)
        assert (await receive())["type"] == "http.disconnect"
        done.set()

    async with serving(app) as served:
        wire = await served.connect()
        wire.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await wire.answer())[2] == b"ok"
        await asyncio.wait_for(done.wait(), 10)


def test_the_same_on_uvloop() -> None:
    """The server runs on uvloop, whose transports are others than asyncio's."""
    for test in (
        test_answers_of_all_forms,
        test_an_upload_waits_for_the_application,
        test_a_stream_waits_for_a_slow_reader,
        test_an_answer_before_the_body_reaches_the_sender,
        test_a_client_that_only_ends_its_side_gets_the_answer,
        test_server_sent_events_arrive_one_by_one_and_end_with_the_client,
        test_stopping_ends_what_is_left,
    ):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for when in ("body", "answer", "stream"):
            runner.run(test_a_client_that_disappears_is_a_disconnect(when))


async def test_newcomers_are_refused_where_everybody_is_busy_and_let_in_again_later() -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await go_on.wait()
        await reply(send, b"late")

    async with serving(app, Limits(connections=2, per_address=2, linger_s=0.2, sweep_s=0.02)) as served:
        busy = [await served.connect() for _ in range(2)]
        for wire in busy:
            wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(10):
            while len(served.front.tasks) < 2:
                await asyncio.sleep(0.01)
        # More than are listened to at the same time: the others are sent away at once.
        told = [await wire.answer() for wire in [await served.connect() for _ in range(40)]]
        assert {(status, headers["connection"]) for status, headers, _ in told} == {(503, "close")}
        assert all(b"too many connections" in body for _, _, body in told)
        go_on.set()
        assert [(await wire.answer())[2] for wire in busy] == [b"late", b"late"]
        async with asyncio.timeout(10):
            while len(served.front._connections) > 2:
                await asyncio.sleep(0.01)
        assert (await served.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200


async def test_time_limits_hold_to_within_a_sweep() -> None:
    async with serving(echo, QUICK) as served:
        began = time.monotonic()
        wire = await served.connect()
        assert await wire.ended()
        assert time.monotonic() - began >= QUICK.idle_s
