"""Tables on a terminal of 80 columns: no wrapped row, and what matters is there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable

import pytest

from shoal.base.console.fitting import GAP
from shoal.cli import views
from tests.cli.conftest import Shell, eventually

FOREVER = "import time\nprint('up')\nwhile True: time.sleep(1)"


def on_terminal(shell: Shell, *words: str, until: str | None = None) -> list[str]:
    """What a command shows on 80 columns; one that goes on is ended once it has shown `until`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    run = subprocess.Popen(
        [sys.executable, "-m", "shoal.cli", *words, "--home", str(shell.home)], env={**env, "TERM": "xterm"},
        stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
    )  # fmt: skip
    os.close(theirs)
    shown = ""
    try:
        while data := os.read(ours, 65536):
            shown += data.decode(errors="replace")
            if until is not None and until in shown:
                run.kill()
    except OSError:  # the other side is closed
        pass
    finally:
        run.kill()
        run.wait()
        os.close(ours)
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "").split("\n")]


@pytest.fixture
def long(shell: Shell, manifest: Callable[..., str]) -> Callable[[], None]:
    name = "resnet50-imagenet-lr-0001-batch-256-seed-7"
    shell("submit", manifest(FOREVER, name, resources={"cpus": 0, "memory": "64MiB"}))
    shell("submit", manifest(FOREVER, f"{name}-wide", resources={"accelerators": "a100:64"}))
    eventually(lambda: all(job["reason"] for job in shell.json("jobs")["jobs"] if job["name"] == f"{name}-wide"))
    return lambda: shell("cancel", f"{name}*", "--yes")


def test_jobs_fit_with_their_state_and_why(shell: Shell, long: Callable[[], None]) -> None:
    try:
        head, *rows = [line for line in on_terminal(shell, "jobs") if line]
        assert head.split()[:2] == ["JOB", "NAME"]
        assert {"STATE", "WHY"} <= set(head.split())
        assert max(map(len, [head, *rows])) <= 80
        assert all(row.startswith("j-") for row in rows if "--before" not in row)
        (wide,) = [row for row in rows if "QUEUED" in row and "…" in row]
        assert "-wide" in wide
        assert "a100" in wide
    finally:
        long()


def test_top_shows_state_and_why(shell: Shell, long: Callable[[], None]) -> None:
    try:
        shown = on_terminal(shell, "top", "--plain", until="QUEUED")
        assert max(map(len, shown)) <= 80
        (head,) = [line for line in shown if line.startswith("JOB ")][:1]
        assert {"STATE", "WHY"} <= set(head.split())
        assert any("QUEUED" in line and "a100" in line for line in shown)
    finally:
        long()


def test_the_columns_that_go_are_those_of_the_page() -> None:
    columns = {"job", "name", "tenant", "state", "class", "needs", "try", "waited", "ran", "progress", "why"}
    assert columns - set(views.DROPPED) == {"job", "name", "state", "why"}
    least = len("j-0123456789ab") + 12 + len("CHECKPOINTING") + 24 + 3 * GAP
    assert least <= 80
