"""The registry: where replicas dial in, and from where they are given work.

It listens on a Unix socket that only this user can open, admits replicas with a valid token, and gives up those that do
not answer. A replica that lies, hangs or dies costs the requests that it was sent, which fail at once, and
nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from shoal.base.listening import LONGEST_PATH
from shoal.core import Conflict, Invalid, Reason
from shoal.serve.gateway.replicas.replica_connection import ReplicaConnection
from shoal.serve.gateway.replicas.replica_handle import Replica, ReplicaEvents, ReplicaLimits
from shoal.serve.sockets import address_of

Admit = Callable[[str], bool]
"""Whether a replica with a token of this digest (`shoal.core.token_digest`) may join."""

log = logging.getLogger("shoal.serve")


class ReplicaRegistry:
    """`connections` are all that are open, `replicas` those that joined, by name. All methods and events belong to one
    event loop.

    `before_kill` is told the name of a replica that is about to be killed, and why.
    """

    def __init__(
        self,
        admit: Admit,
        events: ReplicaEvents | None = None,
        limits: ReplicaLimits | None = None,
        *,
        before_kill: Callable[[str, str], None] | None = None,
    ) -> None:
        self.admit = admit
        self.events = events or ReplicaEvents()
        self.limits = limits or ReplicaLimits()
        self.connections: set[ReplicaConnection] = set()
        self.replicas: dict[str, Replica] = {}
        self._before_kill = before_kill
        self._listening: list[tuple[asyncio.Server, Path]] = []
        self._watch: asyncio.Task[None] | None = None

    async def start(self, path: Path, *, sandboxed: Path | None = None) -> None:
        """Listen at `path`, and at `sandboxed` for replicas of other users. Raises Conflict if one is taken, Invalid if
        `path` is too long for a socket."""
        if len(os.fsencode(path)) > LONGEST_PATH:
            raise Invalid(
                f"{len(os.fsencode(path))} bytes are too long for a socket's path", where=str(path),
                hint=f"at most {LONGEST_PATH}",
            )  # fmt: skip
        await self._listen(path, 0o600)
        try:
            if sandboxed is not None:
                await self._listen(sandboxed, 0o666)
        except BaseException:
            self._leave()
            raise
        self._watch = asyncio.get_running_loop().create_task(self._look_after())

    async def _listen(self, path: Path, mode: int) -> None:
        made = _listen(path, mode)
        server = await asyncio.get_running_loop().create_unix_server(lambda: ReplicaConnection(self), sock=made)
        self._listening.append((server, path))

    def _leave(self) -> None:
        while self._listening:
            server, path = self._listening.pop()
            server.close()
            path.unlink(missing_ok=True)

    async def stop(self) -> None:
        """Let go of all replicas. They live on and dial again; what they were asked fails with ReplicaLost."""
        if self._watch is None:
            return
        self._watch.cancel()
        self._watch = None
        for connection in [*self.connections]:
            connection.close(Reason("stopped", "the gateway stops"))
        self._leave()

    async def _look_after(self) -> None:
        """Give up replicas that do not answer, and ask those that are idle whether they would."""
        loop = asyncio.get_running_loop()
        every_s = min(1.0, self.limits.answer_timeout_s / 4, self.limits.ask_idle_every_s / 4)
        while True:
            await asyncio.sleep(every_s)
            for connection in [*self.connections]:
                replica = connection.replica
                if replica is None:
                    continue
                hangs = replica.overdue(loop.time())
                if hangs is not None:
                    log.error("replica %s is killed: %s", replica.name, hangs)
                    if self._before_kill is not None:
                        self._before_kill(replica.name, hangs)
                    replica.kill()
                    connection.close(Reason("stuck", hangs))
                elif replica.quiet_for(loop.time()) > self.limits.ask_idle_every_s:
                    replica.look()


def _listen(path: Path, mode: int) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _clear_away(path)
        os.fchmod(listening.fileno(), 0o600)  # before it has a name: no other user can open it, not for a moment
        with address_of(path) as address:
            listening.bind(address)
        path.chmod(mode)
        listening.listen(128)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _clear_away(path: Path) -> None:
    """Remove the socket that a killed gateway left behind. Raises Conflict if one answers, or it is no socket."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise Conflict("there is something that is no socket", where=str(path), hint="choose another path")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            with address_of(path) as address:
                probe.connect(address)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise Conflict("another gateway listens here", where=str(path), hint="stop it, or choose another path")
