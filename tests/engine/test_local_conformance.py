"""The local engine keeps the protocol, with real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engine.conformance import EngineConformance
from tests.engine.local_kit import CardBus, LocalKit, local_kit


class TestLocal(EngineConformance):
    @pytest.fixture
    async def kit(self, tmp_path: Path) -> AsyncIterator[LocalKit]:
        async with local_kit(tmp_path, accelerators=CardBus.probe) as kit:
            yield kit
