"""Explanations of waiting jobs: the causes, what would have to change, and when the job may start.

A change is not guessed: each one that is named was tried on a copy of the cluster with the very policy that decides.
The estimate is made the same way (see `outlook`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from shoal.admission import reasons
from shoal.admission.amounts import held_by_all
from shoal.admission.capacity import Capacity
from shoal.admission.decide import decide
from shoal.admission.index import ClusterIndex
from shoal.admission.outlook import EndBy, ExpectedStart, Outlook
from shoal.admission.quota import Account, Limit
from shoal.admission.reservation import reserve
from shoal.admission.snapshot import Layout, Need, Snapshot, resolve
from shoal.admission.types import Blocker, Explanation, NodeState, Pending, Running, TenantState
from shoal.core import ANY, NO_AFFINITY, Affinity, NotFound, PriorityClass, Quota, Reason, Resources, Tenant

_WIDER = 1.1
"""By this factor both ends of an interval are moved out: futures know less than all that may happen."""

_MUCH_WIDER = 1.5
"""The same for a job that guaranteed ones may preempt or overtake: they come seldom, and each changes much."""


def explain(snapshot: Snapshot, job_id: str, outlook: Outlook | None = None) -> Explanation:
    """Every cause of a job's wait in the order that admission asks.

    Each blocking cause names a `change`, in its reason's facts as `to_start`: `quota` (limits to raise), `open` (closed
    nodes), `end` (running jobs to end), `priority` and `priority_class`, `not_before`. With all of them together the
    job starts at once, except where `share` blocks: then other tenants' turns come first. `outlook` is that of this
    snapshot: give the same one for all jobs, so that what they share is worked out once.

    Raises NotFound for a job that does not wait in this snapshot.
    """
    job = snapshot.pending.by_id.get(job_id)
    if job is None:
        raise NotFound("no such waiting job", where=job_id, hint="only jobs that wait can be explained")
    outlook = outlook or Outlook(snapshot)
    decision = outlook.decision
    ahead = _ahead(snapshot, job)
    started = next((start for start in decision.starts if start.job_id == job_id), None)
    if started is not None:
        return Explanation(job_id, (), ahead, snapshot.now, started.reason.text, "it starts now")
    needs, held = _alternatives(snapshot.nodes.layout, job.resources, job.ranks, job.per_node, job.affinity)
    if held < job.ranks:
        never = reasons.impossible(needs[0], job.ranks, held)
        change = "ask for less, or add a node that has this"
        if needs[0].only is not None:
            change = "ask for less, change `nodes` in the manifest, or add a node that has this"
        return Explanation(
            job_id, (Blocker(reasons.IMPOSSIBLE, True, never, change),), ahead, None, f"waits: {never.text}",
            "never on these nodes",
        )  # fmt: skip
    causes, verdict = _causes(snapshot, job, needs, ahead)
    own = decision.waits.get(job_id)
    summary = own.text if own is not None else _summary(causes, verdict)
    shut = next((cause for cause in causes if cause.cause == reasons.CLOSED), None)
    if shut is not None and shut.reason.text not in summary:
        summary += f"; {shut.reason.text}"
    at, estimate = _estimate(outlook, job, own, causes)
    return Explanation(job_id, causes, ahead, at, summary, estimate)


def with_interval(told: Explanation, outlook: Outlook) -> Explanation:
    """The explanation with the interval that holds the start of its job in nine of ten cases, where that can be said:
    from its earliest start in some futures to its latest. The estimate is moved into their middle third: by itself
    it knows nothing of jobs to come. It costs many times what the explanation does."""
    at, job = told.estimated_start, outlook.snapshot.pending.by_id.get(told.job_id)
    if at is None or job is None:
        return told
    starts = outlook.starts_in_futures(told.job_id, _own_before(outlook.snapshot, job))
    if not starts or starts[len(starts) // 2] == math.inf:
        return told
    third = len(starts) // 3
    at = min(max(at, starts[third]), starts[-1 - third])
    now, wider = outlook.snapshot.now, _MUCH_WIDER if _may_be_overtaken(outlook.snapshot, job) else _WIDER
    latest = None if starts[-1] == math.inf else now + (starts[-1] - now) * wider
    return replace(told, estimated_start=at, start_between=(now + (starts[0] - now) / wider, latest))


def _may_be_overtaken(snapshot: Snapshot, job: Pending) -> bool:
    """Whether there are guaranteed jobs, or were lately, before which this one gives way."""
    if job.priority_class is PriorityClass.GUARANTEED:
        return False
    others: Iterable[Pending | Running] = chain(
        snapshot.running.values(),
        snapshot.pending.by_id.values(),
        (arrival.job for past in snapshot.past.values() for arrival in past.arrivals),
    )
    return any(one.priority_class is PriorityClass.GUARANTEED for one in others)


def obstacles(
    layout: Layout, tenant: Tenant, resources: Resources, ranks: int, affinity: Affinity = NO_AFFINITY
) -> list[Reason]:
    """Why a job of `ranks` ranks would not start even if it were alone: no node holds it, or it needs more than the
    whole quota of its tenant. Nothing that waits or runs is looked at. Empty if it can start some day."""
    needs, held = _alternatives(layout, resources, ranks, 0, affinity)
    if held < ranks:
        return [reasons.impossible(needs[0], ranks, held)]
    account = Account(TenantState(tenant))
    over = [[limit for limit in account.exceeded(need, ranks) if limit.never] for need in needs]
    return [reasons.quota(tenant.name, over[0][0])] if all(over) else []


@dataclass(frozen=True, slots=True)
class _Change:
    """A hypothetical cluster: these limits raised, these jobs ended, all nodes open if `reopen`, and the job asked for
    otherwise."""

    quota: Mapping[str, int]
    end: tuple[str, ...]
    job: Pending
    reopen: bool = False

    def starts(self, snapshot: Snapshot) -> bool:
        index = ClusterIndex.resume(snapshot)
        if self.reopen:
            index.set_nodes(state.node for state in snapshot.nodes.values())
        for job_id in self.end:
            index.stop(job_id)
        if self.quota:
            tenant = snapshot.tenants[self.job.tenant].tenant
            index.set_tenant(replace(tenant, quota=raised(tenant.quota, self.quota)))
        index.add_pending(self.job)
        return any(start.job_id == self.job.job_id for start in decide(index.snapshot(snapshot.now)).starts)


def raised(quota: Quota, limits: Mapping[str, int]) -> Quota:
    """The quota with limits, named as in reasons (`accelerators`, `accelerators.TYPE`, ...), set anew."""
    by_type = dict(quota.by_type)
    whole: dict[str, int] = {}
    for name, limit in limits.items():
        _, dot, kind = name.partition(".")
        if dot:
            by_type[kind] = limit
        else:
            whole[name] = limit
    return replace(quota, by_type=tuple(by_type.items()), **whole)


def _causes(snapshot: Snapshot, job: Pending, needs: tuple[Need, ...], ahead: int) -> tuple[tuple[Blocker, ...], str]:
    """The causes, and in one word which of share and priority stands in the way once the others are gone."""
    causes: list[Blocker] = []
    if job.not_before > snapshot.now:
        wait_s = math.ceil(job.not_before - snapshot.now)
        facts = {"not_before": job.not_before, "to_start": {"not_before": 0.0}}
        backoff = Reason(reasons.BACKOFF, f"tries again in {wait_s} s after a failure", facts)
        causes.append(Blocker(reasons.BACKOFF, True, backoff, f"wait {wait_s} s"))
    need, limits = _quota_choice(snapshot, job, needs)
    quota = _to_raise(limits)
    capacity = Capacity(snapshot)
    spread = job.placement or snapshot.policy.placement
    fits = any(capacity.find(each, job.ranks, spread, 0) is not None for each in ((need,) if limits else needs))
    reservation = None if fits else reserve(snapshot, capacity, job.job_id, need, job.ranks, 0, ())
    closed = [] if fits else [state for state in snapshot.nodes.values() if not state.schedulable]
    reopen, spare = False, snapshot
    if closed:
        index = ClusterIndex.resume(snapshot)
        index.set_nodes(state.node for state in snapshot.nodes.values())
        spare = index.snapshot(snapshot.now)
        if reservation is None:
            reservation = reserve(spare, Capacity(spare), job.job_id, need, job.ranks, 0, ())
            reopen = reservation is not None
    end = reservation.after if reservation is not None else ()
    asked = job._replace(not_before=0.0)
    change = _Change(quota, end, asked, reopen)
    verdict, better = "none", job
    if fits or reservation is not None:
        verdict, better = _order(snapshot, change, ahead)
    causes.append(_quota_cause(job, limits))
    causes.append(_share_cause(snapshot, job, verdict))
    if fits:
        fine = Reason(reasons.SHAPE, f"{reasons.asked(need, job.ranks)} would fit now", {})
        causes.append(Blocker(reasons.SHAPE, False, fine))
    elif reopen and not end:
        causes.append(_closed_cause(closed, blocking=True))
    else:
        if reopen or (closed and Capacity(spare).find(need, job.ranks, spread, 0) is not None):
            causes.append(_closed_cause(closed, blocking=reopen))
        fitting = sum(count for _, count in capacity.fitting(need, 0, job.ranks))
        text = reasons.shape(need, job.ranks, capacity.most_on_one_node(need), fitting)
        text = reasons.reserved(text, reservation)
        facts = {**text.facts, "to_start": {"end": list(end)}}
        wish = reasons.jobs_end(end) if end else "open or add nodes"
        if reservation is not None and reservation.endless:
            wish = reasons.to_free(reservation.endless)
        causes.append(Blocker(reasons.SHAPE, True, replace(text, facts=facts), wish))
    causes.append(_priority_cause(job, better, verdict, ahead))
    return tuple(causes), verdict


def _order(snapshot: Snapshot, change: _Change, ahead: int) -> tuple[str, Pending]:
    """With quota and capacity settled: does the job start, or start at a higher priority, or do other tenants go
    first?"""
    if change.starts(snapshot):
        return "none", change.job
    own = snapshot.pending.by_tenant[change.job.tenant]
    top = max(group.key.priority for group in own) + 1
    first = change.job._replace(priority=top)
    if replace(change, job=first).starts(snapshot):
        return "priority", first
    if not ahead:  # no job of its own tenant or of a higher class is ahead: only other tenants' turns are left
        return "share", change.job
    surest = first._replace(priority_class=PriorityClass.GUARANTEED)
    if surest != first and replace(change, job=surest).starts(snapshot):
        return "priority", surest
    return "share", change.job


def _closed_cause(closed: list[NodeState], *, blocking: bool) -> Blocker:
    """Not `blocking` where it would help to open them, and the job starts without that when others end."""
    reason = reasons.closed(closed)
    facts = {**reason.facts, "to_start": {"open": reason.facts["nodes"]}} if blocking else reason.facts
    names = [state.node.name for state in closed]
    wish = "open " + ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Blocker(reasons.CLOSED, blocking, replace(reason, facts=facts), f"{wish}: shoal node undrain {names[0]}")


def _quota_choice(snapshot: Snapshot, job: Pending, needs: tuple[Need, ...]) -> tuple[Need, tuple[Limit, ...]]:
    """The alternative that lacks least quota, and the limits in its way."""
    account = Account(snapshot.tenants[job.tenant])
    choices = [(need, account.exceeded(need, job.ranks)) for need in needs]
    return min(choices, key=lambda choice: (len(choice[1]), any(limit.never for limit in choice[1])))


def quota_cause(snapshot: Snapshot, job: Pending, needs: tuple[Need, ...]) -> Blocker:
    """Whether its tenant's quota holds the job, and by which limits; `needs` are its alternatives, at least one."""
    return _quota_cause(job, _quota_choice(snapshot, job, needs)[1])


