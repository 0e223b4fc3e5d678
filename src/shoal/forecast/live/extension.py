"""When running jobs finish, told by `shoal show`, `top` and `explain`, and to admission."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from shoal.admission import Blocker, Explanation, Snapshot
from shoal.base.console.output import duration
from shoal.contract.lifecycle import JobState
from shoal.contract.records import Event
from shoal.core import Capability, Estimate, Reason
from shoal.extension import Explain, Extension, LiveJob, Section, Server

if TYPE_CHECKING:
    from shoal.forecast.finish import Track


class ForecastSection(Section):
    """When running jobs finish, from the steps that they report."""


class Forecast(Extension):
    """Follows the steps of running jobs. A job is forgotten when it leaves its place."""

    name: ClassVar[str] = "forecast"
    settings: ClassVar[type[Section]] = ForecastSection

    def __init__(self, server: Server, settings: ForecastSection) -> None:  # noqa: ARG002
        from shoal.forecast.finish import Track

        self._clock = server.clock
        self._new = Track
        self._tracks: dict[str, tuple[int, Track]] = {}

    @classmethod
    def off(cls) -> Sequence[Capability]:
        return (Capability("forecast", False, "forecast.enabled is false", "running jobs have no finish time"),)

    def finish(self, job: LiveJob, progress: Mapping[str, Any]) -> Estimate | None:
        at, step, total = (progress.get(name) for name in ("reported_at", "step", "total"))
        if at is None or step is None or job.attempt is None:
            return None
        number, track = self._tracks.get(job.job.id, (None, None))
        if track is None or number != job.attempt.number:
            track = self._new()
            self._tracks[job.job.id] = job.attempt.number, track
        track.observe(at, step)
        left = None if total is None else track.remaining(int(total))
        return None if left is None else left.later(track.points[-1][0])

    def committed(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.job_id in self._tracks and event.new_state is not None and not JobState(event.new_state).active:
                del self._tracks[event.job_id]

    async def explain(self, snapshot: Snapshot, job: LiveJob, usual: Explain) -> Explanation:  # noqa: ARG002
        told = await usual()
        reason = self._finish(job)
        return told if reason is None else replace(told, causes=(*told.causes, Blocker("finish", False, reason)))

    def _finish(self, job: LiveJob) -> Reason | None:
        known = job.job.progress.get("finish")
        if known is None or job.job.state is not JobState.RUNNING:
            return None
        now = self._clock.now()
        low, median, high = (duration(max(0.0, known[name] - now)) for name in ("low", "median", "high"))
        text = f"finishes in about {median} ({low} to {high} in {known['level']:.0%} of all cases): {known['source']}"
        facts = {"finish_at": known["median"], "finish_low": known["low"], "finish_high": known["high"]}
        return Reason("finish", text, {**facts, "level": known["level"], "source": known["source"]})

    def status(self) -> Mapping[str, Any]:
        return {"jobs": len(self._tracks)}
