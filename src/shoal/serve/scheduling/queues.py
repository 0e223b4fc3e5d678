"""Waiting requests: queues of requests, the accounts of the tenants they belong to, and the levels of accounts of one
class.

Everything is kept in heaps whose entries may be out of date; one is checked, and mended or dropped, when it comes to
the top. So each request costs a few heap operations, however many queues there are.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import exp, inf

from shoal.serve.scheduling.interface import Item, QueueSpec
from shoal.serve.scheduling.profile import ExecutionProfile

Entry = tuple[float, int, Item]
"""An item with its rank and number; the number is unique, so that comparing never reaches the item."""

USE_MEMORY_S = 0.25
"""Over how long the recent use of the device is averaged: long against executions, short against bursts."""


class Load:
    """Sums over what waits, and the device time used of late; for an account and for a whole level.

    `work_s` is in slot-seconds; `rank_sum` adds up the ranks, for their mean.
    """

    __slots__ = ("rank_sum", "recent_s", "seen", "waiting", "work_s")

    def __init__(self) -> None:
        self.waiting = 0
        self.work_s = 0.0
        self.rank_sum = 0.0
        self.recent_s = 0.0
        self.seen = 0.0

    def use(self, slot_s: float, now: float) -> None:
        self.recent_s = self.recent_s * exp((self.seen - now) / USE_MEMORY_S) + slot_s
        self.seen = now

    def slots_used(self, now: float) -> float:
        """On average in the recent past."""
        recent_s = self.recent_s
        return recent_s * exp((self.seen - now) / USE_MEMORY_S) / USE_MEMORY_S if recent_s > 0.0 else 0.0


class PriorityLevel(Load):
    """All accounts of one priority class. `clock_s` is the virtual time: the least use per weight among those that
    had something to start when last asked. `weight` and `tenants` count those that compete now. `cost_s` is the
    recent cost of a request, and `added_s` what one more would have added where batches form, both in slot-seconds.
    `patience_s` is how long clients were ready to wait, averaged by the device time of their requests."""

    __slots__ = ("added_s", "best_effort", "clock_s", "cost_s", "owed", "patience_s", "tenants", "urgent", "weight")

    def __init__(self, *, best_effort: bool) -> None:
        super().__init__()
        self.best_effort = best_effort
        self.owed: list[tuple[float, int, Account]] = []
        self.urgent: list[tuple[float, int, Account]] = []
        self.clock_s = 0.0
        self.weight = 0.0
        self.tenants = 0
        self.cost_s = 0.0
        self.added_s = 0.0
        self.patience_s = 0.0

    def asked(self, patience_s: float, slot_s: float) -> None:
        """A request for `slot_s` of device time has arrived."""
        known = self.patience_s
        self.patience_s = known + (patience_s - known) * min(1.0, slot_s / USE_MEMORY_S) if known else patience_s


class Account(Load):
    """What one tenant has, and had, in one level.

    `used_s` is its virtual time: slot-seconds charged per unit of weight, raised now and then for what it did not
    claim. `owed_key` and `urgent_key` are the keys of its valid entries in the level's heaps, None without one. An
    account that is `aside` was found unable to start anything in the decision that is being made.
    """

    __slots__ = ("aside", "level", "owed_key", "present", "ready", "serial", "tenant", "urgent_key", "used_s", "weight")

    def __init__(self, tenant: str, weight: float, level: PriorityLevel, serial: int) -> None:
        super().__init__()
        self.tenant = tenant
        self.weight = weight
        self.level = level
        self.serial = serial
        self.used_s = 0.0
        self.present = 0  # requests and executions; while there are any, the tenant competes for its share
        self.ready: list[tuple[float, int, Queue]] = []
        self.owed_key: float | None = None
        self.urgent_key: float | None = None
        self.aside = False

    def first(self) -> Queue | None:
        """The queue with the lowest rank of those that could start something, were a slot free."""
        heap = self.ready
        while heap:
            _, number, queue = heap[0]
            if queue.posted == number:
                if number in queue.waiting and queue.takes_more():
                    return queue
                queue.posted = None
            heappop(heap)
        return None

    def charge(self, slot_s: float, now: float) -> None:
        self.used_s += slot_s / self.weight
        self.use(slot_s, now)
        self.level.use(slot_s, now)

    def settle(self, slot_s: float) -> None:
        """What was charged was this much too little (too much, if negative)."""
        self.used_s += slot_s / self.weight
        self.recent_s += slot_s
        self.level.recent_s += slot_s

    def joins(self) -> None:
        self.present += 1
        if self.present == 1:
            self.level.weight += self.weight
            self.level.tenants += 1

    def leaves(self, many: int) -> None:
        self.present -= many
        if self.present == 0 and many:
            self.level.tenants -= 1
            self.level.weight = self.level.weight - self.weight if self.level.tenants else 0.0

    def reweigh(self, weight: float) -> None:
        if self.present:
            self.level.weight += weight - self.weight
        self.weight = weight


class Queue:
    """Requests of one model version of one tenant, lowest rank first, equal ranks by number.

    `work_s` is the compute time of all that wait here, as it is counted in the account and the level. `seats` is how
    many of an executor's `rows` are used: as many as let a typical request be in time.
    """

    __slots__ = (
        "account", "ahead", "eager", "executors", "gap_s", "heap", "key", "last_arrival", "last_start", "max_batch",
        "posted", "probe", "profile", "rows", "running", "samples", "scales", "seats", "slo_s", "slots", "steady",
        "waiting", "work_s",
    )  # fmt: skip

    def __init__(self, spec: QueueSpec, account: Account, profile: ExecutionProfile) -> None:
        self.key = spec.key
        self.account = account
        self.profile = profile
        self.heap: list[Entry] = []
        self.waiting: dict[int, Entry] = {}
        self.samples = 0
        self.scales = 0.0
        self.work_s = 0.0
        self.running = 0
        self.ahead: list[int] = []  # numbers of batches that were sent before an executor was free, oldest first
        self.eager = False
        self.rows = self.seats = 1
        self.posted: int | None = None  # the number of the request by which the account's heap knows this queue
        self.probe: int | None = None  # the number of a request let through to learn how long executions take now
        self.gap_s = inf
        self.last_arrival = -inf
        self.last_start = -inf
        self.configure(spec)

    def configure(self, spec: QueueSpec) -> None:
        self.max_batch = max(1, spec.max_batch)
        self.slots = spec.slots
        self.executors = spec.executors
        self.slo_s = spec.slo_s
        self.steady = spec.steady
        if spec.rows != self.rows:
            self.rows = self.seats = max(1, spec.rows)
        self.eager = (self.eager and spec.steady) or self.rows > 1

    def takes_more(self) -> bool:
        """Whether an executor is free; or, in an eager queue, one has nothing yet to go on with, or has a seat for one
        more row."""
        most = self.executors if self.rows == 1 else self.executors * (self.seats - 1)
        return self.running < self.executors or (self.eager and len(self.ahead) < most)

    def add(self, rank: float, item: Item) -> None:
        entry = (rank, item.number, item)
        self.waiting[item.number] = entry
        self.samples += item.samples
        self.scales += item.scale
        heappush(self.heap, entry)
        self.account.joins()
        self._changed(1, rank)

    def withdraw(self, number: int) -> bool:
        """Its place in the heap is dropped when it comes to the top, or when such places are the most."""
        entry = self.waiting.get(number)
        if entry is None:
            return False
        self._left([entry])
        if len(self.heap) > 2 * len(self.waiting) + 32:
            self.heap = list(self.waiting.values())
            heapify(self.heap)
        return True

    def clear(self) -> list[Entry]:
        """Takes all, in order."""
        entries = sorted(self.waiting.values())
        self._left(entries)
        self.heap.clear()
        self.posted = None
        return entries

    def head(self) -> Entry | None:
        heap, waiting = self.heap, self.waiting
        while heap:
            if heap[0][1] in waiting:
                return heap[0]
            heappop(heap)
        return None

    def pop(self, samples: int = 1) -> list[Item]:
        """Takes the head, and those after it that may share a batch with it, up to this number of samples in all.

        Looks no further than a batch's length past requests of another kind. The queue must not be empty.
        """
        heap, waiting = self.heap, self.waiting
        head = self.head()
        assert head is not None
        heappop(heap)
        taken, passed = [head], list[Entry]()
        room, kind = samples - head[2].samples, head[2].batch_key
        while room > 0 and heap and len(passed) < self.max_batch:
            entry = heappop(heap)
            if entry[1] not in waiting:
                continue
            if entry[2].samples <= room and entry[2].batch_key == kind:
                taken.append(entry)
                room -= entry[2].samples
            else:
                passed.append(entry)
        for entry in passed:
            heappush(heap, entry)
        self._left(taken)
        return [entry[2] for entry in taken]

    def arrived(self, now: float) -> None:
        """Keeps the mean time between arrivals; a pause of more than ten times that makes it unknown."""
        gap = now - self.last_arrival
        self.last_arrival = now
        known = self.gap_s
        if known == inf:
            self.gap_s = gap
        else:
            self.gap_s = inf if gap > 10 * known else known + (gap - known) / 16

    def _left(self, entries: list[Entry]) -> None:
        waiting = self.waiting
        ranks = 0.0
        for rank, number, item in entries:
            del waiting[number]
            self.samples -= item.samples
            self.scales -= item.scale
            ranks += rank
        self._changed(-len(entries), -ranks)
        self.account.leaves(len(entries))

    def _changed(self, requests: int, rank: float) -> None:
        profile = self.profile
        if self.max_batch == 1 or not profile.pays(self.max_batch):
            starts = len(self.waiting)
        else:
            starts = -(-self.samples // self.max_batch)
        work_s = (profile.setup_s * starts + profile.per_sample_s * self.samples) * self.slots
        if self.waiting:
            work_s *= self.scales / len(self.waiting)
        else:
            self.scales = 0.0
        added_s = work_s - self.work_s
        self.work_s = work_s
        account = self.account
        for load in (account, account.level):
            load.waiting += requests
            if load.waiting:
                load.work_s += added_s
                load.rank_sum += rank
            else:  # and rounding errors are gone
                load.work_s = load.rank_sum = 0.0
