"""Facts about a job for scheduling, beside those of admission: what runs alike, and how much is left to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.contract.lifecycle import Stop
from shoal.contract.records import JobRecord
from shoal.core import Estimate, Speeds, first
from shoal.extension import LiveJob, Server, kind_of


@dataclass(frozen=True, slots=True)
class Facts:
    """`kind` is what runs alike, whatever its size. `ranks` are the fewest and the most that it may have, where these
    differ; `per_node`, where not 0, is how many of them each of its nodes gets. `steps_left` is what the reports say,
    None if they do not. `ran_s` is the run time of earlier attempts. `queued_at` is since when it waits, if it does.
    One that `saves` uses the hooks or has reported a checkpoint, the last at `saved_at`; `lost_s` is the run time of
    earlier attempts after that, as far as is known. A job that is `leaving` was asked to end or to pause, and will not
    come back by itself."""

    kind: str
    submitted_at: float = 0.0
    steps_left: float | None = None
    ran_s: float = 0.0
    attempts: int = 0
    deadline_at: float | None = None
    replica: bool = False
    leaving: bool = False
    ranks: tuple[int, int] | None = None
    queued_at: float = 0.0
    per_node: int = 0
    saves: bool = False
    saved_at: float | None = None
    lost_s: float = 0.0

    def sized(self, accelerators: int) -> str:
        """The kind with its size: only gangs of one size run alike."""
        return f"{self.kind} x{accelerators}"


@dataclass(frozen=True, slots=True)
class KnownSpeeds:
    """`Speeds` of the first extension that forecasts a kind."""

    server: Server

    def steps_per_s(self, job: str, kind: str, workers: int = 1) -> Estimate | None:
        return first(self.server.ask_all(Speeds), lambda one: one.steps_per_s(job, kind, workers))


@dataclass(frozen=True, slots=True)
class SpeedsBySize:
    """`Speeds` of kinds that are named with their size, from those of kinds and numbers of workers."""

    speeds: Speeds

    def steps_per_s(self, job: str, kind: str, workers: int = 1) -> Estimate | None:
        name, _, size = job.rpartition(" x")
        return self.speeds.steps_per_s(name, kind, int(size) * workers)


Look = Callable[[str], Facts | None]
"""The facts of a job by its id; None for one that is over."""


def facts_of(live: LiveJob) -> Facts:
    job, asked = live.job, live.manifest
    stop = live.attempt.stop if live.attempt is not None and job.state.active else None
    return Facts(
        kind=kind_of(live),
        submitted_at=job.submitted_at,
        steps_left=steps_left(job.progress),
        ran_s=job.ran_s,
        attempts=job.attempt,
        deadline_at=job.deadline_at,
        replica=job.owner_id is not None,
        leaving=stop not in (None, Stop.PREEMPT),
        ranks=(asked.min_ranks, asked.max_ranks) if asked.min_ranks < asked.max_ranks else None,
        queued_at=job.queued_at,
        per_node=asked.ranks_per_node or 0,
        saves=bool(job.progress.get("hooks")) or job.progress.get("checkpoint_at") is not None,
        saved_at=job.progress.get("checkpoint_at"),
        lost_s=lost_s(job),
    )


def lost_s(job: JobRecord) -> float:
    """The run time of earlier attempts that was not saved; where some was, at most: what it waited since is in it."""
    saved_at = job.progress.get("checkpoint_at")
    return job.ran_s if saved_at is None else min(job.ran_s, max(0.0, job.queued_at - saved_at))


def steps_left(progress: Mapping[str, Any]) -> float | None:
    """At least one: a job that has reported its last step still runs until it ends."""
    total, step = progress.get("total"), progress.get("step")
    if total is None or step is None or not math.isfinite(total):
        return None
    return max(float(total) - float(step), 1.0)
