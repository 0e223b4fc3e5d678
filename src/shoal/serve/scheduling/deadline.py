"""The default: guaranteed before best-effort, then each tenant's share, then deadlines; refused early, not late.

**Whose turn it is.** Inside a class, the request that must start soonest goes first, of whatever tenant, as long as
that harms no tenant within its share. A tenant beyond its share may pass those within theirs only while the most urgent
of them still has half of its time left afterwards. (A request with much time, or no deadline, counts as having
`HORIZON_S`, so that shares hold over moments that short.) Else tenants within their share go first, by urgency; where
the most urgent ones cannot all be in time, the tenant that used least goes first.

A tenant is within its share under two conditions. Its use of the last quarter second is no more than its weight's part
of the slots, among the tenants that compete now. And it is at most `LEAD_S` ahead of the tenant that is owed most. So
deadlines decide while all can be met: a burst that takes what others leave idle is no harm. When they cannot all be
met, tenants beyond their share wait.

**What is let in.** A request is taken if its predicted completion is before its deadline. The prediction comes from the
requests that go before it and the learned profiles (after Clockwork, OSDI'20). Else it is refused at once, with the
time after which it would have been taken. The prediction is the quantile of the measured times that equals the part of
the slots in use: nothing is lost by trying on an idle device, while a saturated one has other requests to serve in that
time. A tenant over its share predicts long waits for itself only.

**What is given up.** What cannot be in time any more is dropped when its turn comes, before it costs anything. While
more than a batch waits, so are heads whose deadlines only allow batches far smaller than those behind them (early
drop, Nexus, SOSP'19): serving them would make all the others late.

Executions are never interrupted, so the waiting time of a guaranteed request is bounded by what runs: `headroom` says
what best-effort work may be started.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush, heapreplace
from math import inf, sqrt
from operator import attrgetter

from shoal.core import Reason
from shoal.serve.scheduling.base import BURST_S, OWED
from shoal.serve.scheduling.batching import batch_room, company_wait_s
from shoal.serve.scheduling.fair import FairScheduler
from shoal.serve.scheduling.interface import Decision, Item, Rejection
from shoal.serve.scheduling.profile import Profiles
from shoal.serve.scheduling.queues import Account, PriorityLevel, Queue

LEAD_S = 0.1
"""How far, in slot-seconds, urgency may bring a tenant ahead of another one that always has work."""
CAN_WAIT = 0.5
"""The part of its time that a request within its tenant's share keeps when it is passed: for what comes before it yet,
and for pauses of the machine."""
HORIZON_S = 0.25
"""Over how long shares hold at the latest, against others' urgency."""
SATURATED = 0.95
"""From this part of the slots in use on, what others used lately is not left to tenants that want more: without it a
noisy tenant on three slots has twice as many late answers."""
RIVALS = 4
"""The most tenants that are weighed against each other when not all can be in time."""
LOOK_AT = 12
"""Of the most urgent tenants; if all of them are beyond their share, the one that is owed most stands for the rest."""
PROBE_SHARE = 0.05
"""A queue whose requests are all refused may use this part of a slot to learn whether executions got faster."""
SUREST = 0.9
"""A request that is this likely to be in time is taken however busy the device is."""
SMALL_BATCH = 0.75
"""A head is dropped early if it holds the batch to less than this part of the samples per second of a larger one."""
LEAST_CAPACITY = 0.02
"""The part of the slots that best-effort work is reckoned to get at least, for predictions to stay finite."""
LONGEST_WAIT_S = 60.0
"""Requests without a deadline are as urgent as if it were so long after they arrived."""
DEVIATIONS = 3.0
"""Standard deviations of what may arrive meanwhile that a prediction reckons with."""
URGENT = Reason("urgent", "its deadline comes first among the tenants within their share")


