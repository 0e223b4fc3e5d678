"""The benchmark for a machine with a GPU goes through all of its ways on the fake driver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.device.cuda.kit import ROOT, needs_fake

pytestmark = [needs_fake, pytest.mark.slow]


def run(out: Path, *words: str, **more: str) -> tuple[int, list[dict[str, object]]]:
    command = [sys.executable, str(ROOT / "benchmarks/device_gpu.py"), "--dry-run", "--out", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=more or None)
    return done.returncode, [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]


def test_a_dry_run_takes_every_way_and_the_pair_with_slices_first(tmp_path: Path) -> None:
    code, rows = run(tmp_path)
    assert [row for row in rows if "error" in row] == []
    assert code == 0
    ways = ["alone", "alone", "plain", "gate", "gate+slice", "gate+ticket", "priority", "mps"]
    for part in ("pair1", "pair2", "pair3"):
        assert [row["way"] for row in rows if row["part"] == part] == ways
    assert list(dict.fromkeys(row["part"] for row in rows)) == [
        "machine", "pair1", "singles", "pair2", "durations", "pair3"
    ]  # fmt: skip
    sliced = next(row for row in rows if row["part"] == "pair1" and row["way"] == "gate+slice")
    assert sliced["parts"]
    assert sliced["variants"]
    assert "| way: gate+slice | 1 |" in (tmp_path / "page.md").read_text()


def test_without_git_on_the_path_parts_add_to_the_rows_that_are_there(tmp_path: Path) -> None:
    for part in ("durations", "singles"):
        code, rows = run(tmp_path, "--only", part, PATH="/nowhere", HOME=str(tmp_path))
        assert code == 0, rows
    assert [row["commit"] for row in rows if row["part"] == "machine"] == ["unknown", "unknown"]
    assert {row["part"] for row in rows} == {"machine", "durations", "singles"}


def test_what_fails_is_a_row_and_the_others_are_measured(tmp_path: Path) -> None:
    """Without variants the ways in parts would be the figures of whole kernels."""
    code, rows = run(tmp_path, "--only", "pair1", SHOAL_FAKE_WITHOUT="cuFuncGetParamInfo", PATH="/nowhere")
    assert code == 1
    failed = {row["way"]: row["error"] for row in rows if "error" in row}
    assert set(failed) == {"gate+slice", "gate+ticket"}
    assert all("no kernel was launched in parts: 0 of 1 could be" in str(error) for error in failed.values())
    assert len([row for row in rows if row["part"] == "pair1"]) == 8
