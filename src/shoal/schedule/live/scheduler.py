"""The policy as the server's decider: admission's decision for what is admission's, rounds for what competes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import structlog

from shoal.admission import Decision, Explanation, Need, Pending, Prefers, Snapshot
from shoal.admission import decide as admit
from shoal.core import ShoalError, Speeds
from shoal.extension import LiveJob
from shoal.schedule import Allocation, Problem
from shoal.schedule.live import state_file
from shoal.schedule.live.explaining import Asked, explained, live_lines
from shoal.schedule.live.facts import Facts, Look, facts_of
from shoal.schedule.live.placing import Placing, leaving
from shoal.schedule.live.plan import Plan, make, rules_of
from shoal.schedule.live.problem import (
    NONE_WAITS,
    NOWHERE,
    competes,
    competing_groups,
    facts_by_id,
    live_problem,
    type_of,
)
from shoal.schedule.live.sampler import Sampler
from shoal.schedule.oracle import Sample
from shoal.schedule.presets import ScheduleSettings
from shoal.schedule.rounds import State

log = structlog.get_logger("shoal.scheduling")

T = TypeVar("T")

ALIKE = 0.9
"""Rates that differ less than this are as good: measurements do."""

_SAMPLES_A_ROUND = 4.0
_PAST_ROUNDS = 240
"""Shown as a curve: four hours of rounds of a minute."""
_SAMPLE_S = 5.0
"""A job's rate is sampled at most so often, and several times a round."""

MANY = 1000
"""From this number of competing jobs on, a round is made in a thread beside the server's loop, which would stand still
for it. Up to there (some 40 ms) it is made at once."""


class _Made(NamedTuple):
    """What comes out of a round."""

    plan: Plan
    state: State
    allocation: Allocation
    usual: dict[str, float]


class _PendingRound(NamedTuple):
    """A round that is being made, of this snapshot."""

    snapshot: Snapshot
    made: Future[_Made | None]


