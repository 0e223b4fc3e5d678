"""Retention: what is over and may be removed by now. Pure. Nothing that is live, or that anything live names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from shoal.contract.records import BundleRecord, FinishedJob

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept once they are over. `runs_s` is for what an attempt left in its run directory, `jobs_s`
    for all the rest of a job: record, events, metrics, logs, checkpoints. `artifacts_s` is for outputs that the server
    keeps, and no longer than the job. `jobs_per_tenant` finished jobs are kept at
    most. `tenant_bytes` is what finished jobs of a tenant may keep in run directories; None: any amount."""

    jobs_s: float = 30 * DAY_S
    runs_s: float = 7 * DAY_S
    events_s: float = 30 * DAY_S
    bundles_s: float = 30 * DAY_S
    artifacts_s: float = 30 * DAY_S
    jobs_per_tenant: int = 100_000
    tenant_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """`jobs` go with everything; of `runs` only the run directories, of `artifacts` only the outputs that were kept.
    `events_before`: other events older than that."""

    jobs: tuple[FinishedJob, ...]
    runs: tuple[FinishedJob, ...]
    bundles: tuple[BundleRecord, ...]
    events_before: float
    artifacts: tuple[FinishedJob, ...] = ()


def plan(
    finished: Iterable[FinishedJob],
    run_bytes: Mapping[str, int],
    bundles: Iterable[BundleRecord],
    named: frozenset[tuple[str, str]],
    retention: Retention,
    now: float,
    held: Callable[[FinishedJob], bool] = lambda _: False,
    with_artifacts: Collection[str] = (),
) -> Removal:
    """`finished` are the jobs that are over, the one that ended first first; `run_bytes` the size of each run directory
    there is, by job; `with_artifacts` the jobs of which outputs are kept; `named` the (tenant, digest) of bundles that
    a live job or service names; `held` says whether others wait for a job, so that its record stays."""
    by_tenant: dict[str, list[FinishedJob]] = defaultdict(list)
    for job in finished:
        by_tenant[job.tenant].append(job)
    jobs: list[FinishedJob] = []
    runs: list[FinishedJob] = []
    artifacts: list[FinishedJob] = []
    for theirs in by_tenant.values():
        too_many = len(theirs) - retention.jobs_per_tenant
        kept: list[FinishedJob] = []
        for n, job in enumerate(theirs):
            gone = (n < too_many or now - job.ended_at >= retention.jobs_s) and not held(job)
            (jobs if gone else kept).append(job)
        artifacts += [job for job in kept if job.id in with_artifacts and now - job.ended_at >= retention.artifacts_s]
        with_runs = [job for job in kept if job.id in run_bytes]
        stored = sum(run_bytes[job.id] for job in with_runs)
        for job in with_runs:
            too_much = retention.tenant_bytes is not None and stored > retention.tenant_bytes
            if too_much or now - job.ended_at >= retention.runs_s:
                runs.append(job)
                stored -= run_bytes[job.id]
    unused = [one for one in bundles if (one.tenant, one.digest) not in named]
    return Removal(
        tuple(sorted(jobs, key=lambda job: (job.ended_at, job.id))),
        tuple(runs),
        tuple(one for one in unused if now - one.used_at >= retention.bundles_s),
        now - retention.events_s,
        tuple(artifacts),
    )
