"""Carries a plan out: whoever shall run starts where admission's node packing finds room on the type that the round
chose; what nobody in the plan can use is given out in the same order, so that nothing idles between rounds.

Room is kept for a job of the plan that does not fit yet (others are still writing their checkpoints, or stand in the
way of a gang), as admission keeps it for a blocked gang: only what surely ends before may use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

from shoal.admission import (
    Account,
    Capacity,
    ClusterIndex,
    CowMap,
    Decision,
    Group,
    Limit,
    Need,
    Pending,
    PendingJobs,
    Preemption,
    Reservation,
    Running,
    Snapshot,
    Start,
    TenantQueue,
    expected_runtime_s,
    held_by_all,
    reasons,
    reserve,
    resolve,
    slots,
)  # fmt: skip
from shoal.admission import Plan as Nodes
from shoal.contract.records import RankPlacement
from shoal.core import Reason, Resources
from shoal.schedule.live.plan import Plan
from shoal.schedule.live.problem import competes, competing_groups, needs_of, type_of
from shoal.schedule.minimum_run import span

NEW = "next-round"
"""Code of the wait of a job that came after the round was made, when nothing is left over for it."""

_CLAIMED = 1
_RESERVATIONS = 32
"""So many jobs of a plan may keep room at once."""

Prefer = Callable[[Pending, Sequence[Need]], Sequence[Need]]
"""In which order a job that may run on several types would take them."""


def without_competing(snapshot: Snapshot) -> Snapshot:
    """The snapshot as admission is asked about it: without the waiting jobs that compete for accelerators."""
    kept: CowMap[TenantQueue] = CowMap()
    changed = False
    for name, queue in snapshot.pending.by_tenant.items():
        rest = tuple(
            group for group in queue.best_effort if not competes(group.key.resources, group.key.priority_class)
        )
        changed = changed or len(rest) < len(queue.best_effort)
        if rest or queue.guaranteed:
            kept[name] = TenantQueue(queue.guaranteed, rest)
    if not changed:
        return snapshot
    pending = PendingJobs(snapshot.pending.by_id, kept.freeze(), snapshot.pending.next_due)
    return replace(snapshot, pending=pending)


def place(
    snapshot: Snapshot, base: Decision, plan: Plan | None, prefer: Prefer, *, preempt: Sequence[str] = ()
) -> Decision:
    """`base` is admission's decision on all else, which goes first; `preempt` the jobs whose time slice ends now.
    Pure."""
    groups = list(competing_groups(snapshot))
    filling = _Filling(snapshot, base, plan, prefer)
    filling.serve(groups)
    leaving = tuple(
        Preemption(job_id, "", _turn_over(snapshot, plan, job_id))
        for job_id in preempt
        if plan is not None and not any(job_id == other.job_id for other in base.preemptions)
    )
    return replace(
        base,
        starts=base.starts + tuple(filling.starts),
        preemptions=base.preemptions + leaving,
        waits={**base.waits, **filling.waits(groups)},
        deficits={**base.deficits, **filling.deficits},
    )


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


@dataclass(slots=True)
class _Kept:
    number: int
    reservation: Reservation


class _Filling:
    """One decision about the jobs that compete, while it is being made."""

    def __init__(self, snapshot: Snapshot, base: Decision, plan: Plan | None, prefer: Prefer) -> None:
        self._snapshot = _with(snapshot, base)
        self._plan = plan
        self._target: Mapping[str, str] = plan.target if plan is not None else {}
        self._prefer = prefer
        self._room = Capacity(self._snapshot)
        self._accounts: dict[str, Account] = {}
        self._kept: list[_Kept] = []
        self._why: dict[str, Reason] = {}
        self._left = {name: pool.free for name, pool in self._snapshot.pools.items() if name}
        self._free = sum(self._left.values())
        self._owed: Counter[str] = Counter()
        self._pledged = _pledged(snapshot, plan)
        self._begun: set[str] = set()
        self._leaving = plan is not None and snapshot.policy.preemption and _leaving(snapshot, plan)
        self._needs: dict[tuple[Resources, int], tuple[Need, ...]] = {}
        self.starts: list[Start] = []
        self.deficits: dict[str, float] = dict(base.deficits)
        for claim in base.claims:
            need = resolve(snapshot.pending.by_id[claim.job_id].resources, claim.pool)
            for name, ranks in claim.ranks:
                if (at := snapshot.nodes.layout.position.get(name)) is not None:
                    self._room.hold(0, at, self._room.free_on(at, 0).part_for(need, ranks))

    def serve(self, groups: Sequence[Group]) -> None:
        """All that can start: the jobs of the plan; on what is left those that have a share of the type; then anybody.
        In the order of the plan; whoever came since is behind, in order of arrival."""
        if not self._free:
            return
        rank: Mapping[str, int] = self._plan.rank if self._plan is not None else {}
        ready = [job for group in groups for job in group.ready]
        ready.sort(key=lambda job: (
            job.job_id not in self._target, rank.get(job.job_id, inf), -job.priority, job.queued_at, job.job_id,
        ))  # fmt: skip
        planned = [job for job in ready if job.job_id in self._target]
        needed = [self._wanted(job) * job.resources.accelerator_count for job in planned]
        for job, count in zip(planned, needed, strict=True):
            self._owed[self._target[job.job_id]] += count
        for job, count in zip(planned, needed, strict=True):
            target = self._target[job.job_id]
            self._owed[target] -= count
            if self._free > 0:
                self._planned(job, target)
        spare = ready[len(planned) :]
        if self._plan is not None:
            for job in spare:
                if self._free > 0 and job.job_id in self._plan.sharing:
                    self._spare(job, self._plan.shares(job.job_id))
        for job in spare:
            if self._free > 0 and job.job_id not in self._begun:
                self._spare(job, None)

    def waits(self, groups: Sequence[Group]) -> dict[str, Reason]:
        """Why the head of each group waits."""
        found: dict[str, Reason] = {}
        now = self._snapshot.now
        for group in groups:
            head = next((job for job in group.ready if job.job_id not in self._begun), None)
            if head is not None:
                found[head.job_id] = self._reason(head)
            if (delayed := group.delayed.first()) is not None:
                due = delayed[1].not_before
                text = f"waits: tries again in {ceil(due - now)} s after a failure"
                found[delayed[1].job_id] = Reason(reasons.BACKOFF, text, {"not_before": due})
        return found

    def _planned(self, job: Pending, target: str) -> None:
        need = resolve(job.resources, target)
        if self._over_quota(job, (need,)):
            return
        everything = self._mask(None)
        ranks = self._size(job, need, everything)
        nodes = self._find(job, need, ranks, everything)
        if nodes is not None:
            self._start(job, need, nodes, planned=True)
        elif len(self._kept) < _RESERVATIONS:
            kept = reserve(self._snapshot, self._room, job.job_id, need, ranks, everything, ())
            if kept is not None:
                number = len(self._kept) + 1
                self._kept.append(_Kept(number, kept))
                for at, amount in kept.holds:
                    self._room.hold(number, at, amount)

    def _spare(self, job: Pending, types: Container[str] | None) -> None:
        needs = self._needs_of(job)
        if types is not None:
            needs = tuple(need for need in needs if need.pool in types)
        if not needs or self._over_quota(job, needs):
            return
        account, mask = self._account(job.tenant), self._mask(job)
        for need in self._prefer(job, needs):
            left = self._left[need.pool] - self._pledged[need.pool]
            if left < need.count * job.ranks:
                continue
            # Most do not fit with the least that they need; that this was tried for an equal one is remembered.
            if account.exceeded(need, job.ranks) or (nodes := self._find(job, need, job.ranks, mask)) is None:
                continue
            if (ranks := self._size(job, need, mask)) > job.ranks:
                nodes = self._find(job, need, ranks, mask) or nodes
            self._start(job, need, nodes, planned=False)
            return

    def _wanted(self, job: Pending) -> int:
        """The ranks that the policy gives the job, or what it needs to start where the policy does not choose."""
        ranks = self._plan.ranks(job.job_id, job.resources) if self._plan is not None else None
        return job.ranks if ranks is None else min(max(ranks, job.ranks), job.most)

    def _size(self, job: Pending, need: Need, mask: int) -> int:
        """With how many ranks to start a job. One that leaves it open has what the policy chose, also if that has to be
        waited for until others have left. Without a choice it has what fits and nobody in the plan is to have."""
        if job.most == job.ranks:
            return job.ranks
        chosen = self._plan is not None and job.job_id in self._plan.size
        most = self._account(job.tenant).most(need, self._wanted(job) if chosen else job.most)
        if chosen and self._leaving:
            return max(job.ranks, most)
        if not chosen:
            left = self._left[need.pool] - self._pledged[need.pool] - self._owed[need.pool]
            most = min(most, left // need.count)
        return max(job.ranks, self._room.most(need, mask, most))

    def _needs_of(self, job: Pending) -> tuple[Need, ...]:
        shape = (job.resources, job.ranks)
        if shape not in self._needs:
            self._needs[shape] = needs_of(self._snapshot, job.resources, job.ranks)
        return self._needs[shape]

    def _find(self, job: Pending, need: Need, ranks: int, mask: int) -> Nodes | None:
        return self._room.find(need, ranks, job.placement or self._snapshot.policy.placement, mask)

    def _start(self, job: Pending, need: Need, nodes: Nodes, *, planned: bool) -> None:
        names, mask = self._snapshot.nodes.layout.names, self._mask(None if planned else job)
        placement: list[RankPlacement] = []
        for at, count in nodes:
            for devices in self._room.take(at, need, count, mask):
                placement.append(RankPlacement(len(placement), names[at], devices))
        self._account(job.tenant).take(need, len(placement))
        state = self._snapshot.tenants[job.tenant]
        charge = expected_runtime_s(job, state.mean_runtime_s, self._snapshot.policy)
        charge *= slots(job.resources, len(placement))
        self.deficits[job.tenant] = self.deficits.get(job.tenant, state.deficit) - charge
        self._left[need.pool] -= need.count * len(placement)
        self._free -= need.count * len(placement)
        self._begun.add(job.job_id)
        where = reasons.given(need, job, len(placement))
        self.starts.append(Start(job.job_id, tuple(placement), self._started(job, where, planned), charge))

    def _started(self, job: Pending, where: str, planned: bool) -> Reason:
        found = self._plan.reason(job.job_id) if planned and self._plan is not None else None
        if found is not None:
            return Reason(reasons.PLACED, f"starts on {where}: {found.text}", found.facts)
        facts = {"waited_s": max(0.0, self._snapshot.now - job.queued_at)}
        return Reason("spare", f"starts on {where}, which is left over", facts)

    def _over_quota(self, job: Pending, needs: Sequence[Need]) -> bool:
        """Whether the tenant's quota allows none of these now; if so, the reason is noted."""
        account = self._account(job.tenant)
        if account.unlimited:
            return False
        over: list[tuple[Limit, ...]] = [account.exceeded(need, job.ranks) for need in needs]
        if not all(over):
            return False
        self._why[job.job_id] = reasons.quota(job.tenant, over[0][0])
        return True

    def _mask(self, job: Pending | None) -> int:
        """What room is kept that the job must respect; of a spare one, what it may delay."""
        mask = _CLAIMED
        for kept in self._kept:
            ends = inf if job is None or job.expected_s is None else self._snapshot.now + job.expected_s
            if ends > kept.reservation.at:
                mask |= 1 << kept.number
        return mask

    def _account(self, name: str) -> Account:
        if (account := self._accounts.get(name)) is None:
            account = self._accounts[name] = Account(self._snapshot.tenants[name])
        return account

    def _reason(self, job: Pending) -> Reason:
        needs = self._needs_of(job)
        if not needs:
            need = resolve(job.resources, None)
            return reasons.impossible(need, job.ranks, held_by_all(self._snapshot.nodes.layout, need, job.ranks))
        if job.job_id in self._why or self._over_quota(job, needs):
            return self._why[job.job_id]
        kept = next((each for each in self._kept if each.reservation.job_id == job.job_id), None)
        found = self._plan.reason(job.job_id) if self._plan is not None else None
        if found is None:
            return Reason(NEW, "waits for the next round: nothing is left over that it could use", {})
        target = self._target.get(job.job_id)
        if target is None:
            return found
        after = kept.reservation.after if kept is not None else ()
        text = f"it may run on {target}, which is not free yet"
        text += f"; starts when {reasons.jobs_end(after)}" if after else ""
        return Reason("making-room", f"waits: {text}", {**found.facts, "after": list(after)})


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
    """Whether anybody whose time slice is over by this plan has not left yet."""
    return any(
        (now := snapshot.running.get(job_id)) is not None and now.started_at == place.since
        for job_id, place in plan.leave.items()
    )


def _with(snapshot: Snapshot, base: Decision) -> Snapshot:
    """The snapshot once admission's own starts are carried out."""
    if not base.starts:
        return snapshot
    index = ClusterIndex.resume(snapshot)
    for start in base.starts:
        job = snapshot.pending.by_id[start.job_id]
        index.start(Running(
            job.job_id, job.tenant, job.priority_class, job.priority, job.resources, start.placement, snapshot.now,
        ))  # fmt: skip
    return index.snapshot(snapshot.now)
