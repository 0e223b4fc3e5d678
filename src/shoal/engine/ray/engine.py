"""The Ray engine: gangs as placement groups."""

from __future__ import annotations

from pathlib import Path

from shoal.core import Clock, SystemClock
from shoal.engine.batch.cluster import refuse_slots
from shoal.engine.batch.engine import BatchEngine
from shoal.engine.pool import AHEAD, Pace
from shoal.engine.protocol import EngineOptions
from shoal.engine.ray.client import Bridge
from shoal.engine.ray.cluster import RayCluster
from shoal.engine.ray.settings import RaySettings


class RayEngine(BatchEngine):
    """The cluster behind `bridge`, shown as a pool with `ahead` more places than it has, and more still while jobs are
    short (see `Pace`)."""

    def __init__(
        self, home: Path, *,
        bridge: Bridge | None = None, ahead: float = AHEAD, lease_s: float = 15.0, clock: Clock | None = None,
        look_every_s: float = 5.0, poll_s: float = 1.0,
    ) -> None:  # fmt: skip
        clock = clock or SystemClock()
        cluster = RayCluster(bridge or Bridge(), home.absolute(), clock, pace=Pace(ahead))
        super().__init__("ray", home, cluster, lease_s=lease_s, clock=clock, look_every_s=look_every_s, poll_s=poll_s)


def ray_engine(options: EngineOptions) -> RayEngine:
    """The cluster that this machine is part of, or the one that the settings name."""
    refuse_slots(options, "Ray")
    section = options.settings
    assert isinstance(section, RaySettings)
    bridge = Bridge(section.address, python=section.python)
    return RayEngine(options.home, bridge=bridge, ahead=section.ahead, lease_s=section.lease_s)
