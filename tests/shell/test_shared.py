"""A permanent proxy that several users share: who comes in, and what each may do."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.core import Invalid
from shoal.shell import proxy
from shoal.shell.agent.client import ask, ensure_running
from shoal.shell.executor import decode, encode
from shoal.shell.frames import Frame, Frames, frame
from shoal.shell.shared import read_config
from shoal.shell.sites import Site, Sites, check
from tests.shell.conftest import World, make_world
from tests.shell.test_faults import processes, wait_until

SHOAL = str(Path(sys.executable).with_name("shoal"))


class Shared:
    """A proxy with its users; `told` is what it logged."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        for name in ("cert", "other"):
            words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                     "-subj", "/CN=store", "-keyout", f"{name}.key", "-out", f"{name}.pem"]  # fmt: skip
            subprocess.run(words, cwd=folder, check=True, capture_output=True)
        users = {
            "alice": {"roots": [str(root)], "writes": True, "connections": 2},
            "bob": {"roots": [str(root)], "commands": 2, "cpu_s": 100},
            "carol": {"roots": ["/nosuch"]},
        }
        self.readable = Path(tempfile.mkdtemp(prefix="shoal-open-"))  # by every account, as pytest's folders are not
        self.readable.chmod(0o755)
        for name, mode in (("everybody", 0o644), ("roots", 0o600)):
            (self.readable / name).write_text("a\n")
            (self.readable / name).chmod(mode)
        if os.geteuid() == 0:
            users["dave"] = {"roots": [str(self.readable)], "run_as": "nobody", "processes": 60}
        for name, user in users.items():
            if os.geteuid() == 0:
                user.setdefault("run_as", "root")
            (folder / name).write_text(f"secret of {name}\n")
            user["token_sha256"] = hashlib.sha256(f"secret of {name}".encode()).hexdigest()
        told = {"listen": "127.0.0.1:0", "certificate": "cert.pem", "key": "cert.key", "users": users}
        (folder / "proxy.json").write_text(json.dumps(told))
        log = (folder / "log").open("w")
        self.process = subprocess.Popen([SHOAL, "shell", "proxy", folder / "proxy.json"], stderr=log)
        wait_until(lambda: "listens on port" in self.told)
        self.port = int(self.told.split("listens on port ")[1].split()[0])

    @property
    def told(self) -> str:
        return (self.folder / "log").read_text()

    def site(self, world: World, user: str, certificate: str = "cert.pem") -> Site:
        files = {"certificate": str(self.folder / certificate), "token_file": str(self.folder / user)}
        return Site("store", "u@localhost", {str(world.mnt): str(world.base / "srv")}, port=self.port, **files)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Shared]]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    for world in make_world(tmp_path_factory.mktemp("tls")):
        shared = Shared(tmp_path_factory.mktemp("proxy"), world.base / "srv")
        try:
            yield world, shared
        finally:
            shared.process.terminate()
            shared.process.wait()
            shutil.rmtree(shared.readable)


def connect(world: World, site: Site) -> Any:
    Sites.of(world.home).add(site)
    ensure_running(world.home)
    ask(world.home, do="reload")
    told = ask(world.home, do="connect", site="store")
    assert told is not None
    if told.get("failed") and "bubblewrap" in told["failed"]:
        pytest.skip(told["failed"])
    return told


def test_commands_run_through_the_port(both: tuple[World, Shared]) -> None:
    world, shared = both
    assert connect(world, shared.site(world, "alice"))["ready"]
    world.same("cat $M/a.txt | grep 'alpha 7' | sort | tail -5; sort $M/b.txt -o $M/new; wc $M/new $M/a.txt", away=6)
    world.same("cat $M/binary $M/binary $M/a.txt | od -c | md5sum; head -1 $M/a.txt; cat $M/nosuch", away=5)
    assert "user alice at 127.0.0.1: connected" in shared.told


def test_a_user_who_may_only_read_and_has_few_commands(both: tuple[World, Shared]) -> None:
    world, shared = both
    assert connect(world, shared.site(world, "bob"))["ready"]
    world.same("sort $M/b.txt -o $M/new; wc $M/new", away=1)
    assert "user bob: refused: its folders may only be read" in shared.told
    world.same("cat $M/a.txt | grep alpha | sort | tail -1", away=0)
    assert "user bob: refused: more than 2 commands at once" in shared.told


@pytest.mark.parametrize(
    ("user", "certificate", "why"),
    [("carol", "cert.pem", "user carol may not use"), ("log", "cert.pem", "token is not known"),
     ("alice", "other.pem", "certificate verify failed"), ("nosuch", "cert.pem", "No such file")],
)  # fmt: skip
def test_who_may_not_come_in_is_told_why(both: tuple[World, Shared], user: str, certificate: str, why: str) -> None:
    world, shared = both
    told = connect(world, shared.site(world, user, certificate))
    assert not told["ready"]
    assert why in told["why"]
    world.same("grep -c alpha $M/a.txt", away=0)


TOOLS = ["/bin/sh", "/usr/bin/cat", "/usr/bin/python3", "/root/cat"]


def hello(shared: Shared, root: str, token: str, tools: Sequence[str] = TOOLS) -> tuple[ssl.SSLSocket, Any]:
    """A client of another make, and its welcome."""
    context = ssl.create_default_context(cafile=str(shared.folder / "cert.pem"))
    context.check_hostname = False
    link = context.wrap_socket(socket.create_connection(("127.0.0.1", shared.port)))
    told = {
        "sites": {"/mnt/x": root},
        "tools": list(tools),
        "limits": {},
        "home": "/home/x",
        "files": {},
        "locales": [],
    }
    link.sendall(frame(0, Frame.HELLO, encode({**told, "token": token})))
    frames, data = Frames(), b""
    while proxy.GREETING not in data:
        data += link.recv(1000)
    found = list(frames.feed(data.partition(proxy.GREETING)[2]))
    while not found:
        found += frames.feed(link.recv(1 << 16))
    return link, decode(found[0][2])


