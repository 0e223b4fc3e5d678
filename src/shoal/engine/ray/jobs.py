"""Ray's placement groups as jobs, and what their state means for a gang. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from shoal.core import Reason
from shoal.engine.local.supervisor import ABORTED, EXITED, FAILED
from shoal.engine.protocol import Exit, RankStatus

_WAITING = ("PENDING", "PREPARED")
_WAITS = {
    "NO_RESOURCES": ("resources", "the resources that it needs are in use"),
    "INFEASIBLE": ("nodes", "no nodes that are there could hold it"),
    "QUEUED": ("scheduling", "Ray has not looked at it yet"),
    "PENDING": ("scheduling", "Ray has not looked at it yet"),
}


@dataclass(frozen=True, slots=True)
class RayJob:
    """`id` is `MARK/GANG@TOKEN@RANKS`. `state` is Ray's, or what we make of it: LOST, when a rank has no actor and has
    not ended; NODE_LOST, when its node is gone too; DONE, when all have ended."""

    id: str
    state: str
    reason: str = ""
    hosts_lost: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.id.partition("/")[2].rsplit("@", 2)[0]

    @property
    def ranks(self) -> int:
        return int(self.id.rpartition("@")[2])

    @property
    def order(self) -> int:
        return 0

    @property
    def over(self) -> bool:
        return self.state in ("REMOVED", "LOST", "NODE_LOST", "DONE")

    @property
    def waiting(self) -> bool:
        return self.state in _WAITING

    @property
    def hosts(self) -> list[str]:
        return list(self.hosts_lost)

    def why_waiting(self) -> Reason:
        told = self.reason or "PENDING"
        code, words = _WAITS.get(told, ("cluster", "Ray does not start it yet"))
        return Reason(code, f"Ray: {told}: {words}", {"ray": told, "ray_group": self.id})

    def why_over(self) -> str:
        words = {
            "REMOVED": "its placement group was removed in Ray",
            "LOST": "an actor of it was killed in Ray",
            "NODE_LOST": f"its node {' and '.join(self.hosts_lost)} failed",
        }
        return words.get(self.state, f"its Ray job ended as {self.state}")

    def judged(self, rank: RankStatus, why: str) -> RankStatus:
        end = rank.exit
        if end is None or not end.lost:
            return rank  # its supervisor outlived it and saw how it ended: Ray ends supervisors only
        lost = self.state == "NODE_LOST" and rank.node in self.hosts_lost
        return replace(rank, exit=Exit(lost=True, node_lost=lost, detail=why))


def job_of(told: Mapping[str, Any], record: Callable[[int], Mapping[str, str]], nodes: Collection[str]) -> RayJob:
    """What the bridge tells of a group, seen with what its ranks' supervisors put on record, and with the names of the
    nodes that are alive."""
    job = RayJob(told["id"], told["state"], told["reason"])
    if job.waiting:
        return job
    gone = set(range(job.ranks)) - set(told["actors"])
    unsaid = [told for told in map(record, sorted(gone)) if told.get("state") not in (EXITED, FAILED, ABORTED)]
    hosts = {told["node"] for told in unsaid if told.get("node")} - set(nodes)
    if hosts:  # also once we have removed its group for that
        return RayJob(job.id, "NODE_LOST", hosts_lost=tuple(sorted(hosts)))
    if job.over:
        return job
    if unsaid:
        return RayJob(job.id, "LOST")
    return RayJob(job.id, "DONE") if len(gone) == job.ranks else job
