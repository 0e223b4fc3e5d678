"""Explanations of a job that competes, waiting or running; and the live state as a schedule snapshot.

Pure, of values that do not change meanwhile: for ten thousand jobs both take a second, and are worked out in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shoal.admission import Blocker, Explanation, Pending, Snapshot, quota_cause, reasons
from shoal.contract.records import JobRecord
from shoal.core import ANY, NO_AFFINITY, Affinity, Reason
from shoal.schedule.live.facts import Facts
from shoal.schedule.live.goodput import by_size
from shoal.schedule.live.plan import Plan, rules_of
from shoal.schedule.live.problem import NONE_WAITS, Rules, live_problem, needs_of, type_of
from shoal.schedule.minimum_run import BEHIND, saves, span, unsaved
from shoal.schedule.oracle import Oracle
from shoal.schedule.presets import ScheduleSettings, time_slice_s
from shoal.schedule.workloads import snapshot_lines


@dataclass(frozen=True)
class Asked:
    """What is known of a competing job: its record and facts, the fewest ranks that it may have, why the last decision
    left it waiting; and of the last round, its plan and when it was decided. Nothing else changes the oracle while this
    is worked out. `summary` says where a running job is."""

    snapshot: Snapshot
    job: JobRecord
    facts: Facts
    least_ranks: int
    wait: Reason | None
    settings: ScheduleSettings
    plan: Plan | None
    decided_at: float | None
    oracle: Oracle
    summary: str

    @property
    def waiting(self) -> Pending | None:
        found: Pending | None = self.snapshot.pending.by_id.get(self.job.id)
        return found

    @property
    def affinity(self) -> Affinity:
        found = self.waiting or self.snapshot.running.get(self.job.id)
        return NO_AFFINITY if found is None else found.affinity

    @property
    def waited_since(self) -> Mapping[str, float]:
        return self.plan.waited_since if self.plan is not None else NONE_WAITS


def explained(asked: Asked) -> Explanation:
    """Pure: the causes that hold the job, or once did, each with what would change it."""
    waiting, summary = asked.waiting, asked.summary
    started_at = None if waiting is not None else asked.job.started_at
    causes = [*_quota(asked), _schedule(asked), *_work(asked), *_promise(asked), *_size(asked), *_speeds(asked)]
    if waiting is not None:
        summary = next((cause.reason.text for cause in causes if cause.blocking), summary)
    ahead = 0
    if waiting is not None:
        rank = asked.plan.rank if asked.plan is not None else {}
        mine = rank.get(asked.job.id)
        known = [rank.get(other) for other in asked.snapshot.pending.by_id]
        ahead = sum(at is not None and (mine is None or at < mine) for at in known)
    return Explanation(asked.job.id, tuple(causes), ahead, started_at, summary)


def _quota(asked: Asked) -> Iterator[Blocker]:
    snapshot, waiting = asked.snapshot, asked.waiting
    if waiting is None:
        return
    needs = needs_of(snapshot, waiting.resources, waiting.ranks, waiting.per_node, waiting.affinity)
    if needs:
        yield quota_cause(snapshot, waiting, needs)


def _schedule(asked: Asked) -> Blocker:
    found = asked.plan.reason(asked.job.id) if asked.plan is not None else None
    if found is None:
        text = "was not there when the last round was made"
        found = Reason("next-round", f"waits: it {text}" if asked.waiting else f"it {text}", {})
    if asked.waiting is None:
        return Blocker("schedule", False, found)
    if asked.wait is not None and asked.wait.code in ("making-room", "next-round", reasons.IMPOSSIBLE):
        found = asked.wait
    at = asked.decided_at
    due_s = 0.0 if at is None else max(0.0, at + asked.settings.round_s - asked.snapshot.now)
    change = f"wait for the next round, in {due_s:.0f} s; or a greater weight of {asked.job.tenant}"
    if found.code == BEHIND:
        change = "let these jobs save checkpoints (shoal.train): then all have time slices; or cancel one of them"
    if ANY not in asked.job.resources.accelerators:
        change += "; or take any accelerator type"
    return Blocker("schedule", True, found, change)


def _work(asked: Asked) -> Iterator[Blocker]:
    """Of a job that would not take its work along, or has not: what that is, and what it means for its time slices."""
    facts, snapshot, slice_s = asked.facts, asked.snapshot, time_slice_s(asked.settings)
    now = snapshot.running.get(asked.job.id)
    if facts.replica:
        return
    if now is not None and (kind := type_of(snapshot, now.placement)) is not None:
        since = asked.waited_since.get(kind)
        risk = unsaved(facts, kind, now.started_at, snapshot.now, waited_since=since, time_slice_s=slice_s)
        if risk is not None:
            yield Blocker("work", False, risk.reason())
    elif now is None and facts.lost_s > 0.0 and not saves(facts, slice_s):
        text = f"has lost {span(facts.lost_s)} of work, which it had not saved; its next time slice is twice as long"
        yield Blocker("work", False, Reason("unsaved", text, {"lost_s": round(facts.lost_s, 1)}))


def _promise(asked: Asked) -> Iterator[Blocker]:
    """Of a job that had much less than it was promised: what kept it from that."""
    found = None if asked.plan is None else asked.plan.shortfall(asked.job.id)
    if found is not None:
        yield Blocker("promise", False, found)


def _size(asked: Asked) -> Iterator[Blocker]:
    """Of a job that leaves its size open, what it has, and what decided that."""
    if asked.facts.ranks is None:
        return
    (least, most), plan = asked.facts.ranks, asked.plan
    now = asked.snapshot.running.get(asked.job.id)
    has = None if now is None else len(now.placement)
    chosen = plan.ranks(asked.job.id, asked.job.resources) if plan is not None else None
    facts = {"least": least, "most": most, "has": has, "chosen": chosen}
    text = f"takes {least} to {most} ranks" if has is None else f"has {has} of {least} to {most} ranks"
    if chosen is not None and plan is not None:
        text += f": {asked.settings.policy} chose {chosen}, {_because(plan, asked.job.id, chosen == most)}"
    else:
        text += ": what is free when it starts, for no round has chosen"
    yield Blocker("size", False, Reason("size", text, facts))


def _because(plan: Plan, job_id: str, most: bool) -> str:
    price = plan.prices[plan.target[job_id]]
    if most:
        return "the most that it may have"
    if price:
        return f"for others gain more from {plan.target[job_id]} (price {price:.3g})"
    return "for a change would gain less than a restart costs, or quotas leave no more"


def _speeds(asked: Asked) -> Iterator[Blocker]:
    """What the oracle believes of the job on each type (and at each size, where that is chosen), and from what."""
    facts, job, now = asked.facts, asked.job, asked.snapshot.running.get(asked.job.id)
    count = job.resources.accelerator_count
    for need in needs_of(asked.snapshot, job.resources, asked.least_ranks, facts.per_node, asked.affinity):
        size = count * (asked.least_ranks if now is None else len(now.placement))
        found = asked.oracle.estimate(facts.sized(size), need.pool, job=job.id).reason
        if facts.ranks is not None and rules_of(asked.settings).sizes:
            found = by_size(asked.oracle, facts, job.id, count, need.pool)
        yield Blocker("throughput", False, found)


def live_lines(
    snapshot: Snapshot,
    facts: Mapping[str, Facts],
    oracle: Oracle,
    settings: ScheduleSettings,
    waited_since: Mapping[str, float] = NONE_WAITS,
) -> list[str]:
    """The live jobs and pools as lines of a schedule snapshot, for asking another policy about them."""
    rules = Rules(dict(settings.prices), predict=True, sizes=True, time_slice_s=time_slice_s(settings))
    found = live_problem(snapshot, facts.get, oracle, rules, waited_since)
    return list(snapshot_lines(found.views, found.pools, found.tenants, now=found.now))
