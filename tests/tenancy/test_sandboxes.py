"""A plane's jobs are kept apart as its team's are in the shared server."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.contract.lifecycle import JobState
from shoal.core import Capability, Invalid, Sandbox, Unavailable
from shoal.engine import Gang
from shoal.engine.simulated import Script
from tests.tenancy.world import QUARTER, World, play

LEVELS = tuple(Capability(level.capability, True, "works") for level in (Sandbox.USER, Sandbox.BUBBLEWRAP))


def test_a_job_of_a_plane_is_kept_from_the_network_where_its_team_has_bubblewrap(tmp_path: Path) -> None:
    launched: list[Gang] = []

    def behaviour(gang: Gang) -> Script:
        launched.append(gang)
        return QUARTER

    async def scene(world: World) -> None:
        world.engine.capabilities = lambda: LEVELS  # type: ignore[method-assign]
        await world.make("red")
        await world.plane.put_tenant("red", sandbox=Sandbox.BUBBLEWRAP, actor="admin")
        await world.until("red", await world.submit("red", network=False), JobState.RUNNING)
        assert [(gang.network, gang.sandbox, gang.tenant) for gang in launched] == [(False, Sandbox.BUBBLEWRAP, "red")]
        await world.make("blue")
        with pytest.raises(Invalid, match="its tenant has none"):
            await world.submit("blue", network=False)

    play(tmp_path, scene, behaviour)


def test_a_plane_gives_its_teams_no_more_than_the_shared_server_gives_it(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        world.engine.capabilities = lambda: LEVELS  # type: ignore[method-assign]
        await world.make("red")
        await world.plane.put_tenant("red", sandbox=Sandbox.USER, actor="admin")
        plane = (await world.awake("red")).plane
        await plane.put_tenant("team", sandbox=Sandbox.USER, actor="admin")
        with pytest.raises(Unavailable, match="the shared server gives red user"):
            await plane.put_tenant("team", sandbox=Sandbox.BUBBLEWRAP, actor="admin")
        assert plane.tenants.sandbox("default") is Sandbox.USER

    play(tmp_path, scene)


def test_a_job_waits_for_no_sandbox_that_was_taken_from_its_team(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        world.engine.capabilities = lambda: LEVELS  # type: ignore[method-assign]
        await world.make("red")
        await world.plane.put_tenant("red", sandbox=Sandbox.BUBBLEWRAP, actor="admin")
        blocker = await world.submit("red", count=4, ranks=2)
        await world.until("red", blocker, JobState.RUNNING)
        waiting = await world.submit("red", network=False)
        await world.plane.put_tenant("red", sandbox=Sandbox.NONE, actor="admin")
        await (await world.awake("red")).plane.cancel(blocker, actor="tenant:default")
        await world.until("red", waiting, JobState.FAILED)
        assert "network" in (await world.awake("red")).plane.store.job(waiting).message  # type: ignore[union-attr]

    play(tmp_path, scene)
