"""Components of the shared server in its planes: those that need nothing of the machine, and no others."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from pydantic import BaseModel

from shoal.calendar.live.extension import Calendar, CalendarSection
from shoal.calendar.live.records import CronRecord
from shoal.calendar.schedule import Missed, Overlap, Schedule
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobFilter
from shoal.control.extensions.loaded import Chosen
from shoal.core import Invalid, Overloaded
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


def test_cron_jobs_and_reservations_of_a_plane_are_its_own_and_keep_it_awake(tmp_path: Path) -> None:
    calendar = [Chosen(Calendar, CalendarSection(most_crons=2))]

    async def scene(world: World) -> None:
        await world.make("red")
        await world.make("blue")
        red = await calendar_of(world)
        again = Schedule("*/10 * * * *", "UTC")

        async def add(tenant: str, name: str) -> CronRecord:
            asked = JobManifest.model_validate({"name": "nightly", "command": ["train"]})
            found, _ = await red.crons.add(
                name, asked, again, tenant=tenant, actor="admin", overlap=Overlap.SKIP, missed=Missed.RUN_ONCE,
                again=False,
            )  # fmt: skip
            return found

        record = await add("default", "nightly")
        await (await world.awake("red")).plane.put_tenant("team", actor="admin")
        other = await add("team", "nightly")
        with pytest.raises(Overloaded, match="all tenants together have 2 cron jobs"):
            await add("team", "more")
        await red.crons.remove(other, actor="admin")
        await asyncio.sleep(1500.0)
        await world.restart()
        await asyncio.sleep(1500.0)
        assert world.planes.is_awake("red")
        assert not world.planes.is_awake("blue"), "nothing of it is another plane's"
        found = (await world.awake("red")).plane.store.jobs(JobFilter(name="nightly"))
        assert 4 <= len(found) <= 6
        red = await calendar_of(world)
        (record,) = red.crons.of("default")
        await red.crons.set_suspended(record, True, actor="admin")
        await asyncio.sleep(800.0)
        assert not world.planes.is_awake("red"), "it waits for nothing"

    async def calendar_of(world: World) -> Calendar:
        found = (await world.awake("red")).plane.extensions.get(Calendar)
        assert found is not None
        return found

    play_world(tmp_path, scene, lambda _: Script(run_s=5.0), beside=calendar)


def test_a_reservation_within_a_plane_holds_the_pool_for_its_tenant(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane = await made(client, token)
        own = bearer(plane["token"])
        tenant = {"name": "team"}
        assert (await client.post(f"{plane['path']}/v1/tenants", json=tenant, headers=own)).status_code == 201
        plan = {"name": "course", "tenant": "team", "begin": "2023-11-14T23:00", "end": "+2h", "accelerators": 8}
        sent = await client.post(f"{plane['path']}/v1/plans", json=plan, headers=own)
        assert sent.status_code == 201, sent.text
        job = {"name": "job", "command": ["train"], "resources": {"accelerators": "a100:1"}, "max_runtime": "3h"}
        for who, state in (("default", "QUEUED"), ("team", "RUNNING")):
            answer = await client.post(f"{plane['path']}/v1/jobs?tenant={who}", json=job, headers=own)
            assert answer.status_code == 201, answer.text
            await asyncio.sleep(10.0)
            seen = await client.get(f"{plane['path']}/v1/jobs/{answer.json()['id']}", headers=own)
            assert seen.json()["state"] == state, who
        above = await client.post("/v1/jobs?tenant=red", json=job, headers=bearer(token))
        assert above.status_code == 201, above.text
        await asyncio.sleep(10.0)
        seen = await client.get(f"/v1/jobs/{above.json()['id']}", headers=bearer(token))
        assert seen.json()["state"] == "RUNNING", "a plane reserves nothing of others"
        assert not (await client.get("/v1/plans", headers=bearer(token))).json()["plans"]

    play(tmp_path, scene, beside=[Chosen(Calendar, CalendarSection())])


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
            assert re.fullmatch(r"(machine|tenancy) is not in planes: \w+ .+", answer.json()["error"]["what"])
        job = {"name": "job", "command": ["train"], "extensions": {"machine": {}}}
        refused = await client.post(f"{plane['path']}/v1/jobs", json=job, headers=own)
        assert refused.status_code == 422
        assert refused.json()["error"]["what"].startswith("machine is not in planes: it is of the machines of")
        assert (await client.post("/v1/jobs?tenant=red", json=job, headers=bearer(token))).status_code == 201

    play(tmp_path, scene, beside=BESIDE)
