"""A newcomer's way through planes, on a real server, by the command line alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shoal.base.home import Home, stop_server
from shoal.base.processes import kill_until_none
from shoal.cli.app import app
from shoal.control.server import start_detached
from shoal.engine.local.processes import marked


class Site:
    """The shared server's home, and what the command line says: to it, or to a plane."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def shared(self, *words: str, code: int = 0) -> str:
        return self._say(words, code, {"SHOAL_HOME": str(self.home.path)})

    def at(self, plane: dict[str, str], *words: str, code: int = 0) -> str:
        return self._say(words, code, {"SHOAL_URL": plane["url"], "SHOAL_TOKEN": plane["token"]})

    def _say(self, words: tuple[str, ...], code: int, env: dict[str, str]) -> str:
        kept = {name: None for name in os.environ if name.startswith("SHOAL_")}
        done = CliRunner().invoke(app, list(words), env={**kept, **env, "COLUMNS": "200"})
        assert done.exit_code == code, (words, done.output)
        return done.output


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    home = Home(tmp_path / "home")
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "4"], home)
    yield Site(home)
    stop_server(home, timeout_s=20)
    kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)


def test_a_team_gets_a_plane_works_in_it_and_the_operator_keeps_it(site: Site, tmp_path: Path) -> None:
    shared, at = site.shared, site.at
    shared("tenant", "create", "vision", "--sandbox", "none")
    assert "there is no tenant 'speech'" in shared("plane", "create", "p", "--tenant", "speech", code=2)
    plane = json.loads(shared("plane", "create", "vision", "--tenant", "vision", "--json"))
    assert plane["url"].endswith("/planes/vision")

    # In the plane everything is as on a server of one's own.
    at(plane, "tenant", "create", "detection")
    manifest = tmp_path / "job.yaml"
    manifest.write_text("name: fit\ntenant: detection\ncommand: [sleep, '1']\nresources: {accelerators: 'cpu:1'}\n")
    job = json.loads(at(plane, "submit", str(manifest), "--json"))["id"]
    machines = _machines(site, plane)
    assert machines[0]["job_ids"] == [job]
    assert machines[0]["name"] in at(plane, "nodes")
    at(plane, "wait", job)
    assert job not in shared("jobs", "--state", "SUCCEEDED")

    # What the operator sees of it.
    assert "vision" in shared("plane", "list")
    assert json.loads(shared("plane", "show", "vision", "--json"))["running"] == 0
    (used,) = json.loads(shared("plane", "usage", "--price", "cpu=3600", "--json"))
    assert used["jobs"] == 1
    assert used["dollars"] == pytest.approx(used["accelerator_hours"]["cpu"] * 3600)
    assert 0.9 <= used["dollars"] < 10
    table = shared("plane", "usage", "vision", "--since", "1h")
    assert "CPU H" in table
    assert "$" not in table
    assert "which has no price" in shared("plane", "usage", "--price", "a100=1", code=2)
    assert "is no price" in shared("plane", "usage", "--price", "a100", code=2)
    lines = [json.loads(line) for line in shared("plane", "audit", "vision", "--json").splitlines()]
    assert ("job.submitted", job) in [(one["kind"], one["job_id"]) for one in lines]
    assert f"job.submitted  detection {job}" in shared("plane", "audit", "vision")
    assert shared("plane", "audit", "vision", "--since", "2100-01-01") == ""

    # Copies.
    copy = tmp_path / "vision.backup"
    shared("plane", "backup", "vision", str(copy))
    twin = json.loads(shared("plane", "import", "twin", str(copy), "--tenant", "vision", "--json"))
    assert [one["id"] for one in json.loads(at(twin, "jobs", "--json"))["jobs"]] == [job]
    at(plane, "tenant", "create", "later")
    shared("plane", "restore", "vision", str(copy))
    assert "later" not in at(plane, "tenant", "list")

    # Its admin has lost the token.
    again = json.loads(shared("plane", "token", "vision", "--json"))
    assert again["token"] != plane["token"]
    assert job in at(again, "jobs")
    assert f"export SHOAL_URL={plane['url']}" in shared("plane", "token", "vision")

    # Closed for a while, and removed.
    shared("plane", "suspend", "vision")
    assert "plane vision is suspended" in at(plane, "jobs", code=4)
    shared("plane", "resume", "vision")
    manifest.write_text("name: long\ntenant: detection\ncommand: [sleep, '600']\nresources: {accelerators: 'cpu:1'}\n")
    at(plane, "submit", str(manifest))
    _machines(site, plane)
    assert "1 jobs in the shared pool that are not over: long (RUNNING)" in shared("plane", "delete", "vision", code=6)
    shared("plane", "delete", "vision", "--force")
    assert "there is no plane 'vision'" in at(plane, "jobs", code=3)


def _machines(site: Site, plane: dict[str, str]) -> list[dict[str, Any]]:
    """Those that the plane's jobs run on, once there is one."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        (pool,) = json.loads(site.at(plane, "nodes", "--json"))["nodes"]
        if found := pool["machines"]:
            return list(found)
        time.sleep(0.05)
    raise AssertionError("nothing of the plane runs")
