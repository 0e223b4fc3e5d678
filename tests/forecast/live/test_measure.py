"""`shoal forecast measure` against a real server: what it keeps, what it skips, and what it says when it cannot."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shoal.cli.app import app
from tests.cli.conftest import Shell, eventually

SCRIPT = """
import sys, time
from shoal import train
pace, path = int(sys.argv[1]) / 1000, train.resume_path()
first = int(path.read_text()) if path else 0
for step in range(first + 1, 100_000):
    time.sleep(pace)
    train.report(step, total=100_000, input_wait_s=0.25)
    if train.should_checkpoint(every_s=0.5):
        (path := train.checkpoint_dir() / "step").write_text(str(step))
        train.checkpoint(path, step=step)
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    one = Shell(tmp_path_factory.mktemp("home"))
    one("up", "--port", "0", "--slots", "2", "--detach")
    yield one
    one("down")


def measure(shell: Shell, out: Path, *words: str, line: tuple[str, ...], code: int = 0) -> Result:
    """Options of its own stand before the command line that is measured."""
    told = ["forecast", "measure", "--json", "--home", str(shell.home), "--out", str(out), *words, "--", *line]
    result = CliRunner().invoke(app, told)
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


@pytest.mark.slow
def test_each_setting_is_measured_once_and_kept(shell: Shell, tmp_path: Path) -> None:
    (script := tmp_path / "train.py").write_text(SCRIPT)
    out, line = tmp_path / "profile.json", (sys.executable, str(script), "{batch}")
    words = "--seconds", "3", "--batch", "10", "--beside"
    found = json.loads(measure(shell, out, *words, line=line).stdout)["cells"]
    assert [(one["ranks"], one["batch"]) for one in found] == [(1, 10)]
    (one,) = found
    assert one["step_s"]["median"] >= 0.01
    assert one["step_s"]["low"] < one["step_s"]["median"] < one["step_s"]["high"]
    assert one["startup_s"] > 0
    assert one["leave_s"] > 0
    assert one["restart_s"] > 0
    assert one["input_wait_s"] == pytest.approx(0.25)
    assert one["checkpoint_s"] > 0
    assert 1 <= one["checkpoint_bytes"] <= 6
    assert one["beside_step_s"]["median"] >= 0.01
    assert json.loads(out.read_text())["cells"] == found
    assert json.loads(measure(shell, out, *words, line=line).stdout)["cells"] == found
    assert len(shell.json("jobs", "--all")["jobs"]) == 3
    assert shell.json("forecast", "report", str(out))["profiles"][0]["cells"] == found
    assert "RESTART" in shell("forecast", "report", str(out)).stdout


def test_ctrl_c_ends_the_job_and_keeps_what_was_measured(shell: Shell, tmp_path: Path) -> None:
    (script := tmp_path / "train.py").write_text(SCRIPT)
    words = ["forecast", "measure", "--home", str(shell.home), "--out", str(tmp_path / "p.json"), "--seconds", "600"]
    line = [sys.executable, "-m", "shoal.cli", *words, "--", sys.executable, str(script), "10"]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asking:
        eventually(lambda: any(job["progress"] for job in shell.json("jobs")["jobs"] if job["state"] == "RUNNING"))
        asking.send_signal(signal.SIGINT)
        assert asking.wait(30) == 130
    eventually(shell.at_rest)
    assert shell.json("jobs", "--all")["jobs"][0]["state"] == "CANCELLED"
    assert not (tmp_path / "p.json").exists()


@pytest.mark.slow
def test_wrong_input_is_named(shell: Shell, tmp_path: Path) -> None:
    (out := tmp_path / "profile.json").write_text("[]")
    assert "is no profile of version 1" in shell("forecast", "report", str(out), code=2).stderr
    assert "go together" in measure(shell, out, "--batch", "2", line=("true",), code=2).stderr
    out.write_text(json.dumps({"version": 1, "command": ["other"], "cells": []}))
    assert "another command" in measure(shell, out, line=("true",), code=2).stderr
    out.unlink()
    assert "reported fewer than five times" in measure(shell, out, line=("true",), code=4).stderr
    assert not out.exists()
