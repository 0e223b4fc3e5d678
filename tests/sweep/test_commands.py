"""What people type, as a sweep; and what is wrong with it, in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shoal.cli.app import app

MANIFEST = 'name: tune\ncommand: [train, "${sweep.lr}"]\nenv: {OPT: "${sweep.opt}"}\n'


def dry_run(folder: Path, *words: str, manifest: str = MANIFEST, run: tuple[str, ...] = ("run",)) -> Any:
    file = folder / "tune.yaml"
    file.write_text(manifest)
    return CliRunner().invoke(app, ["sweep", *run, str(file), *words, "--dry-run", "--json"])


def test_values_lists_and_ranges(tmp_path: Path) -> None:
    found = json.loads(dry_run(tmp_path, "--set", "lr=0.1,1", "--set", "opt=adam,true,").stdout)
    assert [one["values"] for one in found][:3] == [
        {"lr": 0.1, "opt": "adam"}, {"lr": 0.1, "opt": True}, {"lr": 0.1, "opt": ""},
    ]  # fmt: skip
    found = json.loads(dry_run(tmp_path, "--set", "lr=1e-5..1:log", "--set", "opt=1..3:int", "--random", "5").stdout)
    assert all(1e-5 <= one["values"]["lr"] <= 1 and one["values"]["opt"] in (1, 2, 3) for one in found)
    assert len(found) == 5


def test_the_word_run_may_be_left_out(tmp_path: Path) -> None:
    words = ("--set", "lr=0.1,1", "--set", "opt=adam")
    assert dry_run(tmp_path, *words, run=()).stdout == dry_run(tmp_path, *words).stdout != ""


def test_rows_of_a_file(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("lr,opt\n0.1,adam\n1,sgd\n")
    found = json.loads(dry_run(tmp_path, "--rows", str(rows)).stdout)
    assert [one["values"] for one in found] == [{"lr": 0.1, "opt": "adam"}, {"lr": 1, "opt": "sgd"}]


def test_options_begin_where_the_manifest_ends(tmp_path: Path) -> None:
    more = MANIFEST + "extensions: {sweep: {parameters: {lr: [1, 2], opt: [a]}}}\n"
    assert len(json.loads(dry_run(tmp_path, manifest=more).stdout)) == 2
    found = json.loads(dry_run(tmp_path, "--set", "lr=3", "--set", "opt=b", manifest=more).stdout)
    assert [one["values"] for one in found] == [{"lr": 3, "opt": "b"}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "there is nothing to sweep over"),
        (("--set", "lr"), "names no values"),
        (("--set", "lr=1", "--set", "x=2"), "the sweep has no parameter 'opt'"),
        (("--set", "lr=1..2", "--set", "opt=a"), "say with `random`"),
        (("--set", "lr=1..2:cubic", "--set", "opt=a", "--random", "2"), "'cubic' is no kind of range"),
        (("--set", "lr=1", "--set", "opt=a", "--goal", "most"), "must be"),
        (("--set", "lr=1", "--set", "opt=a", "--stop", "3"), "`stop` needs a `metric`"),
        (("--rows", "EMPTY"), "it has no rows"),
        (("--rows", "SHORT"), "not as many fields as the head"),
        (("--rows", "GONE"), "the file cannot be read"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "EMPTY").write_text("lr,opt\n")
    (tmp_path / "SHORT").write_text("lr,opt\n1\n")
    paths = [str(tmp_path / word) if word in ("EMPTY", "SHORT", "GONE") else word for word in words]
    result = dry_run(tmp_path, *paths)
    assert result.exit_code == 2
    assert said in result.stderr
