"""Components of the shared server in its planes: those that need nothing of the machine, and no others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from pydantic import BaseModel

from shoal.contract.lifecycle import JobState
from shoal.control.extensions.loaded import Chosen
from shoal.core import Invalid
from shoal.engine import Gang
from shoal.engine.simulated import Script
from shoal.extension import Extension, NoSection
from shoal.sweep.live.extension import Sweeps

from .test_planes_api import bearer, made, play
from .world import World
from .world import play as play_world


class Wish(BaseModel):
    """Nothing in particular."""


class OfTheMachine(Extension):
    """It would do something with the nodes."""

    name = "machine"
    manifest = Wish
    paths = ("/v1/machine",)


BESIDE = [Chosen(Sweeps, NoSection()), Chosen(OfTheMachine, NoSection())]
LR = {"parameters": {"lr": [0.1, 0.5]}}


def test_a_sweep_runs_in_a_plane_with_the_values_of_each_trial(tmp_path: Path) -> None:
    started = set()

    def behaviour(gang: Gang) -> Script:
        started.add((*gang.argv, gang.env["SHOAL_SWEEP"]))
        return Script(run_s=5.0)

    async def scene(world: World) -> None:
        await world.make("red")
        job = await world.submit("red", command=["train", "${sweep.lr}"], array="0-1", extensions={"sweep": LR})
        await world.until("red", job, JobState.SUCCEEDED)
        await asyncio.sleep(10.0)

    play_world(tmp_path, scene, behaviour, beside=BESIDE)
    assert started == {("train", "0.1", '{"lr": 0.1}'), ("train", "0.5", '{"lr": 0.5}')}


def test_a_plane_of_a_server_without_the_component_has_it_once_the_server_does(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        with pytest.raises(Invalid, match="there is no extension 'sweep'"):
            await world.submit("red", array="0-1", extensions={"sweep": LR})
        world.beside = BESIDE
        await world.restart()
        assert await world.submit("red", command=["${sweep.lr}"], array="0-1", extensions={"sweep": LR})

    play_world(tmp_path, scene)


def test_what_is_of_the_shared_server_says_so_in_a_plane(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane = await made(client, token)
        own = bearer(plane["token"])
        for path in ("/v1/machine", "/v1/planes"):
            answer = await client.get(f"{plane['path']}{path}", headers=own)
            assert answer.status_code == 404
            assert answer.json()["error"]["what"].endswith(" is not in planes")
        job = {"name": "job", "command": ["train"], "extensions": {"machine": {}}}
        refused = await client.post(f"{plane['path']}/v1/jobs", json=job, headers=own)
        assert refused.status_code == 422
        assert refused.json()["error"]["what"] == "machine is not in planes"
        assert (await client.post("/v1/jobs?tenant=red", json=job, headers=bearer(token))).status_code == 201

    play(tmp_path, scene, beside=BESIDE)
