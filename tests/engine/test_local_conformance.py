"""The local engine keeps the protocol, with real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engine.conformance import EngineConformance
from tests.engine.local_kit import LocalKit, local_kit


class TestLocal(EngineConformance):
    @pytest.fixture
    async def kit(self, tmp_path: Path) -> AsyncIterator[LocalKit]:
        async with local_kit(tmp_path) as kit:
            yield kit
