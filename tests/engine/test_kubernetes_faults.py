"""The Kubernetes engine when its cluster refuses, forgets, preempts, loses nodes, or does not answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shoal.core import Fault, Invalid, Unavailable
from shoal.engine import Gang, GangStatus, LaunchFailed, Phase, RankSpec
from shoal.engine.kubernetes import KubernetesEngine, KubernetesSettings, probe_cluster
from shoal.engine.kubernetes.jobs import read_jobs
from shoal.engine.protocol import EngineOptions, Refused
from tests.engine.conformance import Print, RunForever, Succeed
from tests.engine.kubernetes_kit import KubernetesKit, kubernetes_kit
from tests.engine.kubernetes_server import fake_cluster, kubeconfig

pytest.importorskip("lightkube", reason="the Kubernetes client is not installed")

NAME = "a.1.run"


@pytest.fixture
async def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubernetesKit]:
    async with kubernetes_kit(tmp_path, monkeypatch) as kit:
        yield kit


def queued(status: GangStatus) -> bool:
    return status.phase is Phase.QUEUED and status.reason is not None


def wide(kit: KubernetesKit, devices: int, ranks: int = 1, **more: Any) -> Gang:
    """Each rank runs for ever on so many accelerators."""
    places = tuple(f"{kit.device}{index}" for index in range(devices))
    env = kit._env(RunForever())
    specs = tuple(RankSpec(rank, kit.node, places, env) for rank in range(ranks))
    return Gang(NAME, ("behave",), specs, kit.root / "run" / NAME, **more)


# --- waiting ---


async def test_a_gang_that_does_not_fit_is_queued_and_says_what_is_lacking(kit: KubernetesKit) -> None:
    await kit.engine.launch(wide(kit, 9))
    status = await kit.until(lambda now: queued(now) and "Unschedulable" in now.reason.text, NAME)
    assert status.reason is not None
    assert status.reason.code == "resources"
    assert "not enough nvidia.com/gpu is free" in status.reason.text
    kit.cluster.add_node("n3", cpus=16, gpus=9, labels={"nvidia.com/gpu.product": "NVIDIA-H200"})
    running = await kit.until(lambda now: now.phase is Phase.RUNNING, NAME)
    assert running.ranks[0].node == "n3"


async def test_a_queued_gang_is_taken_back_without_a_trace(kit: KubernetesKit) -> None:
    await kit.engine.launch(wide(kit, 9))
    await kit.until(queued, NAME)
    await kit.engine.stop(NAME)
    status = await kit.settle(NAME)
    assert status.ended
    assert status.fault is None


async def test_of_one_rank_per_node_each_has_its_own(kit: KubernetesKit) -> None:
    status = await kit.launch(wide(kit, 1, ranks=2, ranks_per_node=1))
    assert sorted(rank.node for rank in status.ranks) == ["n1", "n2"]


async def test_a_gang_is_kept_in_one_rack_where_it_can(kit: KubernetesKit) -> None:
    for name, rack in (("n3", "r1"), ("n4", "r2"), ("n5", "r1")):
        labels = {"nvidia.com/gpu.product": "NVIDIA-H200", "topology.kubernetes.io/rack": rack}
        kit.cluster.add_node(name, gpus=9, labels=labels)
    status = await kit.launch(wide(kit, 9, ranks=2))
    assert [rank.node for rank in status.ranks] == ["n3", "n5"]


async def test_more_ranks_per_node_cannot_be_promised(kit: KubernetesKit) -> None:
    with pytest.raises(Refused, match="2 ranks on each node"):
        await kit.engine.launch(wide(kit, 1, ranks=4, ranks_per_node=2))
    assert kit.cluster.list("jobs") == []


async def test_a_type_that_no_node_has_is_the_platforms_fault(kit: KubernetesKit) -> None:
    spec = RankSpec(0, kit.node, ("tpu:0",))
    with pytest.raises(LaunchFailed, match="no node of the cluster has tpu; its types are: nvidia-h200") as failure:
        await kit.engine.launch(Gang(NAME, ("true",), (spec,), kit.root / "run"))
    assert failure.value.fault is Fault.PLATFORM


@pytest.mark.parametrize(
    ("image", "code"), [("missing/image", "image"), ("INVALID", "")], ids=["cannot be pulled", "is no name"]
)
async def test_an_image_that_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str, code: str
) -> None:
    async with kubernetes_kit(tmp_path, monkeypatch, image=image) as kit:
        if code:
            await kit.engine.launch(kit.gang(NAME, Succeed()))
            status = await kit.until(lambda now: queued(now) and now.reason.code == code, NAME)
            assert status.reason is not None
            assert "ImagePullBackOff" in status.reason.text
        else:
            with pytest.raises(LaunchFailed, match="its container cannot be started: InvalidImageName") as failure:
                await kit.launch(kit.gang(NAME, Succeed()))
            assert failure.value.fault is Fault.PLATFORM


async def test_kueue_admits_a_gang_when_it_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with kubernetes_kit(tmp_path, monkeypatch, queue="team-{tenant}") as kit:
        await kit.engine.launch(wide(kit, 1, env={"SHOAL_TENANT": "red"}))
        status = await kit.until(lambda now: queued(now) and now.reason.code == "queue", NAME)
        assert status.reason is not None
        assert "Kueue has not admitted it of queue team-red" in status.reason.text
        (job,) = kit.cluster.list("jobs")
        assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-red"
        job["spec"]["suspend"] = False
        kit.cluster.touch("jobs", job)
        await kit.until(lambda now: now.phase is Phase.RUNNING, NAME)


@pytest.mark.parametrize("queue", ["", "team"])
async def test_a_job_that_a_killed_server_had_not_made_whole_is_made_anew_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    async with kubernetes_kit(tmp_path, monkeypatch, queue=queue) as kit:
        api = kit.engine._cluster._api  # type: ignore[attr-defined]
        made, create = asyncio.Event(), api.create

        async def hang(what: Mapping[str, Any]) -> dict[str, Any]:
            if what["kind"] == "Secret":
                made.set()
                await asyncio.Event().wait()
            return await create(what)

        api.create = hang
        gang = kit.script(NAME, "sh", "-c", "sleep 0.2; echo $TOKEN", secrets={"TOKEN": "abc"})
        launching = asyncio.create_task(kit.engine.launch(gang))
        await made.wait()
        (half,) = kit.cluster.list("jobs")
        await kit.engine._list()
        assert kit.cluster.list("jobs") == [half]  # it is about to be made whole
        launching.cancel()
        await asyncio.gather(launching, return_exceptions=True)
        assert kit.cluster.list("pods") == []
        await kit.restart()
        await kit.engine.launch(gang)
        (job,) = kit.cluster.list("jobs")
        assert job["metadata"]["uid"] != half["metadata"]["uid"]
        assert job["spec"]["suspend"] is bool(queue)
        if queue:
            job["spec"]["suspend"] = False
            kit.cluster.touch("jobs", job)
        assert (await kit.settle(NAME)).ranks[0].exit.ok  # type: ignore[union-attr]
        assert await kit.log(NAME) == "abc\n"


async def test_a_job_that_was_not_made_whole_goes_though_none_asks_for_it(kit: KubernetesKit) -> None:
    kit.cluster.failures.append(("PATCH", 403))
    with pytest.raises(LaunchFailed, match="Kubernetes refused it"):
        await kit.engine.launch(kit.gang(NAME, RunForever()))
    async with asyncio.timeout(20):
        while kit.cluster.list("jobs"):
            await asyncio.sleep(0.05)
    assert kit.cluster.list("pods") == []


async def test_a_gang_that_kueue_takes_back_is_lost_and_never_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kubernetes_kit(tmp_path, monkeypatch, queue="team") as kit:
        await kit.engine.launch(kit.gang(NAME, RunForever()))
        (job,) = kit.cluster.list("jobs")
        job["spec"]["suspend"] = False
        kit.cluster.touch("jobs", job)
        await kit.until(lambda now: now.phase is Phase.RUNNING, NAME)
        with kit.cluster.changed:  # Kueue suspends the Job, and its pods are deleted
            job["spec"]["suspend"] = True
            kit.cluster.touch("jobs", job)
            for pod in kit.cluster.pods_of(NAME):
                kit.cluster.delete("pods", pod)
        (rank,) = (await kit.settle(NAME)).ranks
        assert rank.exit is not None
        assert rank.exit.lost
        assert "Kueue suspended its Job" in rank.exit.detail
        async with asyncio.timeout(20):
            while kit.cluster.list("jobs"):
                await asyncio.sleep(0.05)


def test_a_job_whose_secret_was_never_made_is_given_up() -> None:
    """The server was killed just after it had made the Job."""
    made = datetime(2026, 1, 1, tzinfo=UTC)
    waits = {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}
    pod = {
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{"uid": "u"}]},
        "status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waits}}]},
    }
    job = {"metadata": {"uid": "u", "name": "x"}, "spec": {}}
    (young,) = read_jobs([job], [pod], made.timestamp() + 59)
    (old,) = read_jobs([job], [pod], made.timestamp() + 61)
    assert (young.over, young.waiting, young.why_waiting().code) == (False, True, "starting")
    assert old.over
    assert 'secret "x" not found' in old.why_over()


async def test_pod_groups_are_used_where_they_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = frozenset({"scheduling.x-k8s.io"})
    async with kubernetes_kit(tmp_path, monkeypatch, groups=groups) as kit:
        await kit.launch(wide(kit, 1, ranks=2))
        (group,) = kit.cluster.list("podgroups")
        assert group["spec"]["minMember"] == 2
        label = "scheduling.x-k8s.io/pod-group"
        assert {pod["metadata"]["labels"][label] for pod in kit.cluster.list("pods")} == {group["metadata"]["name"]}


# --- ends from outside ---


@pytest.mark.parametrize("reason", ["PreemptionByScheduler", "EvictionByEvictionAPI", "TerminationByKubelet"])
@pytest.mark.slow
async def test_a_pod_that_is_taken_away_is_lost_and_no_failure_of_its_own(kit: KubernetesKit, reason: str) -> None:
    await kit.launch(kit.gang(NAME, RunForever(), ranks=2))
    kit.cluster.disrupt(kit.cluster.pods_of(NAME)[0], reason)
    status = await kit.settle(NAME)
    first = status.ranks[0].exit
    assert first is not None
    assert (first.lost, first.node_lost, first.code) == (True, False, None)
    assert "by the test" in first.detail


async def test_a_container_over_its_memory_limit_is_told_apart(kit: KubernetesKit) -> None:
    await kit.launch(kit.gang(NAME, RunForever()))
    kit.cluster.kill_for_memory(kit.cluster.pods_of(NAME)[0])
    (rank,) = (await kit.settle(NAME)).ranks
    assert rank.exit is not None
    assert (rank.exit.oom, rank.exit.lost) == (True, False)


async def test_a_node_that_stops_answering_is_fenced_before_its_rank_is_lost(kit: KubernetesKit) -> None:
    await kit.launch(kit.gang(NAME, RunForever()))
    await kit.in_effect(NAME)
    assert kit.processes(NAME)
    kit.cluster.lose_node("n1")
    (rank,) = (await kit.settle(NAME)).ranks
    assert rank.exit is not None
    assert (rank.exit.lost, rank.exit.node_lost) == (True, True)
    assert "does not answer" in rank.exit.detail
    assert kit.processes(NAME) == []
    with kit.cluster.changed:  # it comes back
        kit.cluster.silent.clear()


async def test_a_job_that_somebody_deleted_is_lost(kit: KubernetesKit) -> None:
    await kit.launch(kit.gang(NAME, RunForever()))
    (job,) = kit.cluster.list("jobs")
    kit.cluster.delete("jobs", job)
    (rank,) = (await kit.settle(NAME)).ranks
    assert rank.exit is not None
    assert rank.exit.signal is not None or rank.exit.lost


# --- the API server ---


def list_anew(kit: KubernetesKit) -> None:
    """No watch can go on: all is listed."""
    with kit.cluster.changed:
        kit.cluster.version += 1
    kit.cluster.forget_the_past()
    kit.cluster.cut_watches()


@pytest.mark.parametrize("hidden", [{"jobs"}, {"pods"}, {"jobs", "pods"}])
async def test_empty_lists_end_nothing_that_kubernetes_still_runs(kit: KubernetesKit, hidden: set[str]) -> None:
    """They are answered well, again and again; single Jobs are there all the same when they are asked for."""
    await kit.launch(kit.gang(NAME, RunForever()))
    await kit.in_effect(NAME)
    kit.cluster.hidden = hidden
    for _ in range(4):
        lists = kit.cluster.lists
        list_anew(kit)
        await _until(lambda: kit.cluster.lists >= lists + len(hidden))  # noqa: B023
        for _ in range(2):
            await kit.engine.sweep(frozenset(await kit.engine.gangs()))
        assert not (kit.home / "gangs" / NAME / "fenced").exists()
        assert kit.engine._gangs.known[NAME].status.phase is Phase.RUNNING
    assert kit.processes(NAME)
    kit.cluster.hidden = set()
    list_anew(kit)
    await kit.engine.stop(NAME, grace_s=0)
    (rank,) = (await kit.settle(NAME)).ranks
    assert rank.exit is not None
    assert (rank.exit.stopped, rank.exit.lost) == (True, False)


@pytest.mark.parametrize("code", [500, 503, 403])
async def test_lists_that_fail_end_nothing(kit: KubernetesKit, code: int) -> None:
    await kit.launch(kit.gang(NAME, RunForever()))
    await kit.in_effect(NAME)
    kit.cluster.fail(*[code] * 12, method="GET")
    list_anew(kit)
    await _until(lambda: kit.cluster.failures == [])
    await kit.engine.sweep(frozenset(await kit.engine.gangs()))
    assert not (kit.home / "gangs" / NAME / "fenced").exists()
    assert kit.engine._gangs.known[NAME].status.phase is Phase.RUNNING


async def test_a_job_that_is_truly_absent_is_given_up(kit: KubernetesKit) -> None:
    await kit.launch(kit.gang(NAME, RunForever()))
    await kit.in_effect(NAME)
    kit.cluster.hidden = {"jobs", "pods"}
    (job,) = kit.cluster.list("jobs")
    kit.cluster.delete("jobs", job)
    list_anew(kit)
    (rank,) = (await kit.settle(NAME)).ranks
    assert rank.exit is not None
    assert kit.processes(NAME) == []


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.02)


async def test_a_watch_that_is_cut_or_too_old_loses_nothing(kit: KubernetesKit) -> None:
    for number in range(4):
        name = f"a{number}.1.run"
        if number % 2:
            kit.cluster.forget_the_past()
        kit.cluster.cut_watches()
        await kit.launch(kit.gang(name, Succeed()))
        kit.cluster.cut_watches()
        assert (await kit.settle(name)).ended
    watches = [path for _, path in kit.cluster.requests if "watch=" in path]
    assert any("resourceVersion=" in path for path in watches)


async def test_a_launch_waits_while_the_api_server_is_down(kit: KubernetesKit) -> None:
    kit.cluster.fail(503, 429, method="POST")
    await kit.launch(kit.gang(NAME, Print(("once",))))
    await kit.settle(NAME)
    assert await kit.log(NAME) == "once\n"
    assert len(kit.cluster.failures) == 0


async def test_when_only_the_answer_is_lost_the_job_is_found_again(kit: KubernetesKit) -> None:
    kit.cluster.fail(0, method="POST")
    await kit.launch(kit.gang(NAME, Print(("once",))))
    await kit.settle(NAME)
    assert await kit.log(NAME) == "once\n"
    made = [path for method, path in kit.cluster.requests if method == "POST" and path.endswith("/jobs")]
    assert 1 <= len(made) <= 2


async def test_what_the_api_server_refuses_is_no_fault_of_the_user(kit: KubernetesKit) -> None:
    kit.cluster.fail(403, method="POST")
    with pytest.raises(LaunchFailed) as failure:
        await kit.engine.launch(kit.gang(NAME, Succeed()))
    assert failure.value.fault is Fault.PLATFORM
    assert "kubernetes-cluster.md" in str(failure.value)


async def test_a_lapsed_token_closes_the_pool_and_nothing_is_lost(kit: KubernetesKit) -> None:
    await kit.launch(kit.gang(NAME, RunForever()))
    good, kit.cluster.token = kit.cluster.token, "another"
    kit.cluster.cut_watches()
    async with asyncio.timeout(20):
        async for seen in kit.engine.nodes():
            if seen.closed:
                break
    assert "credentials" in next(iter(seen.closed.values()))
    running = await kit.engine.status(NAME)
    assert running is not None
    assert running.phase is Phase.RUNNING
    kit.cluster.token = good
    async with asyncio.timeout(20):
        async for seen in kit.engine.nodes():
            if not seen.closed:
                break
    await kit.engine.stop(NAME)
    assert (await kit.settle(NAME)).ended


async def test_an_api_server_that_cannot_be_reached_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubeconfig").write_text(kubeconfig("http://127.0.0.1:9", "x"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    engine = KubernetesEngine(tmp_path / "home", KubernetesSettings(image="x"))
    with pytest.raises(Unavailable, match="API server does not answer"):
        await engine.open()
    await engine.close()


# --- what is created ---


async def test_secrets_are_in_no_job_and_no_file(kit: KubernetesKit) -> None:
    gang = kit.script(NAME, "sh", "-c", 'test "${#WORD}" = 12', secrets={"WORD": "xyzzy-secret"})
    await kit.launch(gang)
    (secret,) = kit.cluster.list("secrets")
    status = await kit.settle(NAME)
    assert status.ranks[0].exit is not None
    assert status.ranks[0].exit.ok
    everything = json.dumps([each for _, each in kit.cluster.all()]) + json.dumps(secret)
    assert "xyzzy" not in everything
    for path in kit.home.rglob("*"):
        assert not path.is_file() or b"xyzzy" not in path.read_bytes(), path


async def test_what_is_created_is_as_the_published_api_has_it(kit: KubernetesKit) -> None:
    """The client's models are made from the OpenAPI document of Kubernetes 1.37: an unknown field would get lost."""
    from lightkube.models.batch_v1 import Job
    from lightkube.models.core_v1 import Secret, Service

    await kit.launch(wide(kit, 1, ranks=2, ranks_per_node=1, secrets={"A": "b"}, memory_bytes=1 << 30))
    for plural, model in (("jobs", Job), ("services", Service), ("secrets", Secret)):
        (each,) = kit.cluster.list(plural)
        sent = json.loads(json.dumps({name: part for name, part in each.items() if name != "status"}))
        assert model.from_dict(sent).to_dict() == sent, plural


