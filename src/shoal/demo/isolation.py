"""The last columns: the services beside a neighbour that floods memory, unguarded and guarded.

The neighbour is a real process of streaming stores on the last CPU. It does harm only while that shares a memory domain
with the others, which in a virtual machine comes and goes: a ping-pong with the first CPU tells whether it does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shoal.core import ShoalError, Unavailable
from shoal.demo.load import SERVICES, TENANT
from shoal.demo.play import Demo
from shoal.demo.processes import processes_of
from shoal.demo.scenario import WORKLOADS
from shoal.demo.serving import FLOODED, SHOAL, load_of

_LOAD_S, _FAST_LOAD_S = 3.0, 2.0
_START_S = 30.0
_SETTLE_S = 4.0
"""A guard that has just begun tries how much the neighbour may have."""
_MAX_SLOWDOWN = 1.05

Found = dict[str, Any]
"""What becomes the report's key `isolation`."""


def guard_against_a_flood(demo: Demo, measure: Callable[[Demo, Found], None] | None = None) -> None:
    """Show both without the guard and with it, or say why that cannot be here. Nothing in it fails the demo."""
    demo.screen.heading("11. A neighbour floods the host's memory: without the guard, and with it")
    found: Found = {"same_domain": None, "why_not": None, "missing": [], "services": {}}
    demo.report.extra["isolation"] = found
    try:
        (measure or measure_here)(demo, found)
    except (ShoalError, OSError) as problem:
        found["why_not"] = str(problem)
        demo.screen.say(f"  not measured here: {problem}")
    if found["same_domain"] is False:
        demo.screen.say("  the first and the last CPU share no memory domain now: the flood does next to no harm")
    if found["services"]:
        demo.screen.quote(_table(found["services"]))


def measure_here(demo: Demo, found: Found) -> None:
    """Fills in what it can. Raises Unavailable where there is no second CPU."""
    from shoal.host import Pace, same_domain

    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise Unavailable("a neighbour needs a second CPU, and this process may run on one only")
    capability = Pace().capability()
    if not capability.available:
        found["missing"].append(capability.detail)
        demo.screen.say(f"  cores cannot be paced here ({capability.detail}): the guard uses the next best it has")
    seconds = _FAST_LOAD_S if demo.report.extra.get("fast") else _LOAD_S
    load = load_of(demo)
    found["same_domain"] = same_domain(cpus[0], cpus[-1])
    with _flood(cpus[-1]) as neighbour:
        load.start(FLOODED, seconds)
        load.finish()
        with _guarded(demo, neighbour):
            time.sleep(_SETTLE_S)
            load.start(SHOAL, seconds)
            load.finish()
    found["services"] = load.measured


@contextmanager
def _flood(cpu: int) -> Iterator[int]:
    """Its pid."""
    process = subprocess.Popen([sys.executable, str(WORKLOADS / "flood.py"), str(cpu)])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@contextmanager
def _guarded(demo: Demo, neighbour: int) -> Iterator[None]:
    """A guard as the server has one: the services are guaranteed, the neighbour is best-effort."""
    from shoal.host import GuardProcess, GuardSettings

    services = [
        {"name": one.name, "class": "guaranteed", "pids": pids, "cpus": 0.5}
        for one in SERVICES if (pids := _pids(demo, one.name))
    ]  # fmt: skip
    folder = demo.stage.home / "guard"
    guard = GuardProcess(folder, GuardSettings(policy="model", max_slowdown=_MAX_SLOWDOWN))
    try:
        guard.tell([*services, {"name": "neighbour", "class": "best-effort", "pids": [neighbour]}])
        guard.tend()
        journal, until = folder / "journal.jsonl", time.monotonic() + _START_S
        while not (journal.exists() and journal.stat().st_size):
            if guard.pid is None or time.monotonic() > until:
                guard.tend()
                raise Unavailable(f"the guard did not start: {guard.capability().detail}")
            time.sleep(0.01)
        yield
    finally:
        guard.close()


def _pids(demo: Demo, name: str) -> list[int]:
    """Of a service's replicas, their supervisors left out."""
    jobs = {replica.job_id for replica in demo.tenants[TENANT].services.get(name).members}
    return [process.pid for process in processes_of(demo.stage.home) if process.job in jobs and not process.supervisor]


def _table(services: dict[str, dict[str, dict[str, Any]]]) -> Sequence[str]:
    lines = [f"{'p99 ms':<22}" + "".join(f"{column:>22}" for column in services)]
    for one in SERVICES:
        figures = (column[one.name]["p99_ms"] for column in services.values())
        lines.append(f"{one.name:<22}" + "".join(f"{figure:>22.2f}" for figure in figures))
    return lines
