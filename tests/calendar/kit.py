"""A server with a calendar over a simulated cluster, in virtual time, which may be killed at any point."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.calendar.live.crons import Crons
from shoal.calendar.live.extension import Calendar, CalendarSection
from shoal.calendar.live.records import CronRecord
from shoal.calendar.schedule import Missed, Overlap, Schedule
from shoal.contract.records import JobFilter, JobRecord
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.control.plane_settings import PlaneSettings
from shoal.core import Node
from shoal.engine import Gang
from shoal.engine.simulated import Script, SimulatedEngine, run
from shoal.extension import Extension
from shoal.store import open_store
from tests.control.simulation import World, manifest, nodes

START = 1_700_000_000.0
"""A Tuesday, 22:13:20 UTC."""


@dataclass
class Planned(World):
    """`World` with this component alone."""

    section: CalendarSection = field(default_factory=CalendarSection)
    others: tuple[type[Extension], ...] = ()

    async def start(self) -> ControlPlane:
        self.dead.clear()
        self.store = open_store(
            f"sqlite:///{self.folder / 'shoal.db'}", clock=self.clock, inline=True, sync=False,
            tables=[one.tables for one in (Calendar, *self.others) if one.tables is not None],
        )  # fmt: skip
        self.store.acquire("simulation")
        self.engine = SimulatedEngine(self.cluster)
        numbers = random.Random(self.store.epoch)
        self.plane = ControlPlane(
            self.store, self.engine, self.folder, PlaneSettings(collect_every_s=10.0, reconcile_every_s=60.0),
            clock=self.clock, fault=self._maybe_crash,
            on_fatal=lambda _: self.dead.set(), new_id=lambda letter: f"{letter}-{numbers.getrandbits(40):010x}",
            extensions=[Chosen(Calendar, self.section), *(Chosen(one, one.settings()) for one in self.others)],
        )  # fmt: skip
        await self.plane.open()
        return self.plane

    @property
    def calendar(self) -> Calendar:
        assert self.plane is not None
        found = self.plane.extensions.get(Calendar)
        assert found is not None
        return found

    @property
    def crons(self) -> Crons:
        return self.calendar.crons

    async def cron(
        self, name: str = "nightly", at: str = "*/10 * * * *", overlap: Overlap = Overlap.SKIP,
        missed: Missed = Missed.RUN_ONCE, again: bool = False, **fields: Any,
    ) -> CronRecord:  # fmt: skip
        record, _ = await self.crons.add(
            name, manifest(name, **fields), Schedule(at), tenant="ada", actor="tenant:ada", overlap=overlap,
            missed=missed, again=again,
        )  # fmt: skip
        return record

    def jobs(self) -> list[JobRecord]:
        """All that there are, the oldest first."""
        assert self.store is not None
        return sorted(self.store.jobs(JobFilter(limit=10_000)), key=lambda job: (job.submitted_at, job.id))

    def told(self) -> list[str]:
        """What happened to the cron jobs, by kind."""
        assert self.store is not None
        return [str(one.kind) for one in self.store.events(limit=100_000) if one.kind.startswith("cron.")]


def play(
    folder: Path,
    scene: Callable[[Planned], Any],
    behaviour: Callable[[Gang], Script] | None = None,
    section: CalendarSection | None = None,
    machines: tuple[Node, ...] | None = None,
    others: tuple[type[Extension], ...] = (),
) -> None:
    """Run a scene in virtual time, by default on one node with 4 accelerators."""

    async def main() -> None:
        world = Planned.make(folder, machines or nodes(1, 4), behaviour or (lambda _: Script(run_s=10.0)))
        assert isinstance(world, Planned)
        world.section, world.others = section or CalendarSection(), others
        plane = await world.start()
        for name in ("ada", "bob"):
            await plane.put_tenant(name, actor="admin")
        await scene(world)
        await world.kill()

    run(main(), start=START)
