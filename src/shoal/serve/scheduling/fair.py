"""Weighted fair sharing of device time between tenants, guaranteed work first.

The tenant that used least per unit of weight goes first: start-time fair queueing (Goyal et al., SIGCOMM'96). So two
tenants of a class that both always have work are never further apart, per weight, than one execution of each. It is
deficit round robin with a quantum of zero, at the same cost here (a heap). Unlike that, it needs no bound on the cost
of an execution. Best-effort work runs in the gaps that `headroom` allows.
"""

from __future__ import annotations

from shoal.core import Reason
from shoal.serve.scheduling.base import Scheduler
from shoal.serve.scheduling.interface import Item, Rejection
from shoal.serve.scheduling.queues import Queue

NO_GAP_RETRY_S = 60.0


class FairScheduler(Scheduler):
    """In order of arrival inside a tenant. Refuses only best-effort work that would never get a gap."""

    def _refuse(self, queue: Queue, item: Item, now: float) -> Rejection | None:
        if not queue.account.level.best_effort:
            return None
        execution_s = queue.profile.expected_s(item.samples) * item.scale if queue.profile.known else 0.0
        promise = self._headroom_now(now).never(queue.slots, execution_s)
        if promise is None:
            return None
        text = (  # without the name of who was promised it, which may be another tenant's
            f"one execution takes {execution_s:.3g} s, and best-effort work may keep guaranteed services waiting for "
            f"{promise.patience_s:.3g} s at most here"
        )
        facts = {"execution_s": execution_s, "patience_s": promise.patience_s, "promised_to": promise.key}
        return Rejection(item, Reason("no-gap", text, facts), NO_GAP_RETRY_S)
