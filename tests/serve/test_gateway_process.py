"""The gateway as a process: it follows its directory, outlives what happens to it, and its replicas outlive it."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from shoal.core import Money
from shoal.inference.types import ModelSpec
from shoal.serve.contract import CONFIG_FILE, STATUS_FILE, TenantEntry, held
from shoal.serve.errors import UnknownModel
from shoal.serve.types import Route, ServiceSpec
from shoal.serve.usage import UsageRecord
from tests.serve import models, usage_file
from tests.serve.gateway_kit import (
    ENDS_WITHIN_S,
    ONE,
    Home,
    Load,
    deployment,
    eventually,
    home,
    kill,
    lets_nobody_in,
    service,
)

PRICE = Money.usd(3600)


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Home]:
    with home(tmp_path) as made:
        yield made


def linear(on: Home, *, seed: int = 0, version: str = "1", **more: object) -> ServiceSpec:
    """Deployed as the service `s`."""
    path = models.linear(on.folder / f"linear{seed}.onnx", seed=seed)
    return service("s", [ModelSpec("linear", str(path), version=version)], **more)


def ready(on: Home, count: int) -> bool:
    found = on.service("s")
    return found is not None and len(found.ready) == count


def pids(on: Home, *names: str) -> list[int | None]:
    return [on.spawned[name].pid for name in names]


def test_a_service_is_scaled_updated_and_undeployed_under_load(on: Home) -> None:
    old, new = deployment(linear(on), 1), deployment(linear(on, seed=1, version="2"), 2)
    mixed = (("linear", Route((("1", 0.5), ("2", 0.5)))),)
    on.configure(old)
    on.start()
    on.replicas("s", 1, "s-0-1")
    eventually(lambda: ready(on, 1))
    stage, answered = "old", set[tuple[str, str]]()
    client = on.client()

    def ask() -> None:
        asked = stage
        answered.add((asked, client.infer("linear", {"x": ONE}).version))

    with Load(ask) as load:
        on.replicas("s", 1, "s-1-1")
        eventually(lambda: ready(on, 2))
        load.more()
        assert answered == {("old", "1")}
        stage = "both"
        # With a surge: the old ones stay until the new one is there.
        on.configure(old, replace(new, spec=replace(new.spec, routes=mixed)))
        eventually(on.followed)
        on.replicas("s", 2, "s-2-2")
        eventually(lambda: ready(on, 3))
        load.more()
        on.configure(new)
        eventually(lambda: ready(on, 1))
        load.more()
        stage = "new"
        eventually(lambda: ("new", "2") in answered)
        load.more()
        assert ("new", "1") not in answered
        assert {*load.outcomes} == {"ok"}
        on.configure()
        eventually(on.followed)
        eventually(lambda: load.outcomes["not-found"])
    assert {*load.outcomes} == {"ok", "not-found"}
    for error in load.errors:
        assert isinstance(error, UnknownModel)
        assert "there is no model 'linear'" in error.what or "it was undeployed" in error.what
    assert on.status.services == ()


@pytest.mark.slow
def test_a_killed_gateway_comes_back_where_it_was(on: Home) -> None:
    on.configure(deployment(linear(on)), price_per_hour=PRICE, slots=1)
    on.start()
    names = ("s-0-1", "s-1-1")
    on.replicas("s", 1, *names)
    eventually(lambda: ready(on, 2))
    first, lives = on.status, pids(on, *names)
    answer = on.client().infer("linear", {"x": ONE})["y"]
    # A change of price closes an interval: what came before is on the disk when the gateway is killed.
    on.configure(deployment(linear(on)), price_per_hour=PRICE * 2, slots=1)
    eventually(on.followed)
    paid = on.status.usage
    assert paid
    assert on.end(signal.SIGKILL) == -signal.SIGKILL
    assert (on.folder / "s").exists()
    kept = usage_file.read(on.folder / "usage.jsonl")
    with (on.folder / "usage.jsonl").open("ab") as usage:
        usage.write(b'{"start": 17')  # as if it had been killed just then
    on.start()
    second = on.status
    assert second.pid != first.pid
    assert (second.http, second.grpc) == (first.http, first.grpc)
    assert second.usage == paid
    eventually(lambda: ready(on, 2))
    assert pids(on, *names) == lives
    np.testing.assert_array_equal(on.client().infer("linear", {"x": ONE})["y"], answer)
    assert on.end(signal.SIGTERM) == 0
    records = usage_file.read(on.folder / "usage.jsonl")
    assert records[: len(kept)] == kept
    assert overhead_s(kept) > 0
    assert overhead_s(records[len(kept) :]) == 0  # nothing was loaded again, and nothing is charged again
    assert records[-1].bill > Money(0)


def overhead_s(records: Sequence[UsageRecord]) -> float:
    return sum(share.overhead_s for record in records for share in record.shares if share.tenant == "ada")


@pytest.mark.slow
def test_requests_wait_for_replicas_that_are_on_their_way_back(on: Home) -> None:
    on.configure(deployment(linear(on)))
    on.start()
    on.replicas("s", 1, "s-0-1")
    eventually(lambda: ready(on, 1))
    client = on.client()
    with Load(lambda: client.infer("linear", {"x": ONE})) as load:
        (pid,) = pids(on, "s-0-1")
        kill(pid)
        eventually(lambda: pids(on, "s-0-1") not in ([pid], [None]))
        load.more()
    assert {*load.outcomes} <= {"ok", "replica-lost"}


@pytest.mark.slow
def test_requests_wait_for_replicas_of_the_gateway_before(on: Home) -> None:
    on.configure(deployment(linear(on)))
    on.start()
    on.replicas("s", 1, "s-0-1")
    eventually(lambda: ready(on, 1))
    for _ in range(3):
        on.end(signal.SIGKILL)
        on.start()
        assert on.client().infer("linear", {"x": ONE})["y"].shape == (1, 3)
        eventually(lambda: ready(on, 1))


@pytest.mark.slow
def test_a_configuration_that_cannot_be_followed_is_not(on: Home) -> None:
    on.configure(deployment(linear(on)))
    on.start()
    on.replicas("s", 1, "s-0-1")
    eventually(lambda: ready(on, 1))
    good = (on.folder / CONFIG_FILE).read_bytes()
    (on.folder / CONFIG_FILE).write_bytes(good[:100])
    eventually(lambda: "it is written by Shoal alone" in on.log.read_text())
    on.configure(deployment(linear(on)), tenants=(TenantEntry("ada", -1.0),))
    eventually(lambda: "a weight must be positive and finite, not -1.0" in on.log.read_text())
    assert on.status.generation == 1
    assert on.client().infer("linear", {"x": ONE})["y"].shape == (1, 3)
    on.configure(deployment(linear(on)), slots=7)
    eventually(on.followed)
    eventually(lambda: "is followed when the gateway starts again" in on.log.read_text())
    assert on.lives()


@pytest.mark.slow
def test_a_full_disk_stops_neither_serving_nor_counting(on: Home) -> None:
    on.configure(deployment(linear(on)), price_per_hour=PRICE)
    on.start()
    on.replicas("s", 1, "s-0-1")
    eventually(lambda: ready(on, 1))
    assert on.process is not None
    before = on.status.at
    unlimited = resource.prlimit(on.process.pid, resource.RLIMIT_FSIZE)
    log = on.log.stat().st_size + 10_000
    resource.prlimit(on.process.pid, resource.RLIMIT_FSIZE, (0, unlimited[1]))  # no file can grow
    try:
        with Load(lambda: on.client().infer("linear", {"x": ONE}), threads=2) as load:
            on.configure(deployment(linear(on)), price_per_hour=PRICE * 2)  # which closes an interval
            load.more(200)
        assert {*load.outcomes} == {"ok"}
    finally:
        resource.prlimit(on.process.pid, resource.RLIMIT_FSIZE, unlimited)
    eventually(lambda: on.status.at > before and on.followed())
    assert on.service("s").requests >= 200  # type: ignore[union-attr]
    assert on.end(signal.SIGTERM) == 0
    records = usage_file.read(on.folder / "usage.jsonl")
    assert len(records) > 1
    assert all(one.end == another.start for one, another in pairwise(records))
    assert sum(share.use_s for record in records for share in record.shares) > 0
    assert on.log.stat().st_size < log
    assert [one.name for one in on.folder.iterdir() if one.name.startswith(f".{STATUS_FILE}")] == []


def test_a_gateway_told_to_end_answers_first_and_leaves_nothing(on: Home) -> None:
    on.configure(deployment(service("s", [models.callable_spec("nap")])))
    on.start()
    on.replicas("s", 1, "s-0-1")
    eventually(lambda: ready(on, 1))
    client = on.client()
    with Load(lambda: client.infer("nap", {"x": [[np.float32(0.1)]]}), threads=3) as load:
        load.more(2)
        assert on.end(signal.SIGTERM) == 0
        assert not held(on.folder)
        assert not (on.folder / "s").exists()
        eventually(lambda: load.outcomes["unavailable"])
    assert {*load.outcomes} <= {"ok", "not-ready", "unavailable"}  # no answer was lost on its way
    assert on.log.read_text().count("Traceback") == 0


@pytest.mark.slow
def test_told_twice_it_does_not_wait(on: Home) -> None:
    on.configure(deployment(service("s", [models.wait_for_spec()])))
    on.start()
    on.replicas("s", 1, "s-0-1")
    eventually(lambda: ready(on, 1))
    client, door = on.client(), on.folder / "door"
    with Load(lambda: client.infer("wait_for", {"x": models.at_door(door)}), threads=1, warm=0):
        eventually(models.awaited(door).exists)
        assert on.process is not None
        on.process.send_signal(signal.SIGTERM)
        eventually(lambda: lets_nobody_in(on.client()))
        assert on.end(signal.SIGTERM) == -signal.SIGTERM
        kill(pids(on, "s-0-1")[0])


def run(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "shoal.serve.gateway", *words], capture_output=True, text=True, timeout=ENDS_WITHIN_S
    )
    return done.returncode, done.stderr


@pytest.mark.slow
def test_a_gateway_that_may_not_start_says_why(on: Home, tmp_path: Path) -> None:
    on.configure()
    code, said = run("--home-dir", str(tmp_path), "--scheduler", "lottery")
    assert (code, "Traceback" in said) == (1, False)
    assert "error: scheduler: there is no scheduler called 'lottery'" in said
    on.start()
    code, said = run("--home-dir", str(tmp_path))
    assert (code, "Traceback" in said) == (1, False)
    assert "a gateway serves this directory already" in said
    assert on.lives()
    (tmp_path / "empty").mkdir()
    code, said = run("--home-dir", str(tmp_path / "empty"))
    assert (code, "there is no configuration to follow" in said) == (1, True)
    code, said = run("--home-dir", str(tmp_path / "none"))
    assert (code, "Traceback" in said) == (1, False)
