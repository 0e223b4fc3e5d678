"""A socket on a path of the machine: who may be replaced there, and that the kernel says who calls."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.base.http.peers import local_user
from shoal.base.listening import listen_locally

from . import caller

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be others")


@pytest.fixture
def folder() -> Iterator[Path]:
    """That others can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="shoal-socket-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_the_socket_of_a_server_that_has_ended_is_replaced_and_no_other(folder: Path) -> None:
    path = folder / "s"
    first = listen_locally(path, 0o666)
    assert path.stat().st_mode & 0o777 == 0o666
    with pytest.raises(OSError, match="taken") as refused:
        listen_locally(path, 0o600)
    assert refused.value.errno == errno.EADDRINUSE
    first.close()
    with listen_locally(path, 0o600), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    path.unlink()
    path.write_text("not a socket")
    with pytest.raises(OSError, match="taken"):
        listen_locally(path, 0o600)
    assert path.read_text() == "not a socket"
    path.unlink()
    path.symlink_to(folder / "elsewhere")
    with pytest.raises(OSError, match="taken"):
        listen_locally(path, 0o600)


def test_a_folder_in_which_others_may_write_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(OSError, match="others may write") as refused:
        listen_locally(folder / "s", 0o666)
    assert refused.value.errno == errno.EPERM
    folder.chmod(0o1777)
    listen_locally(folder / "s", 0o666).close()


@ROOT
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder, 4711, 4711)
    with pytest.raises(OSError, match="others may write"):
        listen_locally(folder / "s", 0o666)


def _seen(folder: Path, *, server: int = 0, client: int = 0) -> int:
    """In a process without threads, such as libraries start in each fork: one with threads gets no user namespace."""
    argv = [sys.executable, Path(caller.__file__), folder, str(server), str(client)]
    return int(subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout)


_NEWUSER = 0x1000_0000


@ROOT
def test_the_kernel_says_who_calls_and_root_of_a_namespace_is_the_user_who_made_it(folder: Path) -> None:
    assert _seen(folder) == 4711
    assert _seen(folder, client=_NEWUSER) == 4711
    assert local_user(socket.socket()) is None


@ROOT
def test_whoever_is_of_another_namespace_than_the_server_has_the_overflow_number(folder: Path) -> None:
    assert _seen(folder, server=_NEWUSER) == int(Path("/proc/sys/kernel/overflowuid").read_text())
