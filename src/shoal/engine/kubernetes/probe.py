"""Probe of a Kubernetes cluster: what it offers this engine, and what is missing: `shoal doctor --engine
kubernetes`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from shoal.core import NO_JOBS, Capability, Invalid, ShoalError, SystemClock
from shoal.engine.batch import handover
from shoal.engine.kubernetes.api import Api
from shoal.engine.kubernetes.cluster import KubernetesCluster, mount_of
from shoal.engine.kubernetes.settings import KubernetesSettings
from shoal.engine.protocol import EngineOptions

_NO_JOBS = f"{NO_JOBS} until this is mended"


def probe_cluster(options: EngineOptions) -> tuple[Capability, ...]:
    """Everything worth knowing before `shoal up --engine kubernetes`, most important first. Blocks; creates nothing."""
    section = options.settings
    assert isinstance(section, KubernetesSettings)
    return tuple(asyncio.run(_probe(options.home.absolute(), section)))


async def _probe(home: Path, section: KubernetesSettings) -> list[Capability]:
    cluster = KubernetesCluster(section, home, handover.mark_of(home), SystemClock(), Api(section))
    try:
        await cluster.open()
        await cluster.look()
        found = list(cluster.capabilities())
    except ShoalError as problem:
        return [Capability("kubernetes", False, str(problem), _NO_JOBS)]
    finally:
        await cluster.close()
    return [*found, _volume(home, section)]


def _volume(home: Path, section: KubernetesSettings) -> Capability:
    try:
        mount = mount_of(home, section)
    except Invalid as problem:
        return Capability("shared-volume", False, str(problem), _NO_JOBS)
    if not os.path.ismount(mount) and section.volume:
        return Capability(
            "shared-volume", False, f"{mount} is no mount point here: is the claim {section.volume} mounted?", _NO_JOBS
        )
    what = f"claim {section.volume}" if section.volume else f"the nodes' own {mount}"
    return Capability("shared-volume", True, f"{what}, mounted at {mount}; pods find out whether it is the same")
