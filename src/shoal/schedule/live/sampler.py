"""Turns what jobs report into throughput samples: the steps since the report before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoal.schedule.oracle import Sample, is_rate


@dataclass(frozen=True, slots=True)
class _Mark:
    """The report from which the next sample counts; `fresh` until the attempt gave its first sample."""

    attempt: int
    step: float
    at: float
    fresh: bool


class Sampler:
    """One sample for each `every_s` seconds of a job's own clock, so that a flood of reports is not a flood of them."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._marks: dict[str, _Mark] = {}

    def read(self, job: str, kind: str, column: str, attempt: int, progress: Mapping[str, Any]) -> Sample | None:
        """The sample that a new report completes, if it does. The first report of an attempt is where counting begins,
        for it is not known from which step it resumed; the first sample of an attempt is a slow one (`restarted`). A
        job that reports a rate but no steps is believed."""
        at, step = progress.get("reported_at"), progress.get("step")
        if at is None:
            return None
        rate = progress.get("rate_per_s")
        counted = step if step is not None else 0.0
        before = self._marks.get(job)
        if before is None or before.attempt != attempt or counted < before.step or at < before.at:
            fresh = before is None or before.attempt != attempt
            self._marks[job] = _Mark(attempt, counted, at, fresh)
            return None
        seconds = at - before.at
        steps = counted - before.step if step is not None else (rate or 0.0) * seconds
        if seconds <= 0.0 or seconds < self._every_s or steps <= 0.0:
            return None
        self._marks[job] = _Mark(attempt, counted, at, fresh=False)
        if not is_rate(steps, seconds):
            return None
        return Sample(job, kind, column, float(steps), float(seconds), float(at), restarted=before.fresh)

    def forget(self, job: str) -> None:
        self._marks.pop(job, None)
