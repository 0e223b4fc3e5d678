"""Replica processes: what they are started with, when they are started again, and that they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from shoal.serve.gateway.spawner import ReplicaProcess, Restarts, Spawner
from tests.serve.models import callable_spec, floats
from tests.serve.registry_kit import ended, registry_kit, until


def test_a_replica_is_given_what_it_needs_and_nothing_else() -> None:
    how = ReplicaProcess(
        Path("/run/r"),
        "a-token",
        threads=3,
        python_path=[Path("/models"), Path("/more")],
        environment={"A": "b"},
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
        "A": "b",
    }
    assert "a-token" not in repr(how)
    assert "a-token" not in how.command("x", 5)


def test_the_first_restart_is_at_once_and_quick_deaths_wait_longer_and_longer() -> None:
    restarts = Restarts(first_s=0.5, longest_s=3.0)
    assert [restarts.pause_s(deaths) for deaths in range(7)] == [0, 0, 0.5, 1, 2, 3, 3]
    assert restarts.pause_s(10_000) == 3.0


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
        assert os.getpgid(replica.pid) == replica.pid
        await replica.load(callable_spec("forks"))
        done = await replica.execute("forks", "1", [floats("x", [[0]])])
        child = int.from_bytes(bytes(done.responses[0].outputs[0].data)[:8], "little")  # type: ignore[union-attr]
        assert os.getpgid(child) == replica.pid
        kit.spawner.kill("a")
        await kit.told.wait("lost", "a")
        await until(lambda: ended(child))


async def test_one_that_does_not_stop_in_time_is_killed(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        spawner = Spawner(ReplicaProcess(kit.path, "a-token", log_directory=tmp_path), grace_s=0.1)
        spawner.add("deaf")
        replica = await kit.told.wait("joined", "deaf")
        os.kill(replica.pid, signal.SIGSTOP)  # deaf to SIGTERM
        await spawner.close()
        assert ended(replica.pid)


async def test_one_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    how = ReplicaProcess(tmp_path / "registry", "a-token", log_directory=tmp_path / "none")
    spawner = Spawner(how, Restarts(first_s=0.001, longest_s=0.001))
    spawner.add("a")
    await asyncio.sleep(0.02)
    assert (spawner.pid("a"), spawner.starts("a")) == (None, 0)
    (tmp_path / "none").mkdir()
    await until(lambda: spawner.pid("a") is not None)
    await spawner.close()
    assert spawner.pid("a") is None


async def test_stopping_is_quick_at_any_moment(tmp_path: Path) -> None:
    """Before the process is up, and while it waits to be started again."""
    async with registry_kit(tmp_path) as kit:
        spawner = Spawner(ReplicaProcess(kit.path, "wrong-token", log_directory=tmp_path))
        spawner.add("a")
        spawner.add("a")
        await spawner.remove("a")
        await spawner.remove("a")
        spawner.add("b")
        await until(lambda: spawner.pid("b") is not None)
        await spawner.close()
        assert spawner.pid("b") is None


def test_replicas_die_with_a_gateway_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import asyncio, os, pathlib
from shoal.serve.gateway.spawner import *
async def main():
    spawner = Spawner(ReplicaProcess(pathlib.Path({str(tmp_path / "registry")!r}), "t"))
    spawner.add("a")
    while spawner.pid("a") is None: await asyncio.sleep(0.01)
    print(spawner.pid("a"), flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        pid = int(gateway.stdout.readline())
        assert not ended(pid)
        gateway.kill()
    asyncio.run(until(lambda: ended(pid)))