def test_programs_without_an_annotation_are_not_offered_and_connections_are_counted(
    both: tuple[World, Shared], tmp_path: Path
) -> None:
    world, shared = both
    connect(world, shared.site(world, "bob"))  # the agent leaves alice's connections to this test
    root = str(world.base / "srv")
    first, told = hello(shared, root, "secret of alice")
    if "failed" in told and "bubblewrap" in told["failed"]:
        pytest.skip(told["failed"])
    assert list(told["tools"]) == ["/usr/bin/cat"]
    second, told = hello(shared, root, "secret of alice")
    assert "tools" in told
    third, told = hello(shared, root, "secret of alice")
    assert told == {"failed": "user alice has 2 connections already"}
    for one in (first, second, third):
        one.close()
    wait_until(lambda: "tools" in hello(shared, root, "secret of alice")[1])
    assert "may not use" in hello(shared, root + "/..", "secret of alice")[1]["failed"]
    assert "not known" in hello(shared, root, "")[1]["failed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="another's proxy has the rights of its account alone")
def test_root_names_whose_rights_the_commands_have(tmp_path: Path) -> None:
    users = {"a": {"roots": ["/x"], "token_sha256": "0" * 64}}
    told = {"listen": ":1", "certificate": "c", "key": "k", "users": users}
    (tmp_path / "proxy.json").write_text(json.dumps(told))
    with pytest.raises(Invalid, match="root's rights"):
        read_config(tmp_path / "proxy.json")


def test_garbage_and_silence_cost_the_others_nothing(both: tuple[World, Shared]) -> None:
    world, shared = both
    silent = [socket.create_connection(("127.0.0.1", shared.port)) for _ in range(5)]
    loud = socket.create_connection(("127.0.0.1", shared.port))
    loud.sendall(os.urandom(10_000))
    assert connect(world, shared.site(world, "bob"))["ready"]
    world.same("grep -c alpha $M/a.txt", away=1)
    for one in (*silent, loud):
        one.close()


@pytest.mark.parametrize(
    ("change", "why"),
    [({"listen": "x"}, "cannot be read"),
     ({"users": {"a": {"roots": ["x"], "token_sha256": "0" * 64}}}, "absolute roots"),
     ({"users": {"a": {"roots": ["/x"], "token_sha256": "0" * 64, "run_as": "no such account"}}}, "no account"),
     ({"users": {"a": {"roots": ["/x"], "token_sha256": "short"}}}, "64 digits"),
     ({"users": {"a": {"roots": ["/x"], "token_sha256": "0" * 64, "odd": 1}}}, "cannot be read")],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    told = {"listen": ":1", "certificate": "c", "key": "k", "users": {}, **change}
    (tmp_path / "proxy.json").write_text(json.dumps(told))
    if why == "no account" and os.geteuid() != 0:
        why = "only root"
    with pytest.raises(Invalid, match=why):
        read_config(tmp_path / "proxy.json")
    with pytest.raises(Invalid, match="its certificate and a token"):
        check(Site("s", "h", {"/a": "/b"}, port=1))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs commands with the rights of others")
def test_commands_have_the_rights_of_the_account_that_is_named(both: tuple[World, Shared]) -> None:
    world, shared = both
    folder = shared.readable
    Sites.of(world.home).add(
        Site("open", "u@localhost", {str(folder): str(folder)}, port=shared.port,
             certificate=str(shared.folder / "cert.pem"), token_file=str(shared.folder / "dave"))
    )  # fmt: skip
    ensure_running(world.home)
    ask(world.home, do="reload")
    told = ask(world.home, do="connect", site="open")
    assert told is not None
    if "bubblewrap" in told.get("failed", ""):
        pytest.skip(told["failed"])
    assert told["ready"], told
    found = world.shoal(f"grep -c a {folder}/everybody; grep -c a {folder}/roots")
    assert found.stdout == b"1\n"
    assert b"Permission denied" in found.stderr
    assert world.plain(f"grep -c a {folder}/roots").stdout == b"1\n", "root itself may read it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs commands with the rights of others")
def test_a_fork_bomb_is_bounded_and_ends_with_its_connection(both: tuple[World, Shared]) -> None:
    _, shared = both
    link, told = hello(shared, str(shared.readable), "secret of dave", ["/usr/bin/awk"])
    if "bubblewrap" in told.get("failed", ""):
        pytest.skip(told["failed"])
    bomb = 'BEGIN { for (i = 0; i < 300; i++) system("sleep 76.5 &"); print "all"; fflush(); system("sleep 76.5") }'
    stage = {
        "id": 5, "path": "/usr/bin/awk", "argv": ["awk", bomb], "cwd": "/mnt/x", "env": {"PATH": "/usr/bin:/bin"},
        "umask": 0o22, "reads": [], "writes": [], "stdin": {}, "stdout": {"stream": True}, "merge": False,
        "credit": 1 << 20,
    }  # fmt: skip
    link.sendall(frame(0, Frame.RUN, encode({"stages": [stage], "writes": False})))
    frames, out = Frames(), b""
    while b"all" not in out:
        out += b"".join(body for _, kind, body in frames.feed(link.recv(1 << 16)) if kind == Frame.OUT)
        link.sendall(frame(0, Frame.PING, bytes(8)))
    assert 0 < len(processes("sleep\x0076.5")) < 60
    link.close()
    wait_until(lambda: not processes("76.5"), 5)
