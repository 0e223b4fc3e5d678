"""The Slurm engine keeps the protocol, on real daemons."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from clusters.slurm import PrivateSlurm

from tests.engine.conformance import EngineConformance
from tests.engine.slurm_kit import SlurmKit, needs_slurm, slurm_kit


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateSlurm]:
    with PrivateSlurm((8, 1)) as cluster:
        yield cluster


@needs_slurm
class TestSlurm(EngineConformance):
    @pytest.fixture
    async def kit(self, tmp_path: Path, cluster: PrivateSlurm) -> AsyncIterator[SlurmKit]:
        async with slurm_kit(tmp_path, cluster) as kit:
            yield kit
            await kit.restore_devices()


class PooledKit(SlurmKit):
    """Slurm picks the nodes."""

    @property
    def node(self) -> str:
        return "shoal"

    @property
    def device(self) -> str:
        return "h200:"


@needs_slurm
@pytest.mark.slow
class TestPooledSlurm(EngineConformance):
    @pytest.fixture
    async def kit(self, tmp_path: Path, cluster: PrivateSlurm) -> AsyncIterator[SlurmKit]:
        async with slurm_kit(tmp_path, cluster, PooledKit, delegate=True) as kit:
            yield kit
            await kit.restore_devices()
