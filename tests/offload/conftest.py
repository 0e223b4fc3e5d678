from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.offload import OffloadSettings, install, uninstall


@pytest.fixture
def captured(tmp_path: Path) -> Iterator[None]:
    """Everything is captured, however small, in blocks on two threads."""
    uninstall()
    install(OffloadSettings(threshold=1, threads=2, home=str(tmp_path)))
    try:
        yield
    finally:
        uninstall()
