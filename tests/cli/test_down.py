"""`shoal down`: what goes on without the server, and how all of it is ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.down import Left
from tests.cli.conftest import Shell, eventually

FOREVER = "import time\nprint('up')\nwhile True: time.sleep(1)"
MODEL = "def double(arrays):\n    return {'y': arrays['x'] * 2}\n"
TENSOR = [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Shell]:
    """A server of the test's own."""
    shell = Shell(tmp_path / "home")
    up(shell)
    yield shell
    shell("down", "--stop-jobs")


def up(shell: Shell) -> None:
    shell("up", "--port", "0", "--slots", "2", "--detach")


@pytest.mark.slow
def test_what_goes_on_is_told_and_ended_when_asked(own: Shell, manifest: Callable[..., str], tmp_path: Path) -> None:
    assert own("down").stdout.endswith("has stopped; no job or service runs on\n")
    assert own("down").stdout == f"no server runs in {own.home}\n"
    assert own.json("down") == {"stopped": False}
    up(own)
    small = {"cpus": 0, "memory": "64MiB"}
    own("submit", manifest(FOREVER, "long", resources=small))
    own("submit", manifest(FOREVER, "wide", resources={"accelerators": "a100:64"}))
    (tmp_path / "model.py").write_text(MODEL)
    model = {"name": "m", "source": "model:double", "inputs": TENSOR, "outputs": [{**TENSOR[0], "name": "y"}]}
    service = {"kind": "service", "name": "ocr", "models": [model], "files": ["model.py"], "resources": small}
    (tmp_path / "ocr.yaml").write_text(json.dumps(service))
    own("deploy", str(tmp_path / "ocr.yaml"))
    eventually(lambda: own.json("show", "long")["state"] == "RUNNING")
    told = own("down").stdout
    assert told.endswith("has stopped; 1 job and service ocr run on, 1 job waits for the next server\n")
    up(own)
    assert own.json("show", "long")["state"] == "RUNNING"
    ended = own.json("down", "--stop-jobs", env={"SHOAL_URL": "http://127.0.0.1:9", "SHOAL_TOKEN": "another"})
    assert (ended["ended"], ended["jobs_running"], ended["jobs_waiting"], ended["services"]) == (
        True, 1, 1, ["service ocr"],
    )  # fmt: skip
    up(own)
    states: dict[str, Any] = {job["name"]: job["state"] for job in own.json("jobs", "--all")["jobs"]}
    assert (states["long"], states["wide"]) == ("CANCELLED", "CANCELLED")
    assert own("services").stdout == "no services\n"
    assert own("down", "--stop-jobs").stdout.endswith("has stopped; ended 0 jobs\n")


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (Left(), "no job or service runs on"),
        (Left(running=1), "1 job runs on"),
        (Left(running=2, waiting=1), "2 jobs run on, 1 job waits for the next server"),
        (Left(kept=("service a",)), "service a runs on"),
        (
            Left(kept=("service a", "service b"), waiting=2),
            "service a and service b run on, 2 jobs wait for the next server",
        ),
        (Left(running=1, kept=tuple("abcdef")), "1 job and 6 services run on"),
    ],
)
def test_how_it_is_said(left: Left, told: str) -> None:
    assert str(left) == told
