"""The proxy against clients that mean harm: what lies outside the site is refused, and no code is taken."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.shell import proxy
from shoal.shell.executor import decode, encode
from shoal.shell.frames import Frame, Frames, frame
from shoal.shell.source import source


class Client:
    """Speaks to a proxy as the agent does."""

    def __init__(self, srv: Path, mount: str, tools: list[str], **limits: int) -> None:
        (srv.parent / "proxy.py").write_bytes(source())
        self.process = subprocess.Popen(
            [sys.executable, srv.parent / "proxy.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.frames = Frames()
        self.waiting: list[tuple[int, int, bytes]] = []
        self.mount = mount
        hello = {
            "sites": {mount: str(srv)}, "tools": tools, "limits": {"RLIMIT_CORE": 0, **limits}, "home": "/home/nobody", "files": {},  # noqa: E501
            "locales": ["C.UTF-8"],
        }  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.read(len(proxy.GREETING)) == proxy.GREETING
        self.send(0, Frame.HELLO, encode(hello))
        self.welcome = decode(self.take(Frame.WELCOME))

    def send(self, stream: int, kind: int, data: bytes = b"") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(frame(stream, kind, data))
        self.process.stdin.flush()

    def next(self) -> tuple[int, int, bytes]:
        assert self.process.stdout is not None
        while not self.waiting:
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise EOFError
            self.waiting += list(self.frames.feed(data))
        return self.waiting.pop(0)

    def take(self, kind: int) -> bytes:
        while True:
            _, found, body = self.next()
            if found == kind:
                return body

    def run(self, argv: list[str], **more: Any) -> tuple[int, bytes, bytes] | str:
        """Status, output and errors; or why it was refused."""
        path = next((f"{one}/{argv[0]}" for one in ("/usr/bin", "/bin") if Path(one, argv[0]).exists()), argv[0])
        stage = {
            "id": 1, "path": path, "argv": argv, "cwd": self.mount, "env": {"PATH": "/usr/bin:/bin"}, "umask": 0o22,
            "reads": [], "writes": [], "stdin": {}, "stdout": {"stream": True}, "merge": False, "credit": 1 << 20, **more,  # noqa: E501
        }  # fmt: skip
        self.send(0, Frame.RUN, encode({"stages": [stage], "writes": more.get("rights", False)}))
        out = {Frame.OUT: b"", Frame.ERR: b""}
        while True:
            _, kind, body = self.next()
            if kind == Frame.REFUSED:
                return str(decode(body)["why"])
            if kind in out:
                out[kind] += body
            if kind == Frame.EXIT:
                return decode(body)["status"], out[Frame.OUT], out[Frame.ERR]


TOOLS = [
    f"{folder}/{name}"
    for folder in ("/usr/bin", "/bin")
    for name in ("cat", "sh", "id", "awk", "touch", "ls", "sed", "python3", "nosuch")
]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    srv = tmp_path / "srv"
    srv.mkdir()
    (srv / "a").write_text("inside\n")
    (srv / "out").symlink_to("/etc/passwd")
    (srv / "up").symlink_to("../secret")
    (tmp_path / "secret").write_text("secret\n")
    made = Client(srv, "/mnt/site", TOOLS)
    try:
        if not made.welcome["namespaces"]:
            pytest.skip("no namespaces here: bubblewrap is missing or may not make them")
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def test_it_runs_a_command_under_the_clients_names(client: Client) -> None:
    assert client.run(["cat", "a", "/mnt/site/nosuch"], reads=["/mnt/site/a"]) == (
        1, b"inside\n", b"cat: /mnt/site/nosuch: No such file or directory\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/mnt/site/../../etc/passwd", "/mnt/site/out", "/mnt/site/up", "/proc/1/environ", "/"]
)
def test_a_path_outside_is_refused(client: Client, path: str) -> None:
    found = client.run(["cat", path], reads=[path])
    assert isinstance(found, str)
    assert "leads out of the site" in found
    assert isinstance(client.run(["cat"], stdin={"file": path}), str)
    assert isinstance(client.run(["cat", "a"], cwd=path), str)


@pytest.mark.parametrize("path", ["/etc/shadow", "/root/.ssh/id_rsa", "/var/log/dpkg.log"])
def test_what_a_client_hides_from_the_check_is_not_there(client: Client, path: str) -> None:
    found = client.run(["cat", path])
    assert found[:2] == (1, b"")


def test_a_site_that_is_read_cannot_be_written(client: Client, tmp_path: Path) -> None:
    assert client.run(["touch", "new"])[0] == 1
    assert client.run(["sh", "-c", "echo x > a; echo y > /tmp/y; cat a"])[1] == b"inside\n"
    assert (tmp_path / "srv" / "a").read_text() == "inside\n"
    assert client.run(["touch", "new"], rights=True)[0] == 0
    assert (tmp_path / "srv" / "new").exists()


def test_there_is_no_network_and_no_other_process(client: Client) -> None:
    code = "import socket; s=socket.socket(); s.settimeout(3); s.connect(('127.0.0.1', 22))"
    status, _, errors = client.run(["python3", "-S", "-c", code])  # type: ignore[misc]
    assert status != 0
    assert errors
    pids = client.run(["sh", "-c", "echo /proc/[0-9]*"])[1].split()
    assert len(pids) < 6


def test_a_command_that_was_not_offered_is_refused(client: Client) -> None:
    assert "no command that this site offers" in str(client.run(["/usr/bin/env", "id"], path="/usr/bin/env"))


def test_a_command_that_cannot_start_says_so(client: Client) -> None:
    status, _, errors = client.run(["nosuch"], path="/usr/bin/nosuch")  # type: ignore[misc]
    assert status == 126
    assert b"shoal: nosuch: " in errors
    assert client.run(["cat", "a"])[1] == b"inside\n"


def test_limits_hold_for_each_command(client: Client, tmp_path: Path) -> None:
    assert client.run(["sh", "-c", "umask; ulimit -c; ulimit -t"], umask=0o27)[1] == b"0027\n0\nunlimited\n"
    limited = Client(tmp_path / "srv", "/mnt/site", TOOLS, RLIMIT_CPU=7, RLIMIT_NPROC=500)
    try:
        assert limited.run(["sh", "-c", "ulimit -c; ulimit -t; ulimit -H -t"])[1] == b"0\n7\n7\n"
    finally:
        limited.process.kill()
        limited.process.wait()


def test_a_command_that_takes_too_long_is_ended(client: Client, tmp_path: Path) -> None:
    limited = Client(tmp_path / "srv", "/mnt/site", TOOLS, seconds=1)
    try:
        assert limited.run(["sh", "-c", "echo begun; sleep 60; echo over"])[:2] == (-9, b"begun\n")
        assert limited.run(["cat", "a"])[1] == b"inside\n"
    finally:
        limited.process.kill()
        limited.process.wait()


def test_commands_end_with_the_connection(client: Client, tmp_path: Path) -> None:
    stage = {
        "id": 5, "path": "/usr/bin/sh", "argv": ["sh", "-c", "echo begun; sleep 77.25; sleep 77.25"], "cwd": "/mnt/site",  # noqa: E501
        "env": {"PATH": "/usr/bin:/bin"}, "umask": 0o22, "reads": [], "writes": [], "stdin": {}, "stdout": {"stream": True},  # noqa: E501
        "merge": False, "credit": 1000,
    }  # fmt: skip
    client.send(0, Frame.RUN, encode({"stages": [stage], "writes": False}))
    client.take(Frame.OUT)
    assert client.process.stdin is not None
    client.process.stdin.close()
    client.process.wait(timeout=20)
    from tests.shell.test_faults import processes, wait_until

    wait_until(lambda: not [one for one in processes("77.25") if one], 5)


@pytest.mark.few(count=2)
@pytest.mark.parametrize("data", [b"\xff" * 100, frame(0, Frame.HELLO, b"{"), frame(3, 99), frame(0, Frame.RUN, b"[]")])
def test_garbage_ends_the_proxy(client: Client, data: bytes) -> None:
    assert client.process.stdin is not None
    client.process.stdin.write(data)
    client.process.stdin.flush()
    assert client.process.wait(timeout=20) is not None


def test_more_input_than_was_asked_for_ends_it(client: Client) -> None:
    stage = {
        "id": 7, "path": "/usr/bin/sh", "argv": ["sh", "-c", "sleep 60"], "cwd": "/mnt/site", "env": {}, "umask": 0, "reads": [],  # noqa: E501
        "writes": [], "stdin": {"stream": True}, "stdout": {"stream": True}, "merge": False, "credit": 1000,
    }  # fmt: skip
    client.send(0, Frame.RUN, encode({"stages": [stage], "writes": False}))
    client.take(Frame.STARTED)
    try:
        for _ in range(8):
            client.send(7, Frame.DATA, b"x" * (proxy.STDIN_WINDOW // 2))
    except BrokenPipeError:
        pass
    client.process.wait(timeout=20)


def test_the_rate_of_the_link_is_measured_while_it_holds_up_the_rest(client: Client, tmp_path: Path) -> None:
    def rate() -> float:
        client.send(0, Frame.PING, struct.pack(">d", 1.5))
        sent, found = struct.unpack(">dd", client.take(Frame.PONG))
        assert sent == 1.5
        return float(found)

    assert rate() == 0.0
    (tmp_path / "srv" / "large").write_bytes(bytes(8 << 20))
    status, out, _ = client.run(["cat", "large"], reads=["/mnt/site/large"], credit=16 << 20)  # type: ignore[misc]
    assert (status, len(out)) == (0, 8 << 20)
    assert rate() > 0.0


def test_output_stops_at_the_credit(client: Client) -> None:
    stage = {
        "id": 9, "path": "/usr/bin/sh", "argv": ["sh", "-c", "yes"], "cwd": "/mnt/site", "env": {"PATH": "/usr/bin"}, "umask": 0,  # noqa: E501
        "reads": [], "writes": [], "stdin": {}, "stdout": {"stream": True}, "merge": False, "credit": 10_000,
    }  # fmt: skip
    client.send(0, Frame.RUN, encode({"stages": [stage], "writes": False}))
    count = 0
    while count < 10_000:
        count += len(client.take(Frame.OUT))
    client.send(0, Frame.PING, struct.pack(">d", 0.0))
    assert client.next()[1] == Frame.PONG
    client.send(9, Frame.KILL)
    assert decode(client.take(Frame.EXIT))["status"] != 0
