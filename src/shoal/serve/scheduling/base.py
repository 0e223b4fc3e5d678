"""The shared part of all schedulers: the slots, the queues, what runs and what is charged for it.

A scheduler is a state machine without a clock, files or threads: its driver tells it the time and does what it decides.
The gateway drives it with the loop's clock, `simulate` with a virtual one; the code is the same. Executions cannot be
interrupted once they run, so all control lies in what is started when, and with whom.

A tenant has one account in each level (priority class). A decision asks the guaranteed level first and best-effort work
after it; which account of a level has its turn, and what it may start, is what the kinds of schedulers differ in.

Device time is charged to the account when an execution starts, as expected, and settled when it was measured. Every
step costs a few heap operations, however many queues there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from math import exp, inf

from shoal.core import Conflict, Invalid, NotFound, PriorityClass, Reason
from shoal.serve.scheduling.batching import batch_room
from shoal.serve.scheduling.headroom import Headroom, ProtectedService, patience_s
from shoal.serve.scheduling.interface import Batch, Decision, Item, QueueSpec, Rejection
from shoal.serve.scheduling.profile import Profiles, StepProfile
from shoal.serve.scheduling.queues import USE_MEMORY_S, Account, PriorityLevel, Queue
from shoal.serve.types import StepWork

BURST_S = 0.05
"""What a tenant did not claim of its share while it had nothing to start, it may claim later only up to this."""
LOOK_PAST = 8
"""The most accounts of a level that are passed over in one decision because they cannot start anything now."""
PROMISES_AGE_S = 0.05
"""Patience follows the learned profiles; it is worked out anew when it is older than this."""
GAP_POLL_S = 0.05
STALE_S = 1.0
"""What did not run for so long is judged by its mean instead of its tail, lest a bad moment keep it out for ever."""

STEPS_PART = 0.5
"""The part of its objective in which a typical request of a model that works in steps is to be done; the rest is for
waiting."""

NOTHING = Decision()
OWED = Reason("owed", "its tenant had least of its share among those with something to start")
GAP = Reason("gap", "no guaranteed work needs the slot before this is done")


@dataclass(slots=True)
class Execution:
    """A batch that runs; `ends_at` and `surely_at` are its expected and cautious ends. It was `sent` before it
    `started` where it had to wait for the slot of another one."""

    queue: Queue
    account: Account
    samples: int
    size: float
    slots: int
    charged_s: float
    started: float
    ends_at: float
    surely_at: float
    sent: float


class Pressure:
    """The part of the slots that were busy, on average over the last `USE_MEMORY_S`."""

    __slots__ = ("_at", "_part")

    def __init__(self) -> None:
        self._part = 0.0
        self._at = -inf

    def until(self, now: float, busy: float) -> float:
        """Since it was last asked, `busy` of the slots were."""
        self._part = busy + (self._part - busy) * exp((self._at - now) / USE_MEMORY_S)
        self._at = now
        return self._part


class Scheduler:
    """A scheduler between tenants by weight, in order of arrival inside each; nothing is refused but what could never
    run. `slots` is how many compute slots the device has. Times are seconds of one monotonic clock, never decreasing
    from call to call.

    Executions shorter than `ahead_s` take about as long as the way to a replica and back. Their replicas are sent one
    more batch while they execute, if it would be its turn now. It takes over slot and executor of the batch before it
    without a new decision. So `ahead_s` is the longest time for which it can overtake more urgent requests. Only
    guaranteed and steady work is sent ahead, and nothing behind an execution that takes longer than expected.

    To a model that works in steps, executions are sent ahead as long as there are seats: they join between two steps.
    """

    ahead_s = 0.0

    def __init__(self, slots: int, profiles: Profiles | None = None) -> None:
        if slots < 1:
            raise Invalid(f"a device has at least one compute slot, not {slots}", where="slots")
        self.slots = slots
        self.free = slots
        self.profiles = profiles if profiles is not None else Profiles()
        self._queues: dict[str, Queue] = {}
        self._accounts: dict[tuple[str, PriorityClass], Account] = {}
        self._guaranteed, self._best_effort = PriorityLevel(best_effort=False), PriorityLevel(best_effort=True)
        self._levels = (self._guaranteed, self._best_effort)
        self._running: dict[int, Execution] = {}
        self._ahead: dict[int, Execution] = {}
        self._ends: list[tuple[float, int]] = []
        self._last_batch = 0
        self._headroom = Headroom(slots)
        self._headroom_at = -inf
        self._pressure = Pressure()
        self._held_until = inf  # while a wide execution waits for slots, nothing may start that could end later
        self._wake_at = inf
        self._why = OWED

    # What is served

    def add_queue(self, spec: QueueSpec) -> None:
        """Also replaces the settings of a known queue; what waits in it stays. The weight is the tenant's: of several
        given for it, the last counts. Raises Invalid for an execution that would never fit on the device."""
        if not 1 <= spec.slots <= self.slots:
            what = f"an execution needs {spec.slots} compute slots, the device has {self.slots}"
            raise Invalid(what, where=spec.key, hint="give the model fewer threads")
        if not 0 < spec.weight < inf:
            raise Invalid(f"a weight must be positive and finite, not {spec.weight}", where=spec.key)
        account = self._account_of(spec)
        account.reweigh(spec.weight)
        queue = self._queues.get(spec.key)
        if queue is None:
            self._queues[spec.key] = Queue(spec, account, self.profiles.of(spec.key))
        else:
            waiting = queue.clear()
            queue.account = account
            queue.configure(spec)
            for rank, _, item in waiting:
                queue.add(rank, item)
            self._post(queue)
        self._headroom_at = -inf

    def remove_queue(self, key: str) -> None:
        """With what waits in it."""
        self._queue(key).clear()
        del self._queues[key]
        self._headroom_at = -inf

    def resize(self, key: str, executors: int) -> None:
        queue = self._queue(key)
        queue.executors = executors
        self._headroom_at = -inf
        self._post(queue)

    # What is asked

    def offer(self, item: Item, now: float) -> Rejection | None:
        """Take the item, or refuse it at once. Raises NotFound for an unknown queue and Conflict for a number that
        waits in it already."""
        queue = self._queues.get(item.queue) or self._queue(item.queue)
        if item.number in queue.waiting:
            raise Conflict(f"request {item.number} waits already", where=item.queue)
        queue.arrived(now)
        item.scale = queue.profile.scale(item.size)
        refused = self._refuse(queue, item, now)
        if refused is not None:
            return refused
        queue.add(self._rank(item), item)
        if queue.takes_more():
            head = queue.head()
            if head is not None and head[1] == item.number:  # any other head was posted when it became one
                self._post(queue)
        return None

    def withdraw(self, item: Item) -> bool:
        """The caller is gone; False if the item does not wait any more."""
        queue = self._queues.get(item.queue)
        if queue is None or not queue.withdraw(item.number):
            return False
        if queue.posted == item.number:
            self._post(queue)
        return True

    def waiting(self) -> int:
        return self._guaranteed.waiting + self._best_effort.waiting

    # What is decided

    def decide(self, now: float) -> Decision:
        for execution in self._running.values():
            if now - execution.started > self.ahead_s and execution.queue.rows == 1:
                execution.queue.eager = False
        if not self.free:
            return self._send_on(now)
        batches: list[Batch] = []
        refused: list[Rejection] = []
        passed: list[Account] = []
        self._held_until = self._wake_at = inf
        for level in self._levels:
            look_until = len(passed) + LOOK_PAST
            while level.waiting and self.free and len(passed) < look_until:
                account = self._choose(level, now)
                if account is None:
                    break
                queue = account.first()
                assert queue is not None
                before = queue.posted
                room = self._room(queue, now, refused)
                if room > 0:
                    batches.append(self._start(queue, room, now))
                elif queue.posted == before:
                    account.aside = True
                    account.owed_key = account.urgent_key = None
                    passed.append(account)
                    if not self._running:  # else the end of an execution asks again
                        self._wake_at = min(self._wake_at, now + GAP_POLL_S)
        for account in passed:
            account.aside = False
            self._list(account)
        wake_at = self._wake_at
        if not self.free:
            more = self._send_on(now)
            batches += more.batches
            refused += more.rejected
        if batches or refused or wake_at < inf:
            return Decision(tuple(batches), tuple(refused), wake_at if wake_at < inf else None)
        return NOTHING

    def finished(
        self, batch: Batch, now: float, device_s: float, ok: bool = True, work: StepWork | None = None
    ) -> None:
        """The batch's executor is free again after `device_s` of execution. Of a model that works in steps, `device_s`
        is the batch's part of the steps that it was in, and `work` says what those were. Raises NotFound for a batch
        that does not run, or not any more."""
        execution = self._running.pop(batch.number, None)
        if execution is None:
            self._out_of_turn(batch, now, device_s, ok, work)
            return
        queue, account = execution.queue, execution.account
        self._pressure.until(now, 1.0 - self.free / self.slots)
        self.free += execution.slots
        queue.running -= 1
        if queue.ahead:
            number = queue.ahead.pop(0)
            self._begin(number, self._ahead.pop(number), now)
        while self._ends and self._ends[0][1] not in self._running:
            heappop(self._ends)
        account.settle(device_s * execution.slots - execution.charged_s)
        account.leaves(1)
        if ok:  # what deadlines feel is for how long the slot was taken, with the way to the replica and back
            took_s = max(device_s, now - execution.started)
            if work is not None:
                took_s = now - execution.sent
                self._learn_steps(queue, work, now)
            queue.profile.observe(execution.samples, took_s, size=execution.size, now=now)
            brief = queue.profile.expected_s(1) < self.ahead_s and not queue.profile.pays(queue.max_batch)
            queue.eager = (brief and queue.steady and not account.level.best_effort) or queue.rows > 1
        if account.owed_key is not None and account.used_s < account.owed_key:
            account.owed_key = None  # it was charged too much at first: its entry stands too far back
            self._list(account)
        if queue.waiting:
            self._post(queue)

    # What the kinds of schedulers differ in

    def _account_of(self, spec: QueueSpec) -> Account:
        key = (spec.tenant, spec.priority_class)
        account = self._accounts.get(key)
        if account is None:
            level = self._best_effort if spec.priority_class is PriorityClass.BEST_EFFORT else self._guaranteed
            self._accounts[key] = account = Account(spec.tenant, spec.weight, level, len(self._accounts))
        return account

    def _rank(self, item: Item) -> float:
        return item.arrived

    def _refuse(self, queue: Queue, item: Item, now: float) -> Rejection | None:  # noqa: ARG002
        return None

    def _choose(self, level: PriorityLevel, now: float) -> Account | None:  # noqa: ARG002
        """Whose turn it is: an account whose `first` queue could start something, were enough slots free."""
        return self._most_owed(level)

    def _room(self, queue: Queue, now: float, refused: list[Rejection]) -> int:  # noqa: ARG002
        """How many samples of this queue to start now. 0 passes it over, unless its head was given up instead: then
        there is another one to look at."""
        longest = self._longest_s(queue, now)
        if longest <= 0.0:
            return 0
        head = queue.head()
        assert head is not None
        return batch_room(
            queue.profile, queue.samples, head=head[2].samples, max_batch=queue.max_batch, longest_s=longest
        )

    # How it is done

    def _queue(self, key: str) -> Queue:
        try:
            return self._queues[key]
        except KeyError:
            raise NotFound("no such queue", where=key, hint="add it before it is used") from None

    def _post(self, queue: Queue) -> None:
        """Let the queue's account know of its head, if that could be started, and the level of the account."""
        account = queue.account
        if queue.takes_more():
            head = queue.head()
            if head is not None and queue.posted != head[1]:
                queue.posted = head[1]
                heappush(account.ready, (head[0], head[1], queue))
        self._list(account)

    def _list(self, account: Account) -> None:
        """Let the level know that the account may have something to start."""
        if account.aside or account.owed_key is not None:
            return
        level = account.level
        account.used_s = max(account.used_s, level.clock_s - BURST_S / account.weight)
        account.owed_key = account.used_s
        heappush(level.owed, (account.used_s, account.serial, account))

    def _most_owed(self, level: PriorityLevel) -> Account | None:
        heap = level.owed
        while heap:
            key, _, account = heap[0]
            if account.owed_key != key:
                heappop(heap)
            elif account.first() is None:
                heappop(heap)
                account.owed_key = None
            elif account.used_s > key:
                account.owed_key = account.used_s
                heapreplace(heap, (account.used_s, account.serial, account))
            else:
                level.clock_s = max(level.clock_s, key)
                return account
        return None

    def _longest_s(self, queue: Queue, now: float) -> float:
        """How long an execution of this queue may take if it starts now; 0 when slots are lacking."""
        if queue.slots > self.free:
            self._held_until = min(self._held_until, self._room_at(queue.slots))
            return 0.0
        longest = self._held_until - now
        if queue.account.level.best_effort:
            lent = self._headroom_now(now).longest_s(queue.slots, self._lent(now), self._guaranteed.slots_used(now))
            if lent < longest:
                if now - queue.last_start > STALE_S:
                    lent *= queue.profile.tail
                longest = min(longest, lent)
        return longest

    def _send_on(self, now: float) -> Decision:
        """No slot is free. Were the next one free now, it might go to the very queue that has it: what that is to go on
        with is sent ahead."""
        level = self._guaranteed
        if not level.waiting or not any(
            each.queue.eager and each.queue.takes_more() for each in self._running.values()
        ):
            return NOTHING
        account = self._choose(level, now)
        queue = account.first() if account is not None else None
        if account is None or queue is None:
            return NOTHING
        room, refused = 0, list[Rejection]()
        if queue.running and queue.running >= queue.executors:
            self._held_until = self._wake_at = inf
            self.free += queue.slots
            room = self._room(queue, now, refused)
            self.free -= queue.slots
        if room > 0:
            return Decision((self._start(queue, room, now),), tuple(refused))
        self._list(account)
        return Decision((), tuple(refused)) if refused else NOTHING

    def _begin(self, number: int, execution: Execution, now: float) -> None:
        """The batch takes its slots, from now on."""
        queue, late_s = execution.queue, now - execution.started
        execution.started += late_s
        execution.ends_at += late_s
        execution.surely_at += late_s
        self._pressure.until(now, 1.0 - self.free / self.slots)
        self.free -= execution.slots
        queue.running += 1
        queue.last_start = now
        execution.account.charge(execution.charged_s, now)
        self._running[number] = execution
        heappush(self._ends, (execution.ends_at, number))

    def _learn_steps(self, queue: Queue, work: StepWork, now: float) -> None:
        """Rows are only as many as let a typical request be in time: more make each step longer, for all of them."""
        steps = queue.profile.steps
        if steps is None:
            steps = queue.profile.steps = StepProfile()
        steps.observe(work.steps, work.rows, work.step_s, now)
        if queue.slo_s is not None:
            queue.seats = steps.seats(queue.rows, STEPS_PART * queue.slo_s)

    def _out_of_turn(self, batch: Batch, now: float, device_s: float, ok: bool, work: StepWork | None) -> None:
        """A batch that was sent ahead is over before its turn: it failed, or it joined the steps of another one and was
        done sooner, or another executor was done sooner than the one whose slot it was to take. Raises NotFound if
        there is no such batch."""
        execution = self._ahead.pop(batch.number, None)
        if execution is None:
            raise NotFound(f"batch {batch.number} does not run, or not any more", where=batch.queue)
        execution.queue.ahead.remove(batch.number)
        execution.account.leaves(1)
        if ok:
            execution.account.charge(device_s * execution.slots, now)
            took_s = device_s
            if work is not None:
                took_s = now - execution.sent
                self._learn_steps(execution.queue, work, now)
            execution.queue.profile.observe(execution.samples, took_s, size=execution.size, now=now)
        if execution.queue.waiting:
            self._post(execution.queue)

    def _room_at(self, slots: int) -> float:
        """When this number of slots is expected to be free."""
        free = self.free
        for execution in sorted(self._running.values(), key=lambda each: each.ends_at):
            free += execution.slots
            if free >= slots:
                return execution.ends_at
        return inf

    def _lent(self, now: float) -> list[tuple[float, int]]:
        """Best-effort work that runs: (time left, slots)."""
        running = self._running.values()
        return [(each.surely_at - now, each.slots) for each in running if each.account.level.best_effort]

    def _headroom_now(self, now: float) -> Headroom:
        if now - self._headroom_at > PROMISES_AGE_S:
            self._headroom_at = now
            for queue in self._queues.values():
                queue.profile.forget_before(now)
            self._headroom = Headroom(
                self.slots,
                [
                    ProtectedService(queue.key, queue.slots, patience_s(queue.slo_s, queue.profile.cautious_s(1)))
                    for queue in self._queues.values()
                    if queue.slo_s is not None and queue.executors > 0 and not queue.account.level.best_effort
                ],
            )
        return self._headroom

    def _start(self, queue: Queue, room: int, now: float) -> Batch:
        account, slots, profile = queue.account, queue.slots, queue.profile
        account.joins()
        items = queue.pop(room)
        first = items[0]
        if len(items) == 1:
            samples, size, scale = first.samples, first.size, first.scale
        else:
            samples = sum(item.samples for item in items)
            size = sum(item.size * item.samples for item in items) / samples
            scale = sum(item.scale * item.samples for item in items) / samples
        expected_s = profile.expected_s(samples) * scale
        self._last_batch = number = self._last_batch + 1
        cost_s = expected_s * slots / len(items)
        added_s = profile.per_sample_s * samples * slots / len(items) if profile.pays(queue.max_batch) else cost_s
        account.level.cost_s += (cost_s - account.level.cost_s) / 16
        account.level.added_s += (added_s - account.level.added_s) / 16
        execution = Execution(
            queue,
            account,
            samples,
            size,
            slots,
            expected_s * slots,
            now,
            now + expected_s,
            now + expected_s * profile.tail,
            now,
        )
        if queue.running < queue.executors:
            self._begin(number, execution, now)
        else:
            queue.ahead.append(number)
            self._ahead[number] = execution
        if queue.waiting:
            self._post(queue)
        elif account.waiting:
            self._list(account)
        return Batch(number, queue.key, tuple(items), expected_s, GAP if account.level.best_effort else self._why)
