"""Philly-style CSV: one job a line, with how long it ran and on how many accelerators.

The header names the columns; of each of these the first that is there counts: `timestamp`, `submit_time`, `time`
(seconds, or dates); `duration`, `run_time` (seconds on the reference type); `num_gpus`, `gpus`, `gpu_num`; and, if
there is one, `vc`, `tenant`, `user`, `cluster` for the tenant and `kind`, `model`, `workload` for the kind of job. A
job whose kind the trace does not tell gets a measured one that is drawn at random (seeded).
"""

from __future__ import annotations

import csv
import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from shoal.core import Tenant
from shoal.schedule.workloads.files import Lines
from shoal.schedule.workloads.types import Throughputs, Workload

_COLUMNS = {
    "arrival": ("timestamp", "submit_time", "submitted_time", "time"),
    "duration": ("duration", "run_time", "runtime"),
    "gang": ("num_gpus", "gpus", "gpu_num", "num_gpu"),
}
_OPTIONAL = {"tenant": ("vc", "tenant", "user", "cluster"), "kind": ("kind", "model", "workload")}


def read_philly(path: Path | str, throughputs: Throughputs, *, reference: str = "v100", seed: int = 0) -> Workload:
    """The work of a job is what it did in its duration on the reference type; jobs that did nothing (a duration
    of zero) are left out. Raises `Invalid` naming the line of each fault."""
    lines = Lines(path)
    rows = list(csv.reader(lines.lines))
    header = [name.strip().lower() for name in rows[0]] if rows else []
    at = {}
    for name, words in {**_COLUMNS, **_OPTIONAL}.items():
        found = next((header.index(word) for word in words if word in header), None)
        if found is not None:
            at[name] = found
        elif name in _COLUMNS:
            lines.fault(1, f"no column for the {name}", f"name it {' or '.join(words)}")
    lines.raise_faults()
    jobs = []
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != len(header):
            lines.fault(number, f"{len(row)} fields, but the header has {len(header)}")
            continue
        arrived = _moment(lines, number, row[at["arrival"]])
        duration = lines.number(number, "duration", row[at["duration"]])
        gang = lines.whole(number, "number of accelerators", row[at["gang"]])
        if duration > 0.0:
            told = {name: row[at[name]].strip() for name in _OPTIONAL if name in at}
            jobs.append((arrived, duration, gang, told.get("tenant") or "default", told.get("kind", ""), number))
    lines.raise_faults()
    if not jobs:
        lines.nothing()
    jobs.sort(key=lambda job: job[0])
    return _workload(lines, jobs, throughputs, reference, seed)


def _workload(
    lines: Lines,
    jobs: list[tuple[float, float, int, str, str, int]],
    throughputs: Throughputs,
    reference: str,
    seed: int,
) -> Workload:
    column = throughputs.at([reference])[0]
    names = tuple(throughputs.gangs)
    position = {name: at for at, name in enumerate(names)}
    chance = np.random.default_rng(seed)
    kind, steps = np.empty(len(jobs), np.intp), np.empty(len(jobs))
    choices: dict[int, list[tuple[int, float]]] = {}
    for at, (_, duration, gang, _, named, number) in enumerate(jobs):
        if gang not in choices:
            choices[gang] = [
                (position[name], rate) for name in names if (rate := _rate(throughputs, name, gang, column)) > 0.0
            ]
        if named and named not in position:
            lines.fault(number, f"no throughput for the kind {named!r}", f"{throughputs.source} has {', '.join(names)}")
            continue
        able = choices[gang] if not named else [each for each in choices[gang] if each[0] == position[named]]
        if not able:
            lines.fault(number, f"no throughput for a gang of {gang} on {reference}")
            continue
        chosen, rate = able[int(chance.integers(len(able)))]
        kind[at], steps[at] = chosen, duration * rate
    lines.raise_faults()
    tenants = tuple(dict.fromkeys(job[3] for job in jobs))
    tenant_at = {name: at for at, name in enumerate(tenants)}
    first = jobs[0][0]
    return Workload.of(
        lines.source, names, kind=kind, arrived=np.array([job[0] - first for job in jobs]), steps=steps,
        gang=np.array([job[2] for job in jobs], np.intp),
        tenant=np.array([tenant_at[job[3]] for job in jobs], np.intp), line=np.array([job[5] for job in jobs], np.intp),
        tenants=tuple(Tenant(name) for name in tenants),
    )  # fmt: skip


def _rate(throughputs: Throughputs, kind: str, gang: int, column: int) -> float:
    known = throughputs.nearest(kind, gang)
    rate = math.nan if known is None else throughputs.rate[throughputs.keys[kind, known], column] * gang / known
    return 0.0 if math.isnan(rate) else float(rate)


def _moment(lines: Lines, number: int, text: str) -> float:
    try:
        float(text)
    except ValueError:
        pass
    else:
        return lines.number(number, "arrival", text)
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        lines.fault(number, f"arrival {text.strip()!r} is neither seconds nor a date")
        return math.nan
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
