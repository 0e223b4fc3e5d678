"""Upgraded connections: bytes both ways through the front, spoken to over raw sockets, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from shoal.base.http import Limits
from shoal.base.http.asgi import AsgiFront
from shoal.base.http.errors import status_of
from shoal.base.http.handover import Handover
from shoal.base.http.tunnel import Tunnel

LIMITS = Limits(idle_s=0.2, head_s=0.2, body_s=0.2, linger_s=0.2, sweep_s=0.02)
OFFER = b"POST /t HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: other, Bytes\r\n\r\n"
LONG_S = 30.0


class Behind:
    """The front with an application that upgrades, and the socket at the tunnel's other end."""

    kind = Tunnel

    def __init__(self) -> None:
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter
        self.tunnel: Tunnel
        self.ended = asyncio.Event()
        self.greeting = b""
        self.front = AsgiFront(self._app, LIMITS, lambda error: (status_of(error), [], str(error).encode()))

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        offer = scope.get("extensions", {}).get("upgrade")
        if offer is None or b"bytes" not in offer.offered:
            await send({"type": "http.response.start", "status": 426, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return
        ours, theirs = socket.socketpair()
        self.reader, self.writer = await asyncio.open_unix_connection(sock=ours)
        if self.greeting:
            self.writer.write(self.greeting)
            self.writer.write_eof()
        self.tunnel = self.kind(self.ended.set)
        await self.tunnel.connect(theirs)
        if self.greeting:
            await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 101, "headers": []})
        offer.accept(b"bytes", self.tunnel)

    async def connect(self, said: bytes = OFFER) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(said)
        return reader, writer, await reader.readuntil(b"\r\n\r\n")


@contextlib.asynccontextmanager
async def behind() -> AsyncIterator[Behind]:
    made = Behind()
    made.port = await made.front.start(port=0)
    try:
        async with asyncio.timeout(LONG_S):
            yield made
    finally:
        await made.front.stop(0.1)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def go(work: Any) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(work())

    return go


def test_bytes_go_both_ways_for_longer_than_any_request_may_take(run: Any) -> None:
    async def work() -> None:
        async with behind() as it:
            reader, writer, head = await it.connect(OFFER + b"early")
            assert head.startswith(b"HTTP/1.1 101 ")
            assert b"Upgrade: bytes" in head
            assert await it.reader.readexactly(5) == b"early"
            await asyncio.sleep(0.5)  # the limits of requests are over
            writer.write(b"there")
            assert await it.reader.readexactly(5) == b"there"
            it.writer.write(b"and back")
            assert await reader.readexactly(8) == b"and back"
            assert (it.tunnel.received, it.tunnel.sent) == (10, 8)

    run(work)


def test_who_speaks_first_and_leaves_is_heard(run: Any) -> None:
    async def work() -> None:
        async with behind() as it:
            it.greeting = b"hello, and good-bye"
            reader, writer, _ = await it.connect()
            assert await reader.read() == it.greeting
            writer.write(b"too late?")
            assert await it.reader.readexactly(9) == b"too late?"
            writer.close()
            await it.ended.wait()

    run(work)


def test_an_end_before_there_is_a_client_keeps_the_socket_and_one_after_it_does_not() -> None:
    tunnel = Tunnel()
    assert tunnel.eof_received()
    tunnel.client_lost()
    assert not tunnel.eof_received()


def test_the_end_of_one_side_is_passed_on_and_the_other_still_speaks(run: Any) -> None:
    async def work() -> None:
        async with behind() as it:
            reader, writer, _ = await it.connect()
            writer.write(b"question")
            writer.write_eof()
            assert await it.reader.read() == b"question"
            it.writer.write(b"answer")
            it.writer.write_eof()
            assert await reader.read() == b"answer"
            await it.ended.wait()

    run(work)


def test_the_loss_of_the_client_ends_the_other_side(run: Any) -> None:
    async def work() -> None:
        async with behind() as it:
            _, writer, _ = await it.connect()
            reset = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            writer.transport.abort()
            assert await it.reader.read() == b""
            await it.ended.wait()

    run(work)


def test_the_end_of_the_socket_ends_the_client(run: Any) -> None:
    async def work() -> None:
        async with behind() as it:
            reader, writer, _ = await it.connect()
            it.writer.close()
            assert await reader.read() == b""
            writer.close()
            await it.ended.wait()

    run(work)


