"""The baseline of Perseus (IC2E'20): all tenants share one queue, in order of arrival.

Batches are whatever waits for the same model, as in the server it used. There are no shares, no classes, no deadlines,
and nothing is refused.
"""

from __future__ import annotations

from shoal.serve.scheduling.base import Scheduler
from shoal.serve.scheduling.interface import QueueSpec, Rejection
from shoal.serve.scheduling.profile import Profiles
from shoal.serve.scheduling.queues import Account, Queue


class AllShareScheduler(Scheduler):
    """A queue whose executors are busy lets others pass."""

    def __init__(self, slots: int, profiles: Profiles) -> None:
        super().__init__(slots, profiles)
        self._everybody = Account("", 1.0, self._guaranteed, 0)

    def _account_of(self, spec: QueueSpec) -> Account:  # noqa: ARG002
        return self._everybody

    def _room(self, queue: Queue, now: float, refused: list[Rejection]) -> int:  # noqa: ARG002
        if self._longest_s(queue, now) <= 0.0:
            return 0
        return min(queue.samples, queue.max_batch)
