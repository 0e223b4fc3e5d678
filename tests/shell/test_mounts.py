"""Mounts of sites: their kinds, and the rate that is measured of them."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal.shell.agent.mounts import AGAIN_S, LEAST_BYTES, MountRate, leaves_alone, rate_of
from shoal.shell.agent.refresh import refresh


def test_of_large_files_alone_a_rate_is_told(tmp_path: Path) -> None:
    large, small, pipe, link = (tmp_path / name for name in ("large", "small", "pipe", "link"))
    large.write_bytes(b"x" * 2 * LEAST_BYTES)
    small.write_bytes(b"x" * (LEAST_BYTES - 1))
    os.mkfifo(pipe)
    link.symlink_to(large)
    assert (rate_of(str(large)) or 0) > 0
    assert [rate_of(str(one)) for one in (small, pipe, tmp_path)] == [None] * 3
    with pytest.raises(OSError, match="symbolic links"):
        rate_of(str(link))


def test_a_rate_is_measured_now_and_then() -> None:
    now, told = [1.0], [5e6, 9e6, 50e6]
    found = MountRate(lambda _: told.pop(0), lambda _: "fuse.sshfs", lambda: now[0])

    def measure() -> float | None:
        if (thread := found.measure("/mnt/f")) is not None:
            thread.join()
        return found.bytes_per_s

    assert (measure(), measure()) == (5e6, 5e6), "the second is too soon"
    now[0] += AGAIN_S
    assert measure() == 5e6, "nearly the same as before"
    now[0] += AGAIN_S
    assert measure() == 50e6
    assert not told


@pytest.mark.parametrize("kind", ["ext4", "", None])
def test_of_a_disk_of_this_machine_no_rate_is_measured(kind: str | None) -> None:
    assert MountRate(kind=lambda _: kind).measure("/mnt/f") is None


def test_a_mount_that_hangs_is_not_read_again() -> None:
    now, hang = [1.0], threading.Event()

    def read(_: str) -> None:
        hang.wait()
        raise OSError("gone")

    found = MountRate(read, lambda _: "nfs4", lambda: now[0])
    thread = found.measure("/mnt/f")
    assert thread is not None
    now[0] += 10 * AGAIN_S
    assert found.measure("/mnt/f") is None
    hang.set()
    thread.join()
    assert found.bytes_per_s is None
    assert found.measure("/mnt/f") is not None


def test_a_mount_that_sends_files_whole_is_written_here(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 8:1 / / rw - ext4 /dev/sda rw\n23 22 0:5 / /mnt/s rw - fuse.sshfs far:/ rw\n"
        "24 22 0:6 / /mnt/a\\040b rw shared:1 - fuse.rclone far: rw\n25 22 0:7 / /mnt/n rw - nfs4 far:/ rw\n"
    )
    paths = ["/mnt/s/x", "/mnt/a b/x", "/mnt/n", "/mnt/other"]
    assert [leaves_alone(one, table) for one in paths] == [True, False, True, True]
    assert not leaves_alone("/x", tmp_path / "nosuch")


async def test_each_path_has_its_time_to_be_refreshed_and_one_that_hangs_is_the_last() -> None:
    touched, limits, hangs = list[str](), list[float](), False

    @asynccontextmanager
    async def limit(seconds: float) -> AsyncIterator[None]:
        limits.append(seconds)
        yield
        if hangs and len(limits) == 2:
            raise TimeoutError

    changed = {"/m/a": 0o644, "/m/d/b": 0o600, "/m/d/gone": None}
    await refresh(changed, lambda path, _: touched.append(path), limit)
    assert touched == ["/m/a", "/m/d/b", "/m", "/m/d"]
    assert len(limits) == len(touched)
    touched, limits, hangs = [], [], True
    await refresh(changed, lambda path, _: touched.append(path), limit)
    assert touched == ["/m/a", "/m/d/b"]
