"""A real server under attack by clients without a token: everybody else goes on being answered."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from shoal.base.home import Home, read_server

FILES = 128


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """`shoal up` with few descriptors and little patience."""
    home = Home(tmp_path_factory.mktemp("home"))
    (home.path / "config.yaml").write_text("http: {head_s: 1, idle_s: 60, head_kib: 8, connections: 1000}\n")
    log = (home.path / "out.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal.cli", "up", "--home", str(home.path), "--port", "0", "--slots", "1"],
        stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),
    )  # fmt: skip
    try:
        until = time.monotonic() + 60
        while (info := read_server(home)) is None:
            assert process.poll() is None, (home.path / "out.log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        yield info.url, home.path
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        log.close()


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), 20)


def answered(url: str, token: str) -> None:
    """On a connection of its own each time, as a health check does."""
    for path, status in (("/healthz", 200), ("/readyz", 200), ("/v1/jobs", 200)):
        told = httpx.get(url + path, headers={"authorization": f"Bearer {token}"}, timeout=20)
        assert told.status_code == status


def everything(sock: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := sock.recv(4096):
            found += part
    return found


@pytest.mark.few
@pytest.mark.parametrize("first", [b"", b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX: "], ids=["silent", "slow heads"])
def test_idle_connections_cost_those_who_made_them(server: tuple[str, Path], first: bytes) -> None:
    url, home = server
    token = (home / "admin.token").read_text().strip()
    with contextlib.ExitStack() as stack:
        for number in range(3 * FILES):
            sock = stack.enter_context(connect(url))
            if first:
                sock.sendall(first)
            if number % FILES == 0:
                answered(url, token)
        answered(url, token)
        job = {"name": "beside", "command": ["true"], "resources": {"cpus": 0.1}}
        with httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
            found = client.post("/v1/jobs", json=job).json()
            assert client.get(f"/v1/jobs/{found['id']}?wait_s=50").json()["state"] == "SUCCEEDED"
    assert "Too many open files" not in (home / "out.log").read_text()


def test_a_head_without_end_is_refused_at_its_limit(server: tuple[str, Path]) -> None:
    url, home = server
    with connect(url) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
        until, cut = time.monotonic() + 60, False
        while not cut and time.monotonic() < until:
            answered(url, (home / "admin.token").read_text().strip())
            try:
                sock.sendall(b"a" * 4096)
            except ConnectionError:
                cut = True
        assert cut
    with connect(url) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 9000)
        told = everything(sock)
    assert told.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"head-too-large"' in told


def test_a_slow_head_is_refused_in_time(server: tuple[str, Path]) -> None:
    url, _ = server
    with connect(url) as sock:
        with contextlib.suppress(OSError):
            for byte in b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 200:
                sock.sendall(bytes([byte]))
                time.sleep(0.02)
        told = everything(sock)
    assert told.startswith(b"HTTP/1.1 408 ") or not told  # what was sent after the answer may have reset it


def test_a_request_that_ends_its_side_is_answered(server: tuple[str, Path]) -> None:
    url, _ = server
    for target in (b"/healthz", b"http://anything/healthz"):
        with connect(url) as sock:
            sock.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            sock.shutdown(socket.SHUT_WR)
            assert everything(sock).startswith(b"HTTP/1.1 200 OK\r\n")
