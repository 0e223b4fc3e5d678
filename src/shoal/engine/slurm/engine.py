"""The Slurm engine: gangs as Slurm's jobs."""

from __future__ import annotations

from pathlib import Path

from shoal.core import Clock, SystemClock
from shoal.engine.batch.cluster import refuse_slots
from shoal.engine.batch.engine import BatchEngine
from shoal.engine.pool import AHEAD, Pace
from shoal.engine.protocol import EngineOptions
from shoal.engine.slurm.cluster import SlurmCluster
from shoal.engine.slurm.commands import Commands
from shoal.engine.slurm.settings import SlurmSettings
from shoal.engine.slurm.submission import Target


class SlurmEngine(BatchEngine):
    """With `delegate`, Slurm picks nodes, and the partition is shown as a pool with `ahead` more places than it has,
    and more still while jobs are short (see `Pace`)."""

    def __init__(
        self, home: Path, *,
        target: Target | None = None, delegate: bool = False, ahead: float = AHEAD, lease_s: float = 15.0,
        commands: Commands | None = None, clock: Clock | None = None, look_every_s: float = 5.0, poll_s: float = 1.0,
    ) -> None:  # fmt: skip
        clock = clock or SystemClock()
        cluster = SlurmCluster(commands or Commands(), target or Target(), clock, pooled=delegate, pace=Pace(ahead))
        super().__init__("slurm", home, cluster, lease_s=lease_s, clock=clock, look_every_s=look_every_s, poll_s=poll_s)


def slurm_engine(options: EngineOptions) -> SlurmEngine:
    """The cluster that this machine is a client of."""
    refuse_slots(options, "Slurm")
    section = options.settings
    assert isinstance(section, SlurmSettings)
    target = Target(
        section.partition, section.account, section.qos, together_s=section.together_s, bundles=section.bundles
    )
    return SlurmEngine(
        options.home, target=target, delegate=section.delegate, ahead=section.ahead, lease_s=section.lease_s
    )
