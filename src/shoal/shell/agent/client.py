"""Client of the agent, for the command line."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.base.home import prepare_home
from shoal.base.locks import is_locked
from shoal.base.processes import start_detached
from shoal.core import ShoalError, Unavailable
from shoal.shell import sockets
from shoal.shell.sites import shell_folder
from shoal.shell.table import BUILD_IT, NATIVE, missing_native

DRY = "plan-"
"""How the name of a run begins whose stages only register and end."""
START_S = 20.0


def connect(home: Path) -> socket.socket | None:
    """To the agent of this home; None where none runs."""
    try:
        return sockets.connect(shell_folder(home) / "agent.sock")
    except OSError:
        return None


def ask(home: Path, **told: Any) -> Mapping[str, Any] | None:
    """The agent's answer; None where none runs. Raises ShoalError with what it says is wrong."""
    link = connect(home)
    if link is None:
        return None
    with link:
        body = json.dumps(told).encode()
        link.sendall(b"J" + struct.pack("=I", len(body)) + body)
        answer = b""
        while part := link.recv(1 << 16):
            answer += part
    if len(answer) < 4:
        return None
    found: Mapping[str, Any] = json.loads(answer[4:])
    if "error" in found:
        raise ShoalError(found["error"])
    return found


def stop(home: Path) -> bool:
    """End the agent and wait until it is gone; False where none runs. Raises Unavailable."""
    if ask(home, do="stop") is None:
        return False
    until = time.monotonic() + START_S
    while is_locked(shell_folder(home) / "agent.lock"):
        if time.monotonic() > until:
            raise Unavailable(
                f"the agent is still there after {START_S:g} s", where=str(shell_folder(home) / "agent.log")
            )
        time.sleep(0.02)
    return True


def ensure_running(home: Path) -> None:
    """Start the agent unless it runs. Raises Unavailable."""
    if (link := connect(home)) is not None:
        link.close()
        return
    if missing := missing_native():
        raise Unavailable(f"the native part {missing} was not built", where=str(NATIVE), hint=BUILD_IT)
    prepare_home(home)
    folder = shell_folder(home)
    folder.mkdir(exist_ok=True, mode=0o700)
    log_file = folder / "agent.log"
    process = start_detached(
        [sys.executable, "-m", "shoal.shell.agent", "--home", str(home), "--serve"], log_file, what="agent",
        drop=("SHOAL_TOKEN", "LD_PRELOAD"),
    )  # fmt: skip
    _await_start(home, process, log_file)


def _await_start(home: Path, process: subprocess.Popen[bytes], log_file: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if ask(home, do="status") is not None:
            return
        if process.poll() not in (None, 0):
            lines = log_file.read_text(errors="replace").strip().splitlines()
            raise Unavailable(f"the agent ended: {lines[-1] if lines else 'it says nothing'}", where=str(log_file))
        time.sleep(0.02)
    raise Unavailable(f"the agent did not start within {START_S:g} s", where=str(log_file))
