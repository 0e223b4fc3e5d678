"""Real programs on PoCL, which makes the CPU an OpenCL device, with the layer in their environment.

PoCL's threads are the operating system's, which preempts them: nothing here is about times. Orders and counts come from
the page and from the layer's trace, which all processes of a test write to.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.core import Unavailable
from shoal.device import opencl
from shoal.device.page import Page
from tests.device.opencl.kit import Shared


@pytest.fixture(scope="session")
def environment(pytestconfig: pytest.Config) -> dict[str, str]:
    """Of programs without the layer. PoCL keeps what it has built between processes and runs."""
    said = opencl.capability()
    if not said.available:
        pytest.skip(said.detail)
    if importlib.util.find_spec("pyopencl") is None:
        pytest.skip("pyopencl is not installed")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENCL_", "SHOAL_DEVICE_"))}
    cache = pytestconfig.cache.mkdir("pocl") if pytestconfig.cache is not None else Path(".pocl")
    return kept | {"POCL_CACHE_DIR": str(cache), "PYOPENCL_CTX": "0", "PYOPENCL_NO_CACHE": "1"}


@pytest.fixture
def shared(environment: dict[str, str], tmp_path: Path) -> Iterator[Shared]:
    try:
        page = Page.create(tmp_path / "page", device="test")
    except Unavailable as problem:
        pytest.skip(str(problem))
    one = Shared(tmp_path, page, environment, [])
    yield one
    for program in one.programs:
        program.kill()
        program.communicate()
    page.close()
