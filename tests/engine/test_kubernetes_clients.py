"""The API server of our tests, tried with clients that others wrote: it is to be what they expect, not what we do."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.kubernetes_server import FakeCluster, fake_cluster, kubeconfig

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "labels": {"of": "tests"}},
    "spec": {
        "completions": 1, "parallelism": 1, "completionMode": "Indexed",
        "template": {
            "spec": {
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "rank", "image": "i", "command": ["sh", "-c", "exit 3"], "resources": {}}],
            },
        },
    },
}  # fmt: skip


def kubectl(config: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = ["kubectl", "--kubeconfig", str(config), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_finds_in_our_api_server_what_it_expects(tmp_path: Path) -> None:
    with fake_cluster(token="") as (cluster, url):
        cluster.add_node("n1", gpus=2)
        config = tmp_path / "kubeconfig"
        config.write_text(kubeconfig(url, ""))
        create = ("create", "--validate=false", "-f", "-")
        assert kubectl(config, *create, stdin=json.dumps(JOB)).stdout == "job.batch/x created\n"
        assert "AlreadyExists" in kubectl(config, *create, stdin=json.dumps(JOB)).stderr
        assert "condition met" in kubectl(config, "wait", "--for=condition=failed", "job/x", "--timeout=20s").stdout
        told = kubectl(config, "get", "pods", "-l", "batch.kubernetes.io/job-name=x", "-o", "json")
        (found,) = json.loads(told.stdout)["items"]
        assert found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        assert "cordoned" in kubectl(config, "cordon", "n1").stdout
        assert cluster.node("n1")["spec"]["unschedulable"] is True
        assert "deleted" in kubectl(config, "delete", "job", "x").stdout
        assert kubectl(config, "get", "pods", "-o", "name").stdout == ""
        assert "NotFound" in kubectl(config, "get", "job", "x").stderr


def test_an_update_of_an_old_version_is_a_conflict() -> None:
    import httpx2

    with fake_cluster(token="") as (cluster, url):
        cluster.add_node("n1")
        where = f"{url}/api/v1/nodes/n1"
        old = httpx2.get(where).json()
        assert httpx2.put(where, json=old).status_code == 200
        assert httpx2.put(where, json=old).json()["reason"] == "Conflict"
        assert httpx2.get(f"{url}/api/v1/pods/none/none").status_code == 404


# --- kr8s: what it finds out about an API server it asks that server ---


pytestmark = pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported")


@pytest.fixture
async def kr8s(tmp_path: Path) -> AsyncIterator[tuple[FakeCluster, Any]]:
    module = pytest.importorskip("kr8s.asyncio", reason="the second Kubernetes client is not installed")
    with fake_cluster(token="") as (cluster, url):
        cluster.add_node("n1", gpus=2)
        config = tmp_path / "kubeconfig"
        config.write_text(kubeconfig(url, ""))
        yield cluster, await module.api(kubeconfig=str(config))


async def test_kr8s_follows_a_job_from_its_creation_to_its_end(kr8s: tuple[FakeCluster, Any]) -> None:
    from kr8s import NotFoundError, ServerError
    from kr8s.asyncio.objects import Job

    cluster, api = kr8s
    seen: list[tuple[str, str]] = []

    async def follow() -> None:
        async for change, pod in api.watch("pods", label_selector={"batch.kubernetes.io/job-name": "x"}):
            seen.append((change, pod.status.phase))

    following = asyncio.create_task(follow())
    async with asyncio.timeout(20):
        while not any("watch" in path for _, path in cluster.requests):
            await asyncio.sleep(0.01)
    job = await Job(JOB, api=api)
    await job.create()
    with pytest.raises(ServerError, match="already exists"):
        await (await Job(JOB, api=api)).create()
    async with asyncio.timeout(20):
        await job.wait("condition=Failed")
        (pod,) = [each async for each in api.get("pods", label_selector={"batch.kubernetes.io/job-name": "x"})]
        assert pod.status.containerStatuses[0].state.terminated.exitCode == 3
        assert [each async for each in api.get("pods", label_selector={"batch.kubernetes.io/job-name": "y"})] == []
        await job.delete(propagation_policy="Background")
        while await job.exists() or await pod.exists() or ("DELETED", "Failed") not in seen:
            await asyncio.sleep(0.02)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert seen[0] == ("ADDED", "Pending")
    assert ("MODIFIED", "Failed") in seen
    with pytest.raises(NotFoundError):
        await job.refresh()


async def test_kr8s_changes_labels_and_annotations_and_suspends(kr8s: tuple[FakeCluster, Any]) -> None:
    from kr8s.asyncio.objects import Job, Node

    cluster, api = kr8s
    job = await Job({**JOB, "spec": {**JOB["spec"], "suspend": True}}, api=api)
    await job.create()
    await job.label({"team": "red"})
    await job.annotate({"why": "a test"})
    assert cluster.list("pods") == []
    (found,) = [each async for each in api.get("jobs", label_selector={"of": "tests", "team": "red"})]
    assert found.annotations["why"] == "a test"
    await job.patch({"spec": {"suspend": False}})
    async with asyncio.timeout(20):
        await job.wait("condition=Failed")
    node = await Node.get("n1", api=api)
    await node.cordon()
    assert cluster.node("n1")["spec"]["unschedulable"] is True
    assert node.status.allocatable["nvidia.com/gpu"] == "2"
