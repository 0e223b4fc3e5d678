"""A registry with replicas for tests: real processes, or fakes on a bare socket that may say anything."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from shoal.core import Reason, token_digest
from shoal.inference.tensors import to_array
from shoal.inference.types import InferResponse
from shoal.serve.gateway.replicas.execution import ExecutionResult
from shoal.serve.gateway.replicas.registry import ReplicaRegistry
from shoal.serve.gateway.replicas.replica_handle import Replica, ReplicaEvents, ReplicaLimits
from shoal.serve.gateway.replicas.spawner import ReplicaProcess, SpawnedReplica
from shoal.serve.replica.arena import Arena
from shoal.serve.replica.messages import PROTOCOL, ModelKey
from shoal.serve.replica.wire import Frame, FrameReader, Kind, encode
from tests.serve.models import ROOT

TOKEN = "a-token"
ENDS_WITHIN_S = 30.0
"""Only to fail instead of hanging."""


class Told(ReplicaEvents):
    """Keeps what the registry told, in order, and lets one wait for it."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, Any]] = []
        self._news = asyncio.Event()

    def _note(self, what: str, replica: Replica, detail: Any) -> None:
        self.log.append((what, replica.name, detail))
        self._news.set()

    def joined(self, replica: Replica) -> None:
        self._note("joined", replica, replica)

    def ready(self, replica: Replica, model: ModelKey) -> None:
        self._note("ready", replica, model)

    def leaving(self, replica: Replica) -> None:
        self._note("leaving", replica, replica.leaving)

    def lost(self, replica: Replica, reason: Reason) -> None:
        self._note("lost", replica, reason)

    async def wait(self, what: str, name: str, *, times: int = 1) -> Any:
        """The detail of the `times`th event of this kind for this replica, once it has come."""
        async with asyncio.timeout(ENDS_WITHIN_S):
            while True:
                found = [detail for kind, who, detail in self.log if (kind, who) == (what, name)]
                if len(found) >= times:
                    return found[times - 1]
                self._news.clear()
                await self._news.wait()


class Kit:
    """`path` is the registry's socket."""

    def __init__(self, root: Path, limits: ReplicaLimits | None) -> None:
        self.path = root / "registry"
        self.logs = root
        self.limits = limits
        self.told = Told()
        self.killed: list[tuple[str, str]] = []
        self.registry = self.new_registry()
        self.spawned: dict[str, SpawnedReplica] = {}

    def new_registry(self) -> ReplicaRegistry:
        return ReplicaRegistry(
            lambda digest: digest == token_digest(TOKEN), self.told, self.limits, before_kill=self._note_kill
        )

    def _note_kill(self, name: str, why: str) -> None:
        pid = self.registry.replicas[name].pid
        os.kill(pid, 0)  # it is told while the replica is still there
        self.killed.append((name, why))

    async def replica(self, name: str = "a") -> Replica:
        """A real one, in a process of its own."""
        joined = sum((what, who) == ("joined", name) for what, who, _ in self.told.log)
        if name not in self.spawned:
            how = ReplicaProcess(self.path, TOKEN, self.logs, python_path=[ROOT])
            self.spawned[name] = SpawnedReplica(name, how, first_pause_s=0.01, grace_s=5)
        found: Replica = await self.told.wait("joined", name, times=joined + 1)
        return found

    async def fake(self, name: str = "fake", models: Sequence[Any] = ()) -> Fake:
        """One that has joined, and that the test plays."""
        fake = await Fake.dial(self.path)
        await fake.greet(name)
        await fake.send(Kind.MODELS, 0, list(models))
        await self.told.wait("joined", name)
        return fake

    def log(self, name: str = "a") -> str:
        return (self.logs / f"{name}.log").read_text()


@contextlib.asynccontextmanager
async def registry_kit(root: Path, limits: ReplicaLimits | None = None) -> AsyncIterator[Kit]:
    kit = Kit(root, limits)
    await kit.registry.start(kit.path)
    try:
        yield kit
    finally:
        await asyncio.gather(*(one.close() for one in kit.spawned.values()))
        await kit.registry.stop()


class Fake:
    """The replica's end of a connection, in the hands of a test."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.arena: Arena | None = None
        self._reader = FrameReader()
        self._frames: list[Frame] = []

    @classmethod
    async def dial(cls, path: Path) -> Fake:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, str(path))
        return cls(sock)

    async def send(self, kind: Kind, number: int, body: object, payload: bytes = b"") -> None:
        await self.raw(encode(kind, number, body, len(payload)) + payload)

    async def raw(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def greet(self, name: str, token: str = TOKEN) -> None:
        await self.send(Kind.HELLO, 0, [PROTOCOL, token, name])
        await self._readable()
        buffer = self._reader.buffer()
        data, fds, _, _ = socket.recv_fds(self.socket, len(buffer), 1)
        buffer[: len(data)] = data
        (frame,) = self._reader.received(len(data))
        assert frame.kind is Kind.WELCOME, frame.body
        self.arena = Arena(fds[0], frame.body[0])
        os.close(fds[0])

    async def _readable(self) -> None:
        ready = asyncio.Event()
        asyncio.get_running_loop().add_reader(self.socket, ready.set)
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                await ready.wait()
        finally:
            asyncio.get_running_loop().remove_reader(self.socket)

    async def receive(self) -> Frame | None:
        """The registry's next frame; None once it has closed the connection."""
        while not self._frames:
            async with asyncio.timeout(ENDS_WITHIN_S):
                try:
                    count = await asyncio.get_running_loop().sock_recv_into(self.socket, self._reader.buffer())
                except ConnectionResetError:
                    return None
            if not count:
                return None
            self._frames += self._reader.received(count)
        return self._frames.pop(0)

    def close(self) -> None:
        self.socket.close()


def answer(execution: ExecutionResult, at: int = 0) -> Any:
    """The first output of a request that was answered, as an array."""
    response = execution.responses[at]
    assert isinstance(response, InferResponse), response
    return to_array(response.outputs[0])


async def until(true: Callable[[], bool]) -> None:
    """For what nobody announces."""
    async with asyncio.timeout(ENDS_WITHIN_S):
        while not true():
            await asyncio.sleep(0.01)


def ended(pid: int) -> bool:
    """Whether the process has ended, though nobody may have asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
