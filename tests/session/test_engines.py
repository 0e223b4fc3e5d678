"""Sessions on engines that cannot enter running jobs: said by name, and refused when a job is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core import Invalid
from shoal.engine import Enterable
from shoal.engine.ray import RayEngine
from shoal.engine.slurm import SlurmEngine
from shoal.session.live.extension import Sessions
from tests.calendar.kit import Planned, play
from tests.control.simulation import manifest


def test_a_job_with_a_terminal_is_refused_where_the_engine_gives_none(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        assert world.plane is not None
        for submit in (world.plane.submit, world.plane.check):
            more = {"actor": "tenant:ada"} if submit == world.plane.submit else {}
            with pytest.raises(Invalid, match="the engine simulated cannot enter running jobs") as refused:
                await submit(manifest(extensions={"session": {"rows": 30}}), tenant="ada", **more)  # type: ignore[operator]
            assert "without --pty" in (refused.value.hint or "")
        found = next(one for one in world.plane.extensions.capabilities() if one.name == "sessions")
        assert (found.available, found.detail) == (False, "the engine simulated cannot enter running jobs")

    play(tmp_path, scene, others=(Sessions,))


@pytest.mark.parametrize("engine", [SlurmEngine, RayEngine])
def test_clusters_do_not_let_anybody_in(engine: type) -> None:
    assert not issubclass(engine, Enterable)
