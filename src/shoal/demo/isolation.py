"""The last columns: services and an input pipeline beside a neighbour that floods memory, unguarded and guarded.

The neighbour is a real process of streaming stores on a CPU of its own. It does harm only while that CPU shares a
memory domain with the others, which in a virtual machine comes and goes. A ping-pong test says whether it did. Where it
did not, simulated figures are shown and labelled so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core import ShoalError
from shoal.demo.load import SERVICES, TENANT
from shoal.demo.play import Demo
from shoal.demo.processes import processes_of
from shoal.demo.serving import FLOODED, SHOAL, load_of

if TYPE_CHECKING:
    from shoal.host import Limit, Rig

_LOAD_S, _FAST_LOAD_S = 3.0, 2.0
_WINDOW_S, _SETTLE_S, _QUIET_S = 2.0, 1.0, 0.5
_LEAST_FREE_KIB = 1 << 20
"""The pipeline holds 440 MB, the neighbour 256."""
_PATIENCE_S = 6.0
"""If the machine changed while the pipeline was measured, the measurement is repeated until this time has passed."""
_SIMULATED = "pair-nt"
_SIMULATED_S = 8.0


@dataclass(frozen=True, slots=True)
class Beside:
    """An input pipeline beside the flood: its speed and slowest steps against alone, what the flood moved."""

    speed: float
    p99: float
    gb_per_s: float


Found = dict[str, Any]
"""What becomes the report's key `isolation`."""


def guard_against_a_flood(demo: Demo, measure: Callable[[Demo, Found], None] | None = None) -> None:
    """Show both without the guard and with it, or say why that cannot be here. Nothing in it fails the demo."""
    demo.screen.heading("11. A neighbour floods the host's memory: without the guard, and with it")
    found: Found = {"same_domain": None, "why_not": None, "missing": [], "pipeline": {}, "services": {}}
    demo.report.extra["isolation"] = found
    try:
        (measure or measure_here)(demo, found)
    except (ShoalError, OSError) as problem:
        found["why_not"] = str(problem)
        demo.screen.say(f"  not measured here: {problem}")
    if not (found["pipeline"] and found["same_domain"]):
        _simulate(demo, found)
    demo.screen.quote(_table(found))


def measure_here(demo: Demo, found: Found) -> None:
    """Fills in what it can. Raises Unavailable where there is no second CPU, or no native part."""
    from shoal.host import MemoryKernel, Pace, Rig, guarded, unlimited

    if (free := _free_kib()) < _LEAST_FREE_KIB:
        found["why_not"] = f"{free >> 10} MiB of memory are free, and it takes {_LEAST_FREE_KIB >> 10}"
        demo.screen.say(f"  not measured here: {found['why_not']}")
        return
    capability = Pace().capability()
    if not capability.available:
        found["missing"].append(capability.detail)
        demo.screen.say(f"  cores cannot be paced here ({capability.detail}): the guard uses the next best it has")
    services = [
        {"name": one.sample, "class": "guaranteed", "pids": pids, "cpus": 0.5}
        for one in SERVICES if (pids := _pids(demo, one.sample))
    ]  # fmt: skip
    with Rig() as rig:
        guard = guarded(rig.feed, "model", others=services)
        _pipeline(rig, guard, found)
        if found["why_not"]:
            demo.screen.say(f"  {found['why_not']}")
        seconds = _FAST_LOAD_S if demo.report.extra.get("fast") else _LOAD_S
        load = load_of(demo)
        for column, limit in ((FLOODED, unlimited), (SHOAL, guard)):
            with rig.neighbours(MemoryKernel.NT_STORE, limit=limit):
                load.start(column, seconds)
                load.finish()
    found["services"] = load.measured


def _pipeline(rig: Rig, guard: Limit, found: Found) -> None:
    """The pipeline's two figures, both from the same state of the topology."""
    from shoal.host import MemoryKernel, Phase, against_alone

    until = time.monotonic() + _PATIENCE_S
    while not found["pipeline"] or time.monotonic() < until:
        free = against_alone(rig, [Phase((MemoryKernel.NT_STORE,), 0.5)])
        kept = against_alone(
            rig, [Phase((MemoryKernel.NT_STORE,), _WINDOW_S)], limit=guard, settle_s=_SETTLE_S, quiet_s=_QUIET_S
        )
        if free is None or kept is None:
            found["why_not"] = "the machine is too busy: the pipeline did no work"
            return
        found["same_domain"] = free.same if free.same == kept.same else None
        found["pipeline"] = {
            column: asdict(Beside(round(one.speed, 3), round(one.p99, 3), round(one.bytes_per_s / 1e9, 2)))
            for column, one in ((FLOODED, free), (SHOAL, kept))
        }
        found["why_not"] = None
        if found["same_domain"] is False:
            found["why_not"] = (
                "the two CPUs do not share a memory domain at this moment: the flood does next to no harm"
            )
            return
        flaw = free.flaw or kept.flaw
        if not flaw:
            return
        found["why_not"] = f"the machine changed while it was measured: {flaw}"


def _simulate(demo: Demo, found: Found) -> None:
    from dataclasses import replace

    from shoal.host import make_policy
    from shoal.host.simulate import SIMULATED, simulate, workload_set

    scenario = replace(next(one for one in workload_set() if one.name == _SIMULATED), duration_s=_SIMULATED_S)
    outcomes = {FLOODED: simulate(scenario, make_policy("none")), SHOAL: simulate(scenario, make_policy("model"))}
    found["simulated"] = {"note": SIMULATED} | {
        column: asdict(
            Beside(round(one.speed, 3), round(one.guaranteed[0].p99, 3), round(one.best_effort[0].bytes_per_s / 1e9, 2))
        )
        for column, one in outcomes.items()
    }
    demo.screen.say(f"  pipeline: {SIMULATED}")


def _pids(demo: Demo, name: str) -> list[int]:
    """Of a service's replicas, their supervisors left out."""
    jobs = {replica.job_id for replica in demo.tenants[TENANT].services.get(name).members}
    return [process.pid for process in processes_of(demo.stage.home) if process.job in jobs and not process.supervisor]


def _free_kib() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1])
    return 0


def _table(found: Found) -> Sequence[str]:
    lines = []
    if found["services"]:
        columns = list(found["services"])
        lines.append(f"{'p99 ms, measured':<22}" + "".join(f"{column:>22}" for column in columns))
        for one in SERVICES:
            figures = (found["services"][column][one.sample]["p99_ms"] for column in columns)
            lines.append(f"{one.sample:<22}" + "".join(f"{figure:>22.2f}" for figure in figures))
    for title, rows in (("measured", found["pipeline"]), ("simulated", found.get("simulated", {}))):
        if not rows:
            continue
        lines.append(f"{f'pipeline, {title}':<22}{'speed':>10}{'p99 step':>10}{'flood GB/s':>12}")
        lines.append(f"{'alone':<22}{1:>10.3f}{'1.00x':>10}{'-':>12}")
        for column in (FLOODED, SHOAL):
            row = rows[column]
            lines.append(f"{column:<22}{row['speed']:>10.3f}{row['p99']:>9.2f}x{row['gb_per_s']:>12.1f}")
    return lines
