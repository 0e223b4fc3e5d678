"""Paths and sockets that the server's components show to a gang, in each sandbox, for real."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shoal.control.sandboxes import check_sources, sandboxed
from shoal.core import Sandbox
from shoal.engine import MOUNTS, LaunchFailed, Mount
from shoal.engine.local.sandboxes import check_mounts
from tests.engine.local_kit import LocalKit, local_kit
from tests.engine.test_sandbox import gang, said
from tests.engine.test_sandbox import level as level

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root")

READS = """
import os, socket
print(open(DATA + "/batch").read())
print(sorted(os.listdir(DATA)))
batch = DATA + "/batch"
for attempt in (lambda: open(batch, "w"), lambda: open(DATA + "/new", "w"), lambda: os.unlink(batch)):
    try:
        attempt()
        print("changed")
    except OSError as error:
        print(type(error).__name__)
client = socket.socket(socket.AF_UNIX)
client.connect(DOOR)
print(client.recv(100).decode())
print(sorted(set(os.listdir(HOME)) - {"runs", "gangs", "checkpoints"}))
"""


@pytest_asyncio.fixture
async def kit(tmp_path: Path) -> AsyncIterator[LocalKit]:
    async with local_kit(tmp_path) as kit:
        yield kit


@pytest.fixture
def kept(kit: LocalKit) -> Path:
    """What a component keeps in the home for jobs: files that all may read, and whatever is beside them."""
    folder = kit.home / "cache" / "shown"
    folder.mkdir(parents=True)
    (folder / "batch").write_text("numbers")
    (folder / "batch").chmod(0o666)
    folder.chmod(0o777)
    (kit.home / "cache" / "secret").write_text("of the component")
    return folder


@ROOT
@pytest.mark.parametrize("at", ["its own place", "another"])
async def test_a_gang_reads_what_it_is_shown_and_sees_nothing_else(
    kit: LocalKit, kept: Path, level: Sandbox, at: str
) -> None:
    door = kit.home / "cache" / "door"
    server = socket.socket(socket.AF_UNIX)
    with server:
        server.bind(str(door))
        door.chmod(0o666)
        server.listen()
        places = (kept, door) if at == "its own place" else tuple(kit.home / MOUNTS / name for name in ("data", "door"))
        mounts = (Mount(kept, places[0]), Mount(door, places[1]))
        source = f"DATA, DOOR, HOME = {str(places[0])!r}, {str(places[1])!r}, {str(kit.home)!r}\n{READS}"
        server.settimeout(20)

        async def answer() -> None:
            connection, _ = await asyncio.to_thread(server.accept)
            with connection:
                connection.sendall(b"served")

        answered = asyncio.create_task(answer())
        log = await said(kit, gang(kit, "reads", source, level, mounts=mounts))
        await answered
    numbers, listed, *refused, served, beside = log.splitlines()
    assert (numbers, listed) == ("numbers", "['batch']")
    assert "changed" not in refused
    assert len(refused) == 3
    assert served == "served"
    assert beside == ("['cache']" if at == "its own place" else "['mounts']")
    assert (kept / "batch").read_text() == "numbers"


@ROOT
async def test_what_is_not_read_only_can_be_written(kit: LocalKit, kept: Path, level: Sandbox) -> None:
    target = kit.home / MOUNTS / "data"
    source = f"open({str(target / 'new')!r}, 'w').write('by a job')"
    await said(kit, gang(kit, "writes", source, level, mounts=(Mount(kept, target, read_only=False),)))
    assert (kept / "new").read_text() == "by a job"


@ROOT
async def test_only_the_gang_that_is_shown_a_path_sees_it(kit: LocalKit, kept: Path, level: Sandbox) -> None:
    source = f"import os\nprint(os.path.exists({str(kept)!r}), os.path.exists({str(kit.home / MOUNTS)!r}))"
    assert (await said(kit, gang(kit, "other", source, level))).strip() == "False False"


def wrong(kit: LocalKit, kept: Path) -> dict[str, Mount]:
    link = kit.home / "cache" / "link"
    link.symlink_to("/etc")
    return {
        "neither its source nor in": Mount(kept, Path("/etc")),
        "neither its source": Mount(kept, kit.home / MOUNTS / ".." / "runs"),
        "nor in": Mount(kept, kit.home / MOUNTS),
        "No such file": Mount(kit.home / "cache" / "absent", kit.home / "cache" / "absent"),
        "reached by a link": Mount(link, kit.home / MOUNTS / "x"),
    }


@pytest.mark.parametrize(
    "why", ["neither its source nor in", "neither its source", "nor in", "No such file", "reached by a link"]
)
def test_what_is_elsewhere_or_not_there_is_refused(kit: LocalKit, kept: Path, why: str) -> None:
    made = gang(kit, "wrong", "pass", Sandbox.USER, mounts=(wrong(kit, kept)[why],))
    with pytest.raises(LaunchFailed, match=why):
        check_mounts(made, kit.home)


def test_without_a_sandbox_a_path_is_where_it_is(kit: LocalKit, kept: Path) -> None:
    check_mounts(gang(kit, "free", "pass", Sandbox.NONE, mounts=(Mount(kept, kept),)), kit.home)
    made = gang(kit, "free", "pass", Sandbox.NONE, mounts=(Mount(kept, kit.home / MOUNTS / "x"),))
    with pytest.raises(LaunchFailed, match="in a sandbox only"):
        check_mounts(made, kit.home)


def test_a_component_shows_nothing_but_what_it_keeps_for_jobs(kit: LocalKit, kept: Path) -> None:
    roots = [kit.home / "cache"]
    check_sources([Mount(kept, kept)], roots, "cache")
    (kit.home / "cache" / "out").symlink_to("/etc")
    for source in (Path("/etc/shadow"), kit.home, kit.home / "cache", kept / ".." / ".." / "secret.key",
                   kit.home / "cache" / "out" / "shadow", kit.home / "cache2"):  # fmt: skip
        with pytest.raises(LaunchFailed, match="cache may show jobs nothing of"):
            check_sources([Mount(source, source)], roots, "cache")


def test_an_engine_without_the_capability_is_given_no_such_gang(kit: LocalKit, kept: Path) -> None:
    class Other:
        name = "other"

        def capabilities(self) -> tuple[()]:
            return ()

    made = gang(kit, "g", "pass", Sandbox.NONE, mounts=(Mount(kept, kept),))
    with pytest.raises(LaunchFailed, match="the engine other shows no paths"):
        sandboxed(made, "red", Sandbox.NONE, Other())  # type: ignore[arg-type]
    assert sandboxed(made, "red", Sandbox.NONE, kit.engine).mounts == made.mounts
