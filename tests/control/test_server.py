"""What the server puts together from its settings."""

from __future__ import annotations

from pathlib import Path

from shoal.control.server import local_engine
from shoal.control.settings import load_settings
from shoal.engine.local.inventory import nvidia_accelerators


async def test_declared_slots_stand_instead_of_what_the_machine_has(tmp_path: Path) -> None:
    engine = local_engine(load_settings({"home": tmp_path, "slots": 3}, environ={}))
    await engine.open()
    try:
        [node] = (await engine.inventory()).nodes
        [accelerators] = [each for each in engine.capabilities() if each.name == "accelerators"]
    finally:
        await engine.close()
    assert node.capacity().accelerators == {"cpu": 3}
    assert (accelerators.available, accelerators.detail) == (False, "not looked for: CPU slots were declared")


async def test_without_declared_slots_the_machine_is_looked_at(tmp_path: Path) -> None:
    engine = local_engine(load_settings({"home": tmp_path}, environ={}))
    await engine.open()
    try:
        [accelerators] = [each for each in engine.capabilities() if each.name == "accelerators"]
    finally:
        await engine.close()
    assert accelerators.detail == nvidia_accelerators().detail
