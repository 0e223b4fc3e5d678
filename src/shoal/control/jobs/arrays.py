"""A submission as rows: one job, or the tasks of a job array; and the jobs that it waits for by their ids."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from shoal.contract.events import EventKind
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import After, JobManifest
from shoal.contract.records import ArrayRecord, JobRecord, NewEvent
from shoal.control.jobs.cache import JobCache
from shoal.control.jobs.repository import JobRepository, Step
from shoal.core import Conflict, Invalid, NotFound, Overloaded, Reason
from shoal.extension import Beside
from shoal.store import Store

MISSING = "dependency-missing"
"""Code of a remark: a job that a manifest waits for is not there."""

_BATCH = 500
"""The maximum number of jobs that one transaction changes: others wait no longer than for a group of their own."""
_TICK_S = 1e-6
"""Between the times of two tasks, so that tasks are in the order of their indices wherever jobs go by time."""


def resolve(manifest: JobManifest, tenant: str, store: Store, cache: JobCache) -> JobManifest:
    """The manifest with the ids of the jobs and arrays that it waits for.

    A name means the newest job or array of it. Only what exists can be named, so no jobs wait for one another in a
    circle. Raises NotFound, and Invalid for a success that never comes.
    """
    if not manifest.after:
        return manifest
    after = tuple(
        one.model_copy(update={"job": _id_of(one, n, tenant, store, cache)}) for n, one in enumerate(manifest.after)
    )
    return manifest.model_copy(update={"after": after})


def _id_of(one: After, n: int, tenant: str, store: Store, cache: JobCache) -> str:
    where = f"after[{n}].job"
    live = cache.get(one.job)
    job = live.job if live is not None else store.job(one.job)
    if job is None or job.tenant != tenant:
        jobs = [found for found in store.find_jobs(one.job, tenant) if found.name == one.job]
        named: list[JobRecord | ArrayRecord] = [*jobs[:1], *store.find_arrays(one.job, tenant)[:1]]
        newest = max(named, key=lambda found: (found.submitted_at, found.id), default=None)
        if newest is None:
            raise NotFound(
                f"tenant {tenant} has no job {one.job!r} to wait for", where=where,
                hint="submit it first; `shoal jobs` lists what there is",
            )  # fmt: skip
        if isinstance(newest, ArrayRecord):
            return newest.id
        job = newest
    live = cache.get(job.id)
    if live is None and not job.state.terminal:
        raise Conflict(f"job {job.id} is just being accepted", where=where, hint="submit this job again")
    if live is not None and live.manifest.endless and one.when == "success":
        raise Invalid(
            f"job {job.id} runs until it is asked to end: it never succeeds", where=where, hint="wait for its `end`"
        )
    return job.id


def missing(manifest: JobManifest, tenant: str, store: Store, cache: JobCache) -> list[Reason]:
    """What keeps this manifest from being accepted, as far as jobs are concerned that it waits for."""
    found = []
    for n, one in enumerate(manifest.after):
        try:
            _id_of(one, n, tenant, store, cache)
        except (NotFound, Conflict) as error:
            found.append(Reason(MISSING, error.what, {"where": error.where, "job": one.job}))
    return found


def tasks_of(job: JobRecord, manifest: JobManifest) -> tuple[ArrayRecord | None, Sequence[JobRecord]]:
    """The job itself, or its array with one job for each index. The array has the id that the job was given; the first
    task has its idempotency key."""
    array = manifest.tasks
    if array is None:
        return None, (job,)
    record = ArrayRecord(job.id, job.tenant, job.name, str(array), len(array.indices), job.submitted_at)
    tasks = []
    for n, index in enumerate(array.indices):
        at = job.submitted_at + n * _TICK_S
        tasks.append(
            job.evolve(
                id=f"{job.id}-{index}", name=f"{job.name}-{index}", array_id=job.id, submitted_at=at, queued_at=at,
                updated_at=at, idempotency_key=None if n else job.idempotency_key,
            )
        )  # fmt: skip
    return record, tasks


def submitted(tasks: Sequence[JobRecord], actor: str) -> list[NewEvent]:
    return [
        NewEvent(
            job.submitted_at, EventKind.JOB_SUBMITTED, actor, f"job {job.name} was submitted",
            tenant=job.tenant, job_id=job.id, new_state=JobState.QUEUED,
        )
        for job in tasks
    ]  # fmt: skip


async def store_all(
    store: Store, array: ArrayRecord | None, tasks: Sequence[JobRecord], events: Sequence[NewEvent],
    beside: Beside | None = None,
) -> JobRecord:  # fmt: skip
    """Store a submission, and with it in one transaction what is written `beside` it; the first task as it is stored.
    Raises Conflict where what is beside it is not current any more: then nothing is stored."""
    if beside is not None:
        key = tasks[0].idempotency_key
        earlier = store.job_by_key(tasks[0].tenant, key) if key is not None else None
        if earlier is not None and earlier.fingerprint == tasks[0].fingerprint:
            return earlier
        own_id = tasks[0].id if array is None else array.id
        told = [*events, *beside.events(own_id)]
        run = beside.run
        if not await store.transact(lambda each: run(each, own_id), told, jobs=tasks, array=array):
            raise Conflict("what this submission belongs to has changed", where=tasks[0].name)
        return tasks[0]
    if array is not None:
        return await store.submit_array(array, tasks, events)
    return await store.submit(tasks[0], events)


async def change_all(jobs: JobRepository, job_ids: Sequence[str], step: Step) -> list[str]:
    """Take this step with many jobs, in few transactions; those for which there was nothing to do are left out.

    A step that a job refuses, or that came too late for it, changes nothing of it.
    """
    changed: list[str] = []
    for start in range(0, len(job_ids), _BATCH):
        changes = []
        for job_id in job_ids[start : start + _BATCH]:
            live = jobs.cache.get(job_id)
            with contextlib.suppress(Conflict):
                if live is not None and (change := step(live.job, live.attempt)) is not None:
                    changes.append(change)
        done = {change.after.id for change in await jobs.apply_all(changes)} if changes else set()
        for change in changes:
            if change.after.id not in done:  # another change came first
                with contextlib.suppress(Conflict):
                    await jobs.change(change.after.id, step)
            changed.append(change.after.id)
    return changed


def check_queue(tenant: str, limit: int | None, queued: int, tasks: int) -> None:
    """Raises Overloaded where a tenant may not have `tasks` more jobs in its queue."""
    if limit is None or queued + tasks <= limit:
        return
    what = f"tenant {tenant} has {limit} jobs queued already"
    if queued < limit:
        what = f"tenant {tenant} may have {limit} jobs queued: {limit - queued} more, and these are {tasks}"
    hint = "wait until some have started, or ask for a higher quota"
    raise Overloaded(what, where="quota.queued_jobs", hint=hint)
