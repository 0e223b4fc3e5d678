"""Finish times and bottlenecks of running jobs, told by `shoal show`, `top`, `explain` and events, and to
admission."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

import structlog
from pydantic import BaseModel, ConfigDict, Field

from shoal.admission import Blocker, Snapshot
from shoal.base.console.output import duration
from shoal.base.loops import BackgroundLoop, Defects
from shoal.contract.events import EventKinds
from shoal.contract.lifecycle import JobState
from shoal.contract.pages import Column, Figure, Mood, Page, Table, Unit, Value
from shoal.contract.records import Event, JobRecord, NewEvent
from shoal.core import Capability, Estimate, FinishTimes, Invalid, Reason, Sensors, ShoalError, Speeds
from shoal.extension import Extension, LiveJob, Section, Server, kind_of

if TYPE_CHECKING:
    from shoal.forecast.features import Features
    from shoal.forecast.finish import Track
    from shoal.forecast.live.watch import Watch
    from shoal.forecast.steptime import StepTime

log = structlog.get_logger("shoal.forecast")

_MOST_EXITS = 32
_MOST_KINDS = 1024
"""A tenant that names each job a kind of its own must not make memory grow for ever."""


class ForecastEvent(EventKinds):
    """What is written about running jobs."""

    SLOWDOWN = (
        "forecast.slowdown",
        "A job became slower than it was; `data` says by how much, and what moved with it, if a sensor did.",
    )


class ForecastSection(Section):
    """When running jobs finish and what holds them back, from the steps that they report."""

    mean_run: float = Field(100_000, ge=10, description="reports until a false alarm of a slowdown, on average")
    speeds: str = Field("", description="file of a fitted speed model, for the scheduler: what jobs never ran on")


class MadeOf(BaseModel):
    """What a step of the job's model is made of, as `shoal forecast features` counts it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    flops: float = Field(gt=0, allow_inf_nan=False)
    parameters: float = Field(gt=0, allow_inf_nan=False)
    tensors: float = Field(gt=0, allow_inf_nan=False)


@dataclass
class _Followed:
    """An attempt of a running job; `total` is the last one that it told."""

    attempt: int
    track: Track
    watch: Watch
    total: int | None = None


