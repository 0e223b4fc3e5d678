from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.contract.bundle import pack
from shoal.core import Invalid

NAMES = st.text("abcXYZ_-0", min_size=1, max_size=8)
TREES = st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=40), max_size=6)


def members(archive: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: entry for entry in tar.getmembers()}


def content(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar.getmembers()}  # type: ignore[union-attr]


@given(tree=TREES)
def test_what_is_packed_is_what_is_there_and_always_the_same_bytes(
    tree: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    archives = []
    kept: dict[str, bytes] = {}
    for turn in (1, 2):
        base = tmp_path_factory.mktemp("tree")
        kept = {}
        for name, data in tree.items() if turn == 1 else reversed(tree.items()):
            # A name that is both a file and a directory cannot be; the shorter one gives way.
            if any(other != name and other.startswith(name + "/") for other in tree):
                continue
            path = base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (turn * 1000, turn * 1000))
            kept[name] = data
        if kept:
            archives.append(pack(base, ["."]))
    if kept:
        assert archives[0] == archives[1]
        assert content(archives[0]) == kept


def test_owners_and_times_are_left_out_and_only_whether_it_is_executable_is_kept(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh")
    (tmp_path / "run.sh").chmod(0o700)
    (tmp_path / "data").write_text("x")
    (tmp_path / "data").chmod(0o600)
    found = members(pack(tmp_path, ["*"]))
    assert {name: entry.mode for name, entry in found.items()} == {"run.sh": 0o755, "data": 0o644}
    assert {(entry.mtime, entry.uid, entry.uname) for entry in found.values()} == {(0, 0, "")}


def test_rubbish_is_left_out_unless_it_is_named(tmp_path: Path) -> None:
    for name in (".git/HEAD", "__pycache__/a.pyc", ".venv/bin/python", "pkg/__pycache__/b.pyc", "pkg/a.py", "a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert set(members(pack(tmp_path, ["."]))) == {"pkg/a.py"}
    assert set(members(pack(tmp_path, ["a.pyc", "pkg"]))) == {"a.pyc", "pkg/a.py"}


@pytest.mark.parametrize("pattern", ["../x", "/etc/passwd", "~/x", "pkg/../../x"])
def test_a_pattern_cannot_leave_the_directory(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(Invalid) as refused:
        pack(tmp_path, ["ok", pattern][1:])
    assert refused.value.where == "files[0]"


def test_a_link_cannot_leave_the_directory_and_one_inside_is_followed(tmp_path: Path) -> None:
    inside = tmp_path / "work"
    inside.mkdir()
    (tmp_path / "outside").write_text("secret")
    (inside / "real").write_text("real")
    (inside / "link").symlink_to("real")
    assert content(pack(inside, ["link"])) == {"link": b"real"}
    (inside / "escape").symlink_to("../outside")
    with pytest.raises(Invalid, match="leads out"):
        pack(inside, ["."])


def test_a_pattern_without_a_file_and_too_much_are_refused(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 100)
    with pytest.raises(Invalid, match="no file matches"):
        pack(tmp_path, ["big", "small*"])
    with pytest.raises(Invalid, match="over the limit") as refused:
        pack(tmp_path, ["big"], limit_bytes=99)
    assert refused.value.hint is not None
    assert len(pack(tmp_path, ["big"], limit_bytes=100)) > 100
