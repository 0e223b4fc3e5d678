"""Trees that others write to: counted, given and removed whole, and nothing beside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.base import trees

LEVELS = 1500


@contextmanager
def opened(path: Path) -> Iterator[int]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield folder
    finally:
        os.close(folder)


def deep(root: Path, levels: int = LEVELS) -> None:
    """Directories in each other, and a file of 8 KiB in the last."""
    root.mkdir()
    folder = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("abcd", dir_fd=folder)
        below = os.open("abcd", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    file = os.open("file", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=folder)
    os.write(file, b"x" * 8192)
    os.close(file)
    os.close(folder)


def test_a_tree_deeper_than_any_path_is_counted_and_removed(tmp_path: Path) -> None:
    deep(tmp_path / "deep")
    held = len(list(Path("/proc/self/fd").iterdir()))
    used, count = trees.measure(str(tmp_path / "deep"))
    assert count == LEVELS + 1
    assert used >= 8192
    assert trees.remove(str(tmp_path / "deep")) is None
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == held


def test_links_are_counted_and_removed_and_never_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("stays")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(tmp_path / "outside")
    assert trees.measure(str(tree))[1] == 1
    (tmp_path / "alias").symlink_to(tree)
    assert trees.measure(str(tmp_path / "alias")) == (0, 0)
    assert trees.remove(str(tmp_path / "alias")) is None
    assert tree.is_dir()
    assert trees.remove(str(tree)) is None
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (tmp_path / "outside" / "file").read_text() == "stays"


def test_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    assert trees.measure(str(tmp_path / "none")) == (0, 0)
    assert trees.remove(str(tmp_path / "none")) is None


def test_a_count_ends_where_a_tree_is_too_large(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    assert trees.measure(str(tmp_path), most=20)[1] == 20
    assert trees.measure(str(tmp_path), most=5)[1] == 6
    with opened(tmp_path) as root, pytest.raises(trees.TooLarge):
        list(trees.walk(root, most=5))


def test_a_walk_never_leaves_its_tree_when_directories_are_moved_out(tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "secret").touch()
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "tree" / "z").mkdir()
    with opened(tmp_path / "tree") as root:
        seen = []
        for _, name, found in trees.walk(root):
            seen.append(name)
            if name == "b" and found is not None:
                (tmp_path / "tree" / "a" / "b").rename(tmp_path / "beside" / "b")
                (tmp_path / "tree" / "a").rename(tmp_path / "beside" / "a")
    assert {"a", "b", "z"} == set(seen)


@pytest.mark.parametrize("enter", [trees.open_beneath, trees.open_by_component])
def test_a_directory_is_opened_beneath_another_without_links(tmp_path: Path, enter: Callable[[int, str], int]) -> None:
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    (tmp_path / "root" / "link").symlink_to("a")
    (tmp_path / "root" / "a" / "file").touch()
    with opened(tmp_path / "root") as root:
        folder = enter(root, "a/b")
        assert os.fstat(folder).st_ino == (tmp_path / "root" / "a" / "b").stat().st_ino
        os.close(folder)
        for wrong in ("link/b", "link", "../root", "a/../../root", "/", "none", "a/file"):
            with pytest.raises(OSError, match=r"\w"):
                enter(root, wrong)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_tree_is_given_but_no_file_with_a_name_elsewhere(tmp_path: Path) -> None:
    deep(tmp_path / "tree", levels=50)
    (tmp_path / "foreign").write_text("root's")
    os.link(tmp_path / "foreign", tmp_path / "tree" / "linked")
    (tmp_path / "tree" / "symbolic").symlink_to(tmp_path / "foreign")
    os.mknod(tmp_path / "tree" / "null", 0o020600, os.makedev(1, 3))
    with opened(tmp_path / "tree") as root:
        trees.grant(root, 12345, 12346)
        owners = {name: os.stat(name, dir_fd=at, follow_symlinks=False).st_uid for at, name, _ in trees.walk(root)}
    assert owners == {"abcd": 12345, "file": 12345, "symbolic": 12345, "linked": 0, "null": 0}
    assert (tmp_path / "foreign").stat().st_uid == 0
    assert (tmp_path / "tree").stat().st_uid == 12345


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_way_through_is_kept_where_its_own_user_opened_it(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir(mode=0o711)
    modes = []
    for opened_by_user in (False, True):
        if opened_by_user:
            (tmp_path / "tree").chmod(0o777)
        with opened(tmp_path / "tree") as root:
            trees.grant(root, 12345, 12346)
        modes.append((tmp_path / "tree").stat().st_mode & 0o777)
    assert modes == [0o700, 0o711]


def test_what_has_no_name_counts_while_it_is_open(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file, (tmp_path / "named").open("wb") as named:
        for one in (file, named):
            one.write(b"x" * 65536)
            one.flush()
        (tmp_path / "file").unlink()
        device = os.fstat(file.fileno()).st_dev
        again = os.dup(file.fileno())
        used, count = trees.held_open([os.getpid()], [device])
        os.close(again)
        assert count >= 1
        assert used >= 65536
        assert trees.held_open([os.getpid()], [device + 1]) == (0, 0)
    assert trees.held_open([os.getpid()], [device])[0] <= used - 65536
