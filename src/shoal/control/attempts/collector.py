"""Collects what jobs report while they run: by training hooks, a JSON-lines file, or patterns in the log.

Reports are hints for progress displays, estimated ends and the choice of victims; losing a second of them in a crash
is fine, so they are written without events.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from shoal.base.loops import BackgroundLoop, Defects
from shoal.contract.gangs import RUN, gang_name
from shoal.contract.lifecycle import JobState
from shoal.contract.patterns import Pattern, compile_pattern
from shoal.contract.records import MetricPoint, ReadPosition
from shoal.control.jobs.cache import Live
from shoal.control.jobs.repository import JobRepository
from shoal.core import Estimate, NotFound, ShoalError
from shoal.engine import Engine

log = structlog.get_logger("shoal.collector")

_CHUNK = 1 << 18

_LINE = 2000
"""The number of bytes of a log's line that are looked at, from its beginning."""

_MOST = 2**63
"""Integers in a database are below it."""


@dataclass(slots=True)
class _Tail:
    """How far a job's streams were read in its current attempt."""

    attempt: int
    offsets: dict[str, int] = field(default_factory=dict)
    step: int | None = None


class Collector(BackgroundLoop):
    """`reported` is told of each job that reported something new; `finish` says when a job ends, from its progress."""

    def __init__(
        self, jobs: JobRepository, engine: Engine, *,
        every_s: float = 0.5,
        reported: Callable[[Live], None] = lambda _: None,
        finish: Callable[[Live, Mapping[str, Any]], Estimate | None] = lambda *_: None,
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._reported = reported
        self._finish = finish
        self._engine = engine
        self._every_s = every_s
        self._defects = Defects(log)
        self._tails: dict[str, _Tail] = {}

    async def _run(self) -> None:
        while True:
            await self._jobs.cache.busy.wait()
            await asyncio.sleep(self._every_s)
            for live in self._jobs.cache.active():
                if live.job.state in (JobState.RUNNING, JobState.CHECKPOINTING):
                    await self._collect_safely(live)

    async def drain(self, live: Live) -> None:
        """Read what is left of an attempt that ended, so that its last report is kept."""
        await self._collect_safely(live)
        self._tails.pop(live.job.id, None)

    async def _collect_safely(self, live: Live) -> None:
        try:
            await self._collect(live)
        except ShoalError as error:
            log.warning("collecting reports failed", job=live.job.id, error=str(error))
        except Exception as error:
            # One job's odd report must not end the reports of all.
            self._defects.note("collecting reports failed by a defect", error, job=live.job.id)

    async def _collect(self, live: Live) -> None:
        job, attempt = live.job, live.attempt
        if attempt is None:
            return
        tail = self._tails.get(job.id)
        if tail is None or tail.attempt != attempt.number:
            tail = self._tails[job.id] = _resume(job.read_position, attempt.number)
        before = dict(tail.offsets)
        progress = dict(job.progress)
        points: list[MetricPoint] = []
        for stream in _streams(live):
            lines = await self._lines(gang_name(job.id, attempt.number, RUN), stream, tail)
            for read in await _read_all(stream, lines, live.manifest.metrics.regex):
                points += _absorb(read, progress, tail, job.id, attempt.number, self._jobs.now())
                if stream == "metrics" and ("step" in read or "checkpoint" in read):
                    progress["hooks"] = True
        if tail.offsets == before:
            if job.progress:
                self._jobs.cache.progressed(job.id, job.progress, job.read_position, self._jobs.now())
            return
        progress.pop("finish", None)
        if (found := self._finish(live, progress)) is not None:
            progress["finish"] = found.as_json()
        kept = self._jobs.progress(job.id, progress, ReadPosition(attempt.number, dict(tail.offsets)))
        if points:  # together, so that one flush of the disk serves both
            await asyncio.gather(kept, self._jobs.store.add_metrics(points))
        else:
            await kept
        self._reported(live)

    async def _lines(self, gang: str, stream: str, tail: _Tail) -> list[bytes]:
        offset = tail.offsets.get(stream, 0)
        try:
            chunk = await self._engine.read(gang, 0, stream, offset, _CHUNK)
        except NotFound:
            return []
        complete = chunk.data.rfind(b"\n") + 1
        if complete == 0 and len(chunk.data) < _CHUNK:
            return []
        # A line longer than a chunk is no report: skip it whole. A log that was cut goes on behind where it was asked.
        tail.offsets[stream] = chunk.offset + (complete or len(chunk.data))
        return chunk.data[:complete].splitlines()


def _resume(position: ReadPosition | None, attempt: int) -> _Tail:
    return _Tail(attempt, dict(position.offsets) if position is not None and position.attempt == attempt else {})


def _streams(live: Live) -> Iterable[str]:
    metrics = live.manifest.metrics
    yield "metrics"
    if metrics.jsonl:
        yield f"file:{metrics.jsonl}"
    if metrics.regex:
        yield "log"


async def _read_all(stream: str, lines: Sequence[bytes], patterns: Mapping[str, str]) -> list[dict[str, Any]]:
    if stream == "log" and lines:
        # A tenant's patterns cost what they cost: not in the event loop, and the engine lets go of the interpreter.
        return await asyncio.to_thread(_read_log, lines, patterns)
    return [read for line in lines if (read := _read_json_line(line)) is not None]


def _read_json_line(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # the latter: brackets in brackets, too deep
        return None
    return value if isinstance(value, dict) else None


def _read_log(lines: Sequence[bytes], patterns: Mapping[str, str]) -> list[dict[str, Any]]:
    compiled = {name: compile_pattern(pattern) for name, pattern in patterns.items()}
    return [read for line in lines if (read := _read_log_line(line[:_LINE], compiled)) is not None]


def _read_log_line(line: bytes, patterns: Mapping[str, Pattern]) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    step: int | None = None
    for name, pattern in patterns.items():
        match = pattern.search(line)
        if match is None:
            continue
        groups = match.groupdict()
        found[name] = groups["value"] if groups.get("value") is not None else match.group(1)
        if groups.get("step"):
            step = _integer(groups["step"])
    return {"metrics": found, "step": step} if found else None


def _absorb(
    read: Mapping[str, Any], progress: dict[str, Any], tail: _Tail, job_id: str, attempt: int, now: float
) -> list[MetricPoint]:
    """Merge one report into the progress; returns its values as points."""
    at = _number(read.get("at")) or now
    step = _integer(read.get("step"))
    if "checkpoint" in read:
        progress |= {"checkpoint_at": at, "checkpoint_step": step, "checkpoint": _text(read["checkpoint"], 4096)}
        progress |= {"checkpoint_s": _number(read.get("seconds")), "checkpoint_bytes": _integer(read.get("bytes"))}
        return []
    for name in ("total", "rate_per_s", "eta_s"):
        value = _number(read.get(name))
        if value is not None:
            progress[name] = value
    if step is not None:
        progress["step"] = tail.step = step
    if step is not None or tail.step is None:  # a line without a step says nothing of when the last one was reached
        progress["reported_at"] = at
    # A JSON-lines file of the user's own holds its values at the top level.
    values = read.get("metrics", {key: value for key, value in read.items() if key not in ("at", "step", "total")})
    numbers = {_text(name, 128): _number(value) for name, value in values.items()} if isinstance(values, dict) else {}
    kept = {name: value for name, value in numbers.items() if value is not None}
    progress["metrics"] = {**progress.get("metrics", {}), **kept}
    return [MetricPoint(job_id, attempt, at, step, name, value) for name, value in kept.items()]


def _text(value: Any, longest: int) -> str:
    """Without the halves of surrogate pairs, which JSON lets through and no database takes."""
    return str(value)[:longest].encode(errors="replace").decode()


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _integer(value: Any) -> int | None:
    """None for one that no column of a database holds, too."""
    number = _number(value)
    return None if number is None or abs(number) >= _MOST else int(number)
