"""Files beneath a directory that others change: no link leads out, nothing blocks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base import beneath


@given(st.lists(st.sampled_from(["a", "..", ".", "", "b", "/", "\x00"]), max_size=6).map("/".join))
def test_a_path_is_taken_apart_only_if_it_stays(path: str) -> None:
    try:
        parts = beneath.parts_of(path)
    except ValueError:
        assert path.startswith("/") or ".." in path.split("/") or "\x00" in path
        return
    assert os.path.normpath("/".join(("root", *parts))).startswith("root")
    assert parts == tuple(part for part in path.split("/") if part not in ("", "."))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("mine")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "a" / "secret").symlink_to(tmp_path / "outside" / "secret")
    (root / "a" / "own").symlink_to("b/file")
    os.mkfifo(root / "a" / "pipe")
    return root


def read(root: Path, *parts: str) -> bytes:
    with beneath.regular_file(root, parts) as file:
        return os.read(file, 100)


def test_a_file_is_read_and_no_link_is(root: Path) -> None:
    assert read(root, "a", "b", "file") == b"mine"
    for parts in (("link", "secret"), ("a", "secret"), ("a", "own"), ("a", "pipe"), ("a", "b"), (), ("a", "none")):
        with pytest.raises((OSError, ValueError)):
            read(root, *parts)
    with pytest.raises(OSError, match="directory"), beneath.directory(root, ("link",)):
        pass


def test_the_directory_itself_may_be_behind_a_link_of_ours(root: Path, tmp_path: Path) -> None:
    (tmp_path / "home").symlink_to(root)
    assert read(tmp_path / "home", "a", "b", "file") == b"mine"


def test_a_file_is_kept_under_a_second_name_again_and_again(root: Path) -> None:
    with beneath.directory(root, ("a", "b")) as old, beneath.directory(root, ("new", "deep"), make=True) as new:
        for _ in range(2):
            beneath.keep_file(old, "file", new, "kept")
        assert [path.name for path in (root / "new" / "deep").iterdir()] == ["kept"]
        assert os.stat("kept", dir_fd=new).st_ino == os.stat("file", dir_fd=old).st_ino
    assert (root / "new").stat().st_mode & 0o777 == 0o700
    with beneath.directory(root, ("a",)) as old, beneath.directory(root, ("new",)) as new:
        for name in ("secret", "own", "pipe", "b"):
            with pytest.raises(OSError, match=r".") as refused:
                beneath.keep_file(old, name, new, "x")
            assert refused.value.filename == name or refused.value.errno
        assert [path.name for path in (root / "new").iterdir()] == ["deep"]


def test_a_file_of_another_file_system_is_copied(root: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == root.stat().st_dev:
        pytest.skip("there is no other file system here")
    with beneath.directory(root, ("a", "b")) as old:
        target = shared / f"shoal-{os.getpid()}"
        target.mkdir()
        try:
            with beneath.directory(target, ()) as new:
                beneath.keep_file(old, "file", new, "kept")
                beneath.keep_file(old, "file", new, "kept")
            assert [path.read_text() for path in target.iterdir()] == ["mine"]
        finally:
            for path in target.iterdir():
                path.unlink()
            target.rmdir()
