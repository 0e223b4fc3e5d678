"""What the server puts together from its settings."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.control.server import READY_FD, make_engine, starter
from shoal.control.settings import load_settings
from shoal.core import Invalid, Unavailable
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


def test_a_child_of_the_server_does_not_keep_its_starter_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    readable, writable = os.pipe()
    os.set_inheritable(writable, True)  # as the starter gives it
    monkeypatch.setenv(READY_FD, str(writable))
    tell = starter()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        tell(Unavailable("the disk is full"))
        tell(Unavailable("told only once"))
        said = os.read(readable, 4096)
        ended, _, _ = select.select([readable], [], [], 20)
        assert ended
        assert os.read(readable, 1) == b""
    finally:
        child.communicate(b"\n")
        os.close(readable)
    assert b"the disk is full" in said
    assert b"once" not in said
    assert READY_FD not in os.environ
