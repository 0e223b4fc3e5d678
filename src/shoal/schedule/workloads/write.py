"""Writing a workload as a trace in Gavel's ten fields, so that generated jobs can be kept and looked at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shoal.schedule.workloads.types import Throughputs, Workload


def gavel_lines(workload: Workload, throughputs: Throughputs, *, reference: str = "v100") -> Iterator[str]:
    """One line a job. A deadline becomes a multiple of the time on the reference type."""
    rate, _ = throughputs.of(workload, [reference])
    alone_s = workload.steps / rate[:, 0]
    slo = np.where(np.isfinite(workload.deadline), (workload.deadline - workload.arrived) / alone_s, -1.0)
    for job in range(workload.jobs):
        yield "\t".join((
            workload.kinds[workload.kind[job]], "-", "-", "-", "0", repr(float(workload.steps[job])),
            str(workload.gang[job]), f"{workload.weight[job]:g}", f"{slo[job]:.6f}",
            repr(float(workload.arrived[job])),
        ))  # fmt: skip
