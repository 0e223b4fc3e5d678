"""A file is replaced whole, for its owner only, and nothing is left where that fails."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from shoal.base.files import write_whole


def test_a_file_is_written_for_its_owner_only_unless_told_otherwise(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "text ä")
    write_whole(tmp_path / "b", b"\xff", mode=0o644, durable=False)
    assert (tmp_path / "a").read_text(encoding="utf-8") == "text ä"
    assert (tmp_path / "b").read_bytes() == b"\xff"
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"] == [0o600, 0o644]


def test_a_durable_file_is_on_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flush, flushed = os.fsync, []

    def note(descriptor: int) -> None:
        flushed.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        assert (tmp_path / "a").exists() is flushed[-1]
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    write_whole(tmp_path / "a", "text")
    assert flushed == [False, True]
    write_whole(tmp_path / "b", "text", durable=False)
    assert len(flushed) == 2


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "a").symlink_to(tmp_path / "victim")
    write_whole(tmp_path / "a", "new")
    assert (tmp_path / "victim").read_text() == "kept"
    assert (tmp_path / "a").read_text() == "new"


def test_a_failure_leaves_what_was_there_and_no_part(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path / "a", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
