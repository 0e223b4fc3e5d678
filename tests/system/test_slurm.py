"""`shoal up --engine slurm` on real daemons: the same manifests and commands as on one machine, and nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters.slurm import PrivateSlurm

from shoal.base.home import Home
from tests.engine.slurm_kit import needs_slurm
from tests.servers import kill_for_good

pytestmark = needs_slurm

_WITHIN_S = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateSlurm]:
    with PrivateSlurm((2, 2)) as cluster:
        yield cluster


class Site:
    """A server on the cluster, driven by the command line alone."""

    def __init__(self, home: Path, cluster: PrivateSlurm, *, delegate: bool) -> None:
        self.home = home
        self.environ = {**os.environ, **cluster.environment, "SHOAL_HOME": str(home)}
        self.environ["SHOAL_SLURM__DELEGATE"] = str(delegate)

    def shoal(self, *words: str, fails: bool = False, stdin: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "shoal.cli", *words], env=self.environ, capture_output=True, text=True, input=stdin,
            check=False,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def up(self) -> int:
        told = json.loads(self.shoal("up", "--detach", "--engine", "slurm", "--port", "0", "--json"))
        return int(told["pid"])

    def submit(self, manifest: dict[str, Any]) -> None:
        self.shoal("submit", "-", stdin=json.dumps(manifest))

    def job(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.shoal("show", name, "--json"))
        return found

    def until(self, name: str, state: str) -> dict[str, Any]:
        ends_at = time.monotonic() + _WITHIN_S
        while (job := self.job(name))["state"] != state:
            assert time.monotonic() < ends_at, job
            time.sleep(0.1)
        return job


@pytest.fixture(
    scope="module",
    params=[pytest.param(True, id="delegated", marks=pytest.mark.slow), pytest.param(False, id="placed")],
)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cluster: PrivateSlurm
) -> Iterator[Site]:
    """One server for all its tests: each leaves no job that is not over."""
    site = Site(tmp_path_factory.mktemp("site") / "home", cluster, delegate=request.param)
    site.up()
    try:
        yield site
    finally:
        for job in json.loads(site.shoal("jobs", "--json"))["jobs"]:
            if job["state"] not in ("SUCCEEDED", "FAILED", "CANCELLED"):
                site.shoal("cancel", job["id"])
                site.until(job["id"], "CANCELLED")
        site.shoal("down")


def _job(name: str, command: str, *, ranks: int = 1, each: int = 1) -> dict[str, Any]:
    return {"name": name, "command": ["sh", "-c", command], "ranks": ranks, "resources": {"accelerators": each}}


def test_a_gang_over_two_nodes_runs_and_its_log_is_read(site: Site) -> None:
    site.submit(_job("wide", "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR", ranks=2, each=2))
    site.until("wide", "SUCCEEDED")
    assert "rank 0 of 2 at 127.0.0.1" in site.shoal("logs", "wide")


@pytest.mark.slow
def test_a_killed_server_finds_its_job_again(site: Site) -> None:
    site.submit(_job("long", "sleep 3; echo done once"))
    site.until("long", "RUNNING")
    kill_for_good(Home(site.home))
    site.up()
    job = site.until("long", "SUCCEEDED")
    assert job["attempt"] == 1
    assert site.shoal("logs", "long").count("done once") == 1


@pytest.mark.slow
def test_a_job_that_waits_says_for_what(site: Site) -> None:
    site.submit(_job("full", "sleep 60", ranks=2, each=2))
    site.until("full", "RUNNING")
    site.submit(_job("waits", "true"))
    ends_at = time.monotonic() + _WITHIN_S
    delegated = site.environ["SHOAL_SLURM__DELEGATE"] == "True"
    wanted = "Slurm: " if delegated else "free"
    while wanted not in (said := site.shoal("explain", "waits")) and time.monotonic() < ends_at:
        time.sleep(0.2)
    assert wanted in said
    site.shoal("cancel", "full")
    site.until("waits", "SUCCEEDED")


def test_the_doctor_looks_at_every_node(tmp_path: Path, cluster: PrivateSlurm) -> None:
    site = Site(tmp_path / "home", cluster, delegate=True)
    told = json.loads(site.shoal("doctor", "--engine", "slurm", "--json"))["capabilities"]
    found = {one["name"]: one for one in told}
    assert found["shared-directory"]["available"]
    assert "n1, n2" in found["shared-directory"]["detail"]
    assert found["python"]["available"]
    assert "memory is looked at" in found["limits"]["consequence"]
    for one in told:
        assert one["available"] or one["consequence"], one


def test_a_server_without_its_cluster_says_so_at_once(tmp_path: Path, cluster: PrivateSlurm) -> None:
    site = Site(tmp_path / "home", cluster, delegate=True)
    site.environ["SHOAL_SLURM__PARTITION"] = "nowhere"
    said = site.shoal("up", "--engine", "slurm", "--port", "0", fails=True)
    assert "there is no partition 'nowhere'" in said
    assert "shoal, urgent" in said
