"""The connection to one site, with the proxy at its other end, and the streams of commands over it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import structlog

from shoal.shell import proxy
from shoal.shell.agent.mounts import MountRate
from shoal.shell.agent.rates import steady
from shoal.shell.agent.transports import Transport, greeting, open_transport
from shoal.shell.executor import decode, encode
from shoal.shell.frames import Frame, Frames, frame
from shoal.shell.sites import Site

log = structlog.get_logger("shoal.shell")

CONNECT_S = 15.0
PING_S = 1.0
RETRY_S = 5.0
"""After a failure, until the next attempt: commands run here meanwhile and do not wait for it."""


class Stream(Protocol):
    """What one command over there tells."""

    def started(self, stream: int, size: int) -> None: ...
    def refused(self, why: str) -> None: ...
    def output(self, stream: int, kind: int, data: bytes) -> None: ...
    def credit(self, stream: int, count: int) -> None: ...
    def ended(self, stream: int, status: int, told: Mapping[str, Any]) -> None: ...
    def lost(self, why: str) -> None: ...


class Connection:
    """To one site. `ready` once the proxy has told what it has; then `tools` maps paths to hashes of programs there."""

    def __init__(self, site: Site, hello: Callable[[], Mapping[str, Any]]) -> None:
        self.site = site
        self.ready = False
        self.why = "it was not needed yet"
        self.welcome: Mapping[str, Any] = {}
        self.round_trip_s = 0.02
        self.bytes_per_s: float | None = None
        self.mount = MountRate()
        self._hello = hello
        self._transport: Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._streams: dict[int, Stream] = {}
        self._room: dict[int, int] = {}
        self._trials: dict[int, asyncio.Future[list[int]]] = {}
        self._numbers = itertools.count(1)
        self._failed_at = float("-inf")
        self._heard_at = 0.0

    # --- life ---

    def begin(self) -> None:
        """Connect, unless that is done, under way, or failed just now."""
        now = asyncio.get_running_loop().time()
        if self._task is None and now - self._failed_at > RETRY_S:
            self._settled.clear()
            self.why = "it is being connected"
            self._task = asyncio.create_task(self._serve())

    async def settled(self) -> None:
        """Returns once it is connected or cannot be."""
        if self._task is not None:
            await self._settled.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        why = "the connection ended"
        try:
            async with asyncio.timeout(CONNECT_S):
                frames, reader = await self._connect()
            pings = asyncio.create_task(self._ping())
            try:
                await self._read(frames, reader)
            finally:
                pings.cancel()
        except TimeoutError:
            why = f"it does not answer within {CONNECT_S:g} s"
        except (OSError, ValueError, EOFError, KeyError) as error:
            why = str(error) or "the connection ended"
        finally:
            self.ready, self.why = False, why
            self._failed_at = loop.time()
            self._task = None
            self._settled.set()
            await self._end_transport()
            for trial in self._trials.values():
                trial.cancel()
            streams, self._streams, self._room = self._streams, {}, {}
            for one in {id(one): one for one in streams.values()}.values():
                one.lost(why)

    async def _connect(self) -> tuple[Frames, asyncio.StreamReader]:
        self._transport = link = await open_transport(self.site)
        link.writer.write(frame(0, Frame.HELLO, encode({**self._hello(), **link.credentials})))
        rest = await greeting(link)
        frames = Frames()
        while True:
            for stream, kind, body in frames.feed(rest):
                if (stream, kind) != (0, Frame.WELCOME):
                    raise ValueError("the proxy begins with something else than its welcome")
                self.welcome = decode(body)
                if failed := self.welcome.get("failed"):
                    raise ValueError(failed)
                self.ready, self.why = True, ""
                self._heard_at = asyncio.get_running_loop().time()
                self._settled.set()
                return frames, link.reader
            rest = await link.reader.read(1 << 18)
            if not rest:
                raise EOFError(await link.complaint())

    async def _end_transport(self) -> None:
        link, self._transport = self._transport, None
        if link is not None:
            await link.end()

    async def _ping(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._send(0, Frame.PING, struct.pack(">d", loop.time()))
            before = loop.time()
            await asyncio.sleep(PING_S)
            stalled = loop.time() - before > 2 * PING_S  # this machine stood still: the other side is not to blame
            if not stalled and loop.time() - self._heard_at > proxy.SILENCE_S and self._transport is not None:
                self.why = "nothing was heard from it"
                self._transport.drop()

    async def _read(self, frames: Frames, reader: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(1 << 18):
            self._heard_at = loop.time()
            for stream, kind, body in frames.feed(data):
                self._take(stream, kind, body)

    def _take(self, stream: int, kind: int, body: bytes) -> None:
        if kind == Frame.PONG:
            taken = asyncio.get_running_loop().time() - struct.unpack(">d", body[:8])[0]
            self.round_trip_s = min(taken, 0.9 * self.round_trip_s + 0.1 * taken)
            rate = struct.unpack(">d", body[8:16])[0] if len(body) >= 16 else 0.0
            self.bytes_per_s = steady(self.bytes_per_s, rate) if rate > 0 else self.bytes_per_s
            return
        if kind == Frame.TRIED:
            trial = self._trials.get(stream)
            if trial is not None and not trial.done():
                trial.set_result([int(one) for one in decode(body)])
            return
        if kind == Frame.REFUSED:
            told = decode(body)
            for one in told["streams"]:
                self._room.pop(one, None)
                if found := self._streams.pop(one, None):
                    found.refused(told["why"])
            return
        found = self._streams.get(stream)
        if found is None:
            return
        if kind == Frame.STARTED:
            found.started(stream, int(decode(body)["bytes"]))
        elif kind in (Frame.OUT, Frame.ERR):
            self._room[stream] -= len(body)
            if self._room[stream] < 0:
                raise ValueError("it sends more than it was asked for")
            found.output(stream, kind, body)
        elif kind == Frame.CREDIT:
            found.credit(stream, struct.unpack(">I", body)[0])
        elif kind == Frame.EXIT:
            del self._streams[stream], self._room[stream]
            told = decode(body)
            found.ended(stream, int(told["status"]), told)

    # --- commands ---

    def _send(self, stream: int, kind: int, data: bytes = b"") -> None:
        if self._transport is not None and not self._transport.writer.is_closing():
            self._transport.writer.write(frame(stream, kind, data))

    def number(self) -> int:
        return next(self._numbers)

    def start(
        self, stages: Sequence[Mapping[str, Any]], streams: Sequence[Stream], *, writes: bool,
        pieces: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Start the stages of one chain together; each has its number in `id`. `pieces`: how they share cores."""
        for told, stream in zip(stages, streams, strict=True):
            self._streams[told["id"]], self._room[told["id"]] = stream, told["credit"]
        told = {"stages": list(stages), "writes": writes, "pieces": pieces}
        self._send(0, Frame.RUN, encode(told))

    async def try_out(self, stages: Sequence[Mapping[str, Any]], feeds: Sequence[Sequence[Any]]) -> list[int]:
        """What the stages read and wrote of the beginning of their input. None of it where the site did not try."""
        number = self.number()
        self._trials[number] = asyncio.get_running_loop().create_future()
        self._send(number, Frame.TRY, encode({"stages": list(stages), "feeds": list(feeds)}))
        try:
            await asyncio.wait([self._trials[number]])
            trial = self._trials[number]
            return [] if trial.cancelled() else trial.result()
        finally:
            del self._trials[number]

    def write(self, stream: int, data: bytes) -> None:
        self._send(stream, Frame.DATA, data)

    def end_input(self, stream: int) -> None:
        self._send(stream, Frame.END)

    def give(self, stream: int, count: int) -> None:
        if stream in self._room:
            self._room[stream] += count
        self._send(stream, Frame.CREDIT, struct.pack(">I", count))

    def kill(self, stream: int) -> None:
        self._send(stream, Frame.KILL)

    @property
    def busy(self) -> int:
        return len(self._streams)
