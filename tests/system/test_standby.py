"""A second server on the same PostgreSQL takes over when the first is killed, and clients go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal import Client
from shoal.base.home import Home, read_server
from shoal.control.home.control import check_standby
from shoal.core import Invalid
from tests.store.conftest import Server, postgresql  # noqa: F401 - a fixture

WAIT_S = 60.0
CONFLICT = 6


@contextmanager
def up(home: Path, url: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "shoal.cli", "up", "--json", "--home", str(home), "--db", url, "--port", "0"]
    process = subprocess.Popen(
        [*command, "--slots", "2", *words], stdout=subprocess.PIPE, text=True, stderr=(home / "log").open("ab"),
        env={**os.environ, "SHOAL_LOG_LEVEL": "error"},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def line(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    found: dict[str, object] = json.loads(process.stdout.readline())
    return found


def test_a_standby_takes_over_and_nothing_acknowledged_is_lost(postgresql: Server, tmp_path: Path) -> None:  # noqa: F811
    postgresql.run("CREATE DATABASE standby")
    url, home = postgresql.url("standby"), tmp_path / "home"
    home.mkdir()
    with up(home, url) as first:
        told = line(first)
        with up(home, url, "--standby") as second, Client(home=home, patience_s=WAIT_S) as client:
            assert f"pid {told['pid']}" in str(line(second)["standby"])
            client.create_tenant("ada", sandbox="none")
            job = client.submit({"name": "long", "tenant": "ada", "command": ["sleep", "300"]})
            while client.job(job.id).state != "RUNNING":
                time.sleep(0.05)
            first.kill()
            first.wait()
            after = client.submit({"name": "after", "tenant": "ada", "command": ["true"]})
            assert line(second)["url"] == told["url"]
            assert client.wait(after.id, timeout_s=WAIT_S).state == "SUCCEEDED"
            kept = client.job(job.id)
            assert (kept.state, kept.attempt) == ("RUNNING", 1)
            events = [event.kind for event in client.events(job.id)]
            assert events.count("attempt.adopted") == 1
            client.cancel(job.id)
            client.wait(job.id, timeout_s=WAIT_S)
        assert not Home(home).server_file.exists()


@pytest.mark.slow
def test_a_server_killed_alone_comes_back_or_its_standby_serves(
    postgresql: Server,  # noqa: F811
    tmp_path: Path,
) -> None:
    postgresql.run("CREATE DATABASE killed")
    url, home = postgresql.url("killed"), tmp_path / "home"
    home.mkdir()
    with up(home, url) as first:
        told = line(first)
        with up(home, url, "--standby") as second, Client(home=home, patience_s=WAIT_S) as client:
            assert "standby" in line(second)
            client.create_tenant("ada", sandbox="none")
            job = client.submit({"name": "long", "tenant": "ada", "command": ["sleep", "300"]})
            while client.job(job.id).state != "RUNNING":
                time.sleep(0.05)
            os.kill(int(str(told["pid"])), signal.SIGKILL)
            after = client.submit({"name": "after", "tenant": "ada", "command": ["true"]})
            assert client.wait(after.id, timeout_s=WAIT_S).state == "SUCCEEDED"
            kept = client.job(job.id)
            assert (kept.state, kept.attempt) == ("RUNNING", 1)
            assert [event.kind for event in client.events(job.id)].count("attempt.adopted") == 1
            client.cancel(job.id)
            client.wait(job.id, timeout_s=WAIT_S)
            serving = read_server(Home(home))
            assert serving is not None
            parent = serving.parent()
            assert parent is not None
            if parent.pid == second.pid:
                assert first.wait(WAIT_S) == CONFLICT
            else:
                assert parent.pid == first.pid
                assert second.poll() is None


def test_sqlite_says_why_it_has_no_standby(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="a standby needs PostgreSQL"):
        check_standby(f"sqlite:///{tmp_path}/shoal.db")
    command = [sys.executable, "-m", "shoal.cli", "up", "--home", str(tmp_path), "--standby"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "a standby needs PostgreSQL" in ended.stderr
