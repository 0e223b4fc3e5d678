"""Nothing that was acknowledged is lost, and nothing half remains, when the server is killed or a disk is full."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.base.home import Home, running_server, stop_server
from shoal.control.server import start_detached
from shoal.core import Overloaded, ShoalError, Unavailable
from shoal.sdk import Client
from tests.servers import kill_for_good

pytestmark = pytest.mark.slow

WAIT_S = 110.0
# Says what was acknowledged, in a file that the test reads; the same content again and again, and new ones.
SCRIPT = """
import os
from shoal import train
for at in range(8):
    with open("state.bin", "wb") as file:
        file.write(bytes([at % 3]) * 2_000_000 + os.urandom(1) * 10)
    told = train.artifact("state.bin", name=f"state/{at}")
    with open("told", "a") as file:
        for name, digest in told.items():
            print(name, digest, file=file, flush=True)
os.mkdir("end")
for at in range(20):
    open(f"end/{at}", "wb").write(os.urandom(200_000))
"""


FILLS = "open('big', 'wb').write(b'x' * (60 << 20)); open('small', 'w').write('s')"


def start(home: Home, *words: str) -> None:
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "4", *words], home)


def kill(home: Home) -> None:
    if running_server(home) is not None:
        kill_for_good(home)


def check_contents(home: Home, client: Client) -> None:
    """What is listed is there and whole, and nothing else is."""
    for one in client.artifacts.list(limit=10_000).artifacts:
        digest = one.digest.removeprefix("sha256:")
        path = home.path / "results/contents" / one.tenant / digest[:2] / digest
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, one.name
        assert path.stat().st_size == one.bytes


def stray(home: Home, client: Client) -> set[str]:
    named = {one.digest.removeprefix("sha256:") for one in client.artifacts.list(limit=10_000).artifacts}
    there = {path.name for path in (home.path / "results/contents").rglob("*") if path.is_file()}
    return (there - named) | {path.name for path in (home.path / "results/incoming").iterdir()}


def test_kills_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    home, chance = Home(tmp_path / "home"), random.Random(7)
    upload = tmp_path / "upload.bin"
    upload.write_bytes(os.urandom(20 << 20))
    start(home)
    try:
        with Client(home=home.path, environ={}, patience_s=60.0) as client:
            client.create_tenant("red", sandbox="none")
            jobs = [
                client.submit({
                    "name": f"train-{at}", "tenant": "red", "command": [sys.executable, "-c", SCRIPT],
                    "artifacts": ["end/*"],
                }).id
                for at in range(3)
            ]  # fmt: skip
            for _ in range(4):
                time.sleep(chance.uniform(0.1, 1.5))
                sending = client.artifacts.upload(upload, tenant="red", name="up.bin")
                next(sending)
                kill(home)
                sending.close()
                start(home)
                check_contents(home, client)
            list(client.artifacts.upload(upload, tenant="red", name="up.bin"))
            for job in jobs:
                assert client.wait(job, timeout_s=WAIT_S).state == "SUCCEEDED"
                give_up_at = time.monotonic() + WAIT_S
                while client.artifacts.list(job).taking:
                    assert time.monotonic() < give_up_at
                    time.sleep(0.1)
                found = {one.name: one.digest for one in client.artifacts.find(job)}
                told = client_told(home, job)
                assert len(told) == 8
                assert told.items() <= found.items()
                assert {f"end/{at}" for at in range(20)} <= set(found)
            for one in client.artifacts.list(uploads=True).artifacts:
                client.artifacts.remove(one.id)
        kill(home)
        start(home)
        with Client(home=home.path, environ={}, patience_s=60.0) as client:
            check_contents(home, client)
            give_up_at = time.monotonic() + WAIT_S
            while stray(home, client):
                assert time.monotonic() < give_up_at, stray(home, client)
                time.sleep(0.1)
    finally:
        stop_server(home, timeout_s=20)


def client_told(home: Home, job: str) -> dict[str, str]:
    lines = (home.path / "runs" / job / "1" / "told").read_text().splitlines()
    return dict(line.split(" ") for line in lines)  # type: ignore[misc]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, small_disk: Path) -> None:
    """Once in the server's own place, which keeps a spare, and once elsewhere, where the last byte is used."""
    home = Home(tmp_path / "home")
    start(home, "--set", f"results.store={small_disk}/store")
    large = tmp_path / "large.bin"
    large.write_bytes(os.urandom(60 << 20))
    other = tmp_path / "other.bin"
    other.write_bytes(os.urandom(60 << 20))
    try:
        with Client(home=home.path, environ={}) as client:
            client.create_tenant("red", sandbox="none")
            list(client.artifacts.upload(large, tenant="red"))
            with pytest.raises(ShoalError, match=r"[Nn]o space left"):
                list(client.artifacts.upload(other, tenant="red"))
            made = client.submit({
                "name": "full", "tenant": "red", "artifacts": ["big", "small"],
                "command": [sys.executable, "-c", FILLS],
            })  # fmt: skip
            assert client.wait(made.id, timeout_s=WAIT_S).state == "SUCCEEDED"
            give_up_at = time.monotonic() + WAIT_S
            while client.artifacts.list(made.id).taking:
                assert time.monotonic() < give_up_at
                time.sleep(0.1)
            assert [one.name for one in client.artifacts.find(made.id)] == ["small"]
            [event] = [one for one in client.events(made.id) if one.kind == "results.refused"]
            assert "No space left" in event.data["refused"][0]
            files = [path for path in small_disk.rglob("*") if path.is_file()]
            assert len(files) == 2
            assert not list((home.path / "results/incoming").iterdir())
            [first] = [one for one in client.artifacts.list(uploads=True).artifacts if one.name == "large.bin"]
            client.artifacts.remove(first.id)
            list(client.artifacts.upload(other, tenant="red"))
            digest = {one.name: one.digest for one in client.artifacts.list(uploads=True).artifacts}["other.bin"]
            assert digest == f"sha256:{hashlib.sha256(other.read_bytes()).hexdigest()}"
    finally:
        stop_server(home, timeout_s=20)
    home = Home(small_disk / "home")
    for path in (small_disk / "store").rglob("*"):
        if path.is_file():
            path.unlink()
    start(home)
    try:
        with Client(home=home.path, environ={}) as client:
            client.create_tenant("red", sandbox="none")
            with pytest.raises(Overloaded, match="disk is full"):
                list(client.artifacts.upload(large, tenant="red"))
            assert client.artifacts.list().artifacts == ()
    finally:
        stop_server(home, timeout_s=20)


