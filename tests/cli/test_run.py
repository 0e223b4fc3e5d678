"""`shoal run COMMAND...`: a command line as a job."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shoal.cli import commandline, stdin
from shoal.cli.app import app
from shoal.core import Invalid
from tests.cli.conftest import Shell


def typed(shell: Shell, folder: Path, *words: str, code: int = 0, **given: Any) -> subprocess.CompletedProcess[str]:
    """`shoal run` as a person types it in a folder. Standard input is empty unless given."""
    env = {**os.environ, "SHOAL_HOME": str(shell.home), **given.pop("env", {})}
    given = given if "input" in given else {"stdin": subprocess.DEVNULL, **given}
    done = subprocess.run(
        [sys.executable, "-m", "shoal.cli", "run", *words], cwd=folder, env=env, capture_output=True, text=True,
        timeout=120, check=False, **given,
    )  # fmt: skip
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done


def test_a_program_and_its_words_are_a_job_without_accelerators(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, sys; print(os.getcwd(), sys.argv[1:], os.environ.get('LR'))")
    done = typed(shell, tmp_path, "python3", "train.py", "--lr", "1", env={"LR": "0.5"})
    assert done.stdout == f"{tmp_path} ['--lr', '1'] None\n"
    job = shell.json("show", "train")
    assert job["manifest"]["resources"]["accelerators"]["count"] == 0
    assert typed(shell, tmp_path, "--", "python3", "train.py", "--", "x").stdout == f"{tmp_path} ['--', 'x'] None\n"


def test_options_before_the_program_are_the_jobs(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "vars").write_text("# a comment\n\nA=1=2\nexport B=3\nLR\n")
    done = typed(
        shell, tmp_path, "--name", "named", "--cpus", "0.5", "--memory", "200MiB", "--max-runtime", "1h",
        "--accelerators", "1", "--class", "guaranteed", "--env-file", "vars", "-e", "B=4", "--env", "KEY", "--json",
        "sh", "-c", "echo $A $B $LR $KEY",
        env={"LR": "0.5", "KEY": "k"},
    )  # fmt: skip
    assert done.stderr.splitlines()[1] == "1=2 4 0.5 k"
    job = json.loads(done.stdout)
    asked = job["manifest"]["resources"]
    assert (job["name"], job["priority_class"], job["manifest"]["max_runtime"]) == ("named", "guaranteed", 3600)
    assert (asked["cpus"], asked["memory"]) == (0.5, 200 << 20)
    assert asked["accelerators"] == {"type": "any", "count": 1, "share": "exclusive"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--env", "NOT_SET_HERE", "true"), "NOT_SET_HERE is not set in this shell"),
        (("--env", "a b=1", "true"), "'a b' is no name of a variable"),
        (("--env-file", "bad", "true"), "bad:2"),
        (("--memory", "lots", "true"), "where: --memory"),
        (("--max-runtime", "soon", "true"), "where: --max-runtime"),
        (("--accelerators", "a100:x", "true"), "'a100:x' is no number of accelerators"),
        (("--accelerators", "0", "--device-memory", "1GiB", "true"), "where: --device-memory"),
        (("--local", "--memory", "1GiB", "true"), "a limit for a device's memory is --device-memory"),
        (("train.py",), "to run it as a job: `shoal run python3 train.py`"),
        (("go.sh",), "to run it as a job: `shoal run ./go.sh`"),
        (("pyton", "train.py"), "there is neither a manifest nor a program 'pyton' here"),
        (("true", ), "'true' may be a manifest or a program"),
        (("no.yaml",), "the manifest cannot be read"),
        (("a.yaml", "b.yaml"), "run takes one job"),
        (("-f", "a.yaml", "--", "echo"), "there are a manifest and a command line"),
        (("--lin", "true"), "--lin"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_what_to_type(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], text: str
) -> None:
    (tmp_path / "bad").write_text("A=1\n=2\n")
    (tmp_path / "train.py").write_text("import os\nx: int = 3\n")
    (tmp_path / "go.sh").write_text("#!/bin/sh\necho\n")
    (tmp_path / "go.sh").chmod(0o755)
    if words == ("true",):
        (tmp_path / "true").write_text("echo\n")
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, ["run", *words], env={"SHOAL_HOME": str(shell.home)})
    assert told.exit_code == 2
    assert text in told.stderr
    assert "--line" not in told.stderr


def test_a_manifest_needs_no_suffix_and_options_may_follow_it(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "job").write_text("# mine\nname: plain\ncommand: [echo, hello]\n")
    assert typed(shell, tmp_path, "job", "--key", "plain-1").stdout == "hello\n"
    (tmp_path / "mine.sh").write_text("#!/bin/sh\necho from $1\n")
    (tmp_path / "mine.sh").chmod(0o755)
    assert typed(shell, tmp_path, "./mine.sh", "here").stdout == "from here\n"


def test_a_pipe_or_file_is_passed_as_standard_input(shell: Shell, tmp_path: Path) -> None:
    assert typed(shell, tmp_path, "cat", input="one\ntwo\n").stdout == "one\ntwo\n"
    assert typed(shell, tmp_path, "sh", input="echo from a script\npwd\n").stdout == f"from a script\n{tmp_path}\n"
    assert typed(shell, tmp_path, "--no-stdin", "cat", input="unread").stdout == ""
    assert typed(shell, tmp_path, "cat", input="").stdout == ""
    with (tmp_path / "file").open("w+") as file:
        file.write("from a file")
        file.flush()
        file.seek(0)
        assert typed(shell, tmp_path, "cat", stdin=file).stdout == "from a file"
    told = typed(shell, tmp_path, "cat", input="x" * (stdin.MOST_BYTES + 1), code=2).stderr
    assert "standard input is over 16 MiB" in told


def test_what_is_piped_to_the_job_of_a_manifest_is_not_dropped_silently(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: deaf\ncommand: [cat]\n")
    reader, writer = os.pipe()
    os.write(writer, b"hello")
    try:
        told = typed(shell, tmp_path, "job.yaml", stdin=reader).stderr
    finally:
        os.close(reader)
        os.close(writer)
    assert "the job of a manifest has no standard input" in told
    assert "standard input" not in typed(shell, tmp_path, "job.yaml").stderr


def test_a_program_that_would_talk_to_a_person_is_refused_on_a_terminal(shell: Shell, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        told = typed(shell, tmp_path, "bash", stdin=theirs, code=2).stderr
        assert "standard input is a terminal, and a job has none" in told
        assert typed(shell, tmp_path, "bash", "-c", "echo fine", stdin=theirs).stdout == "fine\n"
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_manifest_is_warned_of_where_it_is_submitted_and_checked(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')")
    path = tmp_path / "job.yaml"
    path.write_text('name: warned\ncommand: "python3 train.py $HOME"\n')
    for words in (("manifest", "check"), ("manifest", "check", "--offline"), ("submit",)):
        told = shell(*words, str(path))
        assert "warning: " in told.stdout + told.stderr
        assert "the command names train.py" in told.stdout + told.stderr
        assert "`$HOME`" in told.stdout + told.stderr
    assert len(shell.json("manifest", "check", str(path))["warnings"]) == 2
    shell("wait", "warned", code=1)
    path.write_text("name: fine\ncommand: [python3, train.py]\nfiles: [train.py]\n")
    assert shell("run", str(path)).stderr.count("warning") == 0
    assert shell.json("manifest", "check", str(path), "--offline")["warnings"] == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python3 train.py", "train"),
        ("python3 -u -m pkg.train", "train"),
        ("python3.11 -c print(1)", "python3-11"),
        ("sleep 1", "sleep"),
        ("/usr/bin/env A=1 python3 src/My_Net.py x.py", "my-net"),
        ("torchrun --nproc 2 train.py", "train"),
        ("bash -c train.py", "bash"),
        ("grep foo train.py", "grep"),
        ("./run.sh", "run"),
        ("___", "command"),
        ("a" * 60, "a" * 48),
    ],
)
def test_a_job_is_named_after_its_program(line: str, name: str) -> None:
    assert commandline.name_of(line.split()) == name


@pytest.mark.parametrize(("line", "refused"), [("python3", True), ("python3 -i x.py", True), ("python3 x.py", False),
                                               ("cat", False)])  # fmt: skip
def test_only_a_program_without_words_talks_to_a_person(line: str, refused: bool) -> None:
    if not refused:
        commandline.check_terminal(line.split())
        return
    with pytest.raises(Invalid):
        commandline.check_terminal(line.split())


def test_what_was_typed_is_found_again_in_the_jobs_command() -> None:
    for reads in (False, True):
        made = commandline.CommandOptions().manifest(["python3", "train.py"], Path("/w"), {}, reads=reads)
        assert commandline.unwrapped(made["command"]) == (["python3", "train.py"], "/w")
    assert commandline.unwrapped(["sh", "-c", "x"]) == (["sh", "-c", "x"], None)
