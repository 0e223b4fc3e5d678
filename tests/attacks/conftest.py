from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.core import Sandbox

from .within import Facts
from .world import LEVELS, World, missing, world


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server with a tenant that is attacked, and one for each level that this machine can give."""
    with world(tmp_path_factory.mktemp("attacks")) as made:
        made.admin.create_tenant("blue", sandbox=Sandbox.USER)
        for level in LEVELS:
            if not missing(made.home.path, level):
                made.admin.create_tenant(f"red-{level}", sandbox=level)
        yield made


@pytest.fixture(scope="session")
def facts(place: World) -> Facts:
    return place.victim(place.admin, "blue", 0, place.home.path)
