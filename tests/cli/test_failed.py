"""A failed job says what it ran, where, what it wrote last and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.cli.details import CAUSES, REMEDIES
from shoal.contract.lifecycle import ErrorCode
from shoal.core import Fault
from tests.cli.conftest import Shell

Write = Callable[..., str]


def test_show_and_explain_have_all_that_is_needed_to_mend_it(shell: Shell, manifest: Write) -> None:
    code = "for n in range(30): print('line', n)\nprint('old\\rnew \\x1b]0;title\\x07')\nraise SystemExit(3)"
    job = shell.json("run", manifest(code, "broken"), code=1)
    for verb in ("show", "explain"):
        told = shell(verb, job["id"]).stdout
        assert "command    python3 -u -c 'for n in range(30): print('\"'\"'line'\"'\"', n)\\nprint" in told
        assert f"directory  {shell.home}/runs/{job['id']}/1\n" in told
        assert "last lines of its log:\n  line 21\n" in told
        assert "\n  new ^[]0;title^G\n" in told
        assert "what to do  see what the program wrote last" in told
        assert f"shoal logs {job['id']}\n" in told
        assert "fault" not in told.replace("default", "")
    assert "U101-exit-code, caused by the job itself" in shell("show", job["id"]).stdout
    assert shell.json("show", job["id"])["run_dir"] == f"runs/{job['id']}/1"


def test_the_rank_that_failed_is_the_one_that_is_shown(shell: Shell, manifest: Write) -> None:
    code = "import os, sys\nprint('I am', os.environ['RANK'])\nsys.exit(int(os.environ['RANK']) * 4)"
    job = shell.json("run", manifest(code, "half", ranks=2, resources={"cpus": 0, "memory": "64MiB"}), code=1)
    told = shell("explain", job["id"]).stdout
    assert "last lines of its log (rank 1):\n  I am 1\n" in told
    assert f"shoal logs {job['id']} --rank 1\n" in told


def test_a_command_line_is_shown_as_it_was_typed(shell: Shell, tmp_path: Path) -> None:
    env = {**os.environ, "SHOAL_HOME": str(shell.home)}
    words = [sys.executable, "-m", "shoal.cli", "run", "--name", "typed", "no-such-program-either"]
    words.insert(-1, "--")
    subprocess.run(words, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    told = shell("show", "typed").stdout
    assert f"command    no-such-program-either\ndirectory  {tmp_path}\n" in told


def test_a_job_that_did_not_fail_has_no_last_words(shell: Shell, manifest: Write) -> None:
    job = shell.json("run", manifest("print('hello')", "well"))
    told = shell("show", job["id"]).stdout + shell("explain", job["id"]).stdout
    assert "what to do" not in told
    assert "last lines" not in told
    assert "command    python3 -u -c 'print('\"'\"'hello" in told


def test_each_failure_has_a_remedy_and_a_cause() -> None:
    assert set(REMEDIES) == set(ErrorCode)
    assert set(CAUSES) == set(Fault)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "small"
    home.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(home)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield home
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_a_full_disk_is_told_by_run_submit_and_status(small_disk: Path, manifest: Write) -> None:
    shell = Shell(small_disk / "home")
    shell("up", "--port", "0", "--slots", "1", "--detach")
    ballast = small_disk / "ballast"
    go = small_disk / "go"
    waits = manifest(f"import os, time\nprint('up')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)", "waits")
    env = {**os.environ, "SHOAL_HOME": str(shell.home)}
    run = subprocess.Popen(
        [sys.executable, "-m", "shoal.cli", "run", waits], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.readline() == "up\n"
        with pytest.raises(OSError, match="No space left"):
            fill(ballast)
        run.stderr.readline()
        assert "the server cannot go on: the disk is full" in run.stderr.readline()
        status = shell("status", code=4)
        assert "no: the disk is full" in status.stdout
        assert not shell.json("status", code=4)["ready"]
        for words in (("submit", waits), ("run", waits)):
            told = shell(*words, code=4).stderr
            assert "error: the disk is full" in told
            assert "hint: free some space" in told
        ballast.unlink()
        go.touch()
        assert run.wait(60) == 0
        assert shell.json("status")["ready"]
    finally:
        ballast.unlink(missing_ok=True)
        go.touch()
        run.communicate()
        shell("down", "--stop-jobs")
