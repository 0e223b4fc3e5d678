"""Probe of a Ray cluster: what it offers this engine, and what is missing: `shoal doctor --engine ray`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.core import NO_JOBS, Capability, ShoalError, SystemClock
from shoal.engine.protocol import EngineOptions
from shoal.engine.ray.client import Bridge
from shoal.engine.ray.cluster import RayCluster
from shoal.engine.ray.settings import RaySettings

_NO_JOBS = f"{NO_JOBS} until this is mended"


def probe_cluster(options: EngineOptions) -> tuple[Capability, ...]:
    """Everything worth knowing before `shoal up --engine ray`, most important first. Blocks; starts nothing in the
    cluster."""
    section = options.settings
    assert isinstance(section, RaySettings)
    return asyncio.run(probe(options.home.absolute(), Bridge(section.address, python=section.python)))


async def probe(home: Path, bridge: Bridge) -> tuple[Capability, ...]:
    cluster = RayCluster(bridge, home, SystemClock())
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        await cluster.open()
    except OSError as problem:
        return (Capability("shared-directory", False, f"{home}: {problem.strerror}", _NO_JOBS),)
    except ShoalError as problem:
        return (
            Capability("ray", False, f"{problem.what}: {problem.hint}" if problem.hint else problem.what, _NO_JOBS),
        )
    finally:
        await cluster.close()
    return cluster.capabilities()
