"""Carries a plan out: the order in which admission starts the jobs that compete, and where each may run.

First the jobs of the plan, each on the type that the round chose; capacity is reserved for those that do not fit yet
(others still write their checkpoints, or stand in the way of a gang). What is left over goes, in the same order, to
jobs with a share of that type, then to any job, so that nothing idles between rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from math import inf
from typing import Any

from shoal.admission import (
    Decision,
    GroupKey,
    Need,
    Pending,
    Preemption,
    Reservation,
    Snapshot,
    Turn,
    reasons,
    resolve,
)
from shoal.core import Affinity, Reason, Resources
from shoal.schedule.live.plan import Plan
from shoal.schedule.live.problem import competes, competing_groups, needs_of, type_of
from shoal.schedule.minimum_run import span

NEW = "next-round"
"""Code of the wait of a job that came after the round was made, when nothing is left over for it."""

Prefer = Callable[[Pending, Sequence[Need]], Sequence[Need]]
"""In which order a job that may run on several types would take them."""


class Placing:
    """Admission's order (`shoal.admission.Order`) of the jobs that compete in one snapshot, by a plan (None: there is
    none, and all is left over)."""

    def __init__(self, snapshot: Snapshot, plan: Plan | None, prefer: Prefer) -> None:
        self._snapshot = snapshot
        self._plan = plan
        self._target: Mapping[str, str] = plan.target if plan is not None else {}
        self._prefer = prefer
        self._pledged = _pledged(snapshot, plan)
        self._leaving = plan is not None and snapshot.policy.preemption and _leaving(snapshot, plan)
        self._needs: dict[tuple[Resources, int, int, Affinity], tuple[Need, ...]] = {}

    def has(self, key: GroupKey) -> bool:
        return competes(self._snapshot, key.resources, key.priority_class, key.affinity)

    def turns(self, left: Mapping[str, int], begun: Set[str]) -> Iterator[Turn]:
        """In the order of the plan; jobs that came since are behind, in order of arrival."""
        if not any(left.values()):
            return
        rank: Mapping[str, int] = self._plan.rank if self._plan is not None else {}
        ready = [job for group in competing_groups(self._snapshot) for job in group.ready]
        ready.sort(key=lambda job: (
            job.job_id not in self._target, rank.get(job.job_id, inf), -job.priority, job.queued_at, job.job_id,
        ))  # fmt: skip
        planned = [job for job in ready if job.job_id in self._target]
        spare = ready[len(planned) :]
        sharing = [] if self._plan is None else [job for job in spare if job.job_id in self._plan.sharing]
        for turn in self._turns(planned, sharing, spare, left, begun):
            yield turn
            if not any(left.values()):
                return

    def _turns(
        self, planned: list[Pending], sharing: list[Pending], spare: list[Pending], left: Mapping[str, int],
        begun: Set[str],
    ) -> Iterator[Turn]:  # fmt: skip
        needed = [self._wanted(job) * job.resources.accelerator_count for job in planned]
        owed: Counter[str] = Counter()
        for job, count in zip(planned, needed, strict=True):
            owed[self._target[job.job_id]] += count
        for job, count in zip(planned, needed, strict=True):
            target = self._target[job.job_id]
            owed[target] -= count
            yield self._planned(job, target, left.get(target, 0) - self._pledged[target] - owed[target])
        for job in sharing:
            assert self._plan is not None
            types = self._plan.shares(job.job_id)
            yield self._spare(job, [need for need in self._needs_of(job) if need.pool in types], left)
        for job in spare:
            if job.job_id not in begun:
                yield self._spare(job, self._needs_of(job), left)

    def starts(self, turn: Turn, given: str) -> Reason:
        found = self._plan.reason(turn.job.job_id) if turn.reserves and self._plan is not None else None
        if found is not None:
            return Reason(reasons.PLACED, f"starts on {given}: {found.text}", found.facts)
        facts = {"waited_s": max(0.0, self._snapshot.now - turn.job.queued_at)}
        return Reason("spare", f"starts on {given}, which is left over", facts)

    def waits(self, job: Pending, reservation: Reservation | None) -> Reason:
        found = self._plan.reason(job.job_id) if self._plan is not None else None
        if found is None:
            return Reason(NEW, "waits for the next round: nothing is left over that it could use", {})
        target = self._target.get(job.job_id)
        if target is None:
            return found
        after = reservation.after if reservation is not None else ()
        text = f"it may run on {target}, which is not free yet"
        text += f"; starts when {reasons.jobs_end(after)}" if after else ""
        return Reason("making-room", f"waits: {text}", {**found.facts, "after": list(after)})

    def _planned(self, job: Pending, target: str, free: int) -> Turn:
        """A job that leaves its size open has what the policy chose, also if that has to be waited for until others
        have left. Without a choice it has what of the `free` accelerators fits."""
        need = self._snapshot.nodes.layout.on_nodes(resolve(job.resources, target), job.per_node, job.affinity)
        if self._plan is not None and job.job_id in self._plan.size:
            return Turn(job, ((need, self._wanted(job)),), whole=self._leaving, reserves=True)
        return Turn(job, ((need, min(job.most, free // need.count)),), reserves=True)

    def _spare(self, job: Pending, needs: Sequence[Need], left: Mapping[str, int]) -> Turn:
        ways = [
            (need, min(job.most, free // need.count))
            for need in self._prefer(job, needs)
            if (free := left.get(need.pool, 0) - self._pledged[need.pool]) >= need.count * job.ranks
        ]
        return Turn(job, ways)

    def _wanted(self, job: Pending) -> int:
        """The ranks that the policy gives the job, or what it needs to start where the policy does not choose."""
        ranks = self._plan.ranks(job.job_id, job.resources) if self._plan is not None else None
        return job.ranks if ranks is None else min(max(ranks, job.ranks), job.most)

    def _needs_of(self, job: Pending) -> tuple[Need, ...]:
        shape = (job.resources, job.ranks, job.per_node, job.affinity)
        if shape not in self._needs:
            self._needs[shape] = needs_of(self._snapshot, *shape)
        return self._needs[shape]


def leaving(decision: Decision, snapshot: Snapshot, plan: Plan | None, jobs: Sequence[str]) -> Decision:
    """The decision by which these `jobs` also leave their places, whose time slices are over."""
    if plan is None or not snapshot.policy.preemption:
        return decision
    asked = {each.job_id for each in decision.preemptions}
    over = (Preemption(job_id, "", _turn_over(snapshot, plan, job_id)) for job_id in jobs if job_id not in asked)
    return replace(decision, preemptions=(*decision.preemptions, *over))


def _turn_over(snapshot: Snapshot, plan: Plan, job_id: str) -> Reason:
    found = plan.reason(job_id)
    facts: dict[str, Any] = {} if found is None else dict(found.facts)
    target, size, place = plan.target.get(job_id), plan.size.get(job_id), plan.leave.get(job_id)
    if target is None:
        return Reason(
            "time-slice-over", f"its time slice is over: others have larger deficits{_lost(plan, job_id)}", facts
        )
    if place is None or size is None or size == place.accelerators:
        return Reason("moved", f"moves to {target}, where its share is now{_lost(plan, job_id)}", facts)
    count = snapshot.running[job_id].resources.accelerator_count
    change = f"{place.accelerators // count} to {size // count} ranks"
    change += f" on {target}" if target == place.type else f", from {place.type} to {target}"
    gain = plan.gain(job_id, place)
    facts |= {"from": [place.type, place.accelerators], "to": [target, size], "times_as_fast": gain}
    why = "what it leaves is worth more to others"
    if gain is not None and gain > 1.0:
        why = f"{gain:.2g} times as fast, as far as is known"
    why += _lost(plan, job_id)
    if size < place.accelerators:
        return Reason("shrunk", f"shrinks from {change}: {why}", facts)
    return Reason("grown", f"grows from {change}: {why}", facts)


def _lost(plan: Plan, job_id: str) -> str:
    risk = plan.unsaved.get(job_id)
    return f"; it did not save its work, and loses {span(risk.lose_s)} of it" if risk is not None else ""


def _pledged(snapshot: Snapshot, plan: Plan | None) -> Counter[str]:
    """Of each type, what jobs need that were told to grow and still save their work, beyond what they hold of it."""
    found: Counter[str] = Counter()
    for job_id, place in plan.promised.items() if plan is not None else ():
        now = snapshot.running.get(job_id)
        if now is not None and now.stopping:
            has = now.resources.accelerator_count * len(now.placement)
            mine = has if type_of(snapshot, now.placement) == place.type else 0
            found[place.type] += max(0, place.accelerators - mine)
    return found


def _leaving(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether any job whose time slice is over by this plan has not left yet."""
    return any(
        (now := snapshot.running.get(job_id)) is not None and now.started_at == place.since
        for job_id, place in plan.leave.items()
    )