class DeadlineScheduler(FairScheduler):
    def __init__(self, slots: int, profiles: Profiles | None = None) -> None:
        super().__init__(slots, profiles)
        self._late: dict[int, Rejection] = {}  # given up since the last decision; the next one tells of them

    def remove_queue(self, key: str) -> None:
        self._late = {number: one for number, one in self._late.items() if one.item.queue != key}
        super().remove_queue(key)

    def withdraw(self, item: Item) -> bool:
        return self._late.pop(item.number, None) is not None or super().withdraw(item)

    def waiting(self) -> int:
        return len(self._late) + super().waiting()

    def decide(self, now: float) -> Decision:
        decision = super().decide(now)
        if not self._late:
            return decision
        late, self._late = (*self._late.values(),), {}
        return replace(decision, rejected=decision.rejected + late)

    # What is let in

    def _rank(self, item: Item) -> float:
        return min(item.deadline, item.arrived + LONGEST_WAIT_S)

    def _refuse(self, queue: Queue, item: Item, now: float) -> Rejection | None:
        if queue.account.level.best_effort and (no_gap := super()._refuse(queue, item, now)) is not None:
            return no_gap
        deadline, expected_s = self._rank(item), queue.profile.expected_s(item.samples) * item.scale
        queue.profile.forget_before(now)
        queue.account.level.asked(deadline - now, expected_s * queue.slots)
        if queue.executors <= 0:
            return None
        self._end_late(queue, now)
        wait_s, execution_s = self._predicted_s(queue, item, deadline, now)
        if deadline > now and not queue.waiting and self._to_be_tried(queue, item, deadline - now, now):
            queue.probe = item.number
            return None
        late_s = now + wait_s + execution_s - deadline
        if late_s <= 0.0:
            return None
        text = (
            f"it would be done in {wait_s + execution_s:.3g} s ({wait_s:.3g} s of them waiting), and is wanted "
            f"in {deadline - now:.3g} s"
        )
        facts = {"wait_s": wait_s, "execution_s": execution_s, "wanted_in_s": deadline - now}
        return Rejection(item, Reason("deadline", text, facts), late_s)

    def _to_be_tried(self, queue: Queue, item: Item, within_s: float, now: float) -> bool:
        """Whether to take a request whatever is predicted of it. An idle device has nothing to lose, unless the request
        would be late even at the best pace of the last minute; and that must be tried now and then to be known."""
        best_s = queue.profile.best_s(item.samples) * item.scale
        if best_s > within_s:
            return now - queue.last_start > best_s / PROBE_SHARE
        return self.free >= queue.slots and queue.running < queue.executors and not self.waiting()

    def _sureness(self, now: float) -> float:
        """How likely a request must be in time to be taken: an idle device tries what might be, a busy one keeps its
        slots for what surely is."""
        return min(self._pressure.until(now, 1.0 - self.free / self.slots), SUREST)

    def _predicted_s(self, queue: Queue, item: Item, deadline: float, now: float) -> tuple[float, float]:
        """For how long the request would wait, and how long the execution it will be part of surely takes at most.

        Its tenant's waiting requests drain on all slots as far as the tenant is owed, then at the tenant's share. Or
        it is served by urgency, if that is sooner. Then more urgent requests of the level go before it, and so do
        those that others will send meanwhile, as far as they are less patient. On a device that is busy all the time,
        others will use what they used lately, patient or not. Of what waits, the more urgent part counts: all of
        it for a deadline past the mean of theirs, proportionally less before. Added is how much more than usual may
        arrive for others meanwhile, were arrivals Poisson. The more a tenant uses itself, the more of what arrives goes
        before it.
        """
        account, level, profile = queue.account, queue.account.level, queue.profile
        sureness = self._sureness(now)
        factor = profile.factor(sureness)
        free_now = self.free >= queue.slots and queue.running < queue.executors
        if queue.rows > 1 and not free_now:
            free_now = queue.running > 0 and queue.takes_more()  # it joins what runs
        samples, queue_s = item.samples, queue.work_s
        if profile.pays(queue.max_batch):
            full, rest = divmod(queue.samples, queue.max_batch)
            samples = max(samples, min(rest + samples, queue.max_batch))
            queue_s = full * profile.expected_s(queue.max_batch) * queue.slots
        execution_s = profile.expected_s(samples) * item.scale

        slots = float(self.slots)
        used = account.slots_used(now)
        others = max(0.0, level.slots_used(now) - used)
        wait_s = above = 0.0
        not_owed = 1.0
        if level.best_effort:
            above = self._guaranteed.slots_used(now)
            slots = max(LEAST_CAPACITY * slots, slots - above)
            wait_s = self._guaranteed.work_s / slots
        if level.waiting:
            before = _part_before(account, deadline, now)
            own_s = (account.work_s - queue.work_s + queue_s) * before + execution_s * queue.slots
            share = slots * account.weight / (level.weight if account.present else level.weight + account.weight)
            owed_s = max(0.0, min(own_s, BURST_S, (level.clock_s - account.used_s) * account.weight))
            not_owed = 1.0 - owed_s / own_s
            others_s = (level.work_s - account.work_s) * _part_before(level, deadline, now)
            in_turn_s = owed_s / slots + (own_s - owed_s) / share
            in_order_s = (own_s + others_s) / slots
            more_urgent_s = min(in_order_s, max(0.0, deadline - now - level.patience_s))
            in_order_s += others * more_urgent_s / slots
            if used + others > SATURATED * slots or level.work_s > HORIZON_S * slots:
                in_order_s = max(in_order_s, own_s / max(slots - others, share))
            wait_s += max(0.0, min(in_turn_s, in_order_s) - execution_s)
            alone_s = (queue_s * before / queue.slots + execution_s) / (queue.executors * queue.seats)
            wait_s = max(wait_s, alone_s - execution_s)
        before_it = above + others * used / (used + others) if others else above
        if before_it > 0.0 and level.cost_s > 0.0:
            wait_s += (
                DEVIATIONS * sureness * level.added_s * sqrt(before_it * wait_s * not_owed / level.cost_s) / self.slots
            )
        if not free_now and self._ends:  # until the first of the executions that run is expected to end
            wait_s += max(0.0, self._ends[0][0] - now)
        return wait_s, execution_s * factor if profile.known else 0.0

    # Whose turn it is

    def _list(self, account: Account) -> None:
        super()._list(account)
        queue = None if account.aside else account.first()
        if queue is not None:
            start_by = _start_by(queue)
            if account.urgent_key is None or start_by < account.urgent_key:
                account.urgent_key = start_by
                heappush(account.level.urgent, (start_by, account.serial, account))

    def _choose(self, level: PriorityLevel, now: float) -> Account | None:
        owed = self._most_owed(level)
        self._why = OWED
        if owed is None or level.tenants == 1:
            return owed
        if owed.urgent_key is None:
            self._list(owed)
        heap = level.urgent
        looked_at: list[Account] = []
        rivals: list[Account] = []  # those within their share
        until = inf  # a tenant that must start before this cannot wait for the first of them
        while heap and heap[0][0] < until and len(rivals) < RIVALS and len(looked_at) < LOOK_AT:
            account = self._most_urgent(level)
            if account is None or heap[0][0] >= until:
                break
            heappop(heap)
            looked_at.append(account)
            if account is owed or self._within_share(account, owed, now):
                rivals.append(account)
                queue = account.first()
                if len(rivals) == 1 and queue is not None:
                    until = now + queue.profile.expected_s(1)
        chosen = min(rivals, key=attrgetter("used_s"), default=owed)
        first = looked_at[0] if looked_at else owed
        if first not in rivals and _can_be_passed(rivals[0] if rivals else owed, first, now):
            chosen = first
        for account in looked_at:
            if account is chosen:
                account.urgent_key = None
            elif account.urgent_key is not None:
                heappush(heap, (account.urgent_key, account.serial, account))
        if chosen is not owed:
            self._why = URGENT
        return chosen

    def _most_urgent(self, level: PriorityLevel) -> Account | None:
        heap = level.urgent
        while heap:
            key, _, account = heap[0]
            if account.urgent_key != key:
                heappop(heap)
                continue
            queue = account.first()
            if queue is None:
                heappop(heap)
                account.urgent_key = None
                continue
            start_by = _start_by(queue)
            if start_by <= key:
                return account
            account.urgent_key = start_by
            heapreplace(heap, (start_by, account.serial, account))
        return None

    def _within_share(self, account: Account, owed: Account, now: float) -> bool:
        if account.used_s - owed.used_s > LEAD_S / account.weight:
            return False
        return account.slots_used(now) <= self.slots * account.weight / account.level.weight

    # What is started, and what is given up

    def _room(self, queue: Queue, now: float, refused: list[Rejection]) -> int:
        longest = self._longest_s(queue, now)
        entry = queue.head()
        assert entry is not None
        deadline, _, item = entry
        profile = queue.profile
        spare = deadline - now
        sureness = self._sureness(now)
        if self._in_vain(queue, now):
            self._give_up(queue, now, refused, "late", "it cannot be done in time any more")
            return 0
        if longest <= 0.0:
            return 0
        if not profile.worth_trying(queue.max_batch):
            return item.samples if longest == inf or profile.cautious_s(item.samples) * item.scale <= longest else 0
        most = batch_room(profile, queue.samples, head=item.samples, max_batch=queue.max_batch, longest_s=longest)
        room = (
            max(min(most, item.samples), profile.fitting(most, spare, profile.factor(sureness) * item.scale))
            if most
            else 0
        )
        if room < most and self.waiting() > room:
            pace = room / profile.expected_s(room)
            if pace < SMALL_BATCH * most / profile.expected_s(most):
                self._give_up(queue, now, refused, "early-drop", "it would hold back the batches behind it")
                return 0
        if 0 < room == queue.samples < queue.max_batch:
            room = self._with_company(queue, room, item, spare, now)
        return room

    def _end_late(self, queue: Queue, now: float) -> None:
        """Drop requests that cannot be in time any more: they do not count in what is predicted for a new request."""
        late: list[Rejection] = []
        while self._in_vain(queue, now):
            self._give_up(queue, now, late, "late", "it cannot be done in time any more")
        self._late.update((one.item.number, one) for one in late)

    def _in_vain(self, queue: Queue, now: float) -> bool:
        """Whether the first that waits can hardly be in time any more, even if it were started now."""
        entry = queue.head()
        if entry is None:
            return False
        deadline, number, item = entry
        spare, profile = deadline - now, queue.profile
        if spare < 0.0:
            return True
        hope = profile.factor(min(self._sureness(now), 0.5)) * item.scale
        return profile.known and number != queue.probe and spare < profile.expected_s(item.samples) * hope

    def _with_company(self, queue: Queue, room: int, item: Item, spare: float, now: float) -> int:
        profile = queue.profile
        wait_s = company_wait_s(
            profile,
            room,
            max_batch=queue.max_batch,
            waited_s=now - item.arrived,
            gap_s=queue.gap_s,
            spare_s=spare - profile.cautious_s(room + 1),
            others=queue.account.level.waiting - len(queue.waiting),
            alone=self.free == queue.slots or queue.running + 1 == queue.executors,
        )
        if wait_s > 0.0:
            self._wake_at = min(self._wake_at, now + wait_s)
            return 0
        return room

    def _give_up(self, queue: Queue, now: float, refused: list[Rejection], code: str, text: str) -> None:
        item = queue.pop()[0]
        queue.posted = None
        wait_s = queue.work_s / (max(1, queue.executors) * queue.seats * queue.slots)
        facts = {"waited_s": now - item.arrived, "wanted_in_s": item.deadline - now}
        refused.append(Rejection(item, Reason(code, text, facts), wait_s))
        self._post(queue)


def _start_by(queue: Queue) -> float:
    head, profile = queue.head(), queue.profile
    if head is None:
        return inf
    return head[0] - (profile.setup_s + profile.per_sample_s * head[2].samples) * head[2].scale * profile.tail


def _can_be_passed(account: Account, hasty: Account, now: float) -> bool:
    """Whether the first request of one within its share can wait for an execution of one that is not."""
    queue, other = account.first(), hasty.first()
    head = queue.head() if queue is not None else None
    if queue is None or head is None or other is None:
        return True
    deadline, _, item = head
    samples = min(other.samples, other.max_batch) if other.profile.pays(other.max_batch) else 1
    start_by = min(_start_by(queue), item.arrived + HORIZON_S) - other.profile.expected_s(samples)
    return start_by - now > CAN_WAIT * min(deadline - item.arrived, HORIZON_S)


def _part_before(load: Account | PriorityLevel, deadline: float, now: float) -> float:
    """The part of what waits that is likely to be more urgent than this deadline."""
    if not load.waiting:
        return 1.0
    mean = load.rank_sum / load.waiting
    return 1.0 if deadline >= mean else (deadline - now) / (mean - now) if deadline > now else 0.0
