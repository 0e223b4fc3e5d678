"""The stages of a pipeline that run elsewhere, as the agent sees them: the process here, its commands over there."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal.shell.agent.joining import Joining
from shoal.shell.pieces import one_status
from shoal.shell.plan import Decision
from shoal.shell.stages import Stage

MOST_SAID = 4096
"""Bytes of errors that are compared between pieces."""


@dataclass
class Relay:
    """One stage: the process that stands in for it here, and its commands over there, one for each piece."""

    stage: Stage
    decision: Decision
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    streams: list[int] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    turn: int = 0
    owed: dict[int, int] = field(default_factory=dict)
    moved: int = 0
    cpu_s: float = 0.0
    changed: dict[str, int | None] = field(default_factory=dict)
    joining: Joining | None = None
    fed: set[int] = field(default_factory=set)
    wrote: set[int] = field(default_factory=set)
    said: dict[int, bytes] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    over: bool = False

    def send(self, kind: bytes, data: bytes = b"") -> None:
        if not self.writer.is_closing():
            self.writer.write(kind + struct.pack("=I", len(data)) + data)

    def came(self, key: int, data: bytes, *, error: bool) -> None:
        """Output of one of its commands."""
        self.moved += len(data)
        if error:
            self.said[key] = (self.said.get(key, b"") + data)[:MOST_SAID]
        else:
            self.wrote.add(key)

    def failed_alike(self) -> bool | None:
        """Whether all pieces failed with the same words and wrote nothing, as where an option is wrong: then one of
        them speaks for all. None while that is open."""
        first = self.streams[0]
        if not self.statuses.get(first) or not self.said.get(first) or self.wrote:
            return False
        if len(self.statuses) < len(self.streams):
            return None
        return len({(self.statuses[key], self.said.get(key)) for key in self.streams}) == 1

    def run_here(self) -> None:
        """The stage becomes the real command."""
        self.over = True
        self.send(b"H")
        self.writer.close()

    def end(self, status: int) -> None:
        self.over = True
        self.send(b"X", struct.pack("=i", status))
        self.writer.close()


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of one stage, for the log."""

    relay: Relay
    where: str
    why: str
    status: int | None
    seconds: float
    kept: int


def united(statuses: Sequence[int], stage: Stage) -> int:
    """The status of a command whose inputs were dealt out."""
    assert stage.match is not None
    return one_status(statuses, finds=stage.match.annotation.finds)
