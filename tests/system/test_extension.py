"""The example extension, installed as a stranger would: it joins by its entry points, and no file of Shoal changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "extension"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extension")
    source = shutil.copytree(EXAMPLE, folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target"]
    subprocess.run([*pip, str(folder / "installed"), str(source)], check=True)
    return folder / "installed"


class Shoal:
    def __init__(self, home: Path, installed: Path) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        self._environ = {**own, "SHOAL_HOME": str(home), "PYTHONPATH": str(installed)}

    def __call__(self, *words: str) -> Any:
        """What a command prints as JSON."""
        done = subprocess.run(
            [sys.executable, "-m", "shoal.cli", *words, "--json"],
            env=self._environ, capture_output=True, text=True, check=False, timeout=100,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def up(self, opens: datetime, closes: datetime) -> None:
        hours = [f"curfew.opens={opens:%H:%M}", f"curfew.closes={closes:%H:%M}"]
        self("up", "--detach", "--port", "0", "--slots", "1", "--set", hours[0], "--set", hours[1])


@pytest.fixture
def shoal(tmp_path: Path, installed: Path) -> Iterator[Shoal]:
    shoal = Shoal(tmp_path / "home", installed)
    yield shoal
    shoal("down")


def submit(shoal: Shoal, folder: Path, name: str, **fields: object) -> str:
    manifest = folder / f"{name}.json"
    manifest.write_text(json.dumps({"name": name, "command": ["true"], **fields}))
    found: str = shoal("submit", str(manifest))["id"]
    return found


@pytest.mark.slow
def test_its_settings_table_loop_decision_cause_and_command_are_the_servers(shoal: Shoal, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    assert "curfew.opens" in {row["name"] for row in shoal("settings")}
    shoal.up(now + timedelta(hours=2), now + timedelta(hours=3))
    found = shoal("curfew")
    assert (found["figures"][0]["value"], found["parts"][0]["rows"]) == (False, [])
    kept = submit(shoal, tmp_path, "kept", labels={"curfew": "yes"})
    free = submit(shoal, tmp_path, "free")
    assert shoal("wait", free)
    told = shoal("explain", kept)
    assert told["causes"][0]["cause"] == "curfew"
    assert told["summary"].startswith(f"waits for {now + timedelta(hours=2):%H:%M} UTC")
    assert shoal("show", kept)["state"] == "QUEUED"
    shoal("down")
    shoal.up(now - timedelta(hours=1), now + timedelta(hours=2))
    assert shoal("curfew")["figures"][0]["value"]
    shoal("wait", kept)
    assert shoal("show", kept)["state"] == "SUCCEEDED"
    shoal("down")
    shoal.up(now + timedelta(hours=2), now + timedelta(hours=3))
    assert [f"{now:%F}"] in shoal("curfew")["parts"][0]["rows"], "its table outlives the server"
