"""One real service, with its gateway and replicas, while each of the processes behind it is killed in turn."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.base.home import Home, read_server, stop_server
from shoal.base.processes import start_ticks
from shoal.control.server import start_detached
from shoal.core import ShoalError
from shoal.engine.local.processes import marked
from shoal.sdk import Client
from shoal.serve import contract
from tests.servers import kill_for_good

CODE = """
def times(arrays):
    return {{"y": arrays["x"] * {factor}}}
"""
TENSOR = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
QUESTION = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.5]}]}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    start(home)
    yield home
    with Client(home=home.path, environ={}) as client:
        for service in client.services.list().services:
            client.services.undeploy(service.id)
            client.services.wait_stopped(service.id, timeout_s=30)
    stop_server(home, timeout_s=20)


def start(home: Home) -> None:
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "1"], home)


def until(condition: Callable[[], Any], within_s: float = 40.0) -> Any:
    end = time.monotonic() + within_s
    while True:
        try:
            found = condition()
        except (ShoalError, httpx.TransportError):
            found = None
        if found:
            return found
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def manifest(folder: Path, factor: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "model.py").write_text(CODE.format(factor=factor))
    path = folder / "service.yaml"
    path.write_text(
        "name: multiply\nfiles: [model.py]\nresources: {cpus: 0.2}\ngrace: 3s\n"
        "models:\n- name: times\n  source: model:times\n"
        "  inputs: [{name: x, datatype: FP32, shape: [-1, 2]}]\n"
        "  outputs: [{name: y, datatype: FP32, shape: [-1, 2]}]\n"
    )
    return path


def gateway(home: Home) -> int:
    status = contract.read_status(home.serve_folder)
    assert status is not None
    return status.pid


def replica(home: Home) -> int:
    (found,) = [one for one in marked(home.path) if not one.supervisor]
    return found.process.pid


def test_a_service_outlives_the_death_of_everything_around_it(home: Home, tmp_path: Path) -> None:
    with Client(home=home.path, environ={}) as client:
        client.create_tenant("ada")
        token = client.create_token("ada").token
        client.services.deploy(manifest(tmp_path / "one", 2), tenant="ada")
        ready = client.services.wait_ready("multiply", timeout_s=60)
        assert ready.endpoints is not None
        url = f"{ready.endpoints.http}/v2/models/times/infer"

        def ask(headers: dict[str, str] | None = None) -> httpx.Response:
            given = {"authorization": f"Bearer {token}"} if headers is None else headers
            return httpx.post(url, json=QUESTION, headers=given, timeout=10)

        def answer() -> list[float] | None:
            response = ask()
            return response.json()["outputs"][0]["data"] if response.status_code == 200 else None

        assert answer() == [2.0, 5.0]
        assert ask({}).status_code == 401

        # The server: nobody notices, and the next one finds everything where it was.
        server, before = read_server(home), (gateway(home), replica(home))
        assert server is not None
        kill_for_good(home)
        assert answer() == [2.0, 5.0]
        start(home)
        assert client.services.wait_ready("multiply", timeout_s=30).state == "READY"
        assert (gateway(home), replica(home)) == before

        # The gateway: it is started again where it was, and the same replica joins it.
        os.kill(gateway(home), signal.SIGKILL)
        assert until(answer) == [2.0, 5.0]
        assert gateway(home) != before[0]
        assert replica(home) == before[1]

        # The replica: it is started again.
        os.kill(before[1], signal.SIGKILL)
        until(lambda: start_ticks(before[1]) is None)
        assert until(answer) == [2.0, 5.0]
        assert client.job("multiply-0-1").attempt == 2

        # An update: every request in between is answered, by the old replica or the new one.
        client.services.wait_ready("multiply", timeout_s=30)
        client.services.deploy(manifest(tmp_path / "two", 3), tenant="ada")
        given = set()
        end = time.monotonic() + 60
        while client.services.get("multiply").state != "READY":
            response = ask()
            assert response.status_code == 200, response.text
            given.add(response.json()["outputs"][0]["data"][0])
            assert time.monotonic() < end
        assert given <= {2.0, 3.0}
        assert answer() == [3.0, 7.5]
        assert [one.name for one in client.services.get("multiply").members if not one.leaving] == ["multiply-1-2"]

        # The end: nothing is left.
        client.services.undeploy("multiply")
        assert client.services.wait_stopped("multiply", timeout_s=30).members == []
        until(lambda: not contract.held(home.serve_folder))
        until(lambda: marked(home.path) == [])
        until(lambda: not any((home.path / "runs").glob("*/*")))


def test_a_model_that_cannot_be_loaded_is_told_with_its_reason(home: Home, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"this is no model")
    with Client(home=home.path, environ={}) as client:
        client.services.deploy({"name": "broken", "models": [{"name": "m", "source": "broken.onnx"}]}, base=tmp_path)
        with pytest.raises(ShoalError, match="service broken is FAILED") as failed:
            client.services.wait_ready("broken", timeout_s=60)
        assert "broken.onnx" in failed.value.what
        found = client.services.explain("broken")
        assert any("broken.onnx" in cause.reason.text for cause in found.causes)


HANGS = """
import ctypes, pathlib, time

