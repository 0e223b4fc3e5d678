"""A backup is what was written, to the byte, or it is refused before anything is replaced."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from shoal.base.home import Home, prepare_home
from shoal.cli.app import app
from shoal.control.home.backup import make_backup, restore_backup
from shoal.core import Invalid
from shoal.store import open_store

KEYS = {"secret.key": "k" * 43, "admin.token": "shoal_admin"}


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("backup")
    home = prepare_home(folder / "home")
    for name, text in KEYS.items():
        (home.path / name).write_text(text)
    with contextlib.closing(open_store(_url(home))) as store:
        store.acquire("test")
    make_backup(home, _url(home), folder / "made.tar", force=False)
    return (folder / "made.tar").read_bytes()


def _url(home: Home) -> str:
    return f"sqlite:///{home.path / 'shoal.db'}"


def _restored(folder: Path, raw: bytes) -> Home:
    home = Home(folder / "restored")
    (folder / "given.tar").write_bytes(raw)
    restore_backup(home.path, _url(home), folder / "given.tar", force=True)
    return home


def _rewritten(raw: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """The same archive of other members, as somebody with a text editor makes it."""
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        members = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
    change(members)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def _about(members: dict[str, bytes], change: Callable[[dict[str, object]], object]) -> None:
    told = json.loads(members["backup.json"])
    change(told)
    members["backup.json"] = json.dumps(told).encode()


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
@example(0.003, 1)
def test_a_changed_byte_is_refused_or_changes_nothing(
    backup: bytes, tmp_path_factory: pytest.TempPathFactory, where: float, flipped: int
) -> None:
    raw = bytearray(backup)
    raw[int(where * len(raw))] ^= flipped
    folder = tmp_path_factory.mktemp("flipped")
    try:
        home = _restored(folder, bytes(raw))
    except Invalid:
        assert not (folder / "restored" / "shoal.db").exists()
        assert not (folder / "restored" / "secret.key").exists()
    else:  # a time or an owner in a header of the archive, or its padding
        for name, text in KEYS.items():
            assert (home.path / name).read_text() == text


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members.update({"secret.key": b"x" * 43}),
        lambda members: members.pop("admin.token"),
        lambda members: _about(members, lambda told: told.update(made_at=0.0)),
        lambda members: _about(members, lambda told: told.update(home="/elsewhere")),
        lambda members: _about(members, lambda told: told.update(format=1)),
        lambda members: _about(members, lambda told: told.update(format=3)),
        lambda members: _about(members, lambda told: told.pop("sha256")),
    ],
)
def test_what_differs_from_the_list_is_refused(
    backup: bytes, tmp_path: Path, change: Callable[[dict[str, bytes]], None]
) -> None:
    with pytest.raises(Invalid, match="no whole backup"):
        _restored(tmp_path, _rewritten(backup, change))
    assert _restored(tmp_path, _rewritten(backup, lambda _: None)).token_file.read_text() == KEYS["admin.token"]


def test_a_backup_of_an_older_shoal_is_restored_with_a_warning(backup: bytes, tmp_path: Path) -> None:
    def older(told: dict[str, object]) -> None:
        told.pop("sha256")
        told["format"] = 1

    (tmp_path / "older.tar").write_bytes(_rewritten(backup, lambda members: _about(members, older)))
    (tmp_path / "newer.tar").write_bytes(backup)
    for name, warned in (("older", True), ("newer", False)):
        words = ["restore", str(tmp_path / f"{name}.tar"), "--home", str(tmp_path / name)]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        assert ("without digests" in done.output) is warned
        assert (tmp_path / name / "shoal.db").exists()
