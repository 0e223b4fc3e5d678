"""Gavel's traces: one job a line, tab-separated, in ten fields (nine in some), or in seven (its older format).

Ten: job type, command, directory, steps argument, needs data, steps, gang, priority, SLO, arrival. Nine leave out the
directory. Seven: job type, command, steps argument, needs data, steps, arrival, gang. An SLO is a multiple of how long
the job takes alone on the reference type; negative means none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.core import Invalid
from shoal.schedule.workloads.files import Lines
from shoal.schedule.workloads.types import Throughputs, Workload


class _TraceLine(NamedTuple):
    line: int
    kind: str
    steps: float
    gang: int
    weight: float
    slo: float
    arrived: float


def read_gavel(path: Path | str, throughputs: Throughputs | None = None, *, reference: str = "v100") -> Workload:
    """Jobs sorted by arrival. `throughputs` is needed for SLOs only. Raises `Invalid` naming the line of each fault."""
    lines = Lines(path)
    jobs = [
        job
        for number, text in enumerate(lines.lines, 1)
        if text.strip() and (job := _job(lines, number, text.split("\t"))) is not None
    ]
    lines.raise_faults()
    if not jobs:
        lines.nothing()
    jobs.sort(key=lambda job: job.arrived)
    kinds = tuple(dict.fromkeys(job.kind for job in jobs))
    positions = {kind: at for at, kind in enumerate(kinds)}
    return Workload.of(
        str(path),
        kinds,
        kind=np.array([positions[job.kind] for job in jobs]),
        arrived=np.array([job.arrived for job in jobs]),
        steps=np.array([job.steps for job in jobs]),
        gang=np.array([job.gang for job in jobs]),
        weight=np.array([job.weight for job in jobs]),
        deadline=np.array([_deadline(str(path), job, throughputs, reference) for job in jobs]),
        line=np.array([job.line for job in jobs]),
    )


def _job(lines: Lines, number: int, fields: list[str]) -> _TraceLine | None:
    if len(fields) == 10:
        steps, gang, weight, slo, arrived = fields[5:]
    elif len(fields) == 9:
        steps, gang, weight, slo, arrived = fields[4:]
    elif len(fields) == 7:
        (steps, arrived, gang), weight, slo = fields[4:], "1", "-1"
    else:
        lines.fault(
            number, f"fields separated by tabs: {len(fields)}", "Gavel's traces have 10 or 9, its older ones have 7"
        )
        return None
    if not fields[0].strip():
        lines.fault(number, "the job type is empty")
    return _TraceLine(
        number,
        fields[0].strip(),
        lines.number(number, "number of steps", steps, above=True),
        lines.whole(number, "gang", gang),
        lines.number(number, "priority", weight, above=True),
        lines.number(number, "SLO", slo, least=-math.inf) if slo.strip() else -1.0,
        lines.number(number, "arrival", arrived),
    )


def _deadline(source: str, job: _TraceLine, throughputs: Throughputs | None, reference: str) -> float:
    if job.slo <= 0.0:
        return math.inf
    where = f"{source}:{job.line}"
    if throughputs is None or (job.kind, job.gang) not in throughputs.keys:
        raise Invalid("an SLO needs the job's throughput, to say how long it takes alone", where=where)
    rate = throughputs.rate[throughputs.keys[job.kind, job.gang], throughputs.at([reference])[0]]
    if not rate > 0.0:
        raise Invalid(f"an SLO is a multiple of the time on {reference}, where this job cannot run", where=where)
    return float(job.arrived + job.slo * job.steps / rate)


def gavel_lines(workload: Workload, throughputs: Throughputs, *, reference: str = "v100") -> Iterator[str]:
    """A workload in ten fields, one line a job. A deadline becomes a multiple of the time on the reference type."""
    rate, _ = throughputs.of(workload, [reference])
    alone_s = workload.steps / rate[:, 0]
    slo = np.where(np.isfinite(workload.deadline), (workload.deadline - workload.arrived) / alone_s, -1.0)
    for job in range(workload.jobs):
        yield "\t".join((
            workload.kinds[workload.kind[job]], "-", "-", "-", "0", repr(float(workload.steps[job])),
            str(workload.gang[job]), f"{workload.weight[job]:g}", f"{slo[job]:.6f}",
            repr(float(workload.arrived[job])),
        ))  # fmt: skip