def _to_raise(limits: tuple[Limit, ...]) -> dict[str, int]:
    """The values with which these limits hold the job no more."""
    return {limit.name: limit.used + limit.needs for limit in limits}


def _quota_cause(job: Pending, limits: tuple[Limit, ...]) -> Blocker:
    if not limits:
        return Blocker(reasons.QUOTA, False, Reason(reasons.QUOTA, f"within the quota of {job.tenant}", {}))
    reason = reasons.quota(job.tenant, limits[0])
    quota = _to_raise(limits)
    facts = {**reason.facts, "to_start": {"quota": quota}}
    wish = f"{reasons.raise_quota(job.tenant, quota)}; or end jobs of {job.tenant}"
    return Blocker(reasons.QUOTA, True, replace(reason, facts=facts), wish)


def _share_cause(snapshot: Snapshot, job: Pending, verdict: str) -> Blocker:
    others = sorted(name for name in snapshot.pending.by_tenant if name != job.tenant)
    deficit = snapshot.tenants[job.tenant].deficit
    facts = {"deficit": deficit, "waiting_tenants": others[:16]}
    if verdict != "share":
        return Blocker(reasons.SHARE, False, Reason(reasons.SHARE, f"it is the turn of {job.tenant}", facts))
    first = "1 other tenant has work and goes" if len(others) == 1 else f"{len(others)} other tenants have work and go"
    text = f"waits for the turn of {job.tenant}: {first} first"
    return Blocker(reasons.SHARE, True, Reason(reasons.SHARE, text, facts), "wait for its turn, or a greater weight")


