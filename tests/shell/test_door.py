"""The door to a site by ssh: what a process that must not hold the key may have done there, and what not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.shell.agent.client import ask, ensure_running
from shoal.shell.agent.door import MOST_COMMANDS, MOST_GUESTS, MOST_PROCESSES, Door, allowed
from shoal.shell.executor import decode, encode
from shoal.shell.frames import Frame, Frames, frame
from shoal.shell.proxy import GREETING
from shoal.shell.sites import DOORS, Site, Sites, door_of
from shoal.shell.sockets import connect
from tests.shell.conftest import World, make_world

SITE = Site("store", "store", {"/mnt/data": "/srv"})
HELLO = {
    "sites": {"/mnt/x": "/"}, "tools": ["/usr/bin/cat", "/usr/bin/sort", "/usr/bin/awk", "/usr/bin/python3", "/bin/sh"],
    "limits": {}, "home": "/home/x", "files": {"/home/x/.gitconfig": "[a]\n"}, "locales": [], "commands": 9999,
    "writes": True, "confined": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Its agent has a door to its site."""
    for made in make_world(tmp_path_factory.mktemp("door")):
        (made.home / DOORS).mkdir()
        made.begin()
        assert made.told["ready"], made.told
        if not made.told["namespaces"]:
            pytest.skip("bubblewrap does not work here")
        yield made


class Guest:
    """A client of another make."""

    def __init__(self, home: Path) -> None:
        self.link = connect(door_of(home, "store"))
        self.link.settimeout(60)
        self.frames = Frames()
        self.came: list[tuple[int, int, bytes]] = []
        self.greeted = False

    def send(self, kind: int, body: Any = b"", stream: int = 0) -> None:
        self.link.sendall(frame(stream, kind, body if isinstance(body, bytes) else encode(body)))

    def until(self, *kinds: int) -> tuple[int, Any]:
        """The next frame of one of these kinds; (-1, None) where the connection ends first."""
        data = b""
        while True:
            for at, (_, kind, body) in enumerate(self.came):
                if kind in kinds:
                    del self.came[: at + 1]
                    return kind, body if kind in (Frame.OUT, Frame.ERR) else decode(body)
            part = self.link.recv(1 << 16)
            if not part:
                return -1, None
            data += part
            if not self.greeted and GREETING not in data:
                continue
            if not self.greeted:
                self.greeted, data = True, data.partition(GREETING)[2]
            self.came += self.frames.feed(data)
            data = b""

    def run(self, folder: str, *argv: str, number: int = 5, writes: bool = False, **more: Any) -> None:
        stage = {
            "id": number, "path": f"/usr/bin/{argv[0]}", "argv": list(argv), "cwd": folder, "env": {}, "umask": 0o22,
            "reads": [], "writes": [], "stdin": {}, "stdout": {"stream": True}, "merge": False, "credit": 1 << 20,
        } | more  # fmt: skip
        self.send(Frame.RUN, {"stages": [stage], "writes": writes})


@pytest.fixture
def guest(outside: World) -> Iterator[Guest]:
    made = Guest(outside.home)
    made.send(Frame.HELLO, HELLO)
    yield made
    made.link.close()


def test_what_a_guest_says_of_itself_is_replaced() -> None:
    told = allowed(HELLO, SITE, {"RLIMIT_CORE": 0})
    assert (told["sites"], told["commands"], told["writes"], told["confined"]) == (
        {"/mnt/data": "/srv"}, MOST_COMMANDS, False, True
    )  # fmt: skip
    assert told["tools"] == ["/usr/bin/awk", "/usr/bin/cat", "/usr/bin/sort"]
    assert told["limits"] == {"RLIMIT_CORE": 0, "RLIMIT_NPROC": MOST_PROCESSES}
    strange = {"/home/x/.gitconfig": "", "/home/x/../../etc/passwd": "", "/usr/bin/cat": ""}
    assert list(allowed({**HELLO, "files": strange}, SITE, {})["files"]) == ["/home/x/.gitconfig"]
    for home in ("x", "/home/../mnt/data", "/mnt/data", "/mnt/data/x"):
        with pytest.raises(ValueError, match="no folder of its own"):
            allowed({**HELLO, "home": home}, SITE, {})


def test_a_guest_reads_on_the_site_and_nowhere_else(guest: Guest, outside: World) -> None:
    folder = str(outside.mnt)
    kind, welcome = guest.until(Frame.WELCOME)
    assert kind == Frame.WELCOME
    assert list(welcome["folders"]) == [folder], "not the folder that it asked for"
    guest.run(folder, "cat", "with space.txt", reads=[f"{folder}/with space.txt"])
    assert guest.until(Frame.OUT) == (Frame.OUT, b"space alpha\n")
    for more in ({"reads": ["/etc/shadow"]}, {"reads": [f"{folder}/../x"]}, {"cwd": "/"}):
        guest.run(folder, "cat", "/etc/shadow", **more)
        kind, told = guest.until(Frame.REFUSED)
        assert (kind, "leads out of the site" in told["why"]) == (Frame.REFUSED, True), told
    guest.run(folder, "awk", 'BEGIN { system("cat /etc/shadow; touch x; ls /root /home") }')
    said = b""
    while (told := guest.until(Frame.ERR, Frame.EXIT))[0] == Frame.ERR:
        said += told[1]
    assert said.count(b"No such file") >= 2, "what it starts sees no more than it does"
    assert not (outside.mnt / "x").exists()


