"""Whether another command may still come to a pipe, told from what real processes do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shoal.shell.agent.neighbours import may_come, parent_of
from tests.shell.test_faults import wait_until

STARTS = "child = subprocess.Popen(['sleep', '60'], stdout=subprocess.PIPE, stderr=subprocess.PIPE); print(child.pid, flush=True)"  # noqa: E501


@pytest.mark.parametrize(
    ("then", "comes"),
    [
        ("child.communicate()", False),
        ("child.stdout.read()", False),
        ("import asyncio; asyncio.run(asyncio.sleep(60))", False),
        ("import threading; t = threading.Thread(target=child.wait); t.start(); t.join()", False),
        ("sum(iter(int, 1))", True),
        ("import threading, time; threading.Thread(target=lambda: sum(iter(int, 1))).start(); time.sleep(60)", True),
    ],
)
def test_a_program_that_waits_starts_no_more_commands(then: str, comes: bool) -> None:
    program = [sys.executable, "-I", "-S", "-c", f"import subprocess; {STARTS}; {then}"]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            assert parent_of(pid) == parent.pid
            inode = Path(f"/proc/{pid}/fd/1").stat().st_ino
            wait_until(lambda: may_come(inode, pid, parent.pid, "/no/stage") is comes)
        finally:
            subprocess.run(["kill", "-9", str(pid), str(parent.pid)], check=False)
