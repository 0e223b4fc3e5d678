"""A real server on this machine, and two unmodified OpenCL programs on one device: one guaranteed, one best-effort."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.device import seats
from tests.device.opencl.conftest import environment as environment
from tests.device.opencl.kit import PROGRAMS

PATIENCE_S = 60.0


class Server:
    def __init__(self, home: Path, environ: dict[str, str]) -> None:
        self._home, self._environ = home, environ

    def __call__(self, *words: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "shoal.cli", *words]
        environ = self._environ | {"SHOAL_HOME": str(self._home)}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout

    def submit(self, name: str, cls: str, *arguments: str) -> str:
        kept = ("POCL_CACHE_DIR", "PYOPENCL_CTX", "PYOPENCL_NO_CACHE")
        path = self._home / f"{name}.json"
        path.write_text(json.dumps({
            "name": name,
            "priority_class": cls,
            "command": [sys.executable, "-W", "ignore", str(PROGRAMS / "long.py"), *arguments],
            "env": {variable: self._environ[variable] for variable in kept},
            "grace": "1s",
            "resources": {"accelerators": {"count": 1, "share": cls, "memory": "512MiB"}, "cpus": 0.5},
        }))  # fmt: skip
        return json.loads(self("submit", str(path), "--json"))["id"]  # type: ignore[no-any-return]

    def show(self, job_id: str) -> Any:
        return json.loads(self("show", job_id, "--json"))


@pytest.fixture
def server(tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("SHOAL_DEVICE_FOLDER", str(tmp_path / "pages"))
    (tmp_path / "home").mkdir()
    shoal = Server(tmp_path / "home", environment | {"SHOAL_DEVICE_FOLDER": str(tmp_path / "pages")})
    shoal("up", "--set", "device.enabled=on", "--set", "device.types=cpu", "--port", "0", "--slots", "1", "--detach")
    yield shoal
    for job in json.loads(shoal("jobs", "--state", "running", "--json"))["jobs"]:
        shoal("cancel", job["id"])
    shoal("down")


@pytest.mark.slow
def test_a_guaranteed_and_a_best_effort_job_share_a_device(server: Server) -> None:
    train = server.submit("train", "best-effort", "4000000", "64")  # never done
    by_name: dict[str, Any] = {}
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and not by_name.get(f"{train}.0"):
        by_name = _occupants()
    serve = server.submit("serve", "guaranteed", "1000", "8")
    together = False
    while time.monotonic() < until and not together:  # a question to the server would take longer than the job
        together = _occupants().keys() >= {f"{train}.0", f"{serve}.0"}
    server("wait", serve)
    assert server.show(serve)["state"] == "SUCCEEDED"
    assert "ran 1000 1000" in server("logs", serve)
    assert server.show(train)["state"] == "RUNNING"
    assert together
    status = json.loads(server("device", "status", "--json"))
    (train_now,) = [one for device in status for one in device["programs"] if one["name"] == f"{train}.0"]
    assert train_now["pieces"] > 0
    where = [rank["devices"] for rank in server.show(train)["attempts"][0]["ranks"]]
    assert where == [rank["devices"] for rank in server.show(serve)["attempts"][0]["ranks"]]


def _occupants() -> dict[str, Any]:
    found = {}
    for page in seats.pages():
        with page:
            found.update({one.name: one for one in page.occupants()})
    time.sleep(0.02)
    return found
