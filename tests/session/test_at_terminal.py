"""A person at a terminal: sizes, keys, leaving, coming back, and a server that is killed meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from shoal.base.home import read_server, running_server
from shoal.contract.lifecycle import JobState
from shoal.control.server import start_detached
from tests.servers import kill_for_good

from .conftest import Running
from .keyboard import Keyboard
from .talk import eventually

SHELL = ("sh", "-c", 'PS1="$ " exec sh -i')


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_terminal_outlives_its_person_and_its_server(server: Running, opened: ExitStack) -> None:
    one = opened.enter_context(closing(Keyboard(server.home.path, "run", "--pty", "--cpus", "0.1", "--", *SHELL)))
    job = one.until(rb"(j-\w+)")[1].decode()
    one.until(rb"\$ ")
    one.type(b"stty size; echo TERM=$TERM\r")
    one.until(rb"30 100")
    one.until(rb"TERM=xterm")
    one.resize(44, 123)
    one.type(b"while [ \"$(stty size)\" != '44 123' ]; do :; done; echo re''-sized\r")
    one.until(rb"re-sized\r")
    one.type(b"sh -c 'echo sleep''ing; exec sleep 1000'\r")  # speaks when the terminal is its own
    one.until(rb"sleeping\r\n")
    one.type(b"\x03")
    one.type(b"echo code=$?; KEPT=kept\r")
    one.until(rb"code=130\r")
    one.type(b"\r~d")
    one.until(rb"detached")
    assert one.code() == 0
    assert server.client.job(job).state is JobState.RUNNING

    two = opened.enter_context(closing(Keyboard(server.home.path, "attach", job)))
    two.until(rb"code=130")  # what was written before
    two.type(b"echo still-$KEPT\r")
    two.until(rb"still-kept\r")

    known = read_server(server.home)
    assert known is not None
    os.kill(known.pid, signal.SIGKILL)  # its parent starts it again at once
    eventually(lambda: not known.alive() and running_server(server.home) is not None)
    two.type(b"echo soon-$((40 + 2))\r")
    two.until(rb"soon-42")
    port = known.url.rpartition(":")[2]
    kill_for_good(server.home)
    two.until(rb"connection is lost")
    two.type(b"echo while-away\r")
    start_detached(["--home", str(server.home.path), "--port", port, "--slots", "4"], server.home)
    two.until(rb"connected again")
    two.until(rb"while-away[\s$]+while-away")
    assert b"missed" not in two.seen
    two.type(b"exit 9\r")
    assert two.code() == 9
    assert server.client.wait(job).attempts[-1].ranks[0]["exit_code"] == 9


def test_a_command_that_ends_at_once_says_all(server: Running, opened: ExitStack) -> None:
    one = opened.enter_context(
        closing(Keyboard(server.home.path, "run", "--pty", "--cpus", "0.1", "--", "sh", "-c", "echo all-said; exit 3"))
    )
    one.until(rb"all-said\r\n")
    assert one.code() == 3


COUNTED = """
import sys
from shoal.cli import main
try:
    main()
finally:
    print("loaded", *sorted({"httpx", "pydantic", "yaml", "rich", "shoal.sdk.client"} & set(sys.modules)), "end")
"""


def test_a_short_session_loads_no_library_that_takes_longer_than_it(server: Running, opened: ExitStack) -> None:
    words = ("run", "--pty", "--cpus", "0.1", "--memory", "64MiB", "--", "sh", "-c", "echo said")
    one = opened.enter_context(closing(Keyboard(server.home.path, *words, program=("-c", COUNTED))))
    one.until(rb"said\r\n")
    assert one.until(rb"loaded(.*)end")[1].split() == []
    assert one.code() == 0
    missing = opened.enter_context(closing(Keyboard(server.home.path, *words[:3], "many", *words[4:])))
    missing.until(rb"invalid value for '--cpus'")
    refused = opened.enter_context(closing(Keyboard(server.home.path, *words[:5], "1EiB", *words[6:])))
    refused.until(rb"error: ")
    assert refused.code() != 0
