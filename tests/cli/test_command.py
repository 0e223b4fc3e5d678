"""How errors look."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.base.console.command import complain
from shoal.cli.app import app
from shoal.contract.manifest import JOB
from shoal.core import Invalid


def test_a_single_problem_is_named_below_what_it_is_a_problem_of(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Invalid("must be at least 1", where="groups[0].pids[0]")
    complain(
        Invalid("the configuration is wrong", where="g.yaml", hint="see there", problems=(problem,)), as_json=False
    )
    assert capsys.readouterr().err == (
        "error: the configuration is wrong\n  where: g.yaml\n"
        "  - groups[0].pids[0]: must be at least 1\n  hint: see there\n"
    )


def test_an_error_that_is_its_only_problem_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Invalid("no file", where="files[0]", hint="check the path")
    complain(Invalid(problem.what, where=problem.where, hint=problem.hint, problems=(problem,)), as_json=False)
    assert capsys.readouterr().err == "error: no file\n  where: files[0]\n  hint: check the path\n"


def test_what_a_field_of_a_manifest_means_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> str:
        with contextlib.suppress(SystemExit):
            app(["manifest", "explain", *words])
        found = capsys.readouterr()
        return found.out or found.err

    limits = told("restart.limits").splitlines()
    assert limits[:2] == [
        "restart.limits: how many failures are tried again, by whose fault they were",
        "restart.limits.user (0): tries after a failure of the script",
    ]
    assert told("inputs.from") == "inputs.from (needed): a location, from which it is fetched\n"
    assert {line.partition(" ")[0].rstrip(":") for line in told().splitlines()} == set(JOB.fields(()))
    assert "models (needed): " in told("--kind", "service")
    assert "there is no field 'restart.nope'" in told("restart.nope")
    assert "fields here: on, limits, backoff" in told("restart.nope")
    assert "there is no kind 'task'" in told("--kind", "task")


@pytest.mark.few(count=2)
@pytest.mark.parametrize("words", [["--version"], ["--help"], ["schedule", "--help"], ["manifest", "schema"]])
def test_output_that_cannot_be_written_is_an_error_in_words(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "shoal.cli", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n  where: standard output\n")


@pytest.mark.parametrize(("name", "code"), [("none.csv", 3), ("loop.csv", 1)])
def test_a_file_that_is_not_there_is_told_apart_from_one_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, code: int
) -> None:
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    with pytest.raises(SystemExit) as left:
        app(["market", "offers", str(tmp_path / name)])
    assert left.value.code == code
    assert f"where: {tmp_path / name}" in capsys.readouterr().err


def test_a_manifest_that_cannot_be_read_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strange = tmp_path / "strange.yaml"
    strange.write_bytes(b"name: \xff")
    for path, why in ((tmp_path / "none.yaml", "no such file or directory"), (strange, "it is not UTF-8 at byte 6")):
        with pytest.raises(SystemExit) as left:
            app(["manifest", "check", str(path)])
        assert left.value.code == 2
        assert capsys.readouterr().err == f"error: the file cannot be read: {why}\n  where: {path}\n"
