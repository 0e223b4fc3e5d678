"""Replicas outlive gateways, and end in good order."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from shoal.core import Conflict, Invalid
from shoal.inference.tensors import to_tensor
from shoal.inference.types import InferRequest
from shoal.serve.errors import ReplicaLost
from shoal.serve.gateway.replicas.registry import ReplicaRegistry
from shoal.serve.sockets import address_of
from tests.serve.models import at_door, awaited, callable_spec, floats, wait_for_spec
from tests.serve.registry_kit import answer, registry_kit, until


async def test_a_replica_comes_back_to_a_restarted_gateway_with_its_models(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        replica = await kit.replica()
        report = await replica.load(callable_spec("Counter", inputs=(), outputs=()))
        await replica.execute("Counter", "1", [floats("x", [[0]], "Counter")])
        running = replica.execute("Counter", "1", [floats("x", [[0]], "Counter")])
        await kit.registry.stop()
        with pytest.raises(ReplicaLost, match="the gateway stops"):
            await running
        assert not kit.path.exists()
        kit.registry = kit.new_registry()
        await kit.registry.start(kit.path)
        again = await kit.told.wait("joined", "a", times=2)
        assert again is not replica
        assert (again.pid, again.models) == (replica.pid, {("Counter", "1"): report})
        # Its memory is the same: the call that nobody heard the answer of may have been its second or its third.
        assert answer(await again.execute("Counter", "1", [floats("x", [[0]], "Counter")]))[0] in (2, 3)
        assert kit.spawned["a"].starts == 1


async def test_a_killed_gateway_leaves_a_socket_that_the_next_one_takes_over(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        assert stat.S_IMODE(kit.path.stat().st_mode) == 0o600
        with pytest.raises(Conflict, match="another gateway listens here"):
            await kit.new_registry().start(kit.path)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))
    registry = ReplicaRegistry(lambda digest: True)
    await registry.start(tmp_path / "left")
    await registry.stop()


async def test_a_path_that_cannot_be_a_socket_is_refused(tmp_path: Path) -> None:
    registry = ReplicaRegistry(lambda digest: True)
    with pytest.raises(Invalid, match="too long for a socket's path"):
        await registry.start(tmp_path / ("x" * 100))
    (tmp_path / "file").write_text("precious")
    with pytest.raises(Conflict, match="no socket"):
        await registry.start(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"


async def test_replicas_of_other_users_have_a_socket_of_their_own_however_long_its_path(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        await kit.registry.stop()
        plain, kit.path = kit.path, tmp_path / ("x" * 120) / "gateway.sock"
        kit.path.parent.mkdir()
        for _ in range(2):  # the second time as after a kill: what is left is taken over
            kit.registry = kit.new_registry()
            await kit.registry.start(plain, sandboxed=kit.path)
            assert (stat.S_IMODE(plain.stat().st_mode), stat.S_IMODE(kit.path.stat().st_mode)) == (0o600, 0o666)
            with pytest.raises(Conflict, match="another gateway listens here"):
                await kit.new_registry().start(tmp_path / "third", sandboxed=kit.path)
            assert not (tmp_path / "third").exists()
            await kit.replica()
            await kit.registry.stop()
            assert not plain.exists()
            assert not kit.path.exists()
            with socket.socket(socket.AF_UNIX) as left, address_of(kit.path) as address:
                left.bind(address)
        await kit.spawned["a"].close()


async def test_a_replica_told_to_end_finishes_what_it_was_asked(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        replica = await kit.replica()
        await replica.load(callable_spec("nap"))
        await replica.load(wait_for_spec())
        doors = [tmp_path / "first", tmp_path / "second"]
        asked = [InferRequest("wait_for", [to_tensor("x", at_door(door))]) for door in doors]
        futures = [replica.execute("wait_for", "1", [each]) for each in asked]
        await until(awaited(doors[0]).exists)
        os.kill(replica.pid, signal.SIGTERM)
        doors[0].touch()
        assert await kit.told.wait("leaving", "a") is True
        late = replica.execute("nap", "1", [floats("x", [[0.0]], "nap")])
        doors[1].touch()
        await asyncio.gather(*futures, late)
        reason = await kit.told.wait("lost", "a")
        assert (reason.code, replica.leaving) == ("closed", True)
        with pytest.raises(ReplicaLost):
            await replica.execute("nap", "1", [floats("x", [[0.0]], "nap")])
        await kit.told.wait("joined", "a", times=2)  # the spawner's doing: it was not the one that stopped it
        assert kit.spawned["a"].starts == 2


async def test_a_replica_told_to_end_without_a_gateway_ends(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        await kit.replica()
        await kit.registry.stop()
        await kit.spawned["a"].close()
        assert kit.spawned["a"].pid is None
    await until(lambda: "lost the gateway" in kit.log())
