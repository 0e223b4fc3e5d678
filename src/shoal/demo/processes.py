"""Finds every process that belongs to one Shoal home, without asking Shoal: by the mark in its environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shoal.base.processes import Process, carrying, kill_until_none, start_ticks


@dataclass(frozen=True, slots=True)
class Found:
    """A process of the home; `job` is empty for the server itself."""

    pid: int
    job: str
    supervisor: bool


def processes_of(home: Path, *, proc: Path = Path("/proc")) -> list[Found]:
    """Server, supervisors and ranks of this home that are alive now."""
    return [
        Found(pid, values.get(b"SHOAL_GANG", b"").decode().partition(".")[0], b"SHOAL_SUPERVISOR" in values)
        for pid, values in carrying([b"SHOAL_HOME=" + os.fsencode(home)], proc=proc)
    ]


def end_all(home: Path, *, patience_s: float = 5.0) -> list[Found]:
    """Kill what is left of this home; returns what had to be killed."""
    killed = processes_of(home)
    kill_until_none(
        lambda: [Process(one.pid, start) for one in processes_of(home) if (start := start_ticks(one.pid)) is not None],
        timeout_s=patience_s,
    )
    return killed
