"""Finds every process that belongs to one Shoal home, without asking Shoal: by the mark in its environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Found:
    """A process of the home; `job` is empty for the server itself."""

    pid: int
    job: str
    supervisor: bool


def processes_of(home: Path, *, proc: Path = Path("/proc")) -> list[Found]:
    """Server, supervisors and ranks of this home that are alive now."""
    mark = f"SHOAL_HOME={home}".encode()
    found = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # it ended meanwhile, or belongs to another user
            continue
        if mark in variables:
            gang = next((v[11:].decode() for v in variables if v.startswith(b"SHOAL_GANG=")), "")
            supervisor = any(v.startswith(b"SHOAL_SUPERVISOR") for v in variables)
            found.append(Found(int(entry.name), gang.partition(".")[0], supervisor))
    return found


def end_all(home: Path, *, patience_s: float = 5.0) -> list[Found]:
    """Kill what is left of this home; returns what had to be killed."""
    killed = processes_of(home)
    give_up_at = time.monotonic() + patience_s
    while (left := processes_of(home)) and time.monotonic() < give_up_at:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.05)
    return killed