@pytest.mark.parametrize("side", ["client", "socket"])
def test_one_who_never_reads_stops_the_other_and_nothing_is_kept(run: Any, side: str) -> None:
    async def work() -> None:
        async with behind() as it:
            _, writer, _ = await it.connect()
            from_side = it.writer if side == "client" else writer
            pushed = 0
            with contextlib.suppress(TimeoutError):
                while pushed < 1 << 30:
                    from_side.write(bytes(1 << 20))
                    pushed += 1 << 20
                    async with asyncio.timeout(0.5):
                        await from_side.drain()
            assert pushed < 64 << 20
            held = it.tunnel._client if side == "client" else it.tunnel._other
            assert held is not None
            assert held.get_write_buffer_size() < 2 << 20

    run(work)


def test_a_request_without_an_offer_or_with_another_is_answered_as_ever(run: Any) -> None:
    async def work() -> None:
        async with behind() as it:
            for offered in (b"", b"Connection: Upgrade\r\nUpgrade: websocket\r\n"):
                reader, writer, head = await it.connect(b"GET / HTTP/1.1\r\nHost: x\r\n" + offered + b"\r\n")
                assert head.startswith(b"HTTP/1.1 426 ")
                assert await reader.readexactly(2) == b"no"
                writer.close()

    run(work)


def test_a_server_that_leaves_ends_its_tunnels(run: Any) -> None:
    async def work() -> None:
        async with behind() as it:
            reader, _, _ = await it.connect()
            await it.front.stop(5.0)
            assert await reader.read() == b""
            await it.ended.wait()

    run(work)


class Giving(Behind):
    """The same for clients of a local socket, who get the tunnel's end itself."""

    kind = Handover

    def listen(self, folder: Path) -> None:
        self.path = folder / "door"
        listener = socket.socket(socket.AF_UNIX)
        listener.setblocking(False)
        listener.bind(str(self.path))
        listener.listen()
        self.front.serve(listener)

    def ask(self, said: bytes = OFFER) -> tuple[socket.socket, socket.socket | None]:
        """The connection to the front, and what came with its answer."""
        door = socket.socket(socket.AF_UNIX)
        door.settimeout(LONG_S)
        door.connect(str(self.path))
        door.sendall(said)
        _, fds, _, _ = socket.recv_fds(door, 1 << 10, 4)
        assert len(fds) < 2
        made = socket.socket(fileno=fds[0]) if fds else None
        if made is not None:
            made.settimeout(LONG_S)
        return door, made


def given(run: Any, folder: Path, work: Any) -> None:
    async def go() -> None:
        it = Giving()
        it.listen(folder)
        try:
            async with asyncio.timeout(LONG_S):
                door, made = await asyncio.to_thread(it.ask)
                assert made is not None
                with door, made:
                    made.sendall(b"there")
                    assert await it.reader.readexactly(5) == b"there"
                    it.writer.write(b"back")
                    assert await asyncio.to_thread(made.recv, 9) == b"back"
                    await work(it, door, made)
                    await it.ended.wait()
                    assert await asyncio.to_thread(made.recv, 9) == b""  # also for one who holds it back
                    assert await it.reader.read() == b""
        finally:
            await it.front.stop(0.1)

    run(go)


def test_a_local_client_has_the_socket_itself_as_long_as_its_connection(run: Any, tmp_path: Path) -> None:
    async def work(_it: Giving, door: socket.socket, _made: socket.socket) -> None:
        door.close()

    given(run, tmp_path, work)


def test_who_is_shown_out_loses_the_socket_that_was_given(run: Any, tmp_path: Path) -> None:
    async def work(it: Giving, door: socket.socket, _made: socket.socket) -> None:
        it.tunnel.abort()
        assert await asyncio.to_thread(door.recv, 9) == b""

    given(run, tmp_path, work)


def test_a_server_that_stops_takes_back_what_it_gave(run: Any, tmp_path: Path) -> None:
    async def work(it: Giving, door: socket.socket, _made: socket.socket) -> None:
        door.sendall(b"nobody reads this")
        await it.front.stop(LONG_S)

    given(run, tmp_path, work)


class Behindhand:
    """The transport of a client that has not taken all of an earlier answer."""

    aborted = False

    def get_write_buffer_size(self) -> int:
        return 1

    def abort(self) -> None:
        self.aborted = True


def test_a_client_that_has_not_taken_earlier_answers_is_given_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        tunnel, transport = Handover(), Behindhand()
        asyncio.run(tunnel.connect(theirs))
        tunnel.greet(transport, b"HTTP/1.1 101\r\n\r\n")  # type: ignore[arg-type]
        assert transport.aborted
        tunnel.client_lost()
        assert ours.recv(1) == b""
