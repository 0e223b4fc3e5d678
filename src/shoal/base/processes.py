"""Processes: how one is known for certain, and how one is started that outlives its starter."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from shoal.core import Unavailable


def start_ticks(pid: int, *, proc: Path = Path("/proc")) -> int | None:
    """When the process started, in clock ticks since boot; None when there is none (zombies are none). With the pid it
    names a process for certain: a pid alone may be another's by now."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def send_signal(pid: int, started: int, signum: signal.Signals) -> None:
    """To exactly this process; nothing where it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if start_ticks(pid) == started:
            signal.pidfd_send_signal(descriptor, signum)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def start_detached(
    command: Sequence[str], log_file: Path, *, what: str, drop: Sequence[str] = ("SHOAL_TOKEN",)
) -> subprocess.Popen[bytes]:
    """In a session of its own, so that it outlives its starter and what ends that; its output is appended to a file.
    `drop` names variables that it does not inherit. Raises Unavailable, calling it `what`."""
    environment = {name: value for name, value in os.environ.items() if name not in drop}
    try:
        with log_file.open("ab") as output:
            log_file.chmod(0o600)
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                cwd=log_file.parent, env=environment,
            )  # fmt: skip
    except OSError as error:
        raise Unavailable(f"the {what} cannot be started: {error.strerror}", where=str(log_file)) from error
