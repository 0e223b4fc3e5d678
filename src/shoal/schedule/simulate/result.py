"""Result of a simulation, job by job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal.schedule.simulate.options import Run
from shoal.schedule.types import Array, Index
from shoal.schedule.workloads.types import Workload

OnProgress = Callable[[int, int, float], None]
"""Called with measured jobs done, of how many, and the simulated seconds so far."""


@dataclass(frozen=True, eq=False)
class Simulated:
    """All in seconds of simulated time, (m,) by job: `started` and `finished` (NaN: not yet), `ran_s` on
    accelerators, `alone_s` how long an isolated share would have taken, `held_s` accelerator-seconds held, `lost_s`
    of those lost to restarts, checkpoints and failures, `cost_usd`; `restarts`, and `failures`. `measured` are the
    jobs that count. `began` and `ended` bound the simulated time, `capacity_s` is accelerator-seconds in it.
    `policy_cpu_s` (d,) is what each decision took."""

    run: Run
    workload: Workload
    measured: Index
    started: Array
    finished: Array
    ran_s: Array
    alone_s: Array
    held_s: Array
    lost_s: Array
    cost_usd: Array
    restarts: Index
    failures: Index
    began: float
    ended: float
    capacity_s: float
    rounds: int
    extended: int
    extendable: int
    policy_cpu_s: Array

    @property
    def jct_s(self) -> Array:
        """(k,) completion times of the measured jobs, from arrival."""
        times: Array = self.finished[self.measured] - self.workload.arrived[self.measured]
        return times
