"""`shoal up --engine ray` on a real cluster of two nodes: the same manifests and commands, and nothing lost."""

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
from clusters.ray import PrivateRay

from tests.engine.ray_kit import needs_ray
from tests.servers import kill_for_good

pytestmark = needs_ray

_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateRay]:
    with PrivateRay((2, 2)) as cluster:
        yield cluster


class Site:
    """A server on the cluster, driven by the command line alone."""

    def __init__(self, home: Path, cluster: PrivateRay) -> None:
        self.cluster = cluster
        self.environ = {**os.environ, "SHOAL_HOME": str(home), "SHOAL_RAY__ADDRESS": cluster.address}

    def shoal(self, *words: str, fails: bool = False, stdin: str = "") -> str:
        done = subprocess.run(
            [*self.cluster.inside, sys.executable, "-m", "shoal.cli", *words], env=self.environ, capture_output=True,
            text=True, input=stdin, check=False,
            timeout=60,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def up(self) -> int:
        told = json.loads(self.shoal("up", "--detach", "--engine", "ray", "--port", "0", "--json"))
        return int(told["pid"])

    def until(self, name: str, state: str) -> None:
        ends_at = time.monotonic() + _WITHIN_S
        while (job := json.loads(self.shoal("show", name, "--json")))["state"] != state:
            assert time.monotonic() < ends_at, job
            time.sleep(0.2)


def _job(name: str, command: str, **more: Any) -> str:
    resources = {"accelerators": more.pop("each", 1), "memory": "64MiB"}
    return json.dumps({"name": name, "command": ["sh", "-c", command], "resources": resources, **more})


@pytest.mark.slow
def test_a_gang_over_two_nodes_outlives_its_server(cluster: PrivateRay, tmp_path: Path) -> None:
    site = Site(tmp_path / "home", cluster)
    server = site.up()
    try:
        said = "echo rank $RANK of $WORLD_SIZE on node $NODE_RANK at $MASTER_ADDR; sleep 5; echo done once"
        site.shoal("submit", "-", stdin=_job("wide", said, ranks=2, ranks_per_node=1, each=2))
        site.until("wide", "RUNNING")
        kill_for_good(server)
        site.up()
        site.until("wide", "SUCCEEDED")
        for rank in (0, 1):
            log = site.shoal("logs", "wide", "--rank", str(rank))
            assert log == f"rank {rank} of 2 on node {rank} at 127.0.0.1\ndone once\n"
    finally:
        site.shoal("down")


@pytest.mark.slow
def test_a_job_whose_node_dies_begins_again_on_another(tmp_path: Path) -> None:
    with PrivateRay((0, 1, 1)) as cluster:
        site = Site(tmp_path / "home", cluster)
        site.environ["SHOAL_RAY__LEASE_S"] = "3"
        site.up()
        try:
            site.shoal("submit", "-", stdin=_job("moves", "echo attempt $SHOAL_ATTEMPT; sleep 8; echo done"))
            site.until("moves", "RUNNING")
            (first,) = json.loads(site.shoal("show", "moves", "--json"))["attempts"]
            cluster.kill_node(first["ranks"][0]["node"])
            site.until("moves", "SUCCEEDED")
            first, second = json.loads(site.shoal("show", "moves", "--json"))["attempts"]
            assert (first["outcome"], first["error_code"]) == ("lost", "I102-node-lost")
            assert second["ranks"][0]["node"] not in ("", first["ranks"][0]["node"])
            assert site.shoal("logs", "moves") == "attempt 2\ndone\n"
            print(f"seen and begun again after {second['running_at'] - first['ended_at']:.1f} s")
        finally:
            site.shoal("down")


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_named_at_once(cluster: PrivateRay, tmp_path: Path) -> None:
    site = Site(tmp_path / "home", cluster)
    site.environ["SHOAL_RAY__ADDRESS"] = "127.0.0.1:1"
    told = site.shoal("up", "--detach", "--engine", "ray", "--port", "0", fails=True)
    assert "no Ray cluster answers at 127.0.0.1:1" in told
    assert "no Ray cluster answers at 127.0.0.1:1" in site.shoal("doctor", "--engine", "ray", fails=True)


def test_doctor_tells_what_the_cluster_has(cluster: PrivateRay, tmp_path: Path) -> None:
    told = Site(tmp_path / "home", cluster).shoal("doctor", "--engine", "ray")
    assert "4 on 2 nodes: h200" in told
