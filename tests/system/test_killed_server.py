"""A real `shoal up` whose server is killed: it is back by itself, and nobody was refused meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from shoal.base.home import Home, ServerInfo, read_server, running_server
from shoal.base.processes import kill_until_none
from shoal.engine.local.processes import marked
from shoal.sdk import Client
from tests.servers import until

PATIENCE_S = 60.0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)


@contextmanager
def up(home: Home) -> Iterator[subprocess.Popen[bytes]]:
    line = [sys.executable, "-m", "shoal.cli", "up", "--home", str(home.path), "--port", "0", "--slots", "2"]
    home.path.mkdir(exist_ok=True)
    with (home.path / "log").open("ab") as log, subprocess.Popen(line, stdout=log, stderr=log) as process:
        try:
            yield process
        finally:
            process.kill()


def following(home: Home, before: int) -> ServerInfo:
    """The server after that of this pid, once it is ready."""
    asking = httpx.Client(timeout=PATIENCE_S)

    def ready() -> bool:
        info = running_server(home)
        return info is not None and info.pid != before and asking.get(f"{info.url}/readyz").status_code == 200

    until(ready)
    info = read_server(home)
    assert info is not None
    return info


def submit(home: Home) -> str:
    with Client(home=home.path, environ={}, patience_s=PATIENCE_S) as client:
        job = client.submit({"name": "stays", "command": ["sleep", "1000"], "resources": {"cpus": 0.1}}).id
        until(lambda: client.job(job).state == "RUNNING")
    return job


def same(home: Home, job: str, adopted: int) -> None:
    with Client(home=home.path, environ={}, patience_s=PATIENCE_S) as client:
        found = client.job(job)
        assert (found.state, found.attempt) == ("RUNNING", 1)
        assert [event.kind for event in client.events(job)].count("attempt.adopted") == adopted


def test_a_killed_server_is_back_with_its_jobs_and_answers_who_asked_meanwhile(home: Home) -> None:
    with up(home) as parent:
        info = following(home, 0)
        first, job = info.url, submit(home)
        for death in range(3):
            parent.send_signal(signal.SIGSTOP)  # so that there is no server for a while
            os.kill(info.pid, signal.SIGKILL)
            until(lambda: not info.alive())  # noqa: B023 - it is called at once
            answers: list[int] = []
            token = home.token_file.read_text().strip()
            transports = [httpx.HTTPTransport(), httpx.HTTPTransport(uds=str(home.socket_file))]
            asking = [threading.Thread(target=ask, args=(info.url, token, one, answers)) for one in transports]
            for one in asking:
                one.start()
            until(lambda: _waiting(info.url) >= 1)  # noqa: B023
            assert answers == []
            parent.send_signal(signal.SIGCONT)
            for one in asking:
                one.join()
            assert answers == [200, 200]
            info = following(home, info.pid)
            assert info.url == first
            same(home, job, death + 1)
        parent.send_signal(signal.SIGINT)
        assert parent.wait() == 0
    assert not info.alive()
    assert not home.server_file.exists()
    assert not home.socket_file.exists()
    log = (home.path / "log").read_text()
    assert log.count("the server was killed: starting it again") == 3
    assert log.count('"event": "stopped"') == 1
    assert log.count("Shoal ") == 1, "who started it was told once"


def ask(url: str, token: str, transport: httpx.HTTPTransport, answers: list[int]) -> None:
    with httpx.Client(transport=transport, timeout=PATIENCE_S) as client:
        answers.append(client.get(f"{url}/v1/jobs", headers={"authorization": f"Bearer {token}"}).status_code)


def _waiting(url: str) -> int:
    """Connections that are made and that no process has taken yet."""
    port = f":{int(url.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].partition(":")[2], 16) for row in rows if row[1].endswith(port) and row[3] == "0A")


@pytest.mark.slow
def test_five_deaths_end_it_and_a_killed_parent_takes_the_server_with_it(home: Home) -> None:
    with up(home) as parent:
        info = following(home, 0)
        job = submit(home)
        for _ in range(4):
            os.kill(info.pid, signal.SIGKILL)
            info = following(home, info.pid)
        os.kill(info.pid, signal.SIGKILL)
        assert parent.wait() == 128 + signal.SIGKILL
    assert "giving up" in (home.path / "log").read_text()
    with up(home) as parent:
        info = following(home, info.pid)
        same(home, job, 5)
        parent.kill()
        parent.wait()
        with up(home) as another:  # at once, while the kernel may still end the server
            following(home, info.pid)
            assert not info.alive()
            same(home, job, 6)
            another.terminate()
            assert another.wait() == 0


@pytest.mark.slow
def test_a_server_that_cannot_start_is_not_started_again(home: Home) -> None:
    home.path.mkdir()
    (home.path / "shoal.db").write_text("damaged " * 1000)
    with up(home) as parent:
        assert parent.wait() == 4
    log = (home.path / "log").read_text()
    assert log.count("the database is damaged") == 1
    assert "starting it again" not in log
