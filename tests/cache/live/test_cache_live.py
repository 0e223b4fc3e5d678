"""The cache beside a real server: its process, inputs that jobs declare, and a decision that survives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.cache.live.extension import Cache
from shoal.cache.live.settings import CacheSection
from shoal.contract.gangs import Move
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.control.plane_settings import PlaneSettings
from shoal.core import Invalid, NotFound, Resources, Sandbox
from shoal.engine.local import LocalEngine
from shoal.store import Store, open_store
from tests.cache.kit import Web


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "home").mkdir()
    with contextlib.closing(open_store(f"sqlite:///{tmp_path}/home/shoal.db", tables=[Cache.tables])) as made:
        made.acquire("test")
        yield made


@contextlib.asynccontextmanager
async def plane(
    store: Store, folder: Path, *, sandbox: Sandbox = Sandbox.NONE, **more: Any
) -> AsyncIterator[ControlPlane]:
    section = CacheSection(enabled=True, root=str(folder / "cache"), size=8 << 20, keep_free=0, round=0.5, **more)
    chosen = [Chosen(Cache, section)]
    made = ControlPlane(
        store, LocalEngine(folder / "home"), folder / "home", PlaneSettings(collect_every_s=0.05), extensions=chosen
    )
    await made.open()
    try:
        if "ada" not in made.tenants.records:
            await made.put_tenant("ada", actor="admin", sandbox=sandbox)
        await until(lambda: extension(made).capabilities()[0].available)
        yield made
    finally:
        await made.close()


def extension(made: ControlPlane) -> Cache:
    found = made.extensions.get(Cache)
    assert found is not None
    return found


def command_line(*words: str) -> str:
    """What `shoal` prints, without the variables that name a cache."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    return subprocess.run([sys.executable, "-m", "shoal.cli", *words], env=env, stdout=-1, check=True).stdout.decode()


