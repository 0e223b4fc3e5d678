"""The command lines of agents. Pure."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from shoal.session.live.settings import SessionSection

MAIN = "main"
"""The session that is the job's own command."""
_PYTHON = os.path.realpath(sys.executable)
"""The interpreter itself: one of a virtual environment first looks for that."""
_AGENT = Path(__file__).parent.with_name("agent.py")


_SSHD = _AGENT.with_name("sshd.py")


def sshd_words(key: str) -> tuple[str, ...]:
    """What becomes an OpenSSH server for one connection, whose shells are started by the words after it."""
    return (_PYTHON, "-I", "-S", str(_SSHD), key)


def shorter(most: float, wanted: float | None) -> int:
    """A limit in whole seconds, where 0 is none."""
    limits = [limit for limit in (most, wanted) if limit]
    return max(1, round(min(limits))) if limits else 0


def agent_words(
    session: str, settings: SessionSection, *, main: bool = False, terminal: bool = True,
    rows: int = 24, columns: int = 80, idle: float | None = None, time: float | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """What runs the command after it in a session."""
    options = {
        "id": session, "main": int(main), "pty": int(terminal), "rows": rows, "cols": columns,
        "idle": shorter(settings.idle, idle), "time": shorter(settings.time, time),
        "linger": max(1, round(settings.linger)),
    }  # fmt: skip
    text = ",".join(f"{name}={value}" for name, value in options.items())
    return (_PYTHON, "-I", "-S", str(_AGENT), text, "--")
