"""One real server for the tests of this folder, and what people do with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal.base.home import Home, stop_server
from shoal.base.processes import kill_until_none
from shoal.contract.lifecycle import JobState
from shoal.control.server import start_detached
from shoal.engine.local.processes import marked
from shoal.sdk import Client
from shoal.session.client.relay import Relay, Streams
from shoal.session.commands.common import connector

from .talk import eventually


@dataclass
class Running:
    """A server and its admin."""

    home: Home
    client: Client

    def start(self, *command: str, name: str = "job", tenant: str | None = None, **fields: object) -> str:
        """A job that runs."""
        asked = {"name": name, "command": list(command), "resources": {"cpus": 0.1, "memory": "256MiB"}, **fields}
        job = self.client.submit(asked, tenant=tenant).id
        eventually(lambda: self.client.job(job).state is JobState.RUNNING)
        return job

    def run(self, job: str, *line: str, stdin: bytes = b"", rank: int = 0) -> tuple[int, bytes, bytes]:
        """A command in a job: its exit code, output and errors."""
        session = self.client.session.execute(job, line, rank=rank)
        return relayed(connector(self.client, job, session.id, rank), stdin)

    def log(self, job: str) -> bytes:
        return self.client.log_piece(job).data


def relayed(connect: object, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    pipes = [os.pipe() for _ in range(3)]
    told: dict[int, bytes] = {}

    def feed() -> None:
        view = memoryview(stdin)
        while view:
            view = view[os.write(pipes[0][1], view) :]
        os.close(pipes[0][1])

    def drain(fd: int) -> None:
        parts = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        told[fd] = b"".join(parts)
        os.close(fd)

    threads = [threading.Thread(target=feed), *(threading.Thread(target=drain, args=(one[0],)) for one in pipes[1:])]
    for thread in threads:
        thread.start()
    streams = Streams(pipes[0][0], pipes[1][1], pipes[2][1], terminal=False)
    try:
        code = Relay(connect, streams, lambda _: None).run()  # type: ignore[arg-type]
    finally:
        os.close(pipes[0][0])
        os.close(pipes[1][1])
        os.close(pipes[2][1])
    for thread in threads:
        thread.join()
    return code, told[pipes[1][0]], told[pipes[2][0]]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = Home(tmp_path_factory.mktemp("home") / "home")
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "4"], home)
    try:
        with Client(home=home.path, environ={}) as client:
            yield Running(home, client)
    finally:
        stop_server(home, timeout_s=20)
        kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)


@pytest.fixture
def rank_dir(server: Running) -> object:
    def find(job: str) -> Path:
        return server.home.path / "gangs" / f"{job}.1.run" / "rank-0"

    return find