async def test_a_home_outside_of_the_mount_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="is not in /elsewhere"):
        KubernetesEngine(tmp_path, KubernetesSettings(image="x", mount="/elsewhere"))


async def test_a_home_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(Invalid, match="behind a symbolic link, which pods do not have") as refused:
        KubernetesEngine(tmp_path / "link/home", KubernetesSettings(image="x"))
    assert refused.value.hint == f"give {tmp_path}/real/home"


def test_doctor_tells_what_is_there_and_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_cluster() as (cluster, url):
        cluster.add_node("n1", gpus=4)
        cluster.add_node("n2")
        cluster.node("n2")["spec"]["unschedulable"] = True
        (tmp_path / "kubeconfig").write_text(kubeconfig(url, cluster.token))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        found = {
            each.name: each for each in probe_cluster(EngineOptions(tmp_path, None, KubernetesSettings(image="x")))
        }
        bare = probe_cluster(EngineOptions(tmp_path, None, KubernetesSettings()))
    assert found["kubernetes"].available
    assert found["accelerators"].detail == "12 on 2 nodes: cpu, gpu"
    assert "n2: Kubernetes: cordoned" in found["open-nodes"].detail
    assert not found["gang-scheduling"].available
    assert [(each.name, each.available) for each in bare] == [("kubernetes", False)]
    assert "kubernetes.image" in bare[0].detail


# --- the contract: the small API server as another client sees it ---
