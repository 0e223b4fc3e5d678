"""News of an event: pure, from the event and the job that it is of."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from shoal.contract.events import EventKind
from shoal.contract.lifecycle import JobState
from shoal.contract.records import Ends, Event, JobRecord
from shoal.core import Budget
from shoal.notify.records import EVERYONE, OF_JOBS, News, Subscription, Topic

SERVICE_STATE = "service.state"
BUDGET_LEVELS = (80, 100)
"""Per cent of a budget."""

_BAD_SERVICE = {"DEGRADED": "is degraded", "FAILED": "failed"}
_ENDS = {state.value for state in JobState if state.terminal}
_TOLD: dict[str, tuple[Topic, str]] = {
    EventKind.JOB_MAX_RUNTIME_REQUESTED: (Topic.TIME_LIMIT, "has run for its max_runtime and is asked to end"),
    EventKind.JOB_DEADLINE_REQUESTED: (Topic.TIME_LIMIT, "has met its deadline and is asked to end"),
    EventKind.JOB_NODE_LOST_REQUESTED: (Topic.NODE, "lost a node that it ran on"),
}


def may_tell(event: Event) -> bool:
    """Whether there may be news in it. Asked of every event: most have none."""
    if event.kind == EventKind.JOB_STATE:
        return event.owner_id is None and (
            event.new_state in _ENDS or event.new_state == JobState.RUNNING
            or (event.new_state == JobState.QUEUED and event.old_state in _ACTIVE)
        )  # fmt: skip
    if event.kind in _TOLD:
        return event.owner_id is None
    return event.kind in (EventKind.NODE_LEFT, SERVICE_STATE)


def _meant(job: JobRecord, *, as_one: bool) -> tuple[str, str, str]:
    """How a job, or the array whose task it is, is called, its id and its name."""
    if job.array_id is None or not as_one:
        return f"job {job.name}", job.id, job.name
    name = job.name.removesuffix(f"-{job.array_index}")
    return f"job array {name}", job.array_id, name


def ends(event: Event) -> bool:
    """Whether a job is over by it."""
    return event.kind == EventKind.JOB_STATE and event.new_state in _ENDS


_ACTIVE = {state.value for state in JobState if state.active} - {JobState.ADMITTED.value, JobState.PLACED.value}


def told(event: Event, job: JobRecord | None, array: Ends | None, *, tasks: bool = False) -> list[News]:
    """The news in an event of `job`, and for a task of an array how far that is: its tasks are told of as one, at their
    first start and last end, unless each of the `tasks` is asked for."""
    if event.kind == EventKind.NODE_LEFT:
        return [News(Topic.NODE, EVERYONE, event.at, f"event/{event.seq}", event.cause or "a node is gone")]
    if event.kind == SERVICE_STATE:
        return _of_service(event)
    if job is None:
        return []
    as_one = job.array_id is not None and not tasks
    subject, ref, name = _meant(job, as_one=as_one)
    facts: dict[str, Any] = {"id": ref, "name": name, "state": job.state.value}
    if not as_one:
        facts |= {"attempt": event.attempt, "message": job.message}

    def news(topic: Topic, what: str, about: str) -> News:
        return News(topic, job.tenant, event.at, about, f"{subject} {what}", ref, facts)

    if event.kind in _TOLD:
        topic, what = _TOLD[event.kind]
        return [news(topic, what, f"event/{event.seq}")]
    if event.new_state == JobState.RUNNING:
        return [news(Topic.STARTED, "runs", f"job/{ref}/started")]
    if event.new_state == JobState.QUEUED:
        return [] if as_one else [news(Topic.REQUEUED, f"waits again: {event.cause}", f"event/{event.seq}")]
    if not as_one:
        facts["state"] = event.new_state
        what = {"SUCCEEDED": "succeeded", "FAILED": "failed"}.get(event.new_state or "", "was cancelled")
        title = f"{what}: {job.message}" if what == "failed" and job.message else what
        failed = event.new_state == JobState.FAILED
        return [news(Topic.FAILED if failed else Topic.ENDED, title, f"job/{ref}/ended")]
    if array is None or array.open_jobs:
        return []
    facts["state"] = "FAILED" if array.failed else "SUCCEEDED"
    what = "is over; not all of its tasks succeeded" if array.failed else "is over: all of its tasks succeeded"
    return [news(Topic.FAILED if array.failed else Topic.ENDED, what, f"job/{ref}/ended")]


def _of_service(event: Event) -> list[News]:
    name = str(event.data.get("name") or event.owner_id or "")
    state = event.new_state or ""
    if state in _BAD_SERVICE:
        what = f"{_BAD_SERVICE[state]}: {event.cause}" if event.cause else _BAD_SERVICE[state]
    elif state == "READY" and event.old_state in _BAD_SERVICE:
        what = "is well again"
    else:
        return []
    facts = {"service": name, "state": state, "cause": event.cause}
    return [News(Topic.SERVICE, event.tenant or EVERYONE, event.at, f"event/{event.seq}", f"service {name} {what}",
                 facts=facts)]  # fmt: skip


def of_wait(job: JobRecord, waits_s: float, now: float, why: str) -> News:
    """It waits longer than that; told once for each of its attempts, and of an array once."""
    what = f"waits for more than {_span(waits_s)}{f': {why}' if why else ''}"
    return _of_waiting(Topic.WAITS, job, now, what, f"waits/{waits_s:g}")


def of_late(job: JobRecord, promised: float, now: float, why: str) -> News:
    """Its first forecast is over."""
    what = f"waits {_span(now - promised)} longer than its first forecast promised{f': {why}' if why else ''}"
    return _of_waiting(Topic.LATE, job, now, what, "late")


def _of_waiting(topic: Topic, job: JobRecord, now: float, what: str, about: str) -> News:
    subject, ref, name = _meant(job, as_one=job.array_id is not None)
    facts = {"id": ref, "name": name, "state": job.state.value, "queued_at": job.queued_at}
    attempt = 0 if job.array_id is not None else job.attempt
    return News(topic, job.tenant, now, f"job/{ref}/{about}/{attempt}", f"{subject} {what}", ref, facts)


def of_miss(tenant: str, service: str, since: float, now: float, text: str) -> News:
    """A service misses its objective since then; without a text it meets it again."""
    about = f"objective/{tenant}/{service}/{since:.3f}/{'missed' if text else 'met'}"
    what = f"misses its objective: {text}" if text else "meets its objective again"
    return News(Topic.SERVICE, tenant, now, about, f"service {service} {what}", facts={"service": service})


def of_budget(budget: Budget, now: float) -> list[News]:
    """At 80 % and at all of it, once for each limit that was set."""
    if budget.limit <= 0:
        return []
    part = budget.used / budget.limit
    return [
        News(
            Topic.BUDGET, budget.tenant, now, f"budget/{budget.what}/{budget.tenant}/{budget.limit:g}/{level}",
            f"{level} % of the budget for {budget.what} are used: {budget.used:.2f} of {budget.limit:.2f}",
            facts={"used": budget.used, "limit": budget.limit, "unit": budget.unit, "what": budget.what},
        )
        for level in BUDGET_LEVELS if part * 100 >= level
    ]  # fmt: skip


def _span(seconds: float) -> str:
    """In the largest unit that it is whole of, or in minutes."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s" if seconds < 60 else f"{round(seconds / 60)}m"


def wants(subscription: Subscription, news: News, seq: int | None = None) -> bool:
    """Whether these news, of the event `seq`, are for the subscription."""
    if seq is not None and seq <= subscription.from_seq:
        return False
    if subscription.tenant not in (EVERYONE, news.tenant) or not asked(subscription.topics, news.topic):
        return False
    return news.topic not in OF_JOBS or news.job_id is None or fnmatchcase(
        str(news.facts.get("name", "")), subscription.jobs
    )  # fmt: skip


def asked(topics: Iterable[Topic], topic: Topic) -> bool:
    """A failure is an end too."""
    chosen = set(topics)
    return topic in chosen or (topic is Topic.FAILED and Topic.ENDED in chosen)