def _priority_cause(job: Pending, better: Pending, verdict: str, ahead: int) -> Blocker:
    facts: dict[str, object] = {"ahead": ahead}
    if verdict != "priority":
        text = "1 job goes first" if ahead == 1 else f"{ahead or 'no'} jobs go first"
        blocking = verdict == "share" and ahead > 0
        return Blocker(reasons.PRIORITY, blocking, Reason(reasons.PRIORITY, text, facts))
    facts["to_start"] = {"priority": better.priority, "priority_class": better.priority_class.value}
    guaranteed = " in the guaranteed class" if better.priority_class is not job.priority_class else ""
    text = f"waits behind {ahead} job{'' if ahead == 1 else 's'}"
    return Blocker(
        reasons.PRIORITY, True, Reason(reasons.PRIORITY, text, facts), f"priority {better.priority}{guaranteed}"
    )


def _summary(causes: tuple[Blocker, ...], verdict: str) -> str:
    blocking = [cause for cause in causes if cause.blocking]
    chosen = next((cause for cause in blocking if cause.cause == verdict), None) or (blocking[0] if blocking else None)
    if chosen is None:
        return "waits: free capacity is kept for a job that was blocked before it"
    return chosen.reason.text if chosen.reason.text.startswith("waits") else f"waits: {chosen.reason.text}"


