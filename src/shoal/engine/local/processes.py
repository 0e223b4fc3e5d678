"""Finding a home's processes by their marks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shoal.base.processes import Process, carrying, start_ticks

SUPERVISOR_MARK = "SHOAL_SUPERVISOR"


@dataclass(frozen=True, slots=True)
class Marked:
    """A process that carries the marks of a home's gang in its environment."""

    process: Process
    gang: str
    rank: int
    supervisor: bool


def marked(home: Path, *, proc: Path = Path("/proc")) -> list[Marked]:
    """All living processes (of users we may inspect) that a supervisor of this home started, and the supervisors."""
    found = []
    for pid, values in carrying([b"SHOAL_HOME=" + os.fsencode(home)], proc=proc):
        gang, rank = os.fsdecode(values.get(b"SHOAL_GANG", b"")), values.get(b"SHOAL_RANK", b"")
        start = start_ticks(pid)
        if gang and rank.isdigit() and start is not None:
            found.append(Marked(Process(pid, start), gang, int(rank), SUPERVISOR_MARK.encode() in values))
    return found
