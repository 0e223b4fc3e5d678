"""Commands, ports and terminals of running jobs, through a real server."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.principal import TokenRole
from shoal.core import Conflict, Forbidden, Invalid, NotFound, ShoalError
from shoal.sdk import Client
from shoal.sdk.locate import Target
from shoal.session.client.connection import upgrade
from shoal.session.client.ports import reach
from shoal.session.commands.common import connector, find_running

from .conftest import Running, relayed
from .talk import eventually

SERVE = """
import os, socket
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept(); data = c.recv(100); c.sendall(b"job:" + data); c.close()
"""


@pytest.fixture(scope="module")
def job(server: Running) -> str:
    return server.start("python3", "-c", SERVE, env={"GREETING": "good day"})


@pytest.fixture(scope="module")
def port(server: Running, job: str) -> int:
    eventually(lambda: server.log(job).endswith(b"\n"))
    return int(server.log(job))


def test_a_command_has_what_the_job_has(server: Running, job: str) -> None:
    code, out, errors = server.run(
        job, "sh", "-c", "echo $GREETING; pwd; echo $SHOAL_GANG; cat /proc/self/cgroup; echo bad >&2; exit 6"
    )
    greeting, folder, gang, *groups = out.decode().splitlines()
    assert (code, errors) == (6, b"bad\n")
    assert (greeting, gang) == ("good day", f"{job}.1.run")
    detail = server.client.job(job)
    assert folder == str(server.home.path / str(detail.run_dir))
    main = detail.attempts[-1].ranks[0]["pid"] if detail.attempts[-1].ranks else None
    if main is not None:
        assert groups == Path(f"/proc/{main}/cgroup").read_text().splitlines()


def test_a_name_means_the_newest_that_runs(server: Running) -> None:
    runs = server.start("sleep", "600", name="again")
    never = {"name": "again", "command": ["true"], "resources": {"cpus": 10_000}}
    waits = server.client.submit(never).id
    try:
        assert find_running(server.client, "again", None).id == runs
        assert find_running(server.client, waits, None).id == waits
    finally:
        server.client.cancel(runs)
    server.client.wait(runs, timeout_s=60)
    assert find_running(server.client, "again", None).id == waits, "the newest, where none runs"
    server.client.cancel(waits)


def test_all_that_is_piped_in_comes_out(server: Running, job: str) -> None:
    data = os.urandom(1 << 20) * 3
    assert server.run(job, "cat", stdin=data) == (0, data, b"")


def test_a_command_that_is_not_there(server: Running, job: str) -> None:
    code, _, errors = server.run(job, "no-such-program")
    assert code == 127
    assert b"not found" in errors


def test_what_a_command_asks_is_checked(server: Running, job: str) -> None:
    with pytest.raises(NotFound, match="no rank 3"):
        server.client.session.execute(job, ["true"], rank=3)
    with pytest.raises(Invalid, match="no command"):
        server.client.session.execute(job, [])
    with pytest.raises(NotFound, match="no unfinished job"):
        server.client.session.execute("j-nothing", ["true"])
    with pytest.raises(Invalid):
        server.client.session.ssh(job, "ssh-rsa AAAA\nAllowUsers root")


def test_a_job_without_a_terminal_says_how_to_get_one(server: Running, job: str) -> None:
    with pytest.raises(NotFound, match="has no terminal") as caught:
        connector(server.client, job, "main", 0)()
    assert caught.value.hint is not None
    assert "shoal exec --pty" in caught.value.hint


def test_a_command_ends_with_its_job(server: Running) -> None:
    brief = server.start("sleep", "600", name="brief")
    ended: list[object] = []

    def work() -> None:
        made = connector(server.client, brief, server.client.session.execute(brief, ["sleep", "600"]).id, 0)()
        made.send(b"H\0\0\0\0")
        while data := made.receive(1 << 16):
            ended.append(data)
        ended.append(None)

    thread = threading.Thread(target=work)
    thread.start()
    eventually(lambda: bool(ended))
    server.client.cancel(brief)
    thread.join(60)
    assert ended[-1] is None


def test_the_ports_of_a_job_are_reached(server: Running, job: str, port: int) -> None:
    made = reach(server.client.locate(), job, 0, port)
    made.send(b"hello")
    assert made.receive(100) == b"job:hello"
    assert made.receive(100) == b""
    made.close()


def test_no_other_port_is_reached(server: Running, job: str, port: int) -> None:
    other = server.start("sleep", "600", name="other")
    own = int(server.client.locate().url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", 0)) as host:
        for who, wanted in ((job, own), (job, host.getsockname()[1]), (other, port), (job, 1)):
            with pytest.raises(NotFound, match="no process of the job listens"):
                reach(server.client.locate(), who, 0, wanted)
        host.settimeout(0)
        with pytest.raises(BlockingIOError):
            host.accept()
    server.client.cancel(other)


def test_another_tenants_job_does_not_exist(server: Running, job: str, port: int) -> None:
    server.client.create_tenant("stranger")
    url = server.client.locate().url
    stranger = server.client.create_token("stranger").token
    with Client(url, stranger, environ={}) as client:
        with pytest.raises(NotFound):
            client.session.execute(job, ["id"])
        with pytest.raises(NotFound):
            client.session.ssh(job, "ssh-ed25519 " + "A" * 68)
    tried: list[Callable[[], object]] = [
        lambda: reach(Target(url, stranger), job, 0, port),
        lambda: upgrade(Target(url, stranger), f"/v1/jobs/{job}/sessions/main/attach", "shoal-session"),
    ]
    for one in tried:
        with pytest.raises(NotFound, match="no unfinished job"):
            one()
    with pytest.raises(Forbidden):
        reach(Target(url, None), job, 0, port)


def test_who_may_only_look_enters_nothing(server: Running, job: str, port: int) -> None:
    viewer = server.client.create_token("default", role=TokenRole.VIEWER).token
    with pytest.raises(Forbidden, match="viewer"):
        reach(Target(server.client.locate().url, viewer), job, 0, port)


@pytest.mark.parametrize("kind", ["link", "file", "fifo", "foreign"])
def test_what_a_job_puts_in_its_sockets_place_is_not_connected_to(
    server: Running, rank_dir: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    own = server.start("sleep", "600", name=kind)
    place = rank_dir(own) / "session-x0.sock"
    with socket.socket(socket.AF_UNIX) as trap:
        held = os.open(rank_dir(own), os.O_PATH)
        if kind == "foreign":
            trap.bind(f"/proc/self/fd/{held}/{place.name}")
        else:
            trap.bind(str(tmp_path / "t"))
        trap.listen()
        if kind == "link":
            place.symlink_to(tmp_path / "t")
        elif kind == "file":
            place.write_text("no socket")
        elif kind == "fifo":
            os.mkfifo(place)
        os.close(held)
        with pytest.raises((NotFound, Conflict), match=r"no session x0|not listened on by a process of the job"):
            connector(server.client, own, "x0", 0, 0)()
        if kind != "foreign":
            trap.settimeout(0)
            with pytest.raises(BlockingIOError):
                trap.accept()
    server.client.cancel(own)


def test_a_job_at_a_terminal_ends_as_its_command_does(server: Running) -> None:
    asked = {
        "name": "shell", "command": ["sh", "-c", "tty; echo $TERM; read line; echo got $line; exit 5"],
        "extensions": {"session": {"rows": 33, "columns": 111, "term": "vt100"}},
    }  # fmt: skip
    job = server.client.submit(asked).id
    code, out, _ = relayed(connector(server.client, job, "main", 0), b"word\n")
    assert code == 5
    assert b"/dev/pts/" in out
    assert b"vt100" in out
    assert b"got word" in out
    ended = server.client.wait(job)
    assert ended.state is JobState.FAILED
    assert b"got word" in server.log(job)


def test_a_terminal_of_no_size_is_refused(server: Running) -> None:
    with pytest.raises(ShoalError, match="rows"):
        server.client.submit({"name": "x", "command": ["true"], "extensions": {"session": {"rows": 0}}})


@pytest.mark.parametrize("direct", [False, True])
def test_who_was_in_a_job_is_on_record_and_whose_token_is_revoked_is_shown_out(server: Running, direct: bool) -> None:
    guest_name = f"guest-{direct}".lower()
    server.client.create_tenant(guest_name)
    job = server.start("sleep", "600", tenant=guest_name)
    guest = server.client.create_token(guest_name)
    at = server.client.locate()
    target = Target(at.url, guest.token, socket=at.socket if direct else None)
    with Client(target.url, target.token, environ={}) as client:
        session = client.session.execute(job, ["cat"])
    made = upgrade(target, f"/v1/jobs/{job}/sessions/{session.id}/attach", "shoal-session", {"wait_s": 20})
    assert (made.door is not None) == direct
    made.send(b"H\0\0\0\0")
    assert made.receive(1)
    kinds = [(one.kind, one.actor) for one in server.client.events(job)]
    assert ("session.exec", f"tenant:{guest_name}") in kinds
    assert ("session.attached", f"tenant:{guest_name}") in kinds
    server.client.revoke_token(guest.id)
    with contextlib.suppress(ConnectionError):
        while made.receive(1 << 16):
            pass
    made.close()
    server.client.cancel(job)
