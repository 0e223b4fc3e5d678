"""Transports from the agent to a proxy: through `ssh`, which starts it, or at the TLS port of a permanent one."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shlex
import signal
import ssl
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any, Protocol

from shoal.shell.proxy import GREETING
from shoal.shell.sites import Site
from shoal.shell.sockets import connect
from shoal.shell.source import source

END_S = 2.0
MOST_CHATTER = 64 << 10
"""Bytes that a login may print before the proxy's greeting."""
_BUFFER = 1 << 20

SOURCE = source()
_BOOT = (
    "import os,sys,hashlib\nn=int(sys.argv[1]);b=b''\n"
    "while len(b)<n:\n p=os.read(0,n-len(b))\n if not p:sys.exit(1)\n b+=p\n"
    "if hashlib.sha256(b).hexdigest()!=sys.argv[2]:sys.exit('shoal: the proxy came damaged')\n"
    "sys.argv=['proxy'];exec(compile(b,'proxy','exec'),{'__name__':'__main__','SOURCE':b})"
)


class Transport(Protocol):
    """Both directions of one connection. `credentials` are added to the first frame; `complaint` says why it ended
    before the proxy spoke; `drop` ends it at once."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    credentials: dict[str, Any]

    async def complaint(self) -> str: ...
    def drop(self) -> None: ...
    async def end(self) -> None: ...


async def open_transport(site: Site) -> Transport:
    """Raises OSError, ValueError."""
    if site.door is not None:
        return await LinkTransport.by_door(Path(site.door))
    return await SshTransport.open(site) if site.port is None else await LinkTransport.by_tls(site, site.port)


async def greeting(link: Transport) -> bytes:
    """What comes after the proxy's greeting. Raises OSError, ValueError, EOFError."""
    chatter = b""
    while GREETING not in chatter:
        part = await link.reader.read(1 << 16)
        if not part:
            raise EOFError(await link.complaint())
        chatter += part
        if len(chatter) > MOST_CHATTER and GREETING not in chatter:
            raise ValueError("it answers something else than the proxy")
    return chatter.partition(GREETING)[2]


class SshTransport:
    """`ssh` as a child process, with the proxy's text as the first thing that it is sent."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.reader, self.writer, self.credentials = process.stdout, process.stdin, dict[str, Any]()
        self.complaints = process.stderr
        self._process = process

    @classmethod
    async def open(cls, site: Site) -> SshTransport:
        words = ["python3", "-I", "-c", _BOOT, str(len(SOURCE)), hashlib.sha256(SOURCE).hexdigest()]
        remote = " ".join(shlex.quote(one) for one in words)
        options = ["-o", "BatchMode=yes", "-T"] if site.ssh[0].rpartition("/")[2] == "ssh" else []
        process = await asyncio.create_subprocess_exec(
            *site.ssh, *options, site.host, remote, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True,
            limit=_BUFFER,
        )  # fmt: skip
        made = cls(process)
        made.writer.write(SOURCE)
        return made

    async def complaint(self) -> str:
        text = (await self.complaints.read(4096)).decode(errors="replace").strip()
        return text.splitlines()[-1][:200] if text else "the connection ended before the proxy started"

    def drop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(
                self._process.pid, signal.SIGKILL
            )  # with what it may have started: that would keep its pipes open

    async def end(self) -> None:
        self.drop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self._process.wait()


class LinkTransport:
    """To a proxy that runs already: at a TLS port, or behind an agent's door. The certificate is known by its file, so
    that names and authorities play no part."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: dict[str, Any]
    ) -> None:  # fmt: skip
        self.reader, self.writer, self.credentials = reader, writer, credentials

    @classmethod
    async def by_door(cls, path: Path) -> LinkTransport:
        return cls(*await asyncio.open_unix_connection(sock=connect(path), limit=_BUFFER), {})

    @classmethod
    async def by_tls(cls, site: Site, port: int) -> LinkTransport:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(site.certificate)
        token = await asyncio.to_thread(Path(site.token_file or "").read_text)
        host = site.host.rpartition("@")[2]
        reader, writer = await asyncio.open_connection(host, port, ssl=context, limit=_BUFFER)
        return cls(reader, writer, {"token": token.strip()})

    async def complaint(self) -> str:
        return "the connection ended before the proxy spoke"

    def drop(self) -> None:
        self.writer.transport.abort()

    async def end(self) -> None:
        self.drop()
