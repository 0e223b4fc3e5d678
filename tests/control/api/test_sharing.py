"""Jobs that share a device, through the API: an extension offers seats, admission fills them, everybody sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from shoal.control.extensions.loaded import Chosen
from shoal.core import Node, NodeOffers
from shoal.extension import Extension, NoSection
from tests.control import simulation
from tests.control.simulation import World, nodes

from .conftest import House, behave, furnished

pytestmark = pytest.mark.virtual_time

GIB = 2**30


class Seats(Extension):
    """Offers two best-effort seats on each device."""

    name: ClassVar[str] = "seats"

    def answers(self) -> Mapping[type, object]:
        return {NodeOffers: self}

    def offered(self, node: Node) -> Node:
        return replace(node, devices=tuple(replace(each, best_effort_seats=2) for each in node.devices))


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setattr(simulation, "chosen", lambda **_: [Chosen(Seats, NoSection())])
    machine = nodes(1, 1)[0]
    devices = tuple(replace(each, memory_bytes=40 * GIB) for each in machine.devices)
    async with furnished(World.make(tmp_path, (replace(machine, devices=devices),), behave)) as made:
        yield made


def share(kind: str, memory: str = "10GiB") -> dict[str, object]:
    asked = {"count": 1, "share": kind, "memory": memory}
    return {"resources": {"accelerators": asked}, "priority_class": kind}


async def state_of(house: House, job_id: str) -> dict[str, object]:
    async with house.client() as admin:
        found: dict[str, object] = (await admin.get(f"/v1/jobs/{job_id}?wait_s=1")).json()
    return found


async def test_they_run_beside_each_other_and_the_nodes_say_so(house: House) -> None:
    guaranteed = await house.submit("red", seconds=100, **share("guaranteed"))
    beside = [await house.submit("blue", seconds=100, **share("best-effort")) for _ in range(3)]
    states = [(await state_of(house, each["id"]))["state"] for each in (guaranteed, *beside)]
    assert (states[0], sorted(states[1:])) == ("RUNNING", ["QUEUED", "RUNNING", "RUNNING"])
    waits = beside[states.index("QUEUED") - 1]["id"]
    async with house.client() as admin, house.client("blue") as blue:
        (device,) = (await admin.get("/v1/nodes")).json()["nodes"][0]["devices"]
        (seen,) = (await blue.get("/v1/nodes")).json()["nodes"][0]["devices"]
        told = (await blue.get(f"/v1/jobs/{waits}/explain")).json()
    assert device["job_id"] == guaranteed["id"]
    assert set(device["best_effort_jobs"]) == {each["id"] for each in beside} - {waits} == set(seen["best_effort_jobs"])
    assert (device["best_effort_seats"], device["free"], seen["job_id"]) == (2, False, None)
    assert "needs a best-effort share of 1 a100 (10 GiB), 0 free" in told["summary"]
    asked = guaranteed["resources"]
    assert (asked["share"], asked["device_memory_bytes"]) == ("guaranteed", 10 * GIB)


async def test_guaranteed_work_has_its_memory_and_a_restarted_server_knows_who_has_what(house: House) -> None:
    first, second = [await house.submit("blue", seconds=500, **share("best-effort", "20GiB")) for _ in range(2)]
    assert (await state_of(house, second["id"]))["state"] == "RUNNING"
    await house.world.kill()
    house.context.plane = await house.world.start()
    guaranteed = await house.submit("red", seconds=100, **share("guaranteed", "20GiB"))
    while (await state_of(house, guaranteed["id"]))["state"] != "RUNNING":
        pass
    states = {(await state_of(house, each["id"]))["state"] for each in (first, second)}
    assert states == {"RUNNING", "QUEUED"}
