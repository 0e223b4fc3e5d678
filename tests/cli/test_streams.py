"""Commands whose output has nowhere to go, or to an encoding that lacks its characters, as a shell starts them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Shell


def run(shell: Shell, line: str, **env: str) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -m shoal.cli"
    return subprocess.run(
        ["bash", "-c", line.replace("shoal", program, 1)], env={**os.environ, "SHOAL_HOME": str(shell.home), **env},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_output_to_a_full_disk_is_an_error_in_one_block(shell: Shell) -> None:
    for line in ("shoal nodes > /dev/full", "shoal nodes --json > /dev/full"):
        ended = run(shell, line)
        assert ended.returncode == 1
        assert "No space left on device" in ended.stderr
        assert "standard output" in ended.stderr
        assert "Traceback" not in ended.stderr


def test_closed_output_goes_nowhere_and_the_command_succeeds(shell: Shell, tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text("name: silent\ncommand: [echo, hello]\n")
    for line in ("shoal nodes >&-", f"shoal run {manifest} >&-"):
        ended = run(shell, line)
        assert ended.returncode == 0, ended.stderr


def test_characters_that_the_encoding_lacks_become_question_marks(shell: Shell) -> None:
    ended = run(shell, "shoal nodes", PYTHONIOENCODING="ascii")
    assert ended.returncode == 0, ended.stderr
    assert "?" in ended.stdout


def test_a_narrow_terminal_has_the_columns_that_matter(shell: Shell, tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text("name: narrow\ncommand: [no-such-program-of-a-long-name]\n")
    shell("run", str(manifest), code=1)
    master, slave = pty.openpty()
    env = {**os.environ, "SHOAL_HOME": str(shell.home), "COLUMNS": "60", "NO_COLOR": "1", "TERM": "dumb"}
    words = [sys.executable, "-m", "shoal.cli", "jobs", "-n", "1"]
    with subprocess.Popen(words, stdout=slave, env=env) as process:
        assert process.wait() == 0
    os.close(slave)
    told = os.read(master, 65536).decode()
    os.close(master)
    header, job = told.splitlines()[:2]
    assert {"JOB", "NAME", "STATE", "WHY"} <= set(header.split())
    assert "CLASS" not in header
    assert {"narrow", "FAILED"} <= set(job.split())
    assert "long-name" not in job


def test_control_sequences_of_a_log_are_shown_on_a_terminal_and_kept_in_a_pipe(shell: Shell, tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text("name: escapes\ncommand: [printf, '\\033]0;owned\\007\\033[31mred\\n']\n")
    shell("run", str(manifest))
    raw = b"\x1b]0;owned\x07\x1b[31mred\n"
    env = {**os.environ, "SHOAL_HOME": str(shell.home)}
    words = [sys.executable, "-m", "shoal.cli", "logs", "escapes"]
    assert subprocess.run(words, env=env, capture_output=True, check=True).stdout == raw

    def on_terminal(*more: str) -> bytes:
        master, slave = pty.openpty()
        with subprocess.Popen([*words, *more], stdout=slave, env=env) as process:
            assert process.wait() == 0
        os.close(slave)
        told = os.read(master, 65536)
        os.close(master)
        return told.replace(b"\r\n", b"\n")

    assert on_terminal() == b"^[]0;owned^G\x1b[31mred\n\x1b[0m"
    assert on_terminal("--raw") == raw