class Scheduler:
    """Call it with a snapshot, as admission's `decide`. `find` gives a live job by its id; `file` is where it remembers
    (None: nowhere); `many` is how many jobs are too many to wait for their round. Such a round is made in a thread of
    its own, and `made` is called from there when it is time to decide by it. It is told of reports by `reported`. Not
    pure: it keeps the round; all that it decides by is."""

    def __init__(
        self,
        settings: ScheduleSettings,
        find: Callable[[str], LiveJob | None],
        file: Path | None = None,
        *,
        prior: Speeds | None = None,
        many: int = MANY,
        made: Callable[[], None] = lambda: None,
        defect: Callable[[str, Exception], None] = lambda text, error: log.error(text, exc_info=error),
    ) -> None:
        self.settings = settings
        self._many = many
        self._made = made
        self._beside: _PendingRound | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shoal-schedule")
        self._turn = asyncio.Lock()
        self._reading: asyncio.Future[Any] | None = None
        self._samples: list[Sample] = []
        self._find = find
        self._file = file
        self._state, self.oracle = state_file.load(file, prior)
        self._reporting = {str(row[0]) for row in self.oracle.as_json()["live"]}
        self._sampler = Sampler(min(_SAMPLE_S, settings.round_s / _SAMPLES_A_ROUND))
        self._defect = defect
        self._snapshot: Snapshot | None = None
        self._plan: Plan | None = None
        self._decided_at: float | None = None
        self._allocation: Allocation | None = None
        self._rates: dict[str, dict[str, float]] = {}
        self._usual: dict[str, float] = {}
        self.past_prices: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=_PAST_ROUNDS)
        """When a round was decided, and its prices."""
        self.trouble = ""
        self._unsaved = False

    # --- deciding

    def __call__(self, snapshot: Snapshot, prefers: Prefers | None = None) -> Decision:
        self._snapshot = snapshot
        over = self._turns_over(snapshot)
        decision = admit(snapshot, Placing(snapshot, self._plan, self._preferred), prefers)
        return self._wake(snapshot, leaving(decision, snapshot, self._plan, over))

    def _turns_over(self, snapshot: Snapshot) -> Sequence[str]:
        """Who has to leave by a round that was made now, or beside since the last call."""
        beside = self._beside
        if beside is None and not self._due(snapshot):
            return ()
        if beside is None:
            self._decided_at = snapshot.now
            self._rates.clear()
            self._learn()
            self._forget_ended()
            if self._plan is None or len(snapshot.pending.by_id) < self._many:
                return self._adopt(lambda: self._make(snapshot, self._look))
            self._begin(snapshot)
            return ()
        if not beside.made.done():
            return ()
        self._beside = None
        self._learn()
        return [
            job_id
            for job_id in self._adopt(beside.made.result)
            if (now := snapshot.running.get(job_id)) is not None
            and now.started_at == beside.snapshot.running[job_id].started_at  # it did not end and start since
        ]

    def _due(self, snapshot: Snapshot) -> bool:
        """A round is over, or the clock went back."""
        last = self._decided_at
        return last is None or not 0.0 <= snapshot.now - last < self.settings.round_s

    def _begin(self, snapshot: Snapshot) -> None:
        """Make a round beside. All that changes meanwhile is looked at here (jobs) or waits (the oracle's samples)."""
        facts = facts_by_id(snapshot, self._find)
        self._beside = _PendingRound(snapshot, self._thread.submit(self._make, snapshot, facts.get))
        self._beside.made.add_done_callback(lambda _: self._made())

    def _make(self, snapshot: Snapshot, look: Look) -> _Made | None:
        """The next round, None if there is nothing to share out; changes nothing."""
        promised = self._plan.promised if self._plan is not None else NOWHERE
        problem = live_problem(snapshot, look, self.oracle, rules_of(self.settings), self.waited_since, promised)
        if not problem.views or not problem.pools:
            return None
        plan, state = make(problem, self.settings, self._state, self._allocation)
        return _Made(plan, state, plan.allocation, usual(plan.allocation.problem))

    def _adopt(self, made: Callable[[], _Made | None]) -> Sequence[str]:
        """Who has to leave. What goes wrong leaves the last plan in force: jobs go on, and places are still filled."""
        try:
            found = made()
        except ShoalError as error:
            log.warning("no new round: the last one goes on", policy=self.settings.policy, error=str(error))
            self.trouble = str(error)
            return ()
        except Exception as error:
            self._defect("no new round by a defect: the last one goes on", error)
            self.trouble = f"{type(error).__name__}: {error}"
            return ()
        if found is None:
            self._plan = None
            return ()
        self._plan, self._state, self._allocation, self._usual = found
        self.past_prices.append((self._decided_at or 0.0, self._plan.prices))
        self.trouble = ""
        self._unsaved = True
        return tuple(self._plan.leave)

    def keep(self) -> None:
        """Remember the last round over a restart; to be called once what was decided is written down."""
        if self._unsaved and self._file is not None:
            state_file.save(self._file, self._state, self.oracle)
        self._unsaved = False

    def _wake(self, snapshot: Snapshot, decision: Decision) -> Decision:
        """Decide again when the next round begins, if any job competes. One that is being made will tell by itself."""
        if self._decided_at is None or self._beside is not None:
            return decision
        if self._plan is None and next(competing_groups(snapshot), None) is None:
            return decision
        due = self._decided_at + self.settings.round_s
        return replace(decision, wake_at=due if decision.wake_at is None else min(due, decision.wake_at))

    def _preferred(self, job: Pending, needs: Sequence[Need]) -> Sequence[Need]:
        """Where the job is fastest for what the type is worth: only scarce types have a price. Of types that are as
        good for it the one that is slower for others, then the one that has more free."""
        if len(needs) < 2 or self._snapshot is None:
            return needs
        pools = self._snapshot.pools
        rates = self._relative(job, [need.pool for need in needs])
        prices = self._plan.prices if self._plan is not None else {}

        def key(need: Need) -> tuple[float, float, float, int, str]:
            kind, price = need.pool, prices.get(need.pool, 0.0)
            worth = rates.get(kind, 1.0) / price if price > 0.0 else inf
            free = pools[kind].free if kind in pools else 0
            return -worth, -rates.get(kind, 1.0), self._usual.get(kind, 1.0), -free, kind

        return sorted(needs, key=key)

    def _relative(self, job: Pending, types: list[str]) -> dict[str, float]:
        """How fast any job of the kind is on these types, in parts of its best; worked out once a round."""
        facts = self._look(job.job_id)
        if self.settings.agnostic or facts is None:
            return {}
        name = facts.sized(job.resources.accelerator_count * job.ranks)
        if name not in self._rates:
            found = {kind: speed.per_s for kind, speed in self.oracle.throughputs(name, types).items()}
            best = max(found.values(), default=1.0)
            self._rates[name] = {kind: 1.0 if rate > ALIKE * best else rate / best for kind, rate in found.items()}
        return self._rates[name]

    @property
    def waited_since(self) -> Mapping[str, float]:
        """Since when a job has been waiting for each accelerator type, as far as the last round knew."""
        return self._plan.waited_since if self._plan is not None else NONE_WAITS

    # --- sensing

    def reported(self, live: LiveJob) -> None:
        """A job reported something new."""
        self._learn()
        attempt, snapshot = live.attempt, self._snapshot
        if attempt is None or snapshot is None or not _competes(snapshot, live):
            return
        kind = type_of(snapshot, attempt.placement)
        if kind is None:
            return
        size = facts_of(live).sized(live.job.resources.accelerator_count * len(attempt.placement))
        sample = self._sampler.read(live.job.id, size, kind, attempt.number, live.job.progress)
        if sample is not None:
            self._samples.append(sample)
            self._reporting.add(live.job.id)
            self._learn()

    def _learn(self) -> None:
        """Tell the oracle what was reported, unless a thread reads it now."""
        if self._beside is None and (self._reading is None or self._reading.done()):
            self.oracle.observe(self._samples)
            self._samples.clear()

    def _forget_ended(self) -> None:
        """Not while a thread reads the oracle: the next round will."""
        if self._reading is not None and not self._reading.done():
            return
        for job_id in [job_id for job_id in self._reporting if self._find(job_id) is None]:
            self._reporting.discard(job_id)
            self._sampler.forget(job_id)
            self.oracle.forget(job_id)

    def _look(self, job_id: str) -> Facts | None:
        live = self._find(job_id)
        return None if live is None else facts_of(live)

    # --- telling

    async def explain(self, snapshot: Snapshot, job: LiveJob, where: str) -> Explanation | None:
        """Why a competing job waits, or runs `where` it does; None for what is admission's. Worked out in a thread,
        from what is known now."""
        record = job.job
        if not _competes(snapshot, job):
            return None
        asked = Asked(
            snapshot, record, facts_of(job), job.manifest.min_ranks, job.wait, self.settings, self._plan,
            self._decided_at, self.oracle, where,
        )  # fmt: skip
        return await self._beside_the_loop(partial(explained, asked))

    async def lines(self, snapshot: Snapshot) -> list[str]:
        """The live jobs and pools as lines of a schedule snapshot. Worked out in a thread, from what is known now."""
        facts = facts_by_id(snapshot, self._find)
        return await self._beside_the_loop(
            partial(live_lines, snapshot, facts, self.oracle, self.settings, self.waited_since)
        )

    async def _beside_the_loop(self, work: Callable[[], T]) -> T:
        """One at a time and never beside a round that is being made, so that one thread at most competes with the event
        loop for the interpreter."""
        async with self._turn:
            self._reading = asyncio.get_running_loop().run_in_executor(self._thread, work)
            return await asyncio.shield(self._reading)  # who asked may go away: the thread still reads

    def status(self) -> dict[str, Any]:
        """For `shoal status`."""
        plan = self._plan
        found: dict[str, Any] = {
            "policy": self.settings.policy + (" (agnostic)" if self.settings.agnostic else ""),
            "round": plan.round.number if plan is not None else self._state.number,
            "prices": plan.prices if plan is not None else {},
        }
        return {**found, "trouble": self.trouble} if self.trouble else found


def _competes(snapshot: Snapshot, live: LiveJob) -> bool:
    """Whether the job waits or runs in this snapshot, and competes there."""
    job = snapshot.pending.by_id.get(live.job.id) or snapshot.running.get(live.job.id)
    return job is not None and competes(snapshot, job.resources, job.priority_class, job.affinity)


def usual(problem: Problem) -> dict[str, float]:
    """How fast each type is for the jobs that there are, in parts of each one's best."""
    best = problem.rate.max(axis=1, initial=0.0)
    parts = problem.rate[best > 0.0] / best[best > 0.0, None]
    return {column.key: float(part.mean()) for column, part in zip(problem.columns, parts.T, strict=True) if len(part)}
