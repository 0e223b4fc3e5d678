"""Door to a site that is reached by `ssh`, for processes that must not hold its key: jobs in a sandbox.

Who may see the socket may come, and gets an `ssh` of its own. What it says of itself first is replaced by what the
site's settings allow: the folders, the commands that Shoal knows, limits, and nothing that writes. The proxy takes no
second word of that kind, so all else is passed on as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from shoal.shell import proxy
from shoal.shell.agent.transports import SshTransport, greeting
from shoal.shell.executor import decode, encode
from shoal.shell.frames import Frame, Frames, frame
from shoal.shell.sites import Site, door_of
from shoal.shell.sockets import listen
from shoal.shell.tools import offered

log = structlog.get_logger("shoal.shell")

MOST_GUESTS, MOST_COMMANDS, MOST_PROCESSES = 32, 64, 512
"""Of one door at once; of each guest at once; of the login's account, while a guest's command starts one more."""
PATIENCE_S = 15.0
_MOST_HELLO = 1 << 20
_MOST_LINES = 100
_CHUNK = 128 << 10


def allowed(told: Mapping[str, Any], site: Site, limits: Mapping[str, int]) -> dict[str, Any]:
    """What a guest may say of itself. Raises ValueError, TypeError, KeyError for what is none. Pure."""
    home = str(told["home"])
    if not home.startswith("/") or "/../" in home + "/" or site.holds(home):
        raise ValueError("its home is no folder of its own")
    files = {str(name): str(text) for name, text in dict(told["files"]).items()}
    return {
        "sites": dict(site.mounts), "home": home, "limits": {**limits, "RLIMIT_NPROC": MOST_PROCESSES},
        "tools": sorted(set(map(str, told["tools"])) & offered()), "locales": [str(one) for one in told["locales"]],
        "files": {name: text for name, text in files.items() if name.startswith(f"{home}/") and "/../" not in name},
        "confined": True, "commands": MOST_COMMANDS, "writes": False,
    }  # fmt: skip


class Door:
    """`limits` are those of each command there."""

    def __init__(self, home: Path, site: Site, limits: Mapping[str, int]) -> None:
        self.site = site
        self._path = door_of(home, site.name)
        self._limits = limits
        self._guests = set[asyncio.Task[Any]]()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Raises OSError."""
        self._server = await asyncio.start_unix_server(self._serve, sock=listen(self._path, 0o666))

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)
        for guest in list(self._guests):
            guest.cancel()
        await asyncio.gather(*self._guests, return_exceptions=True)

    @property
    def busy(self) -> int:
        return len(self._guests)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._guests.add(task)
        try:
            await self._receive(reader, writer)
        finally:
            self._guests.discard(task)
            writer.close()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link: SshTransport | None = None
        try:
            if len(self._guests) > MOST_GUESTS:
                raise ValueError(f"{MOST_GUESTS} processes use it already")
            async with asyncio.timeout(PATIENCE_S):
                told, rest = await _first(reader)
                hello = allowed(told, self.site, self._limits)
                link = await SshTransport.open(self.site)
                link.writer.write(frame(0, Frame.HELLO, encode(hello)) + rest)
                writer.write(proxy.GREETING + await greeting(link))
            log.info("a door is used", site=self.site.name)
            await self._carry(link, reader, writer)
        except (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            why = str(error) or "it does not answer"
            writer.write(proxy.GREETING + frame(0, Frame.WELCOME, encode({"failed": why})))
        finally:
            if link is not None:
                await link.end()

    async def _carry(self, link: SshTransport, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one side ends."""
        ways = [
            asyncio.ensure_future(one)
            for one in (_pass(reader, link.writer), _pass(link.reader, writer), self._heed(link))
        ]
        try:
            await asyncio.wait(ways[:2], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in ways:
                one.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _heed(self, link: SshTransport) -> None:
        """What the proxy says of refusals, for the log; all of it is read, so that it never waits."""
        told = 0
        while line := await link.complaints.read(4096):
            for one in line.decode(errors="replace").splitlines():
                if told < _MOST_LINES:
                    log.info("a proxy told", site=self.site.name, what=one[:200])
                told += 1


async def _first(reader: asyncio.StreamReader) -> tuple[Mapping[str, Any], bytes]:
    """A guest's hello, and what came with it."""
    frames, taken = Frames(), b""
    while len(taken) <= _MOST_HELLO:
        data = await reader.read(_CHUNK)
        if not data:
            raise EOFError
        taken += data
        for stream, kind, body in frames.feed(data):
            if kind != Frame.HELLO:
                raise ValueError("a client begins with its hello")
            return decode(body), taken[len(frame(stream, kind, body)) :]
    raise ValueError("its hello is too long")


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
