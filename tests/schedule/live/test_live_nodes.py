"""Rounds beside labels and taints: what a job requires holds on every type, and tainted nodes are set aside."""

from __future__ import annotations

import pytest

from shoal.admission import ClusterIndex, Decision, Pending, Running, Snapshot
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobRecord
from shoal.control.jobs.cache import Live, pending_of
from shoal.core import Device, Effect, Node, PriorityClass, Taint
from shoal.schedule.live.facts import facts_of
from shoal.schedule.live.problem import Rules, live_problem
from shoal.schedule.live.scheduler import Scheduler
from shoal.schedule.oracle import Oracle
from shoal.schedule.presets import ScheduleSettings

NOW = 1_700_000_000.0
RED = {"tolerate": ["team=red"], "require": {"team": "red"}}


def machine(name: str, kind: str, count: int, effect: Effect | None = None, **labels: str) -> Node:
    devices = tuple(Device(f"{name}-{at}", kind, at) for at in range(count))
    taints = () if effect is None else (Taint("team", "red", effect),)
    return Node(name, devices, 64_000, 1 << 39, labels, taints=taints)


class Server:
    """Two types in two zones, and a node of the red team."""

    def __init__(self, policy: str = "max-min", effect: Effect = Effect.NO_SCHEDULE) -> None:
        self.index = ClusterIndex()
        self.index.set_nodes([
            machine("a0", "a100", 1, zone="a"), machine("a1", "a100", 1, zone="b"), machine("k0", "k80", 2, zone="b"),
            machine("red", "a100", 2, effect, zone="a", team="red"),
        ])  # fmt: skip
        self.jobs: dict[str, Live] = {}
        self.scheduler = Scheduler(ScheduleSettings(policy, round_s=60.0, restart_cost_s=1.0), self.jobs.get)

    def submit(self, name: str, accelerators: object = 1, **fields: object) -> None:
        asked = JobManifest.model_validate(
            {"name": name, "command": ["train"], "resources": {"accelerators": accelerators}, **fields}
        )
        job = JobRecord(
            name, "t", name, JobState.QUEUED, 1, asked.canonical_json(), asked.resources_per_rank(), 1,
            PriorityClass.BEST_EFFORT, 0, NOW, NOW, progress={"hooks": True},
        )  # fmt: skip
        self.jobs[name] = Live(job, _manifest=asked)
        self.index.add_pending(pending_of(job))

    def decide(self, now: float = NOW) -> Decision:
        snapshot = self.index.snapshot(now)
        decision = self.scheduler(snapshot)
        self.index.settle(decision)
        for start in decision.starts:
            job: Pending = snapshot.pending.by_id[start.job_id]
            self.index.start(Running(
                job.job_id, job.tenant, job.priority_class, 0, job.resources, start.placement, now,
                affinity=job.affinity,
            ))  # fmt: skip
        return decision

    def problem(self) -> tuple[dict[str, int], set[str]]:
        """The pools that rounds share out, and the jobs that compete for them."""
        snapshot: Snapshot = self.index.snapshot(NOW)
        found = live_problem(snapshot, lambda job: facts_of(self.jobs[job]), Oracle(), Rules())
        return {pool.type: pool.count for pool in found.pools}, {view.id for view in found.views}


def places(decision: Decision) -> dict[str, str]:
    return {start.job_id: start.placement[0].node for start in decision.starts}


@pytest.mark.parametrize("policy", ["max-min", "fifo", "elastic", "finish-time"])
def test_what_a_job_requires_holds_under_a_policy(policy: str) -> None:
    server = Server(policy)
    for at in range(3):
        server.submit(f"b-{at}", nodes={"require": {"zone": "b"}})
    server.submit("a", "a100:1", nodes={"require": {"zone": "a"}})
    server.submit("none", "a100:1", nodes={"require": {"zone": "c"}})
    started = places(server.decide())
    assert {started[f"b-{at}"] for at in range(3)} <= {"a1", "k0"}
    assert started["a"] == "a0"
    assert "none" not in started


def test_tainted_nodes_are_in_no_pool_and_who_may_be_nowhere_else_is_admissions() -> None:
    server = Server()
    server.submit("plain")
    server.submit("red", nodes=RED)
    server.submit("both", nodes={"tolerate": ["team=red"]})
    assert server.problem() == ({"a100": 2, "k80": 2}, {"plain", "both"})
    started = places(server.decide())
    assert started["red"] == "red"
    assert started["plain"] != "red"
    assert server.problem() == ({"a100": 2, "k80": 2}, {"plain", "both"}), "running, they count as they did waiting"


def test_a_taint_that_only_prefers_changes_no_pool() -> None:
    assert Server(effect=Effect.PREFER_NO_SCHEDULE).problem()[0] == {"a100": 4, "k80": 2}


def test_one_that_tolerates_a_taint_gets_what_is_left_over_there_and_takes_no_part_of_the_pools() -> None:
    server = Server("fifo")
    for at in range(2):
        server.submit(f"plain-{at}", "a100:1")
    server.submit("with-red", "a100:1", nodes={"tolerate": ["team=red"]})
    assert places(server.decide())["with-red"] == "red"
    assert server.problem()[0] == {"a100": 3, "k80": 2}, "what it holds is there for it, and for no other"


async def test_a_job_that_is_admissions_is_explained_by_admission() -> None:
    server = Server()
    server.submit("red", nodes=RED)
    server.submit("plain")
    snapshot = server.index.snapshot(NOW)
    assert await server.scheduler.explain(snapshot, server.jobs["red"], "") is None
    found = await server.scheduler.explain(snapshot, server.jobs["plain"], "")
    assert found is not None
    assert {cause.cause for cause in found.causes} >= {"quota", "throughput"}
