"""The commands for services, whether or not their gateway gets to serve anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell, eventually

MODEL = "def double(arrays):\n    return {'y': arrays['x'] * 2}\n"
TENSOR = [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]


@pytest.fixture
def service(tmp_path: Path) -> Callable[..., str]:
    """Write a service's manifest and its code; returns its path."""

    def write(name: str, **fields: Any) -> str:
        (tmp_path / "model.py").write_text(MODEL)
        model = {"name": name, "source": "model:double", "inputs": TENSOR, "outputs": [{**TENSOR[0], "name": "y"}]}
        body = {"kind": "service", "name": name, "models": [model], "files": ["model.py"], "resources": {"cpus": 0.1}}
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps({**body, **fields}))
        return str(path)

    return write


def test_a_service_from_its_deployment_to_its_end(shell: Shell, service: Callable[..., str]) -> None:
    made = shell("deploy", service("ocr", slo={"p99": "50ms"})).stdout
    assert "ocr (default): DEPLOYING, generation 1" in made
    identity = made.split()[0]
    assert shell.json("services")["services"][0]["id"] == identity
    assert "ocr" in shell("services").stdout
    eventually(lambda: "RUNNING" in shell("events", "ocr").stdout)
    shown = shell("services", "ocr").stdout
    for text in ("objective   p99 50ms", "callable", "ocr-0-1", "0.1cpu"):
        assert text in shown
    assert shell.json("services", "ocr")["manifest"]["files"] == []
    assert identity not in shell("jobs").stdout
    assert f"{identity}-0" in shell("jobs", "--all").stdout
    assert shell.json("show", "ocr-0-1")["owner_id"] == identity
    assert "replica" in shell("scale", "ocr", "2", "--because", "rush").stdout
    assert shell.json("scale", "ocr", "0")["replicas"] == 0
    (gone,) = shell("undeploy", "ocr", "--wait").stdout.splitlines()
    assert gone == f"{identity}  ocr: STOPPED"
    assert shell("services").stdout == "no services\n"
    assert identity in shell("services", "--all").stdout
    events = shell("events", "ocr").stdout
    assert "rush" in events
    assert "STOPPING > STOPPED" in events
    first, *_ = shell("events", "ocr", "--json").stdout.splitlines()
    assert json.loads(first)["kind"] == "service.deployed"


def test_a_model_file_needs_no_manifest(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "Text OCR.onnx").write_bytes(b"not really a model")
    made = shell.json(
        "deploy", str(tmp_path / "Text OCR.onnx"), "--slo-p99", "20ms", "--replicas", "0", "--class", "best-effort"
    )
    assert (made["name"], made["models"][0]["name"], made["slo_p99_s"]) == ("text-ocr", "text-ocr", 0.02)
    assert (made["priority_class"], made["replicas"]) == ("best-effort", 0)
    named = shell.json("deploy", str(tmp_path / "Text OCR.onnx"), "--name", "other", "--replicas", "0")
    assert (named["name"], named["models"][0]["name"]) == ("other", "other")
    asked = shell.json("services", "text-ocr")["manifest"]["resources"]
    assert asked["memory"] == (512 + 4) << 20  # not the part of the machine that goes with its cores
    own = ("--name", "other", "--replicas", "0", "--memory", "2GiB", "--cpus", "0.5")
    shell("deploy", str(tmp_path / "Text OCR.onnx"), *own)
    asked = shell.json("services", "other")["manifest"]["resources"]
    assert (asked["memory"], asked["cpus"]) == (2 << 30, 0.5)
    clash = '{"name": "third", "models": [{"name": "other", "source": "/m.onnx"}]}'
    assert (
        "service other of tenant default has a model other already" in shell("deploy", "-", stdin=clash, code=6).stderr
    )
    shell("undeploy", "text-ocr", "other", "--wait")


