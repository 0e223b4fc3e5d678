"""Who is in which job: listed to those who may enter it, by what the agents say, and ended by them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.base.home import Home, read_server, stop_server
from shoal.base.processes import kill_until_none, start_ticks
from shoal.contract.events import EventKind
from shoal.contract.records import Event
from shoal.control.server import start_detached
from shoal.core import Conflict, Forbidden, NotFound
from shoal.engine.local.processes import marked
from shoal.sdk import Client
from shoal.session import frames
from shoal.session.commands.common import connector
from shoal.session.live.book import Book
from shoal.session.live.events import SessionEvent
from shoal.session.models import OpenSession

from .conftest import Running
from .talk import Speaker, agent, eventually


def ask(folder: Path, **told: object) -> dict[str, str]:
    one = Speaker(folder, hello=False)
    one.say(frames.ASK, frames.write_fields(**told))
    said = frames.read_fields(one.next(frames.STATE))
    one.close()
    return said


def test_an_agent_says_how_it_is_and_a_question_is_no_client(tmp_path: Path) -> None:
    with agent(tmp_path, "cat", pty=0, linger=1) as process:
        assert ask(tmp_path)["begun"] == "0"
        one = Speaker(tmp_path)
        one.type(b"12345")
        eventually(lambda: ask(tmp_path)["written"] == "5")
        said = ask(tmp_path)
        assert (said["begun"], said["clients"], said["typed"], said["pty"]) == ("1", "1", "5", "0")
        one.close()
        two = Speaker(tmp_path, hello=False)
        two.say(frames.ASK)
        assert two.next(frames.STATE)
        assert process.wait(60)  # one that only asks does not keep it: its client has gone


def test_who_was_let_in_by_an_earlier_run_of_the_server_is_shown_out_by_the_next(tmp_path: Path) -> None:
    with agent(tmp_path, "cat", pty=0):
        old, new, other = (Speaker(tmp_path, hello=False) for _ in range(3))
        for one, server in ((old, "1"), (new, "2")):
            one.say(frames.ASK, frames.write_fields(server=server))
            one.next(frames.STATE)
            one.say(frames.HELLO, frames.write_fields(client=server, offset=0))
        other.say(frames.HELLO)  # it came by a server that holds its connection, and ends with it
        assert new.next(frames.WELCOME)
        assert other.next(frames.WELCOME)
        ask(tmp_path, server="2")
        while old.step() is not None:
            pass
        for one in (new, other):
            one.type(b"here")
            one.until(b"here")


def test_work_on_a_device_keeps_a_session_that_would_be_idle(tmp_path: Path) -> None:
    with agent(tmp_path, "sh", "-c", "echo ready; exec sleep 600", pty=1, idle=1) as process:
        one = Speaker(tmp_path)
        one.until(b"ready")
        said = [int(ask(tmp_path, busy=1)["open"])]
        while said[-1] < 3:
            said.append(int(ask(tmp_path, busy=1)["open"]))
        assert process.poll() is None
        assert one.ended() == {"signal": "1"}  # once nothing works any more
        one.close()
        assert process.wait(60)


def test_what_is_asked_to_end_ends_begun_or_not(tmp_path: Path) -> None:
    for begun in (True, False):
        with agent(tmp_path, "sh", "-c", "echo ready; exec sleep 600", pty=1) as process:
            if begun:
                one = Speaker(tmp_path)
                one.until(b"ready")
            ask(tmp_path, end="it was ended by ada")
            if begun:
                assert one.next(frames.NOTE) == b"it was ended by ada"
                assert one.ended() == {"signal": "1"}
                one.close()
            assert process.wait(60)


def event(kind: str, actor: str, at: float, **data: object) -> Event:
    return Event(1, at, kind, actor, "", "red", "j-1", None, None, None, data)


def test_the_book_keeps_who_began_a_session_and_who_is_at_a_jobs_terminal() -> None:
    book = Book()
    book.read([
        event(EventKind.JOB_SUBMITTED, "ada", 1.0),
        event(SessionEvent.EXEC, "ada", 2.0, session="x1", rank=0, program="sh"),
        event(SessionEvent.ATTACHED, "bob", 3.0, session="x1", rank=0),
        event(SessionEvent.ATTACHED, "ada", 4.0, session="main", rank=1),
        event(SessionEvent.ATTACHED, "bob", 5.0, session="main", rank=1),
    ])  # fmt: skip
    told = {one.key: (one.who, one.since, one.program) for one in book}
    assert told == {("j-1", 0, "x1"): ("ada", 2.0, "sh"), ("j-1", 1, "main"): ("bob", 4.0, "")}
    book.over("j-1")
    assert len(book) == 0


class Attached:
    """A session that has a client, as it is listed."""

    def __init__(self, server: Running, job: str, *line: str) -> None:
        self.id = server.client.session.execute(job, line).id
        self._connection = connector(server.client, job, self.id, 0)()
        self._connection.send(frames.frame(frames.HELLO, frames.write_fields(client="a", offset=0)))
        self.until(frames.WELCOME)
        eventually(lambda: [one for one in listed(server.client, job) if one.id == self.id and one.clients])
        (self.listed,) = [one for one in listed(server.client, job) if one.id == self.id]

    def until(self, wanted: bytes) -> bytes:
        """The payload of the next frame of this kind."""
        came = bytearray()
        while True:
            for kind, payload in frames.take_frames(came):
                if kind == wanted:
                    return payload
            data = self._connection.receive(1 << 16)
            assert data, "it has ended"
            came += data

    def ends(self) -> bool:
        """Once all is read; it is not let go of meanwhile."""
        while self._connection.receive(1 << 16):
            pass
        return True

    def close(self) -> None:
        self._connection.close()


def listed(client: Client, job: str) -> list[OpenSession]:
    return list(client.session.list(job=job).sessions)


def test_open_sessions_are_listed_and_ended_by_those_who_may(server: Running) -> None:
    for name in ("listed", "others"):
        server.client.create_tenant(name)
    job = server.start("sleep", "600", tenant="listed")
    assert listed(server.client, job) == []
    session = Attached(server, job, "sh", "-c", "echo 12345678; exec sleep 600")
    eventually(lambda: listed(server.client, job)[0].sent_bytes == 9)
    (found,) = listed(server.client, job)
    assert (found.job_id, found.job, found.tenant, found.kind, found.program) == (job, "job", "listed", "command", "sh")
    assert (found.who, found.sent_bytes, found.received_bytes) == ("admin", 9, 0)
    tokens = {name: server.client.create_token(tenant=name).token for name in ("listed", "others")}
    url = server.client.locate().url
    with Client(url, token=tokens["others"], home="/nonexistent", environ={}) as other:
        assert other.session.list().sessions == ()
        with pytest.raises(NotFound):
            other.session.end(job, found.id)
    with Client(url, token=tokens["listed"], home="/nonexistent", environ={}) as own:
        assert [one.id for one in own.session.list().sessions] == [found.id]
        with pytest.raises(NotFound, match="no open session x0"):
            own.session.end(job, "x0")
        with pytest.raises(Conflict, match="the job's own"):
            own.session.end(job, "main")
    env = {**os.environ, "SHOAL_HOME": str(server.home.path)}
    words = [sys.executable, "-m", "shoal.cli", "sessions", "--json"]
    told = json.loads(subprocess.run(words, env=env, capture_output=True, check=True, timeout=60).stdout)
    assert found.id in [one["id"] for one in told]
    done = subprocess.run([*words[:4], job, "--end", found.id], env=env, capture_output=True, check=True, timeout=60)
    assert found.id.encode() in done.stdout
    assert session.until(frames.NOTE) == b"it was ended by admin"
    session.close()
    eventually(lambda: listed(server.client, job) == [])
    assert SessionEvent.ENDED in {one.kind for one in server.client.events(job)}
    server.client.cancel(job)


def test_a_token_that_only_looks_ends_nothing(server: Running) -> None:
    server.client.create_tenant("looked-at")
    job = server.start("sleep", "600", tenant="looked-at")
    session = Attached(server, job, "sleep", "600")
    token = server.client.create_token(tenant="looked-at", role="viewer").token
    url = server.client.locate().url
    with Client(url, token=token, home="/nonexistent", environ={}) as viewer, pytest.raises(Forbidden):
        viewer.session.end(job, session.id)
    session.close()
    server.client.cancel(job)


def test_a_job_that_lies_about_its_sessions_is_listed_and_harms_no_other(server: Running, rank_dir: object) -> None:
    job = server.start("sleep", "600")
    quiet = Attached(server, job, "sleep", "600")
    script = (
        "import os, socket, time\n"
        "os.chdir(os.environ['SHOAL_RUN'])\n"  # a whole path may be longer than the address of a socket
        "path = 'session-{id}.sock'\n"
        "os.unlink(path)\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen(9)\n"
        "print('up', flush=True)\n"
        "while True:\n c, _ = s.accept(); c.recv(99); c.sendall(b'Y' + b'\\xff' * 9000)\n"
    )
    liar = Attached(server, job, "python3", "-uc", script.format(id=quiet.id))
    eventually(lambda: {one.id: one.clients for one in listed(server.client, job)} == {quiet.id: None, liar.id: 1})
    server.client.cancel(job)
    for one in (quiet, liar):
        one.close()


@pytest.mark.slow
def test_a_server_that_was_killed_knows_the_sessions_again(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    words = ["--home", str(home.path), "--port", "0", "--slots", "2"]
    start_detached(words, home)
    try:
        with Client(home=home.path, environ={}, patience_s=60) as client:
            server = Running(home, client)
            job = server.start("sleep", "600")
            one = Attached(server, job, "sh", "-c", "echo 12; exec sleep 600")
            killed = read_server(home)
            assert killed is not None
            os.kill(killed.pid, signal.SIGKILL)
            eventually(lambda: start_ticks(killed.pid) is None)
            start_detached(words, home)
            assert one.ends()  # it has the session's own socket, and the server that gave it can end it no more
            eventually(lambda: len(listed(client, job)) == 1)
            (found,) = listed(client, job)
            assert (found.id, found.who, found.since, found.sent_bytes) == (one.id, "admin", one.listed.since, 3)
            client.session.end(job, one.id)
            eventually(lambda: listed(client, job) == [])
            client.cancel(job)
    finally:
        stop_server(home, timeout_s=20)
        kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)