def test_a_guest_changes_nothing_and_starts_no_other_program(guest: Guest, outside: World) -> None:
    folder = str(outside.mnt)
    guest.run(folder, "sort", "a.txt", "-o", "new", writes=True)
    assert "may only be read" in guest.until(Frame.REFUSED)[1]["why"]
    guest.run(folder, "python3", "-c", "pass")
    assert "no command that this site offers" in guest.until(Frame.REFUSED)[1]["why"]
    stage = {"path": "/usr/bin/cat", "argv": ["cat"], "cwd": folder, "env": {}, "umask": 0, "reads": [], "writes": [],
             "stdin": {"stream": True}, "stdout": {"stream": True}, "merge": False, "credit": 0}  # fmt: skip
    stages = [{**stage, "id": number} for number in range(MOST_COMMANDS + 1)]
    guest.send(Frame.RUN, {"stages": stages, "writes": False})
    assert f"more than {MOST_COMMANDS} commands" in guest.until(Frame.REFUSED)[1]["why"]
    assert not (outside.mnt / "new").exists()


def test_a_second_word_of_itself_ends_the_connection(guest: Guest) -> None:
    assert guest.until(Frame.WELCOME)[0] == Frame.WELCOME
    guest.send(Frame.HELLO, HELLO)
    assert guest.until(Frame.OUT, Frame.WELCOME) == (-1, None)


FIRST = (
    (frame(0, Frame.PING, bytes(8)), "begins with its hello"), (b"GET / HTTP/1.1\r\n\r\n" * 10, "no frame"),
    (frame(0, Frame.HELLO, b"[]"), ""), (frame(0, Frame.HELLO, b"[" * 100_000), ""),
    (frame(0, Frame.HELLO, encode({**HELLO, "home": "/x/../y"})), "no folder of its own"),
    (frame(0, Frame.HELLO, bytes(3 << 20))[: (1 << 20) + 1], "too long"),
)  # fmt: skip


def test_who_begins_otherwise_is_sent_away(outside: World) -> None:
    for first, why in FIRST:
        guest = Guest(outside.home)
        guest.link.sendall(first)
        kind, told = guest.until(Frame.WELCOME)
        assert (kind, why in told["failed"]) == (Frame.WELCOME, True), told
        assert guest.until(Frame.WELCOME) == (-1, None)
    other = Guest(outside.home)
    other.send(Frame.HELLO, HELLO)
    assert "tools" in other.until(Frame.WELCOME)[1]
    other.link.close()


async def test_a_door_has_room_for_so_many_and_says_what_ssh_says(tmp_path: Path) -> None:
    (tmp_path / DOORS).mkdir()
    refuses = tmp_path / "ssh"
    refuses.write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2; exit 255\n")
    refuses.chmod(0o755)
    door = Door(tmp_path, replace(SITE, ssh=(str(refuses),)), {})
    await door.open()
    try:
        guest = await asyncio.to_thread(Guest, tmp_path)
        await asyncio.to_thread(guest.send, Frame.HELLO, HELLO)
        assert (await asyncio.to_thread(guest.until, Frame.WELCOME))[1] == {"failed": "Permission denied (publickey)."}
        silent = [await asyncio.to_thread(Guest, tmp_path) for _ in range(MOST_GUESTS)]
        while door.busy < MOST_GUESTS:
            await asyncio.sleep(0)
        late = await asyncio.to_thread(Guest, tmp_path)
        told = (await asyncio.to_thread(late.until, Frame.WELCOME))[1]
        assert told == {"failed": f"{MOST_GUESTS} processes use it already"}
        for one in silent:
            one.link.close()
        while door.busy:
            await asyncio.sleep(0)
    finally:
        await door.close()
    assert not door_of(tmp_path, "store").exists()


@pytest.mark.slow
def test_scripts_run_through_a_door_as_they_do_by_ssh(outside: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    for inner in make_world(tmp_path_factory.mktemp("inner")):
        mounts = {str(inner.mnt): str(outside.base / "srv")}
        Sites.of(outside.home).add(replace(outside.site(), mounts=mounts))
        ask(outside.home, do="reload")
        Sites.of(inner.home).add(Site("store", "u@h", mounts, door=str(door_of(outside.home, "store"))))
        ensure_running(inner.home)
        told = ask(inner.home, do="connect", site="store")
        assert told is not None
        assert told["ready"], told
        for folder in (inner.mnt, outside.base / "srv"):
            (folder / "a.txt").write_bytes(b"".join(b"%d alpha\n" % one for one in range(3000)))
        script = "cat $M/a.txt | grep 'alpha' | sort -r | tail -2; wc -l $M/a.txt; cat $M/nosuch; sort $M/a.txt -o $M/n"
        found, expected = inner.shoal(script), inner.plain(script)
        assert (found.stdout, found.stderr, found.status) == (expected.stdout, expected.stderr, expected.status)
        assert sum(one["where"] == "store" for one in inner.entries()) >= 5
