"""Clipper's adaptive batching (NSDI'17): each queue's batch limit grows by one while its executions keep the
objective, and shrinks by a tenth when one does not. Otherwise like `all_share`: one queue for all tenants."""

from __future__ import annotations

from shoal.serve.scheduling.all_share import AllShareScheduler
from shoal.serve.scheduling.interface import Batch, StepTimes
from shoal.serve.scheduling.profile import Profiles
from shoal.serve.scheduling.queues import Queue

INCREASE = 1.0
DECREASE = 0.9


class AimdScheduler(AllShareScheduler):
    """The objective is the queue's `slo_s`, for an execution alone, as in the paper; without one batches are full."""

    def __init__(self, slots: int, profiles: Profiles) -> None:
        super().__init__(slots, profiles)
        self._limits: dict[str, float] = {}

    def finished(
        self, batch: Batch, now: float, device_s: float, ok: bool = True, work: StepTimes | None = None
    ) -> None:
        queue = self._queues.get(batch.queue)
        if queue is not None and queue.slo_s is not None and ok:
            limit = min(self._limits.get(batch.queue, 1.0), float(queue.max_batch))
            if device_s > queue.slo_s:
                self._limits[batch.queue] = max(1.0, limit * DECREASE)
            elif batch.samples >= int(limit):
                self._limits[batch.queue] = limit + INCREASE
        super().finished(batch, now, device_s, ok, work)

    def _limit(self, queue: Queue) -> int:
        if queue.slo_s is None:
            return queue.max_batch
        return min(queue.max_batch, int(self._limits.get(queue.key, 1.0)))
