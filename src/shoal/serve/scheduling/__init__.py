"""Scheduling of requests: the schedulers between tenants, all behind one interface, and what they decide with.

Observes how long executions take and what waits; decides what to start, in which batch, and what to refuse. Its driver
acts on that. It has no clock and no threads: the gateway drives it live, `simulate` with virtual time.

- `deadline` (the default): guaranteed before best-effort, then weighted shares, then deadlines, with early refusal
- `fair`: weighted fair sharing of device time alone
- `all-share`: what Perseus did, to compare with
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.core import Invalid
from shoal.serve.scheduling.all_share import AllShareScheduler
from shoal.serve.scheduling.base import Scheduler
from shoal.serve.scheduling.deadline import DeadlineScheduler
from shoal.serve.scheduling.fair import FairScheduler
from shoal.serve.scheduling.interface import Batch, Decision, Item, QueueSpec, Rejection
from shoal.serve.scheduling.limits import CostBucket
from shoal.serve.scheduling.profile import ExecutionProfile, Profiles

DEFAULT_SCHEDULER = "deadline"
_MAKERS: dict[str, Callable[[int, Profiles], Scheduler]] = {
    "deadline": DeadlineScheduler,
    "fair": FairScheduler,
    "all-share": AllShareScheduler,
}
SCHEDULERS = tuple(_MAKERS)


def make_scheduler(
    name: str = DEFAULT_SCHEDULER, *, slots: int, profiles: Profiles | None = None, ahead_s: float = 0.0
) -> Scheduler:
    """A new scheduler for a device with this number of compute slots; `profiles` is what was learned about executions,
    to keep or to share. With `ahead_s`, replicas are sent one more execution while they are at one that is shorter (see
    `Scheduler`). Raises Invalid for an unknown name."""
    maker = _MAKERS.get(name)
    if maker is None:
        raise Invalid(f"there is no scheduler called {name!r}", where="scheduler", hint=f"one of {', '.join(_MAKERS)}")
    made = maker(slots, profiles if profiles is not None else Profiles())
    made.ahead_s = ahead_s
    return made


__all__ = [
    "DEFAULT_SCHEDULER", "SCHEDULERS", "AllShareScheduler", "Batch", "CostBucket", "DeadlineScheduler",
    "Decision", "ExecutionProfile", "FairScheduler", "Item", "Profiles", "QueueSpec", "Rejection", "Scheduler",
    "make_scheduler",
]  # fmt: skip