def hangs(arrays):
    if arrays["x"].sum() > 100:
        ctypes.PyDLL(None).sleep(600)  # with the interpreter's lock held
    return {"y": arrays["x"]}

class Sleeper:
    def __init__(self):
        time.sleep(600)

    __call__ = hangs
"""
TENSORS = (
    "  inputs: [{name: x, datatype: FP32, shape: [-1, 2]}]\n  outputs: [{name: y, datatype: FP32, shape: [-1, 2]}]\n"
)


@pytest.mark.slow
def test_a_replica_that_hangs_is_ended_and_started_again(home: Home, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(HANGS)
    common = "files: [model.py]\nresources: {cpus: 0.2}\ngrace: 1s\n"
    path = tmp_path / "service.yaml"
    with Client(home=home.path, environ={}) as client:
        path.write_text(
            f"name: hang\n{common}slo: {{p99: 200ms}}\nmodels:\n- name: m\n  source: model:hangs\n{TENSORS}"
        )
        client.create_tenant("ada")
        headers = {"authorization": f"Bearer {client.create_token('ada').token}"}
        client.services.deploy(path, tenant="ada")
        endpoints = client.services.wait_ready("hang", timeout_s=60).endpoints
        assert endpoints is not None
        before = replica(home)

        def ask(value: float) -> httpx.Response:
            data = {"inputs": [{**QUESTION["inputs"][0], "data": [value, 0.0]}]}
            return httpx.post(f"{endpoints.http}/v2/models/m/infer", json=data, headers=headers, timeout=50)

        hung = ask(1000.0)
        assert hung.status_code == 503
        assert "the model was still at it" in hung.json()["error"]
        until(lambda: start_ticks(before) is None)  # killed, though it handles no signal
        assert until(lambda: ask(1.0).status_code == 200)
        job = client.job("hang-0-1")
        assert job.attempt == 2
        why = "the gateway stopped this replica: it did not answer within 5 s (one execution of m)"
        assert job.attempts[0].message.startswith(why)
        assert any(event.cause.startswith(why) for event in client.services.events("hang"))
        client.services.undeploy("hang")
        client.services.wait_stopped("hang", timeout_s=30)

        path.write_text(
            f"name: slow\n{common}load_timeout: 500ms\nmodels:\n- name: m\n  source: model:Sleeper\n{TENSORS}"
        )
        client.services.deploy(path, tenant="ada")
        with pytest.raises(ShoalError, match="service slow is FAILED"):
            client.services.wait_ready("slow", timeout_s=60)
        found = client.services.explain("slow")
        assert any("did not answer within 0.5 s (loading m)" in cause.reason.text for cause in found.causes)
