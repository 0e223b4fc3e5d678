"""`shoal up --engine kubernetes` on our own small cluster: a job over two nodes, and a server killed meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.engine.kubernetes_kit import H200
from tests.engine.kubernetes_server import fake_cluster, kubeconfig
from tests.servers import kill_for_good

pytest.importorskip("lightkube", reason="the Kubernetes client is not installed")

_WITHIN_S = 30.0


@pytest.mark.slow
def test_a_job_over_two_nodes_outlives_its_server(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with fake_cluster() as (cluster, url):
        for name in ("n1", "n2"):
            cluster.add_node(name, cpus=4, gpus=1, labels=H200)
        (tmp_path / "kubeconfig").write_text(kubeconfig(url, cluster.token))
        environ = {
            **os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig"), "SHOAL_HOME": str(home),
            "SHOAL_KUBERNETES__IMAGE": "fake", "SHOAL_KUBERNETES__PYTHON": os.path.realpath(sys.executable),
        }  # fmt: skip

        def shoal(*words: str, stdin: str = "") -> str:
            command = [sys.executable, "-m", "shoal.cli", *words]
            done = subprocess.run(command, env=environ, capture_output=True, text=True, input=stdin, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        def until(state: str) -> dict[str, Any]:
            ends_at = time.monotonic() + _WITHIN_S
            while (job := json.loads(shoal("show", "wide", "--json")))["state"] != state:
                assert time.monotonic() < ends_at, job
                time.sleep(0.1)
            return dict(job)

        up = ("up", "--detach", "--engine", "kubernetes", "--port", "0", "--json")
        server = int(json.loads(shoal(*up))["pid"])
        try:
            script = "sleep 3; echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR"
            manifest = {
                "name": "wide", "command": ["sh", "-c", script], "ranks": 2,
                "resources": {"accelerators": {"type": "nvidia-h200", "count": 1}},
            }  # fmt: skip
            shoal("submit", "-", stdin=json.dumps(manifest))
            until("RUNNING")
            kill_for_good(server)
            shoal(*up)
            job = until("SUCCEEDED")
            assert job["attempt"] == 1
            assert "rank 0 of 2 at 127.0.0.1" in shoal("logs", "wide")
            assert [path for method, path in cluster.requests if method == "POST" and path.endswith("/jobs")] == [
                "/apis/batch/v1/namespaces/default/jobs"
            ]
        finally:
            shoal("down")