async def until(found: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    async with asyncio.timeout(timeout_s):
        while not (value := found()):
            await asyncio.sleep(0.05)
    return value


def job(url: str, *, cached: bool = True, command: str = "pass") -> JobManifest:
    return JobManifest.model_validate({
        "name": "train", "command": [sys.executable, "-c", command], "inputs": [
            {"from": url, "to": "data", "cached": cached}
        ], "extensions": {"cache": {"rate": "1MiB", "epochs": 3}},
    })  # fmt: skip


async def run(made: ControlPlane, manifest: JobManifest) -> JobState:
    told, _ = await made.submit(manifest, tenant="ada", actor="ada")
    await until(lambda: made.job(told.id).state.terminal)
    return made.job(told.id).state


@pytest.mark.timeout(180)
async def test_inputs_are_fetched_once_for_all_jobs_and_decisions_survive(
    web: Web, store: Store, tmp_path: Path
) -> None:
    url = web.put("/set/data", b"x" * 1000)
    read = "assert len(open('data').read()) == 1000"
    async with plane(store, tmp_path) as made:
        for _ in range(2):
            assert await run(made, job(url, command=read)) is JobState.SUCCEEDED
        assert web.gets == {"/set/data": 1}
        assert await run(made, job(url, cached=False, command=read)) is JobState.SUCCEEDED
        assert web.gets["/set/data"] > 1
        told, _ = await made.submit(job(url, command="import time; time.sleep(60)"), tenant="ada", actor="ada")
        await until(lambda: (extension(made).status()["gap"]) is not None)
        causes = await until_async(lambda: explained(made, told.id))
        assert f"{url}" in causes[0].reason.text
        assert causes[0].reason.code == "kept"
        status = extension(made).status()
        assert status["used"]["files"] == 1
        names = {sample.name for metric in extension(made).metrics() for sample in metric.samples}
        assert names == {"shoal_cache_bytes", "shoal_cache"}
        told_here = await asyncio.to_thread(command_line, "cache", "status", "--json", "--home", str(tmp_path / "home"))
        assert json.loads(told_here)["root"] == str(tmp_path / "cache")
        await made.cancel(told.id, actor="ada")
        await until(lambda: made.job(told.id).state.terminal)
        decided = status["decided_at"]
    link = next((tmp_path / "cache" / "links").glob("ada/*"))
    assert link.read_bytes() == b"x" * 1000
    async with plane(store, tmp_path) as made:
        assert extension(made).status()["decided_at"] >= decided


async def explained(made: ControlPlane, job_id: str) -> list[Any]:
    return [one for one in (await made.explain(job_id)).causes if one.cause == "cache"]


async def until_async(found: Callable[[], Any]) -> Any:
    async with asyncio.timeout(60):
        while not (value := await found()):
            await asyncio.sleep(0.1)
    return value


@pytest.mark.timeout(180)
async def test_a_cache_that_dies_is_started_again_and_costs_no_job(web: Web, store: Store, tmp_path: Path) -> None:
    url = web.put("/set/data", b"y" * 500)
    read = "assert len(open('data').read()) == 500"
    async with plane(store, tmp_path) as made:
        assert await run(made, job(url, command=read)) is JobState.SUCCEEDED
        process = extension(made)._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        assert await run(made, job(url, command=read)) is JobState.SUCCEEDED
        await until(lambda: extension(made)._process is not process)
        await until(lambda: extension(made).capabilities()[0].available)
        assert await run(made, job(url, command=read)) is JobState.SUCCEEDED
        last = extension(made)._process
        assert last is not None
        extension(made)._process = None  # as if the server was killed: its cache goes on
    try:
        async with plane(store, tmp_path) as made:
            assert await run(made, job(url, command=read)) is JobState.SUCCEEDED
            assert extension(made)._process is None
            assert last.returncode is None
    finally:
        last.kill()
        await last.wait()


def test_only_inputs_that_ask_for_it_go_through_the_cache(tmp_path: Path) -> None:
    manifest = JobManifest.model_validate({"name": "x", "command": ["true"], "inputs": [
        {"from": "s3://b/a", "to": "a", "cached": True}, {"from": "/data/b", "to": "b", "cached": True},
        {"from": "s3://b/c", "to": "c"}, {"from": "hdfs://d", "to": "d", "cached": True},
    ]})  # fmt: skip
    live = SimpleNamespace(job=SimpleNamespace(manifest=manifest.model_dump_json(by_alias=True)), manifest=manifest)
    server = SimpleNamespace(derive_secret=lambda _: "secret", on_fatal=None, home=tmp_path)
    made = Cache(server, CacheSection(enabled=True, root=str(tmp_path)))  # type: ignore[arg-type]
    moves = [Move(one.source, one.target) for one in manifest.inputs]
    told = made.inputs(live, moves)  # type: ignore[arg-type]
    assert [one.source for one in told] == ["shoal://s3://b/a", "shoal://file:///data/b", "s3://b/c", "hdfs://d"]
    assert [one.target for one in told] == ["a", "b", "c", "d"]


def job_of(tenant: str, job_id: str, manifest: JobManifest) -> Any:
    record = SimpleNamespace(
        id=job_id, tenant=tenant, manifest=manifest.model_dump_json(by_alias=True), state=JobState.RUNNING
    )  # fmt: skip
    return SimpleNamespace(job=record, manifest=manifest)


def quiet_cache(home: Path, jobs: dict[str, Any], sandbox: Sandbox = Sandbox.USER) -> Cache:
    """One that was not opened."""

    def secrets(live: Any) -> dict[str, str]:
        if live.job.tenant == "poor":
            raise NotFound("tenant poor has no secret 'keys'")
        return {"AWS_SECRET_ACCESS_KEY": "of the vault"} if live.manifest.secrets else {}

    server = SimpleNamespace(
        derive_secret=lambda _: "secret", on_fatal=None, home=home, job=jobs.get, sandbox=lambda _: sandbox,
        secrets=secrets, store=None, ask_all=lambda _: (),
    )  # fmt: skip
    return Cache(server, CacheSection(enabled=True, root=str(home)))  # type: ignore[arg-type]


def test_what_waiting_jobs_will_read_is_fetched_with_their_own_credentials(tmp_path: Path) -> None:
    fields = {"name": "x", "command": ["true"], "env": {"AWS_ACCESS_KEY_ID": "k", "AWS_ENDPOINT_URL": "http://s3:9000"}}
    given = JobManifest.model_validate({
        **fields, "secrets": {"AWS_SECRET_ACCESS_KEY": "keys"},
        "inputs": [{"from": "s3://b/a", "to": "a", "cached": True}],
    })  # fmt: skip
    without = JobManifest.model_validate({"name": "x", "command": ["true"], "inputs": given.inputs})
    made = quiet_cache(tmp_path, {})
    endpoint = {"endpoint_url": "http://s3:9000"}
    assert made._access(job_of("ada", "j-1", given), "s3://b/a") == (
        {**endpoint, "key": "k", "secret": "of the vault"}, True,
    )  # fmt: skip
    assert made._access(job_of("poor", "j-1", given), "s3://b/a") == (endpoint, False)
    assert made._access(job_of("ada", "j-1", without), "s3://b/a") == ({}, False)
    for sandbox, url, may in (
        (Sandbox.USER, "/data", True), (Sandbox.BUBBLEWRAP, "/data", False), (Sandbox.NONE, "/data", False),
        (Sandbox.NONE, "http://h/a", True), (Sandbox.USER, "gs://b/a", True),
    ):  # fmt: skip
        assert quiet_cache(tmp_path, {}, sandbox)._access(job_of("ada", "j-1", without), url) == ({}, may), url


def test_a_job_prefers_the_machine_that_holds_its_data(tmp_path: Path) -> None:
    manifest = JobManifest.model_validate({"name": "x", "command": ["true"], "env": {"AWS_ENDPOINT_URL": "http://s3:9"},
        "inputs": [{"from": "s3://b/a", "to": "a", "cached": True}, {"from": "s3://b/c", "to": "c"}]})  # fmt: skip
    live = job_of("ada", "j-1", manifest)
    made = quiet_cache(tmp_path, {"j-1": live})
    assert made.prefers(live) == {}
    made._see({"sets": [
        {"set": "s3://http://s3:9/b/a", "held_bytes": 3e9}, {"set": "s3://http://s3:9/b/c", "held_bytes": 9e9},
    ], "waits": [], "source_bytes_per_s": None})  # fmt: skip
    assert made.prefers(live) == {socket.gethostname(): 30.0}
    made._status = {"source_bytes_per_s": 1.5e9}
    assert made.prefers(live) == {socket.gethostname(): 2.0}


def test_a_tenant_counts_with_the_devices_of_its_running_jobs(tmp_path: Path) -> None:
    def running(tenant: str, number: int, size: int | None) -> Any:
        resources = Resources(accelerators={"gpu": number} if number else {})
        return SimpleNamespace(job=SimpleNamespace(tenant=tenant, resources=resources, ranks=3, size=size))

    made = quiet_cache(tmp_path, {})
    made._server.active_jobs = lambda: [  # type: ignore[method-assign]
        running("ada", 2, 4),
        running("ada", 1, None),
        running("bob", 0, 1),
    ]
    assert made._devices() == {"ada": 11, "bob": 0}


async def test_what_a_job_waits_for_is_a_cause(tmp_path: Path) -> None:
    live = job_of("ada", "j-1", job("http://h/set"))
    made = quiet_cache(tmp_path, {"j-1": live})
    waits = {"tenant": "ada", "job": "j-1"}
    for seconds in (0.0, 1e9):  # more than all of the time
        made._see({"sets": [], "waits": [{**waits, "seconds": seconds}]})
    (cause,) = await made.explain(None, live)  # type: ignore[arg-type]
    assert (cause.reason.code, cause.reason.facts) == ("data-wait", {"data_wait": 1.0})
    made._see({"sets": [], "waits": []})
    live.job.state = JobState.DOWNLOADING
    (cause,) = await made.explain(None, live)  # type: ignore[arg-type]
    assert cause.reason.code == "data-first-part"
    assert "http://h/set" in cause.reason.text


async def test_a_decision_counts_also_after_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []

    async def keep(_store: object, told: dict[str, Any]) -> None:
        kept.append(told["at"])

    made = quiet_cache(tmp_path, {})
    monkeypatch.setattr("shoal.cache.live.extension.keep_decision", keep)
    monkeypatch.setattr(made, "_sensed", dict)
    monkeypatch.setattr(made, "_over", list)
    for at in (7200.0, 7200.0, 3610.0, 0.0):
        told = {"status": {"sets": [], "waits": []}, "last": {"at": at}}
        monkeypatch.setattr(made, "_exchange", lambda *_, told=told: told)
        await made._turn()
    assert kept == [7200.0, 3610.0]


def test_a_cache_without_a_directory_is_refused() -> None:
    with pytest.raises(Invalid, match="needs a directory"):
        Cache(None, CacheSection(enabled=True))  # type: ignore[arg-type]
