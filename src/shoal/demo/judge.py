"""The verdict: what the scenario promised, held against the server's records and the workloads' own account."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from shoal.contract.lifecycle import JobState
from shoal.core import NotFound
from shoal.demo.evidence import Execution, doublings, training
from shoal.demo.play import Demo
from shoal.demo.report import JobResult
from shoal.demo.scenario import SLOTS
from shoal.sdk.models import EventView, JobDetail

_STARTS = {"placed", "backfill"}
"""Codes of reasons that say why a job started, not why it waited."""

_NOTICEABLE_S = 0.5

_IN_WORDS = {
    "quota": "quota",
    "share": "its tenant's turn",
    "shape": "free slots",
    "priority": "jobs before it",
    "reserved": "a gang's room",
    "preempting": "others to leave",
    "backoff": "back-off",
    "server": "the server",
}


def judge(demo: Demo) -> None:
    """Fill in the jobs, what was lost and what was doubled, and check every promise of the scenario."""
    demo.screen.heading("13. The verdict, from what the training scripts themselves wrote down")
    found = demo.executions()
    doubled = doublings(found)
    demo.report.jobs_doubled = sorted({doubling.job for doubling in doubled})
    demo.report.check(
        "no job run twice",
        bool(found) and not doubled,
        "; ".join(d.what for d in doubled) or f"{len(found)} processes ran, none beside another of the same rank",
    )
    _check_jobs(demo, found)
    _check_training(demo, found)
    _check_sharing(demo, found)


def _check_jobs(demo: Demo, found: Sequence[Execution]) -> None:
    demo.report.jobs_lost = list(demo.acknowledged)  # until the server has shown otherwise
    demo.look()
    lost: dict[str, str] = {}
    for name, job_id in demo.acknowledged.items():
        try:
            detail = demo.admin.job(job_id)
        except NotFound:
            lost[name] = "unknown to the server"
            continue
        if detail.state is not JobState.SUCCEEDED:
            lost[name] = f"{detail.state} {detail.message}".rstrip()
        demo.report.jobs.append(_result(detail, demo.events_of(name), found))
    demo.report.jobs_lost = list(lost)
    demo.report.check(
        "no job lost",
        bool(demo.acknowledged) and not lost,
        "; ".join(f"{name}: {how}" for name, how in lost.items())
        or f"{len(demo.acknowledged)} were acknowledged, all succeeded",
    )


def _check_training(demo: Demo, found: Sequence[Execution]) -> None:
    report, cast = demo.report, demo.scenario
    results = {job.name: job for job in report.jobs}

    weak = [
        f"{name} {result.accuracy}"
        for name, result in results.items()
        if result.accuracy is None or result.accuracy < cast.jobs[name].accuracy_at_least
    ]
    report.check("models learnt", not weak, "; ".join(weak) or "each reached its accuracy on held-out data")

    marathon, steps = results.get(cast.marathon), cast.jobs[cast.marathon].steps
    told = training(found, cast.marathon)
    later = [step for attempt, step in told.began_after.items() if attempt > 1]
    report.check(
        "preempted and resumed",
        marathon is not None
        and "preempted" in marathon.outcomes
        and bool(later)
        and min(later) > 0
        and cast.marathon not in report.jobs_doubled
        and told.computed - told.redone == steps,
        f"{cast.marathon} resumed after step {', '.join(map(str, later)) or '-'} and computed "
        f"{told.computed} steps for {steps}, {told.redone} of them twice",
    )

    flaky, told = results.get(cast.flaky), training(found, cast.flaky)
    report.check(
        "crashed and retried",
        flaky is not None and flaky.outcomes == ("failed", "succeeded") and told.last == cast.jobs[cast.flaky].steps,
        f"{cast.flaky}: {' then '.join(flaky.outcomes) if flaky else 'unknown'}, "
        f"the second time on from step {told.began_after.get(2, '-')}, {told.redone} steps computed again",
    )

    ranks = [execution for execution in found if execution.job == cast.gang]
    together = len(ranks) == 2 and max(r.began for r in ranks) < min(r.ended for r in ranks)
    report.check(
        "gang ran as one",
        together and all(rank.finished for rank in ranks),
        f"{len(ranks)} ranks of {cast.gang}, {'at the same time' if together else 'not at the same time'}",
    )

    plain = results.get(cast.plain)
    report.check(
        "unmodified script followed",
        plain is not None and plain.accuracy is not None,
        f"accuracy of {cast.plain} was read from its log",
    )


def _check_sharing(demo: Demo, found: Sequence[Execution]) -> None:
    report, cast = demo.report, demo.scenario
    waiter = next((job for job in report.jobs if job.name == cast.quota_waiter), None)
    quota = next(tenant for tenant in cast.tenants if tenant.quota_slots is not None)
    own = [execution for execution in found if cast.jobs[execution.job].tenant == quota.name]
    most, most_of_all = at_once(own), at_once(found)
    report.check(
        "quota kept",
        waiter is not None and "quota" in waiter.wait_causes and most == quota.quota_slots,
        f"{quota.name} never held more than {most} slot; {cast.quota_waiter} waited for its quota",
    )
    report.check("slots kept", most_of_all <= SLOTS, f"at most {most_of_all} ranks ran at once on {SLOTS} slots")


def at_once(found: Iterable[Execution]) -> int:
    """The most executions that were alive at the same moment."""
    changes = sorted(
        [(e.began, 1) for e in found] + [(e.ended, -1) for e in found], key=lambda change: (change[0], change[1])
    )
    return max(accumulate(step for _, step in changes), default=0)


def _result(job: JobDetail, events: Sequence[EventView], found: Sequence[Execution]) -> JobResult:
    told = training(found, job.name)
    causes, words = _waits(job, events)
    accuracy = job.progress.get("metrics", {}).get("accuracy")
    return JobResult(
        name=job.name,
        id=job.id,
        tenant=job.tenant,
        priority_class=str(job.priority_class),
        ranks=job.ranks,
        state=str(job.state),
        attempts=job.attempt,
        wait_s=round(job.waited_s, 3),
        run_s=round(job.ran_s, 3),
        accuracy=None if accuracy is None else round(float(accuracy), 4),
        wait_causes=causes,
        waited_for=words,
        outcomes=tuple(str(attempt.outcome or "unfinished") for attempt in job.attempts),
        began_after=tuple(told.began_after.get(attempt.number) for attempt in job.attempts),
        steps=told.computed,
        steps_redone=told.redone,
        message=job.message,
    )


def _waits(job: JobDetail, events: Sequence[EventView]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Codes of all causes of this job's waits, in the order they came up, and the same in words.

    A job that waited although the server never said why had come when the server was about to die.
    """
    codes = [str(event.data.get("reason", {}).get("code", "")) for event in events if event.kind == "job.waiting"]
    codes.append(str((job.wait_cause or {}).get("code", "")))
    unique = tuple(dict.fromkeys(code for code in codes if code and code not in _STARTS))
    if not unique and job.waited_s > _NOTICEABLE_S:
        unique = ("server",)
    return unique, tuple(_IN_WORDS.get(code, code) for code in unique)
