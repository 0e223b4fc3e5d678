"""One real service of cascades: drift, a replica that is killed, a store that is away, and the way back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import exceptions as errors
from sklearn.linear_model import LogisticRegression

from shoal.base.home import Home, stop_server
from shoal.base.processes import start_ticks
from shoal.cascade import Cascade, optimize
from shoal.control.server import start_detached
from shoal.engine.local.processes import marked
from shoal.sdk import Client
from tests.cascade.conftest import texts
from tests.cascade.test_lookups import fill, pipeline
from tests.cascade.test_lookups import server as store
from tests.packages import install
from tests.system.test_services import until

__all__ = ["store"]
MODELS = """
name: judge
grace: 3s
resources: {cpus: 0.2}
env: {PYTHONPATH: "%s"}
models:
- {name: tweets, source: tweets.cascade, options: {watch: 1.0}}
- {name: films, source: films.cascade, options: {watch: 0.0}}
- {name: busy, source: tweets.cascade, runtime: hasty, options: {watch: 1.0}, max_batch: 1}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    declared = (
        "from shoal.extension import Component\n\nIT = Component(runtimes={'hasty': 'tests.cascade.hasty:HASTY'})\n"
    )
    install(tmp_path / "installed", "of-tests", {"hasty_declared.py": declared}, {"of-tests": "hasty_declared:IT"})
    path = f"{tmp_path / 'installed'}:{Path(__file__).parents[2]}"
    monkeypatch.setenv("PYTHONPATH", path)
    (tmp_path / "service.yaml").write_text(MODELS % path)
    home = Home(tmp_path / "home")
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "1"], home)
    yield home
    with Client(home=home.path, environ={}) as client:
        for service in client.services.list().services:
            client.services.undeploy(service.id)
            client.services.wait_stopped(service.id, timeout_s=30)
    stop_server(home, timeout_s=20)


