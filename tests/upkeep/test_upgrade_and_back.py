"""From one release to the next and back, with a job and a service that run all the while: real servers, real processes.

The next release is this one's sources with one more revision of the store's tables.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import shoal
from shoal.base.home import Home, running_server, stop_server
from shoal.base.processes import kill_until_none
from shoal.contract.lifecycle import JobState
from shoal.engine.local.processes import marked
from shoal.sdk import Client
from shoal.serve import contract
from shoal.store import Database, standings
from shoal.store.schema import HEAD
from tests.system.test_services import QUESTION, manifest, until

SOURCES = Path(shoal.__file__).parent
NEXT = "9999"
REVISION = f'''
"""One more column."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "{NEXT}", "{HEAD}"
branch_labels = depends_on = None


def upgrade() -> None:
    op.add_column("tenant", sa.Column("colour", sa.Text(), nullable=False, server_default="blue"))
'''


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the next release is."""
    folder = tmp_path_factory.mktemp("next")
    shutil.copytree(SOURCES, folder / "shoal", copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"))
    store = folder / "shoal" / "store"
    (store / "migrations" / "versions" / f"{NEXT}_a_column.py").write_text(REVISION)
    text = (store / "schema.py").read_text()
    (store / "schema.py").unlink()
    (store / "schema.py").write_text(text.replace(f'HEAD = "{HEAD}"', f'HEAD = "{NEXT}"'))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    stop_server(home, timeout_s=20)
    kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)
    status = contract.read_status(home.serve_folder)
    if status is not None:  # the gateway outlives servers
        with contextlib.suppress(ProcessLookupError):
            os.kill(status.pid, signal.SIGKILL)


class Release:
    """A Shoal at the command line; `folder` has its sources, if they are not the installed ones."""

    def __init__(self, home: Home, folder: Path | None = None) -> None:
        self.home = home
        self._env = {**os.environ, "SHOAL_HOME": str(home.path)}
        if folder is not None:
            self._env["PYTHONPATH"] = str(folder)

    def __call__(self, *words: str, code: int = 0) -> str:
        line = [sys.executable, "-m", "shoal.cli", *words]
        done = subprocess.run(line, env=self._env, cwd=self.home.path.parent, capture_output=True, timeout=300)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return (done.stderr if code else done.stdout).decode()

    def up(self) -> None:
        self("up", "--detach", "--port", "0", "--slots", "2")

    def down(self) -> None:
        stop_server(self.home, timeout_s=30)
        assert running_server(self.home) is None

    def check(self, code: int = 0) -> dict[str, Any]:
        line = [sys.executable, "-m", "shoal.cli", "upgrade", "check", "--json"]
        done = subprocess.run(line, env=self._env, capture_output=True, timeout=300)
        assert done.returncode == code, done.stderr
        return dict(json.loads(done.stdout))


def works(client: Client, job: str, pid: int, token: str) -> None:
    """The same processes as before do the job, and serve."""
    until(lambda: client.job(job).state is JobState.RUNNING)
    assert client.job(job).attempt == 1
    assert client.log_piece(job).data.decode().split() == [str(pid)]
    os.kill(pid, 0)
    ready = client.services.wait_ready("multiply", timeout_s=60)
    assert ready.endpoints is not None
    url, headers = f"{ready.endpoints.http}/v2/models/times/infer", {"authorization": f"Bearer {token}"}

    def answer() -> list[float] | None:
        response = httpx.post(url, json=QUESTION, headers=headers, timeout=10)
        return response.json()["outputs"][0]["data"] if response.status_code == 200 else None

    assert until(answer) == [2.0, 5.0]


def revision(home: Home) -> str | None:
    database = Database(home.database)
    found = standings(database)
    database.close()
    return found[0].revision


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_jobs_and_services_run_through_an_upgrade_and_back(home: Home, newer: Path, tmp_path: Path) -> None:
    old, new = Release(home), Release(home, newer)
    assert old.check()["tables"] == []
    old.up()
    with Client(home=home.path, environ={}) as client:
        client.create_tenant("ada", sandbox="none")
        token = client.create_token("ada").token
        wanted = ["sh", "-c", "echo $$; while [ ! -e go ]; do sleep 0.2; done"]
        job = client.submit({"name": "steady", "command": wanted, "resources": {"cpus": 0.1}}).id
        client.services.deploy(manifest(tmp_path / "service", 2), tenant="ada")
        client.services.wait_ready("multiply", timeout_s=100)
        pid = int(until(lambda: client.log_piece(job).data.decode().split())[0])
        works(client, job, pid, token)

        told = new.check()
        changed = {one["tables"]: one["does"] for one in told["tables"] if one["does"] != "nothing"}
        assert changed == {"store": "migrated"}
        assert told["disk"]["fits"]
        kept = {(one["kind"], one["name"]): one["then"] for one in told["kept"]}
        assert kept == {
            ("job", "steady"): "its processes run on, and are adopted",
            ("service", "multiply"): "its replicas serve on",
        }
        assert revision(home) == HEAD  # it only looked

        old.down()
        new.up()
        works(client, job, pid, token)
        assert revision(home) == NEXT
        (backup,) = (home.path / "backups").glob("before-upgrade-*.tar")
        assert backup.stat().st_mode & 0o777 == 0o600

        new.down()
        refused = old("up", "--detach", "--port", "0", code=6)
        assert f"schema revision '{NEXT}', which this Shoal does not know" in refused
        assert f"shoal restore {backup} --force" in refused
        assert any("a newer one made it" in one for one in old.check(code=1)["obstacles"])
        os.kill(pid, 0)

        old("restore", str(backup), "--force")
        assert revision(home) == HEAD
        old.up()
        works(client, job, pid, token)
        (home.path / str(client.job(job).run_dir) / "go").touch()
        until(lambda: client.job(job).state is JobState.SUCCEEDED)


def test_a_home_of_the_first_release_is_checked_and_not_touched(tmp_path: Path) -> None:
    home = Home(tmp_path)
    release = Path(__file__).parents[1] / "store" / "homes" / "0.1.0.sql"
    with sqlite3.connect(tmp_path / "shoal.db") as connection:
        connection.executescript(release.read_text())
    connection.close()
    before = (tmp_path / "shoal.db").read_bytes()
    told = Release(home).check()
    assert {one["does"] for one in told["tables"] if one["tables"] != "serve"} == {"nothing", "made"}
    assert [one["does"] for one in told["tables"] if one["tables"] == "serve"] == ["migrated"]
    assert {one["name"]: one["then"] for one in told["kept"]} == {
        "steady": "its processes run on, and are adopted", "later": "waits on",
    }  # fmt: skip
    assert told["obstacles"] == []
    assert (tmp_path / "shoal.db").read_bytes() == before
    with sqlite3.connect(tmp_path / "shoal.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0042'")
    connection.close()
    assert "'0042'" in Release(home).check(code=1)["obstacles"][0]
    with (tmp_path / "shoal.db").open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(40_000))
    assert "damaged" in " ".join(Release(home).check(code=1)["obstacles"])
