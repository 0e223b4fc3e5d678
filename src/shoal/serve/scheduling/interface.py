"""The protocol of a scheduler between tenants.

A scheduler is a state machine without a clock, files or threads: its driver tells it the time and does what
it decides. The gateway drives it with the loop's clock, `simulate` with a virtual one; the code is the same.

Executions cannot be interrupted once they run, so all control lies in what is started when, and with whom.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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


class StepTimes(Protocol):
    """What a request took of a model that works in steps: how many, and on average the rows and the seconds of one."""

    @property
    def steps(self) -> int: ...

    @property
    def rows(self) -> float: ...

    @property
    def step_s(self) -> float: ...


class Scheduler(Protocol):
    """Times are seconds of one monotonic clock, never decreasing from call to call."""

    def add_queue(self, spec: QueueSpec) -> None:
        """Also replaces the settings of a known queue; what waits in it stays."""
        ...

    def remove_queue(self, key: str) -> None:
        """With what waits in it."""
        ...

    def resize(self, key: str, executors: int) -> None: ...

    def offer(self, item: Item, now: float) -> Rejection | None:
        """Take the item, or refuse it at once."""
        ...

    def withdraw(self, item: Item) -> bool:
        """The caller is gone; False if the item does not wait any more."""
        ...

    def decide(self, now: float) -> Decision: ...

    def finished(
        self, batch: Batch, now: float, device_s: float, ok: bool = True, work: StepTimes | None = None
    ) -> None:
        """The batch's executor is free again after `device_s` of execution. Of a model that works in steps, `device_s`
        is the batch's part of the steps that it was in, and `work` says what those were."""
        ...

    def waiting(self) -> int: ...