def test_options_override_the_manifest_and_stdin_is_one(shell: Shell, service: Callable[..., str]) -> None:
    path = service("asr", replicas=1)
    made = shell.json("deploy", path, "--name", "speech", "--replicas", "0", "--key", "k1")
    assert (made["name"], made["replicas"]) == ("speech", 0)
    assert shell.json("deploy", path, "--name", "speech", "--replicas", "0", "--key", "k1")["deployment"] == 1
    shell("deploy", path, "--name", "speech", "--replicas", "0", "--memory", "1GiB")
    assert shell.json("services", "speech")["manifest"]["resources"]["memory"] == 1 << 30
    text = "name: piped\nreplicas: 0\nmodels: [{name: piped, source: /srv/m.onnx}]\n"
    assert shell.json("deploy", "-", stdin=text)["name"] == "piped"
    shell("undeploy", "speech", "piped", "--wait")


def test_an_update_is_told_apart_from_a_new_service(shell: Shell, service: Callable[..., str]) -> None:
    first = shell.json("deploy", service("pipe", replicas=0))
    again = shell.json("deploy", service("pipe", replicas=0, env={"A": "b"}))
    assert (again["id"], again["generation"], again["deployment"]) == (first["id"], 2, 2)
    shell("undeploy", "pipe", "--wait")


def test_what_is_wrong_is_told_with_its_place_and_a_code(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: ocr\nmodels:\n- {name: m, source: m.pkl}\nreplicas: two\n")
    error = shell("deploy", str(path), code=2).stderr
    assert f"{path}:3: models[0].source: 'm.pkl' is a pickle" in error
    assert f"{path}:4: replicas: must be a whole number" in error
    (tmp_path / "m.pkl").write_bytes(b"x")
    assert "is a pickle" in shell("deploy", str(tmp_path / "m.pkl"), code=2).stderr
    assert "there is no such file" in shell("deploy", str(tmp_path / "absent.onnx"), code=2).stderr
    path.write_text("name: ocr\nmodels:\n- {name: m, source: absent.onnx}\n")
    assert "no file matches 'absent.onnx'" in shell("deploy", str(path), code=2).stderr
    assert "there is no service 'nope'" in shell("services", "nope", code=3).stderr
    assert "there is no service 'nope'" in shell("undeploy", "nope", code=3).stderr
    shell("scale", "nope", "1", code=3)
    shell("scale", "nope", "-1", code=2)
    assert "there is no job 'nope'" in shell("explain", "nope", code=3).stderr


def test_manifests_of_services_are_checked_like_those_of_jobs(shell: Shell, service: Callable[..., str]) -> None:
    assert shell("manifest", "check", service("ocr", secrets=["HUB"])).stdout.splitlines() == [
        "ocr: the manifest is good", "  note: secret HUB does not exist yet",
    ]  # fmt: skip
    assert shell("manifest", "check", service("ocr"), "--offline").stdout == "ocr: the manifest is good\n"
    assert json.loads(shell("manifest", "schema", "--kind", "service").stdout)["title"] == "Shoal service manifest"
    assert "there is no kind 'x'" in shell("manifest", "schema", "--kind", "x", code=2).stderr
    assert shell.json("services")["services"] == []


def test_explain_tells_what_a_service_lacks_and_wait_says_it_too(shell: Shell, service: Callable[..., str]) -> None:
    path = service("greedy", resources={"accelerators": "no-such-type:1"})
    shell("deploy", path)
    failed = shell("deploy", path, "--wait", "--timeout", "2", code=4)
    assert "service greedy is still DEPLOYING after 2 s" in failed.stderr
    found = shell("explain", "greedy").stdout
    assert found.startswith("greedy is DEPLOYING: 0 of 1 replica ready")
    assert "no node has 1 no-such-type: would never fit" in found
    assert "ask for less, or add a node that has this" in found
    subjects = [cause["subject"] for cause in shell.json("explain", "greedy")["causes"]]
    assert "replica greedy-0-1" in subjects
    shell("undeploy", "greedy", "--wait")
