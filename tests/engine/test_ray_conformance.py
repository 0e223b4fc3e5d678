"""The Ray engine keeps the protocol, on a real cluster of two nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from clusters.ray import PrivateRay

from tests.engine.conformance import EngineConformance
from tests.engine.ray_kit import RayKit, needs_ray, ray_kit


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateRay]:
    with PrivateRay((8, 1)) as cluster:
        yield cluster


@needs_ray
@pytest.mark.slow
class TestRay(EngineConformance):
    @pytest.fixture
    async def kit(self, tmp_path: Path, cluster: PrivateRay) -> AsyncIterator[RayKit]:
        async with ray_kit(tmp_path, cluster) as kit:
            yield kit
            await kit.restore_devices()
