"""A real server killed in the middle, and clients that hardly notice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.base.home import Home, read_server, stop_server
from shoal.control.server import start_detached
from shoal.sdk import Client
from tests.servers import kill_for_good

SLOW = "import time\nfor n in range(40): print('line', n, flush=True); time.sleep(0.1)"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "1"], home)
    yield home
    stop_server(home, timeout_s=20)


def start(home: Home) -> None:
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "1"], home)


def test_logs_and_events_are_followed_through_a_kill_without_loss_or_repetition(home: Home) -> None:
    address = read_server(home)
    with (
        Client(home=home.path, environ={}, patience_s=30) as client,
        Client(home=home.path, environ={}, patience_s=30) as watcher,
    ):
        job = client.submit({"name": "slow", "command": ["python3", "-u", "-c", SLOW]})
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.extend(e.seq for e in watcher.events(job.id, follow=True)))
        thread.start()
        text, killed = b"", False
        for piece in client.logs(job.id, follow=True):
            text += piece.data
            if text.count(b"\n") >= 3 and not killed:
                kill_for_good(home)
                start(home)
                killed = True
        assert text.decode() == "".join(f"line {n}\n" for n in range(40))
        ended = client.wait(job.id)
        thread.join(30)
        events = [event.seq for event in client.events(job.id)]
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 1)
    assert seen == events
    # A server on any free port comes back at the same one, so that addresses stay good.
    again = read_server(home)
    assert address is not None
    assert again is not None
    assert again.url == address.url
    assert again.pid != address.pid


def test_a_stopped_server_leaves_no_trace_of_itself_and_its_jobs_alone(home: Home) -> None:
    with Client(home=home.path, environ={}) as client:
        job = client.submit({"name": "slow", "command": ["python3", "-u", "-c", SLOW]})
        next(iter(client.logs(job.id, follow=True)))
    assert stop_server(home, timeout_s=20) is not None
    assert not home.server_file.exists()
    assert stop_server(home, timeout_s=20) is None
    token = home.token_file.read_text()
    start(home)
    assert home.token_file.read_text() == token
    with Client(home=home.path, environ={}) as client:
        ended = client.wait(job.id, timeout_s=60)
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 1)
