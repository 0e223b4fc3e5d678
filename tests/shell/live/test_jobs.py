"""Jobs that name sites, on a server as users start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal.shell.agent.client import stop
from tests.shell.conftest import SSH, World

SHOAL = str(Path(sys.executable).with_name("shoal"))


def shoal(home: Path, *words: str, code: int | None = 0) -> str:
    environ = {**os.environ, "SHOAL_HOME": str(home)}
    done = subprocess.run([SHOAL, *words], capture_output=True, text=True, env=environ, timeout=100, check=False)
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_commands_of_a_job_run_on_its_sites(own_world: World, tmp_path: Path) -> None:
    home = own_world.base / "server"
    wrapper = tmp_path / "bin"
    wrapper.mkdir()
    (wrapper / "ssh").write_text(f'#!/bin/sh\nexec {sys.executable} {SSH} "$@"\n')
    (wrapper / "ssh").chmod(0o755)
    os.environ["PATH"] = f"{wrapper}:{os.environ['PATH']}"
    home.mkdir()
    (home / "config.yaml").write_text(json.dumps({"shell": {"sites": {
        "store": {"host": "store", "mounts": {str(own_world.mnt): str(own_world.base / "srv")}},
        "closed": {"host": "closed", "mounts": {"/mnt/closed": "/srv"}, "tenants": ["nobody"]},
    }}}))  # fmt: skip
    shoal(home, "up", "--detach", "--port", "0")
    try:
        script = f"grep -c alpha {own_world.mnt}/a.txt; env | grep -c SHOAL_SHELL; true"
        job = {"command": ["bash", "-c", script]}
        for name, sites in (("prep", ["store"]), ("held", ["closed"])):
            path = tmp_path / f"{name}.json"
            path.write_text(json.dumps({**job, "name": name, "extensions": {"shell": {"sites": sites}}}))
            shoal(home, "submit", str(path))
        until = time.monotonic() + 60
        while '"SUCCEEDED"' not in (told := shoal(home, "show", "prep", "--json")):
            assert time.monotonic() < until, told
            time.sleep(0.3)
        assert shoal(home, "logs", "prep") == "3000\n0\n"
        assert "that tenant default may use" in shoal(home, "explain", "held")
        status = json.loads(shoal(home, "status", "--json"))
        assert "shell" in json.dumps(status)
        log = home / "shell-agents" / "default" / "shell" / "runs"
        assert any('"where": "store"' in one.read_text() for one in log.glob("*.jsonl"))
    finally:
        shoal(home, "down", code=None)
        os.environ["PATH"] = os.environ["PATH"].partition(":")[2]
        stop(home / "shell-agents" / "default")
