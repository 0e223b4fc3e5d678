"""Shared devices in the server: what is offered, and what the processes of a share are given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shoal.contract.pages import Table
from shoal.control.extensions.loaded import Chosen
from shoal.core import Device, Node
from shoal.device import opencl, seats
from shoal.device.live.extension import Devices
from shoal.device.live.settings import DeviceSettings
from shoal.device.page import Page
from shoal.device.policy import Class
from shoal.engine import Gang
from shoal.engine.simulated import Script
from tests.control import simulation
from tests.control.simulation import World, manifest, nodes
from tests.device.kit import native_only

pytestmark = [pytest.mark.virtual_time, native_only]

GIB = 2**30


def shown(found: Devices) -> dict[str, list[dict[str, object]]]:
    """What each device's table says, by column."""
    page = found.page(None)
    assert page is not None
    tables = [part for part in page.parts if isinstance(part, Table)]
    return {
        one.title: [dict(zip([column.name for column in one.columns], row, strict=True)) for row in one.rows]
        for one in tables
    }


class Seen:
    """The gangs that were launched."""

    def __init__(self) -> None:
        self.gangs: dict[str, Gang] = {}

    def __call__(self, gang: Gang) -> Script:
        self.gangs[gang.name] = gang
        return Script(run_s=1000)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_DEVICE_FOLDER", str(tmp_path / "pages"))
    monkeypatch.setattr(opencl, "environment", lambda base: {"OPENCL_LAYERS": "ours"})
    monkeypatch.setattr(seats, "problem", lambda accelerator: None)


def machine() -> Node:
    (node,) = nodes(1, 1)
    devices = (replace(node.devices[0], memory_bytes=40 * GIB), Device("cpu0", "cpu", 1))
    return replace(node, devices=devices)


async def world_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: Seen, **settings: object) -> World:
    chosen = [Chosen(Devices, DeviceSettings(enabled=True, **settings))]
    monkeypatch.setattr(simulation, "chosen", lambda **_: chosen)
    world = World.make(tmp_path, (machine(),), seen)
    await world.start()
    return world


def seats_offered(world: World) -> dict[str, int]:
    (node,) = world.plane.snapshot().nodes.values()
    return {device.id: device.best_effort_seats for device in node.node.devices}


def shared(cls: str, name: str = "j", memory: str = "10GiB", **more: object) -> object:
    asked = {"count": 1, "share": cls, "memory": memory, **more}
    return manifest(name, priority_class=cls, resources={"accelerators": asked, "cpus": 1})


@pytest.fixture
def seen() -> Seen:
    return Seen()


async def test_accelerators_are_offered_and_cpu_slots_only_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: Seen
) -> None:
    world = await world_with(tmp_path, monkeypatch, seen, best_effort_seats=3)
    assert seats_offered(world) == {"n0-a100-0": 3, "cpu0": 0}
    await world.kill()
    world = await world_with(tmp_path, monkeypatch, seen, types="cpu")
    assert seats_offered(world) == {"n0-a100-0": 0, "cpu0": 4}
    await world.kill()


async def test_without_isolation_nothing_is_offered_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: Seen
) -> None:
    monkeypatch.setattr(seats, "problem", lambda accelerator: "no shim" if accelerator else None)
    world = await world_with(tmp_path, monkeypatch, seen)
    assert seats_offered(world) == {"n0-a100-0": 0, "cpu0": 0}
    (told,) = world.plane.extensions.get(Devices).capabilities()
    assert (told.available, "no shim" in told.detail) == (False, True)
    assert told.consequence == "accelerators are given out whole: jobs that ask for a share of one never fit"
    await world.kill()
    world = await world_with(tmp_path, monkeypatch, seen, types="a100,cpu")
    assert seats_offered(world) == {"n0-a100-0": 0, "cpu0": 4}
    assert [one.available for one in world.plane.extensions.get(Devices).capabilities()] == [False, True]
    await world.kill()
    world = await world_with(tmp_path, monkeypatch, seen, isolation="none")
    assert seats_offered(world) == {"n0-a100-0": 4, "cpu0": 0}
    (told,) = world.plane.extensions.get(Devices).capabilities()
    assert told.consequence == "best-effort work slows down guaranteed work beside it"
    await world.plane.put_tenant("ada", actor="admin")
    await world.plane.submit(shared("guaranteed"), tenant="ada", actor="ada")
    await world.until(lambda: bool(seen.gangs))
    (gang,) = seen.gangs.values()
    assert dict(gang.ranks[0].env) == {}
    await world.kill()


async def test_a_small_share_is_never_all_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: Seen) -> None:
    world = await world_with(tmp_path, monkeypatch, seen, context_gib=2)
    await world.plane.put_tenant("ada", actor="admin")
    await world.plane.submit(shared("best-effort", memory="1GiB"), tenant="ada", actor="ada")
    await world.until(lambda: bool(seen.gangs))
    (gang,) = seen.gangs.values()
    assert (gang.device_memory_bytes, gang.ranks[0].env["SHOAL_DEVICE_MEMORY"]) == (GIB, str(GIB // 2))
    await world.kill()


async def test_each_process_of_a_share_is_given_its_seat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: Seen
) -> None:
    world = await world_with(tmp_path, monkeypatch, seen, bound_us=70)
    await world.plane.put_tenant("ada", actor="admin", weight=2.5)
    job, _ = await world.plane.submit(shared("best-effort"), tenant="ada", actor="ada")
    whole = manifest("w", resources={"accelerators": {"type": "cpu", "count": 1}, "cpus": 1})
    alone, _ = await world.plane.submit(whole, tenant="ada", actor="ada")
    await world.until(lambda: len(seen.gangs) == 2)
    gang = seen.gangs[f"{job.id}.1.run"]
    given = gang.ranks[0].env
    assert (gang.share, gang.device_memory_bytes) == ("best-effort", 10 * GIB)
    assert given["SHOAL_DEVICE_CLASS"] == "best-effort"
    assert given["SHOAL_DEVICE_MEMORY"] == str(10 * GIB - 3 * GIB // 4), "a share holds the context, too"
    assert given["SHOAL_DEVICE_WEIGHT"] == "250"
    assert given["SHOAL_DEVICE_NAME"] == f"{job.id}.0"
    assert given["OPENCL_LAYERS"] == "ours"
    with Page.open(Path(given["SHOAL_DEVICE_PAGE"])) as page:
        assert page.device == "n0-a100-0"
        assert page.rules().bound_ns == 70_000
    assert dict(seen.gangs[f"{alone.id}.1.run"].ranks[0].env) == {}
    found = world.plane.extensions.get(Devices)
    assert shown(found) == {"n0-a100-0": []}
    assert found.page("red") is None, "only an admin sees who shares a device with whom"
    with Page.open(seats.page_path("n0-a100-0")) as page:
        page.join(Class.GUARANTEED, name="x")
    (one,) = shown(found)["n0-a100-0"]
    assert (one["process"], one["class"], one["launches"]) == ("x", "guaranteed", 0)
    names = {metric.name: metric for metric in found.metrics()}
    assert names["shoal_device_launches"].samples[0].labels == {
        "device": "n0-a100-0", "process": "x", "class": "guaranteed",
    }  # fmt: skip
    await world.kill()
