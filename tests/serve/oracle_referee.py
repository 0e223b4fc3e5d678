"""A referee between a scheduler and its driver: keeps its own count of everything and objects to any broken rule.

It stands in for the scheduler, so that a random walk, a simulation or the gateway can drive it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal.core import PriorityClass
from shoal.serve.scheduling import Batch, Decision, Item, QueueSpec, Rejection, Scheduler


@dataclass(slots=True)
class Known:
    spec: QueueSpec
    executors: int
    waiting: dict[int, Item] = field(default_factory=dict)
    running: int = 0


class Referee:
    """`idle_allowed` for schedulers that may leave a slot idle although something waits, for a bounded time: then the
    decision must say when to ask again."""

    def __init__(self, scheduler: Scheduler, slots: int) -> None:
        self.scheduler = scheduler
        self.slots = slots
        self.free = slots
        self.queues: dict[str, Known] = {}
        self.running: dict[int, tuple[Known, int]] = {}
        self.ended: dict[int, str] = {}
        self.order: list[Item] = []

    def add_queue(self, spec: QueueSpec) -> None:
        known = self.queues.get(spec.key)
        if known is None:
            self.queues[spec.key] = Known(spec, spec.executors)
        else:
            known.spec, known.executors = spec, spec.executors
        self.scheduler.add_queue(spec)

    def remove_queue(self, key: str) -> None:
        self.scheduler.remove_queue(key)
        for item in self.queues.pop(key).waiting.values():
            self._end(item, "removed")
        self._count()

    def resize(self, key: str, executors: int) -> None:
        self.queues[key].executors = executors
        self.scheduler.resize(key, executors)

    def offer(self, item: Item, now: float) -> Rejection | None:
        refused = self.scheduler.offer(item, now)
        if refused is None:
            self.queues[item.queue].waiting[item.number] = item
        else:
            assert refused.item is item
            assert refused.retry_after_s > 0
            self._end(item, "refused")
        self._count()
        return refused

    def withdraw(self, item: Item) -> bool:
        known = self.queues.get(item.queue)
        waits = known is not None and item.number in known.waiting
        assert self.scheduler.withdraw(item) == waits
        if known is not None and waits:
            del known.waiting[item.number]
            self._end(item, "withdrawn")
        self._count()
        return waits

    def decide(self, now: float) -> Decision:
        decision = self.scheduler.decide(now)
        for rejection in decision.rejected:
            del self.queues[rejection.item.queue].waiting[rejection.item.number]
            assert rejection.retry_after_s >= 0
            self._end(rejection.item, "dropped")
        for batch in decision.batches:
            self._start(batch)
        assert decision.wake_at is None or decision.wake_at >= now
        self._count()
        self._conserves_work(decision)
        return decision

    def finished(self, batch: Batch, now: float, device_s: float, ok: bool = True) -> None:
        known, slots = self.running.pop(batch.number)
        known.running -= 1
        self.free += slots
        self.scheduler.finished(batch, now, device_s, ok)

    def waiting(self) -> int:
        return self.scheduler.waiting()

    def _start(self, batch: Batch) -> None:
        known = self.queues[batch.queue]
        assert batch.items
        assert batch.number not in self.running
        assert batch.expected_s > 0
        assert {item.batch_key for item in batch.items} == {batch.items[0].batch_key}
        assert len(batch.items) == 1 or batch.samples <= known.spec.max_batch
        for item in batch.items:
            del known.waiting[item.number]
            self._end(item, "executed")
        self.order += batch.items
        known.running += 1
        self.free -= known.spec.slots
        assert known.running <= known.executors, "more executions than executors"
        assert self.free >= 0, "more slots than there are"
        self.running[batch.number] = (known, known.spec.slots)

    def _end(self, item: Item, how: str) -> None:
        assert item.number not in self.ended, f"{item.number} was {self.ended.get(item.number)} and {how}"
        self.ended[item.number] = how

    def _count(self) -> None:
        assert self.scheduler.waiting() == sum(len(known.waiting) for known in self.queues.values())

    def startable(self) -> Sequence[str]:
        """Guaranteed queues that could use what is free. Best-effort ones may have to leave it."""
        return [
            key
            for key, known in self.queues.items()
            if known.waiting
            and known.running < known.executors
            and known.spec.slots <= self.free
            and known.spec.priority_class is PriorityClass.GUARANTEED
        ]

    def _conserves_work(self, decision: Decision) -> None:
        """A slot stays free only while its next batch is awaited, or kept for an execution wider than what is free."""
        if decision.wake_at is None and all(known.spec.slots == 1 for known in self.queues.values()):
            assert not self.startable(), "a slot is idle although something could run"