def _alternatives(
    layout: Layout, resources: Resources, ranks: int, per_node: int, affinity: Affinity
) -> tuple[tuple[Need, ...], int]:
    """What a rank needs, by type if it takes any that could ever hold it; and how many ranks all nodes would hold."""
    types: tuple[str | None, ...] = layout.types if ANY in resources.accelerators else (None,)
    needs = [resolve(resources, kind) for kind in types] or [resolve(resources, None)]
    needs = [layout.on_nodes(need, per_node, affinity) for need in needs]
    held = [held_by_all(layout, need, ranks) for need in needs]
    possible = tuple(need for need, count in zip(needs, held, strict=True) if count >= ranks)
    return possible or tuple(needs), max(held)


def _own_before(snapshot: Snapshot, job: Pending) -> int:
    """How many ready jobs of its own tenant go first."""
    count = 0
    for group in snapshot.pending.by_tenant[job.tenant]:
        if group.key.priority_class is not job.priority_class:
            earlier = group.key.priority_class is PriorityClass.GUARANTEED
        elif group.key.priority == job.priority:
            count += group.ready.rank((job.queued_at, job.job_id))
            continue
        else:
            earlier = group.key.priority > job.priority
        count += len(group.ready) if earlier else 0
    return count


def _ahead(snapshot: Snapshot, job: Pending) -> int:
    count = _own_before(snapshot, job)
    if job.priority_class is PriorityClass.BEST_EFFORT:
        for name in snapshot.pending.by_tenant:
            if name != job.tenant:
                count += sum(len(group.ready) for group in snapshot.pending.by_tenant[name].guaranteed)
    return count


def _estimate(
    outlook: Outlook, job: Pending, own: Reason | None, causes: tuple[Blocker, ...]
) -> tuple[float | None, str]:
    """When the job starts, and in words what that rests on."""
    start = outlook.start_of(job.job_id)
    if start is not None:
        return start.at, _rests_on(outlook.snapshot, job, start)
    endless = next((cause.reason.facts["endless"] for cause in causes if "endless" in cause.reason.facts), None)
    if endless is not None:
        return None, reasons.held_by(endless)
    reserved = own.facts.get("starts_at") if own is not None else None
    if reserved is not None:
        return float(reserved), "from the ends of the jobs that it waits for"
    before = _own_before(outlook.snapshot, job)
    found = outlook.start_by_rate(job.tenant, before)
    if found is not None:
        at, started = found
        return at, f"from the rate at which jobs of {job.tenant} start: {started} of them go first within the forecast"
    if any(cause.blocking and cause.cause == reasons.QUOTA for cause in causes):
        held = outlook.snapshot.running.values()
        names = sorted({one.endless for one in held if one.tenant == job.tenant and one.endless})
        if names:
            return None, reasons.held_by(names, f"quota of {job.tenant}")
    return None, "nothing is known of when the jobs in its way end: declare expected_runtime, or report progress"


def _rests_on(snapshot: Snapshot, job: Pending, start: ExpectedStart) -> str:
    parts = [f"{count} by {by}" for by, count in start.ends if by is not EndBy.STOPPING]
    if not parts:
        return "it needs nothing to end" if not start.ends else "once what is being stopped has ended"
    count = sum(count for by, count in start.ends if by is not EndBy.STOPPING)
    text = f"from the expected end{'' if count == 1 else 's'} of {count} job{'' if count == 1 else 's'}: "
    text += ", ".join(parts)
    state = snapshot.tenants[job.tenant]
    if any(by is EndBy.HISTORY for by, _ in start.ends) and state.mean_runtime_s is not None:
        text += f" ({job.tenant}: {state.mean_runtime_s:.0f} s"
        text += f" +- {state.runtime_std_s:.0f} s over {state.runs} jobs)" if state.runs > 1 else ")"
    return text + (f"; {start.overdue} overdue: assumed to need as much time again" if start.overdue else "")
