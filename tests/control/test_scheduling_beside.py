"""A round of many jobs is made beside the server's loop: what is decided is the same, and nothing waits for it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from shoal.control.admission import ClusterIndex, Decision, Pending, Running
from shoal.control.config import ScheduleSettings
from shoal.control.lifecycle import JobState
from shoal.control.manifest import JobManifest
from shoal.control.records import JobRecord
from shoal.control.scheduling import Scheduler
from shoal.control.view import Live
from shoal.core import Device, Node, PriorityClass

NOW = 1_700_000_000.0
SETTINGS = ScheduleSettings("max-min", round_s=60.0, restart_cost_s=1.0)


class Server:
    """Two nodes with two accelerators each, and jobs that want one of any type."""

    def __init__(self, jobs: int, *, many: int) -> None:
        self.index = ClusterIndex()
        self.index.set_nodes([
            Node(kind, tuple(Device(f"{kind}-{at}", kind, at) for at in range(2)), 64_000, 1 << 39)
            for kind in ("a100", "k80")
        ])  # fmt: skip
        self.jobs: dict[str, Live] = {}
        for at in range(jobs):
            asked = JobManifest.model_validate(
                {"name": f"job-{at}", "command": ["train"], "resources": {"accelerators": 1}}
            )
            job = JobRecord(
                f"j-{at}", f"t{at % 3}", asked.name, JobState.QUEUED, 1, asked.canonical_json(),
                asked.resources_per_rank(), 1, PriorityClass.BEST_EFFORT, 0, NOW - jobs + at, NOW,
            )  # fmt: skip
            self.jobs[job.id] = Live(job, _manifest=asked)
            self.index.add_pending(Pending(
                job.id, job.tenant, job.priority_class, 0, job.resources, 1, job.submitted_at,
            ))  # fmt: skip
        self.scheduler = Scheduler(SETTINGS, self.jobs.get, many=many)

    def decide(self, now: float) -> Decision:
        snapshot = self.index.snapshot(now)
        decision = self.scheduler(snapshot)
        self.index.settle(decision)
        for start in decision.starts:
            job = snapshot.pending.by_id[start.job_id]
            self.index.start(Running(
                job.job_id, job.tenant, job.priority_class, 0, job.resources, start.placement, now,
            ))  # fmt: skip
        return decision

    def until_made(self, now: float, *, number: int = 2) -> list[Decision]:
        """Ask as often as the decisions say, until the round of this number has been taken over."""
        decisions = []
        for _ in range(500):
            decisions.append(self.decide(now))
            if self.scheduler.status()["round"] == number:
                return decisions
            assert (decisions[-1].wake_at or 0.0) < now + 1.0
            time.sleep(0.01)
        raise AssertionError("the round was never made")


def test_a_round_made_beside_decides_what_one_made_at_once_does() -> None:
    at_once, beside = Server(12, many=1000), Server(12, many=1)
    first = [server.decide(NOW) for server in (at_once, beside)]
    assert first[0].starts == first[1].starts
    plain = at_once.decide(NOW + 60.0)
    made = beside.until_made(NOW + 60.0)
    assert plain.preemptions
    assert made[-1].preemptions == plain.preemptions
    assert not any(each.preemptions for each in made[:-1])


def test_nothing_waits_for_a_round_that_is_made_beside() -> None:
    server = Server(12, many=1)
    running = server.decide(NOW).starts
    assert len(running) == 4
    late = NOW + 60.0
    server.decide(late)
    ended = running[0].job_id
    server.index.stop(ended)
    del server.jobs[ended]
    decisions = server.until_made(late + 0.001)
    assert len(decisions[0].starts) == 1
    assert ended not in {each.job_id for each in decisions[-1].preemptions}


def test_what_started_anew_since_is_not_told_that_its_turn_is_over() -> None:
    server = Server(12, many=1)
    server.decide(NOW)
    late = NOW + 60.0
    server.decide(late)
    for job_id, job in server.index.snapshot(late).running.items():
        server.index.stop(job_id)
        server.index.start(replace(job, started_at=late))
    assert not any(each.preemptions for each in server.until_made(late))


def test_a_defect_in_a_round_beside_leaves_the_last_one_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(12, many=1)
    server.decide(NOW)

    def broken(*_: object) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr("shoal.control.scheduling.scheduler.make", broken)
    for _ in range(500):
        server.decide(NOW + 60.0)
        if server.scheduler.trouble:
            break
        time.sleep(0.01)
    assert server.scheduler.trouble == "ZeroDivisionError: no"
    assert server.scheduler.status()["round"] == 1
