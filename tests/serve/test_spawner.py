"""Replica processes: what they are started with, when they are started again, and that they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from shoal.serve.gateway.replicas.spawner import LONGEST_PAUSE_S, ReplicaProcess, SpawnedReplica, pause_s
from tests.serve.models import callable_spec, floats
from tests.serve.registry_kit import ended, registry_kit, until


def test_a_replica_is_given_what_it_needs_and_nothing_else() -> None:
    how = ReplicaProcess(
        Path("/run/r"), "a-token", Path("/logs"), threads=3, python_path=[Path("/models"), Path("/more")]
    )
    own = {"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "s", "CUDA_VISIBLE_DEVICES": "1", "OMP_NUM_THREADS": "64",
           "PYTHONPATH": "/own", "DATABASE_URL": "u"}  # fmt: skip
    assert how.environ(own) == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "PYTHONPATH": "/models:/more:/own",
        "OMP_NUM_THREADS": "3",
        "OPENBLAS_NUM_THREADS": "3",
        "MKL_NUM_THREADS": "3",
        "NUMEXPR_NUM_THREADS": "3",
    }
    assert "a-token" not in repr(how)
    assert "a-token" not in how.command("x", 5)


def test_the_first_restart_is_at_once_and_quick_deaths_wait_longer_and_longer() -> None:
    assert [pause_s(deaths, 0.5) for deaths in range(6)] == [0, 0, 0.5, 1, 2, 4]
    assert pause_s(9, 0.5) == pause_s(10_000, 0.5) == LONGEST_PAUSE_S


async def test_a_model_does_not_see_the_token(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        replica = await kit.replica()
        await replica.load(callable_spec("environment"))
        done = await replica.execute("environment", "1", [floats("x", [[0]])])
        assert b"OMP_NUM_THREADS=1" in bytes(done.responses[0].outputs[0].data)  # type: ignore[union-attr]
        assert b"a-token" not in bytes(done.responses[0].outputs[0].data)  # type: ignore[union-attr]


async def test_replicas_are_process_groups_that_end_with_all_that_they_started(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        replica = await kit.replica()
        group = os.getpgid(replica.pid)
        assert group == kit.spawned["a"].pid
        await replica.load(callable_spec("forks"))
        done = await replica.execute("forks", "1", [floats("x", [[0]])])
        child = int.from_bytes(bytes(done.responses[0].outputs[0].data)[:8], "little")  # type: ignore[union-attr]
        assert os.getpgid(child) == group
        os.kill(replica.pid, signal.SIGSTOP)  # deaf to SIGTERM
        kit.spawned["a"]._grace_s = 0.01
        await kit.spawned["a"].close()
        await until(lambda: ended(child))


async def test_one_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    how = ReplicaProcess(tmp_path / "registry", "a-token", tmp_path / "none")
    spawned = SpawnedReplica("a", how, first_pause_s=0.001)
    await asyncio.sleep(0.02)
    assert (spawned.pid, spawned.starts) == (None, 0)
    (tmp_path / "none").mkdir()
    await until(lambda: spawned.pid is not None)
    await spawned.close()
    assert spawned.pid is None


async def test_stopping_is_quick_at_any_moment(tmp_path: Path) -> None:
    """Before the process is up, and while it waits to be started again."""
    async with registry_kit(tmp_path) as kit:
        how = ReplicaProcess(kit.path, "wrong-token", tmp_path)
        first = SpawnedReplica("a", how)
        await first.close()
        await first.close()
        second = SpawnedReplica("b", how)
        await until(lambda: second.pid is not None)
        await second.close()
        assert second.pid is None


def test_replicas_die_with_a_gateway_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import asyncio, os, pathlib
from shoal.serve.gateway.replicas.spawner import *
async def main():
    folder = pathlib.Path({str(tmp_path)!r})
    spawned = SpawnedReplica("a", ReplicaProcess(folder / "registry", "t", folder))
    while spawned.pid is None: await asyncio.sleep(0.01)
    print(spawned.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        pid = int(gateway.stdout.readline())
        assert not ended(pid)
        gateway.kill()
    asyncio.run(until(lambda: ended(pid)))
