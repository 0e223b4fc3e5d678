"""A server that is killed again and again loses no news and tells none twice: each has one key, and one body."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.base.home import Home, stop_server
from shoal.base.processes import kill_until_none
from shoal.control.server import start_detached
from shoal.engine.local.processes import marked
from shoal.sdk import Client
from tests.servers import kill_for_good

from .kit import Receiver, Request, eventually, mail_server, receiver


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    stop_server(home, timeout_s=30)
    kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "jobs"),
    [pytest.param(3, 4, id="few"), pytest.param(20, 6, id="many", marks=pytest.mark.timeout(900))],
)
def test_no_news_are_lost_or_doubled_by_kills(home: Home, tmp_path: Path, kills: int, jobs: int) -> None:
    chance = random.Random(kills)

    def moody(request: Request) -> int:
        """Refuses some, cuts the line at others, and takes its time."""
        time.sleep(chance.random() * 0.1)
        return chance.choice([204, 204, 204, 200, 500, 503, 0])

    with receiver() as hook, mail_server(tmp_path, user="") as mail:
        hook.answer = moody
        words = ["--home", str(home.path), "--port", "0", "--slots", "4"]
        for one in (f"smtp_port={mail.port}", f"authorities_file={mail.authorities}", "smtp_host=127.0.0.1",
                    "inward=127.0.0.0/8", "attempts=100", "retry=100ms"):  # fmt: skip
            words += ["--set", f"notify.{one}"]
        start_detached(words, home)
        with Client(home=home.path, environ={}, patience_s=60) as client:
            client.notify.add("hook", kind="webhook", address=hook.url, topics=["started", "ended"])
            wanted: dict[str, str] = {}
            for number in range(kills):
                for each in range(jobs):
                    name = f"job-{number}-{each}"
                    section = {"notify": {"to": ["ada@example.org"], "on": ["ended"]}} if each == 0 else {}
                    made = client.submit({
                        "name": name, "command": ["sh", "-c", "exit 1" if each == 1 else "true"],
                        "resources": {"cpus": 0.1}, "extensions": section,
                    })  # fmt: skip
                    wanted[made.id] = name
                time.sleep(chance.random() * 0.6)
                kill_for_good(home)
                start_detached(words, home)
            for job_id in wanted:
                client.wait(job_id)
            ends = {id_ for id_, _ in told(hook, "ended", "failed")}
            eventually(lambda: {id_ for id_, _ in told(hook, "ended", "failed")} == wanted.keys(), 120, f"{len(ends)}")
            # What was sent and not noted comes again, under the key that it had.
            eventually(lambda: not client.notify.deliveries(state="waiting", limit=1000).deliveries, 120)
            assert not client.notify.deliveries(state="gave-up").deliveries
        assert len(told(hook, "ended", "failed")) == len(wanted)
        starts = told(hook, "started")
        assert len(starts) == len({id_ for id_, _ in starts}) == len(wanted)
        for key, bodies in by_key(hook).items():
            assert len(bodies) == 1, key
        named = [name for name in wanted.values() if name.endswith("-0")]
        mails = {one.message["Message-ID"]: one.message["Subject"] for one in mail.mails}
        assert sorted(mails.values()) == sorted(f"Shoal: job {name} succeeded" for name in named)


def told(hook: Receiver, *topics: str) -> list[tuple[str, str]]:
    """The job of each news in deliveries of different keys, with the key."""
    first = {one.key: one for one in list(hook.requests)}
    return [(news["job"], one.key) for one in first.values() for news in one.news if news["topic"] in topics]


def by_key(hook: Receiver) -> dict[str, set[bytes]]:
    found = defaultdict(set)
    for one in hook.requests:
        found[one.key].add(one.body)
    return found
