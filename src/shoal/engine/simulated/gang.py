"""One gang of a simulated cluster: its state, and what its ranks have written so far."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import PurePosixPath

from shoal.core import Fault, NotFound, Reason
from shoal.engine.protocol import Exit, Gang, GangStatus, LaunchFailed, LogChunk, LogTimes, Phase, RankStatus
from shoal.engine.simulated.script import Line, Script


class Link:
    """One engine's connection to the cluster; a dead server's is no longer alive."""

    def __init__(self) -> None:
        self.alive = True


class SimulatedGang:
    """Mutable state behind a `GangStatus`. Times are the agenda's (monotonic) unless named `wall`."""

    __slots__ = (
        "_status", "asked_to_stop", "ended", "failure", "phase", "ranks", "ready", "reason", "running_at", "script",
        "spec", "waiters",
    )  # fmt: skip

    def __init__(self, spec: Gang, script: Script, *, queued: bool = False) -> None:
        self.spec = spec
        self.script = script
        self.phase = Phase.QUEUED if queued else Phase.STARTING
        self.ready = False
        self.asked_to_stop = False
        self.reason: Reason | None = None
        self.failure: Fault | None = None
        self.running_at: float | None = None
        self.ended: dict[int, float] = {}
        self.ranks = {r.rank: RankStatus(r.rank, self.phase, "" if queued else r.node) for r in spec.ranks}
        self.waiters: list[tuple[Link, asyncio.Future[None]]] = []
        self._status: GangStatus | None = None

    @property
    def status(self) -> GangStatus:
        if self._status is None:
            ranks = tuple(self.ranks.values())
            self._status = GangStatus(self.spec.name, self.phase, ranks, self.reason, self.failure)
        return self._status

    def wait(self, reason: Reason) -> bool:
        """Queued, it waits for this; whether that is news."""
        news = self.reason is None or self.reason.text != reason.text
        self.reason, self._status = reason, None
        return news

    def start(self, placed: Gang) -> None:
        """The cluster picked machines for it."""
        self.spec, self.phase, self.reason, self._status = placed, Phase.STARTING, None, None
        self.ranks = {rank.rank: RankStatus(rank.rank, Phase.STARTING, rank.node) for rank in placed.ranks}

    def by_script(self) -> list[tuple[Script, tuple[int, ...]]]:
        """The live ranks, those of one script together."""
        groups: dict[int, tuple[Script, tuple[int, ...]]] = {}
        for number in self.live_ranks():
            script = self.script.of(number)
            _, before = groups.get(id(script), (script, ()))
            groups[id(script)] = (script, (*before, number))
        return list(groups.values())

    def live_ranks(self) -> list[int]:
        return [number for number, rank in self.ranks.items() if rank.phase is not Phase.ENDED]

    def let_go(self, *, at: float, wall: float, first_pid: int) -> None:
        self.phase, self.running_at, self._status = Phase.RUNNING, at, None
        for pid, (number, rank) in enumerate(self.ranks.items(), first_pid):
            self.ranks[number] = RankStatus(number, Phase.RUNNING, rank.node, pid, wall)

    def ask_to_stop(self, reason: Reason) -> None:
        """The first reason stays."""
        if self.phase is not Phase.ENDED:
            self.asked_to_stop, self.reason, self._status = True, self.reason or reason, None

    def end_rank(self, number: int, exit: Exit, *, at: float, wall: float) -> None:
        self._status = None
        self.ended[number] = at
        answers = self.script.of(number).answers or exit.code is None
        exit = replace(exit, stopped=self.asked_to_stop and answers)
        rank = self.ranks[number]
        self.ranks[number] = RankStatus(number, Phase.ENDED, rank.node, rank.pid, rank.started_at, wall, exit)

    def close(self) -> None:
        self.phase, self._status = Phase.ENDED, None

    def raise_failure(self) -> None:
        """Raise LaunchFailed if the launch was rolled back."""
        if self.failure is not None and self.reason is not None:
            raise LaunchFailed(self.reason.text, fault=self.failure, where=self.spec.name)

    def read(self, number: int, stream: str, offset: int, limit: int, *, now: float) -> LogChunk:
        self._check_rank(number)
        _check_stream(stream)
        written = self._written(number, stream, now)
        offset = offset if offset >= 0 else max(0, len(written) + offset)
        data = written[offset : offset + limit]
        following = offset + len(data)
        return LogChunk(data, offset, following, ended=number in self.ended and following >= len(written))

    def log_times(self, number: int, *, now: float) -> LogTimes:
        self._check_rank(number)
        times, size = [], 0
        for line in self._lines(number, "log", now):
            size += len(f"{line.text}\n".encode())
            times.append((size, (self.ranks[number].started_at or 0.0) + line.at_s))
        return tuple(times)

    def _check_rank(self, number: int) -> None:
        if number not in self.ranks:
            raise NotFound(f"gang {self.spec.name} has no rank {number}")

    def _written(self, number: int, stream: str, now: float) -> bytes:
        return "".join(f"{line.text}\n" for line in self._lines(number, stream, now)).encode()

    def _lines(self, number: int, stream: str, now: float) -> list[Line]:
        if self.running_at is None:
            return []
        age_s = self.ended.get(number, now) - self.running_at
        return [line for line in self.script.of(number).lines if line.at_s <= age_s and line.stream == stream]


def _check_stream(stream: str) -> None:
    kind, _, path = stream.partition(":")
    inside = path and not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts
    if stream not in ("log", "metrics") and not (kind == "file" and inside):
        raise NotFound(f"there is no stream {stream!r}", hint="log, metrics or file:PATH inside the run directory")
