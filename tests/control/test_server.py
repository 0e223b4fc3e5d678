"""What the server puts together from its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.control.server import make_engine
from shoal.control.settings import load_settings
from shoal.core import Invalid
from shoal.engine.local.inventory import nvidia_accelerators


async def test_declared_slots_stand_instead_of_what_the_machine_has(tmp_path: Path) -> None:
    engine = make_engine(load_settings({"home": tmp_path, "slots": 3}, environ={}))
    await engine.open()
    try:
        [node] = (await engine.inventory()).nodes
        [accelerators] = [each for each in engine.capabilities() if each.name == "accelerators"]
    finally:
        await engine.close()
    assert node.capacity().accelerators == {"cpu": 3}
    assert (accelerators.available, accelerators.detail) == (False, "not looked for: CPU slots were declared")


async def test_without_declared_slots_the_machine_is_looked_at(tmp_path: Path) -> None:
    engine = make_engine(load_settings({"home": tmp_path}, environ={}))
    await engine.open()
    try:
        [accelerators] = [each for each in engine.capabilities() if each.name == "accelerators"]
    finally:
        await engine.close()
    assert accelerators.detail == nvidia_accelerators().detail


async def test_the_engine_is_chosen_by_its_name(tmp_path: Path) -> None:
    engine = make_engine(load_settings({"home": tmp_path, "slots": 3}, sets=["engine=simulated"], environ={}))
    await engine.open()
    try:
        [node] = (await engine.inventory()).nodes
    finally:
        await engine.close()
    assert (engine.name, node.capacity().accelerators) == ("simulated", {"cpu": 3})


def test_an_engine_that_is_not_installed_is_refused_with_those_that_are(tmp_path: Path) -> None:
    there = "installed: kubernetes, local, ray, simulated, slurm"
    with pytest.raises(Invalid, match=f"there is no engine 'slurms'; {there}") as refused:
        load_settings({"home": tmp_path}, environ={"SHOAL_ENGINE": "slurms"})
    assert refused.value.where == "SHOAL_ENGINE"
