"""Tenants with users of their own, kept apart by the kernel: needs to be run as root."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from shoal.cache.daemon import Daemon
from shoal.cache.door.filesystem import ShoalFileSystem
from shoal.cache.sources import key_of
from tests.cache.kit import cache

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
ANN, BOB = 64001, 64002


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach."""
    with TemporaryDirectory(prefix="shoal-users-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def daemon(place: Path) -> Iterator[Daemon]:
    with cache(place / "c") as made:
        yield made


@pytest.fixture
def secret(place: Path) -> Path:
    path = place / "secret"
    path.write_text("for ann")
    os.chown(path, ANN, ANN)
    path.chmod(0o600)
    return path


def acting(uid: int, action: Callable[[], Any]) -> str:
    """What an action gives, or the name of its error, in a process of this user: a fork of ours, for other users need
    not be able to read this checkout."""
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            told = str(action())
        except Exception as error:
            told = type(error).__name__
        os.write(here, told.encode())
        os._exit(0)
    os.close(here)
    with os.fdopen(there, "rb") as file:
        told = file.read().decode()
    os.waitpid(child, 0)
    return told


def reading(daemon: Daemon, uid: int, path: Path) -> Callable[[], str]:
    """Through the door, as the tenant `uid-UID`."""

    def read() -> str:
        warnings.simplefilter("ignore")
        fs = ShoalFileSystem(cache_root=str(daemon.cache.store.root), tenant=f"uid-{uid}", skip_instance_cache=True)
        data: bytes = fs.cat_file(str(path))
        return data.decode()

    return read


def test_a_file_is_read_with_the_rights_of_the_one_who_asks(daemon: Daemon, secret: Path) -> None:
    assert acting(ANN, reading(daemon, ANN, secret)) == "for ann"
    assert acting(BOB, reading(daemon, BOB, secret)) == "PermissionError"
    assert acting(BOB, reading(daemon, ANN, secret)) == "PermissionError"  # by her name
    assert daemon.cache.accounts[f"uid-{BOB}"].refused >= 1
    assert daemon.cache.accounts[f"uid-{ANN}"].loads == 1


def test_no_path_leads_to_the_files_of_another(daemon: Daemon, secret: Path, place: Path) -> None:
    assert acting(ANN, reading(daemon, ANN, secret)) == "for ann"
    root = daemon.cache.store.root
    (digest,) = daemon.cache.store.contents()
    link = root / "links" / f"uid-{ANN}" / key_of(f"file://{secret}")
    assert acting(ANN, link.read_text) == "for ann"
    own = place / "bob"
    own.mkdir()
    os.chown(own, BOB, BOB)
    (own / "symlink").symlink_to(link)
    beside = Path(f"{root}/links/uid-{BOB}/../uid-{ANN}/{link.name}")
    for path in (link, daemon.cache.store.file(digest), own / "symlink", beside):
        assert acting(BOB, path.read_text) in ("PermissionError", "FileNotFoundError")
        assert acting(BOB, lambda path=path: (own / "hard").hardlink_to(path)) != "None"  # type: ignore[misc]
    # Nor can a tenant change its own links, or what they lead to.
    for act in (lambda: link.write_text("x"), link.unlink, lambda: link.chmod(0o666)):
        assert acting(ANN, act) == "PermissionError"
