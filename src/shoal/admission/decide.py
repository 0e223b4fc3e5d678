"""The default policy: which jobs start now and where, which are preempted, and why the others wait.

Guaranteed work is served before best-effort work. Within a class tenants take turns by weighted deficit round robin;
within a tenant jobs go by priority, then in order of arrival. The first job of a pool that is blocked for want of
capacity gets a reservation, which those behind it may not delay.

Equal jobs are handled as one group: once one of them cannot start, the rest is not looked at. With the cursors of
`Capacity` a decision costs what it starts plus the number of groups, not the number of waiting jobs or nodes.

Jobs that an `Order` has come after all others, in its order (see `order.py`).
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heapify, heappop, heapreplace
from math import inf
from operator import itemgetter

from shoal.admission import reasons
from shoal.admission.capacity import Capacity, Plan
from shoal.admission.fairness import Ring
from shoal.admission.order import MOST_RESERVATIONS, Order, Prefers, Turn
from shoal.admission.preempt import CLAIMS, Eviction, Evictor, leave_tainted
from shoal.admission.quota import Account, Limit, tightest
from shoal.admission.reservation import MOST_HELD, Kept, Reservation, Waiting, reserve, waits_for
from shoal.admission.shapes import Asked, Line, Shapes
from shoal.admission.snapshot import (
    Group,
    Need,
    Snapshot,
    expected_runtime_s,
    group_key,
    slots,
)
from shoal.admission.types import Claim, Decision, Pending, Preemption, Running, Spread, Start
from shoal.contract.records import RankPlacement
from shoal.core import PriorityClass, Reason, Share


def decide(snapshot: Snapshot, order: Order | None = None, prefers: Prefers | None = None) -> Decision:
    """A pure function: the same snapshot, order and preferences give the same decision. `prefers` is asked only for
    jobs that can start, and chooses between nodes on which the whole job fits."""
    return _Cycle(snapshot, order, prefers).run()


_CLAIMED = 1 << CLAIMS

_Waiting = tuple[int, float, str, Line]
"""A heap entry: (-priority, queued at, job id, line)."""


class _Cycle:
    """One decision while it is being made."""

    def __init__(self, snapshot: Snapshot, order: Order | None, prefers: Prefers | None) -> None:
        self._snapshot = snapshot
        self._order = order
        self._prefers = prefers
        self._now = snapshot.now
        self._policy = snapshot.policy
        self._capacity = Capacity(snapshot)
        self._before = Capacity(snapshot)  # never taken from: what was free at the start
        self._ring = Ring(
            snapshot.tenants, snapshot.pending.by_tenant, quantum_s=snapshot.policy.quantum_s, turn=snapshot.turn
        )
        self._accounts: dict[str, Account] = {}
        self._shapes = Shapes(snapshot)
        self._reservations: list[Kept] = []
        self._never: Counter[Waiting] = Counter()
        self._evictor: Evictor | None = None
        self._claims: dict[str, Claim] = {}
        self._begun: set[str] = set()
        self._takers: dict[str, set[tuple[str, PriorityClass]]] = {}
        self._started: list[tuple[tuple[float, str], Running]] = []
        self._starts: list[Start] = []
        self._left = {kind: snapshot.pools[kind].free for kind in snapshot.nodes.layout.types if kind in snapshot.pools}
        self._over: dict[str, Limit] = {}
        self._preemptions: list[Preemption] = []
        self._waits: dict[str, Reason] = {}

    def run(self) -> Decision:
        self._honour_claims()
        for priority_class in (PriorityClass.GUARANTEED, PriorityClass.BEST_EFFORT):
            self._serve(priority_class)
        if self._order is not None:
            self._serve_ordered(self._order)
        self._preemptions += leave_tainted(self._snapshot, {each.job_id for each in self._preemptions})
        deficits, turn = self._ring.finish()
        due = [held.reservation.at for held in self._reservations if held.reservation.at > self._now]
        if self._snapshot.pending.next_due is not None:
            due.append(self._snapshot.pending.next_due)
        if self._full:
            due.append(self._now)
        return Decision(
            starts=tuple(self._starts),
            preemptions=tuple(self._preemptions),
            waits=self._waits,
            deficits=deficits,
            turn=turn,
            claims=tuple(self._claims.values()),
            wake_at=min(due, default=None),
        )

    @property
    def _full(self) -> bool:
        return len(self._starts) >= self._policy.most_starts

    # --- turns

    def _serve(self, priority_class: PriorityClass) -> None:
        waiting = self._open(priority_class)
        self._ring.enter(waiting)
        while not self._full and (name := self._ring.next()) is not None:
            heap = waiting[name]
            while heap and not self._full and self._ring.may_go_on(name):
                self._step(name, heap)
            if heap:
                self._ring.back(name)
        if self._full:
            for name in filter(waiting.get, waiting):
                self._ring.competes(name)

    def _open(self, priority_class: PriorityClass) -> dict[str, list[_Waiting]]:
        waiting: dict[str, list[_Waiting]] = {}
        by_tenant = self._snapshot.pending.by_tenant
        for name in by_tenant:
            heap: list[_Waiting] = []
            for group in by_tenant[name].of(priority_class):
                if self._order is not None and self._order.has(group.key):
                    continue
                jobs = iter(group.ready)
                if self._begun:
                    jobs = (job for job in group.ready if job.job_id not in self._begun)
                head = next(jobs, None)
                if head is not None:
                    heap.append((-head.priority, head.queued_at, head.job_id, Line(group, head, jobs)))
                self._note_delayed(group)
            if heap:
                heapify(heap)
                waiting[name] = heap
        return waiting

    def _step(self, name: str, heap: list[_Waiting]) -> None:
        """Start or settle the tenant's first job; a job that must wait takes its whole group out of this decision."""
        line = heap[0][3]
        if not self._admit(name, line):
            heappop(heap)
            return
        head = next(line.rest, None)
        if head is None:
            heappop(heap)
        else:
            line.head = head
            heapreplace(heap, (-head.priority, head.queued_at, head.job_id, line))

    # --- one job

    def _admit(self, name: str, line: Line) -> bool:
        """True when those behind the job in its group may be looked at."""
        job, asked = line.head, self._shapes.asked(line.group.shape)
        if job.job_id in self._claims:
            return self._elsewhere(name, job, asked)
        if asked.impossible is not None:
            return self._wait(job, asked.impossible)
        account = self._account(name)
        needs = asked.needs
        if not account.unlimited:
            needs = self._within_quota(name, job, account, needs)
            if not needs:
                return False
        mask = self._mask(job, name)
        stuck = asked.stuck.get((mask, job.priority_class)) if needs is asked.needs else None
        if stuck is not None:
            self._ring.competes(name)
            return self._wait(job, stuck if isinstance(stuck, Reason) else self._overtaken(job, stuck))
        for need, ranks in self._sizes(job, needs, account, mask):
            plan = self._capacity.find(need, ranks, asked.spread, mask)
            if plan is not None:
                self._start(name, job, need, self._refined(job, need, plan, asked.spread, mask), mask)
                return True
        return self._blocked(name, job, asked, needs, mask)

    def _refined(self, job: Pending, need: Need, plan: Plan, spread: Spread, mask: int) -> Plan:
        """The plan, or a better one of the same size where others prefer nodes for the job."""
        saved = self._prefers(job.job_id) if self._prefers is not None else None
        return self._capacity.refine(plan, need, spread, mask, saved) if saved else plan

    def _sizes(self, job: Pending, needs: tuple[Need, ...], account: Account, mask: int) -> list[tuple[Need, int]]:
        """Where to try to start it, with how many ranks: as many as capacity and quota allow, if it may vary."""
        if job.most == job.ranks:
            return [(need, job.ranks) for need in needs]
        most = [(need, self._capacity.most(need, mask, account.most(need, job.most))) for need in needs]
        return sorted(((need, max(job.ranks, ranks)) for need, ranks in most), key=lambda each: -each[1])

    def _within_quota(self, name: str, job: Pending, account: Account, needs: tuple[Need, ...]) -> tuple[Need, ...]:
        """The alternatives that the tenant's quota allows now; without one, the reason is noted."""
        over = {need: account.exceeded(need, job.ranks) for need in needs}
        allowed = tuple(need for need in needs if not over[need])
        if not allowed:
            self._ring.kept_back(name)
            self._save_quota(job, account, over.values())
            self._wait(job, reasons.quota(name, tightest(over.values())))
            return ()
        free = tuple(need for need in allowed if account.saved(need, job.ranks) is None)
        if not free:
            older = account.saved(allowed[0], job.ranks)
            text = f"waits behind {older}, which waits for quota"
            self._wait(job, Reason(reasons.PRIORITY, text, {"behind": [older]}))
        return needs if len(free) == len(needs) else free

    # --- jobs that are put in order elsewhere

    def _serve_ordered(self, order: Order) -> None:
        begun: set[str] = set()
        for turn in order.turns(self._left, begun):
            if self._take_turn(order, turn):
                begun.add(turn.job.job_id)
        kept = {held.reservation.job_id: held.reservation for held in self._reservations}
        for queue in self._snapshot.pending.by_tenant.values():
            for group in queue.best_effort:
                if order.has(group.key):
                    self._note_delayed(group)
                    head = next((job for job in group.ready if job.job_id not in begun), None)
                    if head is not None:
                        self._waits[head.job_id] = self._why_ordered(order, group, head, kept.get(head.job_id))

    def _take_turn(self, order: Order, turn: Turn) -> bool:
        """True if the job starts."""
        job, account = turn.job, self._account(turn.job.tenant)
        spread = job.placement or self._policy.placement
        everything = (1 << (len(self._reservations) + 1)) - 1
        mask = everything if turn.reserves else self._mask(job, job.tenant)
        for need, at_most in turn.ways:
            if over := account.exceeded(need, job.ranks):
                self._over[job.job_id] = over[0]
                continue
            most = max(job.ranks, account.most(need, at_most))
            ranks = most if turn.whole else job.ranks
            plan = self._capacity.find(need, ranks, spread, mask)
            if plan is None:
                if turn.reserves and len(self._reservations) < MOST_RESERVATIONS:
                    kept = reserve(self._snapshot, self._capacity, job.job_id, need, ranks, everything, self._started)
                    if kept is not None:
                        self._keep(kept, young=False)
                continue
            if ranks < most and (ranks := self._capacity.most(need, mask, most)) > job.ranks:
                plan = self._capacity.find(need, ranks, spread, mask) or plan
            plan = self._refined(job, need, plan, spread, mask)
            self._start(job.tenant, job, need, plan, mask, partial(order.starts, turn))
            return True
        return False

    def _why_ordered(self, order: Order, group: Group, job: Pending, kept: Reservation | None) -> Reason:
        asked = self._shapes.asked(group.shape)
        if asked.impossible is not None:
            return asked.impossible
        over = [self._account(job.tenant).exceeded(need, job.ranks) for need in asked.needs]
        if all(over):
            return reasons.quota(job.tenant, tightest(over))
        if job.job_id in self._over:
            return reasons.quota(job.tenant, self._over[job.job_id])
        return order.waits(job, kept)

    # --- starting

    def _start(
        self, name: str, job: Pending, need: Need, plan: Plan, mask: int, told: Callable[[str], Reason] | None = None
    ) -> None:
        names = self._snapshot.nodes.layout.names
        placement: list[RankPlacement] = []
        for at, count in plan:
            for devices in self._capacity.take(at, need, count, mask):
                placement.append(RankPlacement(len(placement), names[at], devices))
        state = self._snapshot.tenants[name]
        runtime_s = expected_runtime_s(job, state.mean_runtime_s, self._policy)
        charge = runtime_s * slots(job.resources, len(placement))
        self._ring.charge(name, charge)
        if self._claims.pop(job.job_id, None) is None:
            self._account(name).take(need, len(placement))
        self._takers.setdefault(need.pool_name, set()).add((name, job.priority_class))
        if self._evictor is not None:
            self._evictor.changed(at for at, _ in plan)
        placed = tuple(placement)
        if need.share is Share.EXCLUSIVE:
            for kind, count in need.kinds:
                self._left[kind] -= count * len(placement)
        given = reasons.given(need, job, len(placement))
        where = reasons.where(self._snapshot.nodes.layout, [at for at, _ in plan])
        reason = told(given) if told is not None else self._why_started(job, f"starts: {given} on {where}", mask)
        self._starts.append(Start(job.job_id, placed, reason, charge))
        end = inf if job.endless else self._now + runtime_s
        known = not job.endless and (job.expected_s is not None or state.mean_runtime_s is not None)
        running = Running(
            job.job_id, name, job.priority_class, job.priority, job.resources, placed, self._now,
            expected_end=end if known else None, endless=job.endless, affinity=job.affinity,
        )  # fmt: skip
        insort(self._started, ((end, job.job_id), running), key=itemgetter(0))

    def _why_started(self, job: Pending, text: str, mask: int) -> Reason:
        facts: dict[str, object] = {"tenant": job.tenant, "waited_s": max(0.0, self._now - job.queued_at)}
        overtakes = [held.reservation.job_id for held in self._reservations if not mask >> held.number & 1]
        if not overtakes:
            return Reason(reasons.PLACED, text, facts)
        facts["overtakes"] = overtakes
        return Reason(reasons.BACKFILL, f"{text}, without delaying {overtakes[0]}", facts)

    def _blocked(self, name: str, job: Pending, asked: Asked, needs: tuple[Need, ...], mask: int) -> bool:
        """The job is within quota but does not fit: free capacity, or wait for it."""
        if job.priority_class is PriorityClass.GUARANTEED and self._free_capacity(name, job, needs, mask):
            return True
        self._ring.competes(name)
        reservation = self._reserve(job, needs)
        return self._wait(job, self._why(job, asked, needs, mask, reservation))

    # --- freeing capacity

    def _honour_claims(self) -> None:
        """Jobs for which others were asked to leave start where they left, or keep waiting for it; a claim whose
        capacity will not be there after all (a node is gone, the quota was cut) lapses."""
        for claim in self._snapshot.claims:
            job = self._snapshot.pending.by_id[claim.job_id]
            need, plan = self._claimed(job, claim)
            if need is None or job.not_before > self._now or self._account(job.tenant).exceeded(need, job.ranks):
                continue
            if all(self._capacity.free_on(at, _CLAIMED).ranks(need, ranks) >= ranks for at, ranks in plan):
                self._start(job.tenant, job, need, plan, _CLAIMED)
                self._begun.add(job.job_id)
            elif self._making_room().will_hold(plan, need, _CLAIMED):
                self._claim(job.tenant, job, need, Eviction(plan, ()), claim.victims, _CLAIMED)

    def _claimed(self, job: Pending, claim: Claim) -> tuple[Need | None, Plan]:
        """What a rank takes and where, in terms of this snapshot; None if that is not to be had any more."""
        group = next(group for group in self._snapshot.pending.by_tenant[job.tenant] if group.key == group_key(job))
        position = self._snapshot.nodes.layout.position
        plan = tuple((position[name], ranks) for name, ranks in claim.ranks if name in position)
        need = next((need for need in self._shapes.asked(group.shape).needs if need.pool == claim.pool), None)
        if len(plan) < len(claim.ranks) or need is None or not all(self._open_to(need, at) for at, _ in plan):
            return None, ()
        return need, plan

    def _open_to(self, need: Need, at: int) -> bool:
        return self._snapshot.nodes.states[at].schedulable and need.may_be_on(at)

    def _elsewhere(self, name: str, job: Pending, asked: Asked) -> bool:
        """A job for which capacity is being freed starts at once if it fits somewhere else by now."""
        claim, mask = self._claims[job.job_id], self._mask(job, name)
        need = next(need for need in asked.needs if need.pool == claim.pool)
        plan = self._capacity.find(need, job.ranks, asked.spread, mask)
        if plan is not None:
            self._start(name, job, need, self._refined(job, need, plan, asked.spread, mask), mask)
        return True

    def _making_room(self) -> Evictor:
        if self._evictor is None:
            reserved = [(held.number, held.reservation) for held in self._reservations]
            self._evictor = Evictor(self._snapshot, self._capacity, reserved)
        return self._evictor

    def _free_capacity(self, name: str, job: Pending, needs: tuple[Need, ...], mask: int) -> bool:
        """Capacity for a guaranteed job from what is leaving, else from best-effort work; False if there is not
        enough."""
        if not self._snapshot.stopping and not self._snapshot.preemptible:
            return False
        evictor = self._making_room()
        for need in needs:
            plan = evictor.waiting_room(need, job.ranks, mask)
            if plan is not None:
                self._claim(name, job, need, Eviction(plan, ()), 0, mask)
                return True
        if not self._policy.preemption:
            return False
        found = [(need, evictor.evict(need, job.ranks, mask)) for need in needs]
        choices = [(need, eviction) for need, eviction in found if eviction is not None]
        if not choices:
            return False
        need, eviction = min(choices, key=lambda choice: (choice[1].loss, needs.index(choice[0])))
        self._claim(name, job, need, eviction, len(eviction.victims), mask)
        return True

    def _claim(self, name: str, job: Pending, need: Need, eviction: Eviction, victims: int, mask: int) -> None:
        self._making_room().claim(need, eviction, mask)
        names = self._snapshot.nodes.layout.names
        ranks = tuple((names[at], count) for at, count in eviction.plan)
        self._claims[job.job_id] = Claim(job.job_id, need.pool, ranks, victims)
        state = self._snapshot.tenants[name]
        self._ring.lend(
            name, expected_runtime_s(job, state.mean_runtime_s, self._policy) * slots(job.resources, job.ranks)
        )
        self._ring.competes(name)
        self._account(name).take(need, job.ranks)
        for victim in eviction.victims:
            running = self._snapshot.running[victim.job_id]
            share = slots(running.resources, len(running.placement))
            why = reasons.preempted(job.job_id, name, victim.loss / share, share, running.at_risk_s)
            self._preemptions.append(Preemption(victim.job_id, job.job_id, why))
        self._waits[job.job_id] = reasons.preempting(victims)

    def _reserve(self, job: Pending, needs: tuple[Need, ...]) -> Reservation | None:
        """A reservation, if no earlier job of the pool has one; of several types the one that is free first."""
        if len(self._reservations) >= MOST_HELD:
            return None
        reserved = {waits_for(held.reservation.need) for held in self._reservations}
        reserved.update(queue for queue, count in self._never.items() if count >= MOST_RESERVATIONS)
        everything = (1 << (len(self._reservations) + 1)) - 1
        found = [
            reservation for need in needs if waits_for(need) not in reserved
            and (reservation := reserve(
                self._snapshot, self._capacity, job.job_id, need, job.ranks, everything, self._started
            )) is not None
        ]  # fmt: skip
        if not found:
            return None
        best = min(found, key=lambda reservation: reservation.at)
        if best.at == inf:  # what never ends frees nothing that could be kept for it
            self._never[waits_for(best.need)] += 1
        else:
            self._keep(best, young=self._now - job.queued_at < self._policy.backfill_s)
        return best

    def _keep(self, reservation: Reservation, *, young: bool) -> None:
        held = Kept(len(self._reservations) + 1, reservation, young)
        self._reservations.append(held)
        for at, amount in reservation.holds:
            self._capacity.hold(held.number, at, amount)
        if self._evictor is not None:
            self._evictor.reservations.append((held.number, reservation))

    def _mask(self, job: Pending, name: str) -> int:
        """The holds that the job must respect: the claims, and each reservation that it might delay."""
        mask = _CLAIMED
        if not self._reservations:
            return mask
        mean = self._snapshot.tenants[name].mean_runtime_s
        runtime_s = inf if job.endless else job.expected_s if job.expected_s is not None else mean
        for held in self._reservations:
            delays = not held.young if runtime_s is None else self._now + runtime_s > held.reservation.at
            mask |= delays << held.number
        return mask

    # --- what a job needs, and whether it ever fits

    def _account(self, name: str) -> Account:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = Account(self._snapshot.tenants[name])
        return account

    # --- why a job waits

    def _wait(self, job: Pending, reason: Reason) -> bool:
        self._waits[job.job_id] = reason
        return False

    def _note_delayed(self, group: Group) -> None:
        if (first := group.delayed.first()) is not None:
            self._waits[first[1].job_id] = reasons.backoff(first[1].not_before, self._now)

    def _save_quota(self, job: Pending, account: Account, exceeded: Iterable[tuple[Limit, ...]]) -> None:
        """Smaller jobs of the tenant may overtake one that is over quota for a while only, or it would starve."""
        if self._now - job.queued_at < self._policy.backfill_s:
            return
        for limits in exceeded:
            if not any(limit.never for limit in limits):
                for limit in limits:
                    account.saved_for.setdefault(limit.name, job.job_id)

    def _overtaken(self, job: Pending, need: Need) -> Reason:
        takers = self._takers.get(need.pool_name, set())
        equals = {tenant for tenant, cls in takers if tenant != job.tenant and cls is job.priority_class}
        return reasons.overtaken(sorted(equals), sorted({tenant for tenant, _ in takers}))

    def _why(
        self, job: Pending, asked: Asked, needs: tuple[Need, ...], mask: int, reservation: Reservation | None
    ) -> Reason:
        """Kept from capacity that is or could be free, overtaken in this decision, or no capacity to begin with."""
        key = (mask, job.priority_class)
        lasting = reservation is None and needs is asked.needs
        for need in needs:
            free = self._capacity.find(need, job.ranks, asked.spread, 0) is not None
            if free or self._making_room().keeps(need, job, mask, preemption=self._policy.preemption):
                others = [held.reservation for held in self._reservations if held.reservation.job_id != job.job_id]
                return reasons.reserved(reasons.kept_for(others, need.pool, self._now), reservation)
        for need in needs:
            if self._before.find(need, job.ranks, asked.spread, 0) is not None:
                if lasting:
                    asked.stuck[key] = need
                return reasons.reserved(self._overtaken(job, need), reservation)
        need = reservation.need if reservation is not None else needs[0]
        fitting = sum(fits for _, fits in self._capacity.fitting(need, mask, job.ranks))
        reason = reasons.shape(need, job.ranks, self._capacity.most_on_one_node(need), fitting)
        if lasting:
            asked.stuck[key] = reason
        return reasons.reserved(reason, reservation)
