"""Whether waiting jobs start when they are said to: the real control plane in virtual time, over a simulated engine.

    python benchmarks/starts_when.py [--seeds 20] [--first 1000] [--load heavy] [--jobs 80] [--json]

A seed draws tenants, kinds of jobs, arrivals and run times. Now and then, some waiting jobs are asked when they start,
as `shoal explain` asks. Counted is how often the start lies in the interval that was said to hold it in nine of ten
cases, how often it comes before and after, how wide the intervals are, by medians, over what was left to wait, and how
often no start was said. A start that was said for a job that did not start until long after the last arrival was
invented: it counts as one that comes after. Seeds below 1000 were used to choose constants.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common import Row, parser, report

from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.control.extensions.loaded import Chosen
from shoal.control.jobs.explaining import Explainer
from shoal.control.plane import ControlPlane
from shoal.core import Device, Node, PriorityClass
from shoal.engine import Gang
from shoal.engine.simulated import Line, Script, SimulatedCluster, SimulatedEngine, VirtualClock, run
from shoal.forecast.live.extension import Forecast, ForecastSection
from shoal.store import Store, open_store

DEVICES = 8
LOWEST, HIGHEST = 0.85, 0.95
TOGETHER, EVERY_S = 5, 1500.0
"""The number of waiting jobs that are explained at a time, and the seconds between two such times."""
MOST_JOBS = 4
"""Jobs go on to come until all that were asked have started, up to this many times their number."""
LONG_AFTER_S = 100_000.0


@dataclass(frozen=True)
class Load:
    """`offered` is the work that comes over what the devices can do. Of the jobs, `declared` say how long they run,
    `limited` have a `max_runtime`, and `reporting` report their steps; `services` devices are held by what never ends.
    Bursts are arrays where they are `limited_arrays`, of two tasks at a time."""

    offered: float = 0.9
    declared: float = 0.0
    limited: float = 0.0
    reporting: float = 0.0
    services: int = 0
    guaranteed: float = 0.0
    bursts: float = 0.0
    arrays: bool = False
    spread: float = 0.8
    failing: float = 0.05


LOADS = {
    "light": Load(offered=0.6),
    "heavy": Load(offered=0.95),
    "over": Load(offered=1.3),
    "declared": Load(declared=0.8),
    "limited": Load(limited=0.7),
    "reported": Load(reporting=1.0),
    "services": Load(offered=0.6, services=3, limited=0.3),
    "preempting": Load(guaranteed=0.3),
    "bursts": Load(bursts=0.15),
    "arrays": Load(bursts=0.15, arrays=True),
    "mixed": Load(declared=0.4, limited=0.3, reporting=0.3, services=1, guaranteed=0.15, bursts=0.05, arrays=True),
}


@dataclass(frozen=True)
class Kind:
    """Jobs of one name: alike in shape and, more or less, in run time."""

    name: str
    devices: int
    ranks: int
    mean_s: float
    spread: float
    guess: float
    guaranteed: bool

    def run_s(self, draw: random.Random) -> float:
        return max(1.0, self.mean_s * draw.lognormvariate(0, self.spread))


@dataclass
class Asked:
    at: float
    job: str
    estimate: float | None
    between: tuple[float, float | None] | None
    started: float | None = None


def kinds_of(load: Load, draw: random.Random, tenant: str) -> list[Kind]:
    return [
        Kind(
            f"{tenant}-{letter}", draw.choice((1, 1, 1, 2, 4)), draw.choice((1, 1, 1, 2)),
            60 * draw.lognormvariate(1.5, 0.8), load.spread * draw.uniform(0.3, 1), draw.lognormvariate(0, 0.3),
            draw.random() < load.guaranteed,
        )
        for letter in "abc"
    ]  # fmt: skip


class Replay:
    """One seed."""

    def __init__(self, load: Load, seed: int, jobs: int) -> None:
        self._load, self._draw, self._jobs = load, random.Random(f"{seed} {load}"), jobs
        self._kinds = {name: kinds_of(load, self._draw, name) for name in ("ada", "bob", "cyd")}
        self._runs: dict[str, float] = {}
        self._seed = seed
        self.asked: list[Asked] = []
        self.asking = True

    async def play(self, folder: Path) -> list[Asked]:
        clock = VirtualClock()
        nodes = [
            Node(f"n{at}", tuple(Device(f"n{at}-{d}", "a100", d) for d in range(DEVICES // 2)), 64_000, 1 << 36)
            for at in range(2)
        ]
        engine = SimulatedEngine(SimulatedCluster(nodes, clock=clock, behaviour=lambda gang: self._script(gang, clock)))
        store = open_store(f"sqlite:///{folder}/shoal.db", clock=clock, inline=True, sync=False)
        with contextlib.closing(store):
            store.acquire("replay")
            chosen = [Chosen(Forecast, ForecastSection(enabled=self._load.reporting > 0))]
            numbers = random.Random(self._seed)
            plane = ControlPlane(
                store, engine, folder, clock=clock, extensions=chosen,
                new_id=lambda letter: f"{letter}-{numbers.getrandbits(40):010x}",
            )  # fmt: skip
            await plane.open()
            for name, weight in (("ada", 2.0), ("bob", 1.0), ("cyd", 1.0)):
                await plane.put_tenant(name, weight=weight, max_priority_class=PriorityClass.GUARANTEED, actor="admin")
            for number in range(self._load.services):
                manifest = {"name": f"service{number}", "command": ["serve"], "restart": {"on": "always"}}
                await self._submit(plane, {**manifest, "resources": {"accelerators": 1, "cpus": 1}}, "ada")
            asking = asyncio.create_task(self._ask(plane, clock))
            await self._come(plane)
            asking.cancel()
            await self._let_run(plane, clock)
            self._settle(store)
            await plane.close()
        return self.asked

    def _script(self, gang: Gang, clock: VirtualClock) -> Script:
        name = gang.name.split(".")[0]
        draw = random.Random(f"{self._seed} {gang.name}")
        run_s = self._runs.get(name, 1e9)
        lines: tuple[Line, ...] = ()
        if self._load.reporting and draw.random() < self._load.reporting and run_s < 1e9:
            lines = reports(draw, run_s, clock.now())
        code = 1 if run_s < 1e9 and draw.random() < self._load.failing else 0
        return Script(run_s=run_s, code=code, launch_s=draw.choice((0.1, 0.5)), checkpoint_s=1.0, lines=lines)

    async def _submit(self, plane: ControlPlane, manifest: dict[str, object], tenant: str) -> str:
        record, _ = await plane.submit(JobManifest.model_validate(manifest), tenant=tenant, actor=f"tenant:{tenant}")
        return record.id

    async def _come(self, plane: ControlPlane) -> None:
        """All jobs, as they come."""
        load, draw = self._load, self._draw
        free = DEVICES - load.services
        kinds = [(tenant, kind) for tenant, own in self._kinds.items() for kind in own]
        work = statistics.fmean(one.devices * one.ranks * one.mean_s * 1.2 for _, one in kinds)
        size = 1 + load.bursts * 5.5
        gap_s = work * size / (max(1, free) * load.offered)
        came = 0
        while came < self._jobs or (self._open(plane) and came < MOST_JOBS * self._jobs):
            await asyncio.sleep(draw.expovariate(1 / gap_s))
            tenant, kind = draw.choice(kinds)
            number = draw.randint(4, 9) if draw.random() < load.bursts else 1
            came += number
            self.asking = came < self._jobs
            await self._submit_all(plane, tenant, kind, number)

    async def _submit_all(self, plane: ControlPlane, tenant: str, kind: Kind, number: int) -> None:
        draw, load = self._draw, self._load
        manifest: dict[str, object] = {
            "name": kind.name, "command": ["train"], "ranks": kind.ranks,
            "resources": {"accelerators": kind.devices, "cpus": 1},
            "priority_class": "guaranteed" if kind.guaranteed else "best-effort",
        }  # fmt: skip
        longest = 1e9
        if draw.random() < load.declared:
            manifest["expected_runtime"] = f"{max(1.0, kind.mean_s * kind.guess):.0f}s"
        if draw.random() < load.limited:
            longest = kind.mean_s * draw.choice((2.0, 3.0, 5.0))
            manifest["max_runtime"] = f"{longest:.0f}s"
        if number > 1 and load.arrays:
            made = await self._submit_array(plane, {**manifest, "array": f"0-{number - 1}%2"}, tenant)
        else:
            made = [await self._submit(plane, manifest, tenant) for _ in range(number)]
        for job_id in made:
            self._runs[job_id] = kind.run_s(draw)

    async def _submit_array(self, plane: ControlPlane, manifest: dict[str, object], tenant: str) -> list[str]:
        before = {live.job.id for live in plane.cache}
        await self._submit(plane, manifest, tenant)
        return sorted(live.job.id for live in plane.cache if live.job.id not in before)

    async def _ask(self, plane: ControlPlane, clock: VirtualClock) -> None:
        draw = random.Random(f"asks {self._seed}")
        explainer = Explainer(lambda: plane.extensions.without_held(plane.snapshot()), clock)
        while self.asking:
            await asyncio.sleep(draw.expovariate(1 / EVERY_S))
            waiting = sorted(plane.snapshot().pending.by_id)
            for told in await explainer.explain(draw.sample(waiting, min(TOGETHER, len(waiting)))):
                self.asked.append(Asked(clock.now(), told.job_id, told.estimated_start, told.start_between))

    async def _let_run(self, plane: ControlPlane, clock: VirtualClock) -> None:
        end = clock.now() + LONG_AFTER_S
        while clock.now() < end and self._open(plane):
            await asyncio.sleep(60)

    def _open(self, plane: ControlPlane) -> bool:
        """Whether a job that was asked still waits."""
        asked = {one.job for one in self.asked}
        return any(live.job.id in asked and live.job.state is JobState.QUEUED for live in plane.cache)

    def _settle(self, store: Store) -> None:
        for one in self.asked:
            starts = [attempt.created_at for attempt in store.attempts(one.job) if attempt.created_at >= one.at]
            one.started = min(starts, default=None)


def reports(draw: random.Random, run_s: float, begin: float) -> tuple[Line, ...]:
    """Of a hundred steps that take about equally long."""
    parts = [draw.lognormvariate(0, 0.2) for _ in range(100)]
    found, after = [], 0.0
    for number, part in enumerate(parts, 1):
        after += part * run_s / sum(parts) * 0.999
        found.append(Line(after, json.dumps({"at": begin + after, "step": number, "total": 100}), "metrics"))
    return tuple(found)


@dataclass(frozen=True)
class Tally:
    asked: int
    untold: int
    unbounded: int
    held: int
    before: int
    after: int
    width: float
    open: int

    @property
    def told(self) -> int:
        return self.held + self.before + self.after


def tally(asked: Sequence[Asked]) -> Tally:
    """`untold` got no start, `unbounded` a start without an interval, `open` an interval without an end."""
    told = [one for one in asked if one.between is not None]
    early = [one for one in told if one.started is not None and one.started < one.between[0] - 1e-6]
    late = [one for one in told if one.between[1] is not None and (one.started or 1e18) > one.between[1] + 1e-6]
    bounded = [one for one in told if one.between[1] is not None and one.started is not None]
    width_s = [one.between[1] - one.between[0] for one in bounded]
    wait_s = [one.started - one.at for one in bounded]
    width = statistics.median(width_s) / max(1.0, statistics.median(wait_s)) if bounded else 0.0
    return Tally(
        len(asked), sum(one.estimate is None for one in asked),
        sum(one.estimate is not None and one.between is None for one in asked),
        len(told) - len(early) - len(late), len(early), len(late), width,
        sum(one.between[1] is None for one in told),
    )  # fmt: skip


def replay(name: str, seed: int, jobs: int) -> list[Asked]:
    with tempfile.TemporaryDirectory(prefix="shoal-starts-") as folder:
        return run(Replay(LOADS[name], seed, jobs).play(Path(folder)), start=1_700_000_000)


def rows_of(name: str, found: Tally, seeds: int) -> list[Row]:
    share = found.held / found.told if found.told else 0.0
    bounds = f"{LOWEST:.0%} to {HIGHEST:.0%}"
    return [
        Row(f"{name}: starts within their interval, of {found.told} in {seeds} seeds", 100 * share, "%", bounds,
            LOWEST <= share <= HIGHEST if found.told else None),
        Row(f"{name}: earlier than it", 100 * found.before / max(1, found.told), "%"),
        Row(f"{name}: later than it, or never", 100 * found.after / max(1, found.told), "%"),
        Row(f"{name}: median width over the median of what was left to wait", found.width, "x"),
        Row(f"{name}: intervals without an end", 100 * found.open / max(1, found.told), "%"),
        Row(f"{name}: of those asked, no start was said", 100 * found.untold / max(1, found.asked), "%"),
        Row(f"{name}: of those asked, a start without an interval", 100 * found.unbounded / max(1, found.asked), "%"),
    ]  # fmt: skip


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--seeds", type=int, default=20)
    arguments.add_argument("--first", type=int, default=1000, help="the first seed")
    arguments.add_argument("--jobs", type=int, default=80, help="of each seed, until no more are asked")
    arguments.add_argument("--load", choices=LOADS, action="append", help="all, if none is given")
    chosen = arguments.parse_args()
    rows: list[Row] = []
    together: list[Asked] = []
    for name in chosen.load or LOADS:
        asked: list[Asked] = []
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            asked += replay(name, seed, chosen.jobs)
        rows += rows_of(name, tally(asked), chosen.seeds)
        together += asked
        print(name, tally(asked), file=sys.stderr, flush=True)
    rows += rows_of("all", tally(together), chosen.seeds)
    return report("Waiting jobs start when they are said to", rows, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