class Service:
    """A deployed service, as its user sees it."""

    def __init__(self, home: Home, client: Client, manifest: Path) -> None:
        self.home, self.client, self.manifest = home, client, manifest
        client.create_tenant("ada", sandbox="none")
        self.headers = {"authorization": f"Bearer {client.create_token('ada').token}"}
        self.deploy()

    def deploy(self) -> None:
        self.client.services.deploy(self.manifest, tenant="ada")
        self.url = self.client.services.wait_ready("judge", timeout_s=60).endpoints.http

    def ask(self, model: str, inputs: list[dict[str, Any]], **given: Any) -> httpx.Response:
        url = f"{self.url}/v2/models/{model}/infer"
        return httpx.post(url, json={"inputs": inputs, **given}, headers=self.headers, timeout=30)

    def stages(self, rows: list[str], model: str = "tweets") -> list[int]:
        inputs = [{"name": "text", "datatype": "BYTES", "shape": [len(rows)], "data": rows}]
        response = self.ask(model, inputs, parameters={"explain": True})
        assert response.status_code == 200, response.text
        (found,) = [one["data"] for one in response.json()["outputs"] if one["name"] == "stage"]
        return [int(stage) for stage in found]

    def state(self, model: str = "tweets") -> str:
        (found,) = [one for one in self.client.services.get("judge").models if one.name == model]
        return str(found.runtime_state)

    def shown(self, *words: str) -> str:
        """What a command prints."""
        command = [sys.executable, "-m", "shoal.cli", *words, "--home", str(self.home.path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def kill_replica(self) -> None:
        (found,) = [one for one in marked(self.home.path) if not one.supervisor]
        os.kill(found.process.pid, signal.SIGKILL)
        until(lambda: start_ticks(found.process.pid) is None)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_service_says_when_it_drifts_is_blind_or_lacks_its_store_and_finds_back(
    home: Home, tmp_path: Path, optimized: Cascade, store: Any
) -> None:
    address, redis, process = store
    films, y = fill(redis)
    looks_up = optimize(pipeline(address, LogisticRegression()), films, y, max_loss=0.05)
    assert looks_up.certificate is not None
    looks_up.save(tmp_path / "films.cascade")
    optimized.save(tmp_path / "tweets.cascade")
    last = len(optimized.program.stages) - 1
    with Client(home=home.path, environ={}) as client:
        service = Service(home, client, tmp_path / "service.yaml")

        # CERTIFIED: most rows take the cheap stage.
        until(lambda: service.state() == service.state("films") == "CERTIFIED")
        assert service.stages(texts(200, seed=80)[0]).count(last) < 150

        # WATCHING: no idle time, then some.
        stop = threading.Event()
        load = [threading.Thread(target=flood, args=(service, stop)) for _ in range(2)]
        for thread in load:
            thread.start()
        until(lambda: service.state("busy") == "WATCHING")
        stop.set()
        for thread in load:
            thread.join()
        until(lambda: service.state("busy") == "CERTIFIED")

        # DEGRADED: the store is stopped in mid-service, and no row is answered without it.
        row = [{"name": name, "datatype": "FP64", "shape": [2], "data": [1.0, 2.0]} for name in ("user", "item", "row")]
        assert service.ask("films", row).status_code == 200
        process.send_signal(signal.SIGSTOP)  # slow beyond the deadline
        assert service.ask("films", row).status_code == 503
        until(lambda: service.state("films") == "DEGRADED")
        process.send_signal(signal.SIGCONT)
        until(lambda: service.ask("films", row).status_code == 200 and service.state("films") == "CERTIFIED")
        process.kill()
        process.wait()
        lost = service.ask("films", row)
        assert (lost.status_code, "store is away" in lost.text) == (503, True)
        until(lambda: service.state("films") == "DEGRADED")
        with subprocess.Popen(process.args, stdout=subprocess.DEVNULL) as again:
            until(lambda: answers(redis))
            fill(redis)
            assert service.ask("films", row).status_code == 200
            until(lambda: service.state("films") == "CERTIFIED")
            again.kill()

        # DRIFTED: the word that told the label tells the other one. At once, every row takes the full path.
        shifted = texts(600, seed=65, right=0.0)[0]
        until(lambda: service.stages(shifted) and service.state() == "DRIFTED")
        assert set(service.stages(shifted)) == {last}
        check_drift_is_shown(service)

        # The replica is killed: it is not forgotten.
        service.kill_replica()
        assert set(until(lambda: service.stages(shifted))) == {last}
        until(lambda: service.state() == "DRIFTED")

        # So it is not by another generation with the same artefact, nor by an undeployment before it.
        before = client.services.get("judge").generation
        service.manifest.write_text(service.manifest.read_text().replace("grace: 3s", "grace: 4s"))
        service.deploy()
        until(lambda: client.services.get("judge").generation > before and service.state() == "DRIFTED")
        assert set(service.stages(shifted)) == {last}
        client.services.undeploy("judge")
        client.services.wait_stopped("judge", timeout_s=60)
        service.deploy()
        assert set(service.stages(shifted)) == {last}
        until(lambda: service.state() == "DRIFTED")

        # UNCERTIFIED: too few rows to certify; then there are enough.
        cascade = Cascade.load(tmp_path / "tweets.cascade")
        assert cascade.certify(texts(100, seed=66)[0]) is None
        cascade.save(tmp_path / "tweets.cascade")
        service.deploy()
        assert set(service.stages(shifted)) == {last}
        until(lambda: service.state() == "UNCERTIFIED")
        assert cascade.certify(*texts(2000, seed=67)) is not None
        cascade.save(tmp_path / "tweets.cascade")
        service.deploy()
        assert service.stages(texts(200, seed=81)[0]).count(last) < 150
        until(lambda: service.state() == "CERTIFIED")


def answers(redis: Any) -> bool:
    with contextlib.suppress(errors.ConnectionError):
        return bool(redis.ping())
    return False


def flood(service: Service, stop: threading.Event) -> None:
    rows = texts(300, seed=90)[0]
    while not stop.is_set():
        service.stages(rows, "busy")


def check_drift_is_shown(service: Service) -> None:
    """In the list of services, in the explanation with the numbers, as a metric, and as an event."""
    assert "DRIFTED" in service.shown("services", "judge")
    why = service.shown("explain", "judge")
    assert "sampled rows differ" in why
    assert "were certified" in why
    operator = {"authorization": f"Bearer {service.home.token_file.read_text().strip()}"}
    metrics = httpx.get(f"{service.url}/metrics", headers=operator, timeout=10).text
    assert any('state="DRIFTED"' in line and line.endswith(" 1.0") for line in metrics.splitlines())
    assert 'figure="drift_evidence"' in metrics
    events = until(lambda: [one for one in service.client.services.events("judge") if "DRIFTED" in (one.cause or "")])
    assert "every row takes the full path" in events[0].cause
