"""What decisions of the live scheduler cost: a round with many waiting jobs, and the decisions between rounds.

    python benchmarks/schedule_live.py --jobs 10000 --policy max-min

CPU seconds, on 50 nodes with four accelerators each of two types, half of the jobs asking for two; with `--ranges` half
of the jobs are gangs of one to four ranks, for `elastic` to choose. `round_s` is all that a round takes;
`round_holds_s` is for how long it holds up the server's loop, which is less where it is made in a thread beside (from a
thousand jobs on).
"""

from __future__ import annotations

import argparse
import json
import time

from shoal.admission import ClusterIndex, Pending, Running
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobRecord
from shoal.control.jobs.cache import Live
from shoal.core import Device, Node, PriorityClass
from shoal.schedule.live.scheduler import Scheduler
from shoal.schedule.presets import ScheduleSettings

NOW = 1_700_000_000.0


def cluster() -> list[Node]:
    made = []
    for at in range(50):
        kind = ("a100", "h100")[at % 2]
        devices = tuple(Device(f"{kind}-{at}-{index}", kind, index) for index in range(4))
        made.append(Node(f"n{at:02d}", devices, 64_000, 1 << 39))
    return made


def waiting(at: int, count: int, *, ranges: bool) -> Live:
    asked = JobManifest.model_validate({
        "name": f"kind-{at % 100}", "command": ["train"], "resources": {"accelerators": 1 + at % 2},
        "ranks": {"min": 1, "max": 4} if ranges and at % 4 > 1 else 1,
    })  # fmt: skip
    job = JobRecord(
        f"j-{at}", f"t{at % 20}", asked.name, JobState.QUEUED, 1, asked.canonical_json(), asked.resources_per_rank(),
        asked.max_ranks, PriorityClass.BEST_EFFORT, 0, NOW - count + at, NOW, queued_at=NOW - count + at,
    )  # fmt: skip
    return Live(job, _manifest=asked)


class Bench:
    def __init__(self, jobs: int, policy: str, *, ranges: bool = False) -> None:
        self.live = {live.job.id: live for live in (waiting(at, jobs, ranges=ranges) for at in range(jobs))}
        self.index = ClusterIndex()
        self.index.set_nodes(cluster())
        for live in self.live.values():
            job = live.job
            self.index.add_pending(Pending(
                job.id, job.tenant, job.priority_class, 0, job.resources, live.manifest.min_ranks, job.submitted_at,
                max_ranks=job.ranks,
            ))  # fmt: skip
        self.scheduler = Scheduler(ScheduleSettings(policy), self.live.get)

    def decide(self, now: float) -> float:
        """Decide and carry out; returns the CPU seconds that the calling thread spends on deciding."""
        snapshot = self.index.snapshot(now)
        began = time.thread_time()
        decision = self.scheduler(snapshot)
        spent = time.thread_time() - began
        self.index.settle(decision)
        for start in decision.starts:
            job = snapshot.pending.by_id[start.job_id]
            self.index.start(Running(
                job.job_id, job.tenant, job.priority_class, job.priority, job.resources, start.placement, now,
            ))  # fmt: skip
        if self.scheduler.trouble:
            raise SystemExit(self.scheduler.trouble)
        return spent

    def round(self, now: float) -> tuple[float, float]:
        """A whole round; returns the CPU seconds that it takes, and the most that any call spends."""
        number, began = self.scheduler.status()["round"], time.process_time()
        longest = self.decide(now)
        while self.scheduler.status()["round"] == number:
            time.sleep(0.02)
            longest = max(longest, self.decide(now + 0.1))
        return time.process_time() - began, longest

    def end_one(self) -> None:
        self.index.stop(min(each.job_id for each in self.index.snapshot(NOW).running.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--policy", default="max-min")
    parser.add_argument("--ranges", action="store_true", help="half of the jobs leave their size open")
    given = parser.parse_args()
    bench = Bench(given.jobs, given.policy, ranges=given.ranges)
    first = bench.decide(NOW)
    full = min(bench.decide(NOW + at) for at in range(1, 6))
    ended = []
    for at in range(6, 11):
        bench.end_one()
        ended.append(bench.decide(NOW + at))
    rounds = [bench.round(NOW + 60.0 * at + 1.0) for at in range(1, 4)]
    whole, longest = (min(part) for part in zip(*rounds, strict=True))
    found = {
        "first_round_s": first, "round_s": whole, "round_holds_s": longest, "one_place_free_s": min(ended),
        "nothing_free_s": full,
    }  # fmt: skip
    print(json.dumps({"jobs": given.jobs, "policy": given.policy, **{k: round(v, 4) for k, v in found.items()}}))


if __name__ == "__main__":
    main()
