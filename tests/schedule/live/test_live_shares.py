"""Shares of devices under a policy of rounds: admission places them at once, and no round takes them away."""

from __future__ import annotations

from shoal.admission import ClusterIndex, Decision, Pending, Running
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobRecord
from shoal.control.jobs.cache import Live
from shoal.core import Device, Node, PriorityClass
from shoal.schedule.live.scheduler import Scheduler
from shoal.schedule.presets import ScheduleSettings

NOW = 1_700_000_000.0
GIB = 1 << 30
WHOLE = {"type": "a100"}
SHARE = {"type": "a100", "share": "best-effort", "memory": "20GiB"}


class Server:
    """A node with two accelerators that can be shared, and a scheduler with rounds of a minute."""

    def __init__(self) -> None:
        self.index = ClusterIndex()
        devices = tuple(Device(f"gpu{at}", "a100", at, 80 * GIB, best_effort_seats=4) for at in range(2))
        self.index.set_nodes([Node("n", devices, 64_000, 1 << 39)])
        self.jobs: dict[str, Live] = {}
        self.scheduler = Scheduler(ScheduleSettings("max-min", round_s=60.0, restart_cost_s=1.0), self.jobs.get)

    def submit(self, name: str, asked: dict[str, str]) -> None:
        manifest = JobManifest.model_validate(
            {"name": name, "command": ["train"], "resources": {"accelerators": asked}}
        )
        job = JobRecord(
            name, "t", name, JobState.QUEUED, 1, manifest.canonical_json(), manifest.resources_per_rank(), 1,
            PriorityClass.BEST_EFFORT, 0, NOW, NOW, progress={"hooks": True},
        )  # fmt: skip
        self.jobs[name] = Live(job, _manifest=manifest)
        self.index.add_pending(Pending(name, "t", job.priority_class, 0, job.resources, 1, NOW))

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


def test_shares_start_at_once_and_no_round_takes_them_away() -> None:
    server = Server()
    for at in range(3):
        server.submit(f"share-{at}", SHARE)
    server.submit("whole", WHOLE)
    first = server.decide(NOW)
    on = {one.job_id: one.placement[0].devices for one in first.starts}
    assert set(on) == {"share-0", "share-1", "share-2"}
    assert on["share-0"] == on["share-2"] != on["share-1"], "the device with most places free"
    for minute in range(1, 6):
        decision = server.decide(NOW + 61.0 * minute)
        assert (decision.starts, decision.preemptions) == ((), ())
        assert decision.waits["whole"].code == "next-round"
    server.index.stop("share-1")
    decision = server.decide(NOW + 61.0 * 6)
    assert [(one.job_id, one.placement[0].devices) for one in decision.starts] == [("whole", on["share-1"])]


def test_a_device_in_whole_use_is_given_to_no_share() -> None:
    server = Server()
    for at in range(2):
        server.submit(f"whole-{at}", WHOLE)
    assert {one.job_id for one in server.decide(NOW).starts} == {"whole-0", "whole-1"}
    server.submit("share", SHARE)
    assert server.decide(NOW + 61.0).starts == ()
    server.index.stop("whole-1")
    assert [one.job_id for one in server.decide(NOW + 122.0).starts] == ["share"]