@pytest.mark.parametrize("left", [0, 5 << 20], ids=["nothing", "half-a-piece"])
def test_a_disk_that_fills_between_two_pieces(tmp_path: Path, small_disk: Path, left: int) -> None:
    """It is others who fill it. What arrived stays, and the upload goes on there once there is room."""
    home = Home(small_disk / "home")
    data = os.urandom(20 << 20)
    file = tmp_path / "file.bin"
    file.write_bytes(data)
    start(home)
    try:
        with Client(home=home.path, environ={}, patience_s=1.0) as client:
            client.create_tenant("red", sandbox="none")
            sending = client.artifacts.upload(file, tenant="red")
            arrived = next(sending).done_bytes
            filler = small_disk / "filler"
            fill(small_disk, filler, left)
            with pytest.raises(Unavailable, match="No space left"):
                list(sending)
            [part] = home.path.glob("results/**/*.part")
            assert part.read_bytes() == data[:arrived], "no half of a piece"
            assert client.artifacts.list().artifacts == ()
            filler.unlink()
            assert next(client.artifacts.upload(file, tenant="red")).done_bytes > arrived, "it begins where it ended"
            list(client.artifacts.upload(file, tenant="red"))
            check_contents(home, client)
            [one] = client.artifacts.list(uploads=True).artifacts
            assert one.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
            assert not list(home.path.glob("results/**/*.part"))
    finally:
        stop_server(home, timeout_s=20)


def fill(disk: Path, filler: Path, left: int) -> None:
    """Leave this much of the disk."""
    filler.touch()
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with filler.open("r+b") as opened:
        os.posix_fallocate(opened.fileno(), 0, free - left)
