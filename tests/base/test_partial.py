"""Files that come in pieces: what is left of earlier tries goes, and nothing of anybody else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from shoal.base.partial import PartialFile
from shoal.core import ShoalError


def test_it_goes_on_where_an_earlier_try_stood(tmp_path: Path) -> None:
    target = tmp_path / "model.bin"
    with PartialFile(target, "one", 6) as first:
        first.append(b"abc")
    with PartialFile(target, "one", 6) as again:
        assert again.have == 3
        again.append(b"def")
        assert again.finish() == hashlib.sha256(b"abcdef").hexdigest()
    assert [one.name for one in tmp_path.iterdir()] == ["model.bin"]


def test_only_pieces_of_the_same_file_make_way(tmp_path: Path) -> None:
    kept = [".model.bin.part", ".model.bin.mine.part", ".model.binx.0123456789abcdef.part", ".part"]
    for name in kept:
        (tmp_path / name).write_text("precious")
    with PartialFile(tmp_path / "model.bin.more", "other", 6) as beside:
        beside.append(b"abc")
        with PartialFile(tmp_path / "model.bin", "old", 6) as old:
            old.append(b"abc")
        left = {one.name for one in tmp_path.iterdir()}
        with PartialFile(tmp_path / "model.bin", "new", 6) as new:
            assert new.have == 0
            assert len(left - {one.name for one in tmp_path.iterdir()}) == 1
        beside.append(b"def")
        beside.finish()
    assert all((tmp_path / name).read_text() == "precious" for name in kept)
    assert (tmp_path / "model.bin.more").read_bytes() == b"abcdef"


def test_another_content_than_was_named_is_forgotten(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "a", "one", 3) as part:
        part.append(b"abc")
        with pytest.raises(ShoalError, match="not what it should be"):
            part.finish(hashlib.sha256(b"abd").hexdigest())
    assert list(tmp_path.iterdir()) == []
