"""Input of a scheduler between tenants, and its decisions: queues, requests, batches, refusals."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core import PriorityClass, Reason


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A (tenant, model version) queue. `slots` is what one execution occupies of the device's compute slots;
    `executors` how many replicas can execute at the same time (it changes by `resize`). `steady` says that executions
    take about as long as each other, as a network's do; those of a function are unpredictable. An executor of a model
    that works in steps takes `rows` executions at once: those that come while it is at one join between two steps."""

    key: str
    tenant: str
    weight: float = 1.0
    priority_class: PriorityClass = PriorityClass.GUARANTEED
    max_batch: int = 1
    slots: int = 1
    executors: int = 1
    slo_s: float | None = None
    steady: bool = True
    rows: int = 1


@dataclass(slots=True)
class Item:
    """One request in a queue. `deadline` is absolute, infinity without one; `samples` is its size along the batch
    dimension, `size` the bytes of each of them (0: unknown); `batch_key` says with which others it may be put together
    (equal shapes and types). `scale` is the scheduler's: how many times as long as the typical request it takes."""

    number: int
    queue: str
    arrived: float
    deadline: float
    samples: int = 1
    batch_key: object = None
    size: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Rejection:
    """The item is not taken, or is given up; `retry_after_s` is when it is worth asking again."""

    item: Item
    reason: Reason
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Batch:
    """Items of one queue to be executed together, now. `expected_s` is the time it is expected to take."""

    number: int
    queue: str
    items: tuple[Item, ...]
    expected_s: float
    reason: Reason | None = None

    @property
    def samples(self) -> int:
        return sum(item.samples for item in self.items)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to start and whom to refuse now, and when to ask again if nothing else happens (None: no need)."""

    batches: tuple[Batch, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    wake_at: float | None = None