class Forecast(Extension):
    """Follows the steps of running jobs. A job is forgotten when it leaves its place."""

    name: ClassVar[str] = "forecast"
    settings: ClassVar[type[Section]] = ForecastSection
    manifest: ClassVar[type[BaseModel] | None] = MadeOf
    events: ClassVar[type[EventKinds] | None] = ForecastEvent

    def __init__(self, server: Server, settings: ForecastSection) -> None:
        from shoal.forecast.finish import Track
        from shoal.forecast.live.watch import Watch

        self._server = server
        self._new: Callable[[int], _Followed] = lambda number: _Followed(number, Track(), Watch(settings.mean_run))
        self._jobs: dict[str, _Followed] = {}
        self._defects = Defects(log)
        self._exits_s: deque[float] = deque(maxlen=_MOST_EXITS)
        self._writer = _Writer(server)
        self._speeds = None if not settings.speeds else _fitted(Path(settings.speeds).expanduser())
        self._features: OrderedDict[str, Features] = OrderedDict()

    @classmethod
    def off(cls) -> Sequence[Capability]:
        lost = "running jobs have no finish time, and none is told what holds it back"
        return (Capability("forecast", False, "forecast.enabled is false", lost),)

    async def open(self) -> None:
        snapshot = self._server.snapshot()
        for job_id in (*snapshot.pending.by_id, *snapshot.running):
            if (live := self._server.job(job_id)) is not None:
                self.moved(live)

    def loops(self) -> Sequence[BackgroundLoop]:
        return (self._writer,)

    def answers(self) -> Mapping[type, object]:
        return {FinishTimes: self, Speeds: self}

    def finish_at(self, job_id: str, progress: Mapping[str, Any]) -> Estimate | None:
        at, step, total = (progress.get(name) for name in ("reported_at", "step", "total"))
        job = self._server.job(job_id)
        if at is None or step is None or job is None or job.attempt is None:
            return None
        followed = self._jobs.get(job.job.id)
        if followed is None or followed.attempt != job.attempt.number:
            followed = self._jobs[job.job.id] = self._new(job.attempt.number)
        track, watch, followed.total = followed.track, followed.watch, None if total is None else int(total)
        track.observe(at, step, progress.get("checkpoint_at"))
        sensed = {**progress.get("metrics", {}), **self._beside(job), **self._sensed(job_id)}
        if watch.observe(at, step, sensed):
            self._tell(job.job, watch)
        left = None if followed.total is None else track.remaining(followed.total)
        return None if left is None else left.later(track.at + self._exit_s())

    def _sensed(self, job_id: str) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for one in self._server.ask_all(Sensors):
            try:
                found |= one.sensed(job_id)
            except Exception as error:  # of another component: its sensor is missing, the forecast goes on
                self._defects.note("a sensor failed", error, sensor=type(one).__name__)
        return found

    def _exit_s(self) -> float:
        """Seconds from a job's last step to its end, as the jobs before took."""
        return median(self._exits_s) if self._exits_s else 0.0

    def moved(self, job: LiveJob) -> None:
        """Learn what a waiting job says that its model is made of; of the newest kinds of jobs that say so."""
        if self._speeds is None or job.job.state is not JobState.QUEUED:
            return
        section = job.manifest.extensions.get(self.name)
        if not section:
            return
        from shoal.forecast.features import Features

        self._features[kind_of(job)] = Features(**MadeOf.model_validate(section).model_dump())
        if len(self._features) > _MOST_KINDS:
            self._features.popitem(last=False)

    def steps_per_s(self, job: str, kind: str, workers: int = 1) -> Estimate | None:
        """Of single workers only: no model of gangs is kept in the server."""
        found = self._features.get(job)
        if self._speeds is None or found is None or workers != 1:
            return None
        seconds = self._speeds.predict(found, kind)
        return None if seconds is None else seconds.inverse()

    def _beside(self, job: LiveJob) -> Mapping[str, float]:
        """What the server itself senses of a job: how many others run on its nodes."""
        nodes = _nodes(job)
        others = (one for one in self._server.active_jobs() if one.job.id != job.job.id)
        return {"neighbour_busy": float(sum(not nodes.isdisjoint(_nodes(one)) for one in others))}

    def _tell(self, job: JobRecord, watch: Watch) -> None:
        reason = _slowdown(watch)
        if reason is not None:
            now = self._server.clock.now()
            self._writer.put(
                NewEvent(now, ForecastEvent.SLOWDOWN, "forecast", reason.text, job.tenant, job.id, data=reason.facts)
            )

    def committed(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.job_id in self._jobs and event.new_state is not None and not JobState(event.new_state).active:
                followed = self._jobs.pop(event.job_id)
                track = followed.track
                if event.new_state == JobState.SUCCEEDED and track.points[-1][1] == followed.total:
                    self._exits_s.append(max(0.0, event.at - track.at))

    async def explain(self, snapshot: Snapshot, job: LiveJob) -> Sequence[Blocker]:  # noqa: ARG002
        if job.job.state is not JobState.RUNNING:
            return ()
        followed = self._jobs.get(job.job.id)
        reasons = (self._finish(job), None if followed is None else _slowdown(followed.watch))
        return tuple(Blocker(one.code, False, one) for one in reasons if one is not None)

    def _finish(self, job: LiveJob) -> Reason | None:
        known = job.job.progress.get("finish")
        if known is None:
            return None
        now = self._server.clock.now()
        low, median, high = (duration(max(0.0, known[name] - now)) for name in ("low", "median", "high"))
        text = f"finishes in about {median} ({low} to {high} in {known['level']:.0%} of all cases): {known['source']}"
        facts = {"finish_at": known["median"], "finish_low": known["low"], "finish_high": known["high"]}
        return Reason("finish", text, {**facts, "level": known["level"], "source": known["source"]})

    def page(self, tenant: str | None) -> Page | None:
        rows: list[list[Value]] = []
        slow = 0
        for job_id, followed in self._jobs.items():
            job = self._server.job(job_id)
            if job is None or tenant not in (None, job.job.tenant):
                continue
            slowdown = followed.watch.slowdown
            slow += slowdown is not None
            finish = job.job.progress.get("finish") or {}
            rows.append(
                [job.job.name, job.job.tenant, finish.get("low"), finish.get("median"), finish.get("high"),
                 None if slowdown is None else slowdown.why]
            )  # fmt: skip
        columns = [
            Column(name="job"), Column(name="tenant"), Column(name="earliest", unit=Unit.TIME),
            Column(name="likely", unit=Unit.TIME), Column(name="latest", unit=Unit.TIME), Column(name="slower because"),
        ]  # fmt: skip
        figures = [
            Figure(name="jobs followed", value=len(rows)),
            Figure(name="slower than they were", value=slow, mood=Mood.WARNING if slow else Mood.PLAIN),
        ]
        table = Table(title="Finish times", columns=columns, rows=rows, empty="no running job reports steps")
        return Page(title="Forecasts", figures=figures, parts=[table])


def _fitted(path: Path) -> StepTime:
    from shoal.forecast.steptime import StepTime

    try:
        return StepTime.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "`shoal forecast fit speed MEASURED.csv --out FILE` writes one"
        raise Invalid(f"is no fitted speed model: {error}", where=f"forecast.speeds: {path}", hint=hint) from None


def _nodes(job: LiveJob) -> set[str]:
    return set() if job.attempt is None else {place.node for place in job.attempt.placement}


def _slowdown(watch: Watch) -> Reason | None:
    found = watch.slowdown
    if found is None:
        return None
    since = time.strftime("%H:%M:%S", time.localtime(watch.since))
    text = f"since {since}, steps take {found.factor:.2f} times as long: {found.why}"
    facts = {"since": watch.since, "factor": found.factor, "cause": found.cause, "remedy": found.remedy}
    facts |= {"sensor": found.sensor, "before": found.before, "after": found.after}
    return Reason("slowdown", text, facts)


class _Writer(BackgroundLoop):
    """Writes events one after the other; one that cannot be written is a line in the log."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._events: asyncio.Queue[NewEvent] = asyncio.Queue()

    def put(self, event: NewEvent) -> None:
        self._events.put_nowait(event)

    async def _run(self) -> None:
        while True:
            event = await self._events.get()
            try:
                await self._server.store.transact(lambda _: True, [event])
            except ShoalError as error:
                log.warning("an event was not written", kind=event.kind, job=event.job_id, error=str(error))
