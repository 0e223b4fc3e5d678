"""Jobs and their pods as the API tells of them, and what they mean for a gang. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from shoal.core import Reason
from shoal.engine.protocol import Exit, RankStatus

Object = Mapping[str, Any]

MARK, GANG, INDEX = "shoal.dev/home", "shoal.dev/gang", "batch.kubernetes.io/job-completion-index"
"""Label of a home's objects; annotation with the name of a gang; Kubernetes' own for the rank of a pod."""

RELEASED = "shoal.dev/released"
"""Annotation of a Job that may begin: what belongs to it is there."""

GONE = "shoal.dev/gone"
"""Set in what is remembered of a pod that was deleted, beside the fields of the API."""

_OVER = frozenset({"Succeeded", "Failed"})
_HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_NO_SECRET_S = 60.0
"""A pod that lacks its Secret for so long gets none: it was deleted."""
_TAKEN_BACK = "Kueue suspended its Job, for its place is another's"
_DISRUPTED = {
    "PreemptionByScheduler": "Kubernetes preempted it for a pod of higher priority",
    "DeletionByTaintManager": "its node was tainted, and does not tolerate it any more",
    "EvictionByEvictionAPI": "it was evicted from its node",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node ran short of a resource, or was shut down, and ended it",
}
_NODE_LOST = ("DeletionByPodGC",)


@dataclass(frozen=True, slots=True)
class PodEnd:
    """How Kubernetes ended a pod: `oom` and `node_lost` as in `Exit`; `code` is what its container left with."""

    why: str = ""
    code: int | None = None
    oom: bool = False
    node_lost: bool = False

    @property
    def from_outside(self) -> bool:
        return bool(self.why)


@dataclass(frozen=True, slots=True)
class KubernetesJob:
    """A Job with its pods; `ends` by rank."""

    id: str
    name: str
    order: int
    over: bool
    waiting: bool
    hosts: list[str]
    waits: Reason
    why: str
    ends: Mapping[int, PodEnd] = field(default_factory=dict)

    def why_waiting(self) -> Reason:
        return self.waits

    def why_over(self) -> str:
        return self.why

    @property
    def exit_code(self) -> int | None:
        """Of the first rank that left with one that is not 0."""
        codes = [end.code for _, end in sorted(self.ends.items()) if end.code]
        return codes[0] if codes else None

    def judged(self, rank: RankStatus, why: str) -> RankStatus:
        del why  # each pod's own is told
        end, seen = rank.exit, self.ends.get(rank.rank, PodEnd())
        if end is None or end.code is not None:
            return rank  # its own record says more
        if seen.oom:
            return replace(rank, exit=replace(end, lost=False, stopped=False, oom=True, detail=seen.why))
        if seen.from_outside:
            return replace(rank, exit=Exit(lost=True, node_lost=seen.node_lost, detail=seen.why))
        return rank


def read_jobs(
    jobs: Iterable[Object], pods: Iterable[Object], now: float, unreachable: frozenset[str] = frozenset()
) -> list[KubernetesJob]:
    """`unreachable`: nodes that do not answer. A pod that was to leave one of them is over as far as Kubernetes can
    tell, and may still run. Of `pods` that were deleted, GONE is set."""
    by_owner: dict[str, list[Object]] = {}
    for pod in pods:
        by_owner.setdefault(owner_of(pod), []).append(pod)
    return [_job(job, by_owner.get(job["metadata"]["uid"], []), now, unreachable) for job in jobs]


def released(job: Object) -> bool:
    """Whether it was made whole. One that was not has no pod, and nothing would ever let it begin."""
    return RELEASED in (job["metadata"].get("annotations") or {})


def owner_of(pod: Object) -> str:
    """The uid of its Job."""
    return next((str(one["uid"]) for one in pod["metadata"].get("ownerReferences") or ()), "")


def _job(job: Object, pods: Sequence[Object], now: float, unreachable: frozenset[str]) -> KubernetesJob:
    metadata, status = job["metadata"], job.get("status") or {}
    finished = {one["type"]: one for one in status.get("conditions") or () if one.get("status") == "True"}
    pods = sorted(pods, key=_index)
    gone = [pod for pod in pods if _over(pod, unreachable)]
    ends = {_index(pod): _end(pod, unreachable) for pod in gone}
    cut_off = any(end.node_lost for end in ends.values())
    hopeless = [why for pod in pods for why in _waiting_containers(pod) if _never_starts(pod, why, now)]
    taken_back = bool((job.get("spec") or {}).get("suspend")) and bool(gone)
    if taken_back:
        ends = {index: end if end.why else replace(end, why=_TAKEN_BACK) for index, end in ends.items()}
    done = bool(finished.keys() & {"Complete", "Failed", "FailureTarget"}) or "deletionTimestamp" in metadata
    over = bool(hopeless) or cut_off or taken_back or (done and len(gone) == len(pods))
    why = next((end.why for end in ends.values() if end.why), "")
    if hopeless:
        why = f"its container cannot be started: {hopeless[0]}"
    elif not why and "Failed" in finished:
        told = finished["Failed"]
        why = f"its Job failed: {told.get('reason', '')} {told.get('message', '')}".strip()
    started = any(_phase(pod) in (*_OVER, "Running") for pod in pods)
    return KubernetesJob(
        id=metadata["uid"],
        name=(metadata.get("annotations") or {}).get(GANG, metadata["name"]),
        order=0,
        over=over,
        waiting=not started and not over,
        hosts=sorted({pod["spec"]["nodeName"] for pod in pods if pod.get("spec", {}).get("nodeName")}),
        waits=_why_waiting(job, pods),
        why=why or "its Job ended",
        ends=ends,
    )


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _index(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, 0))


def _over(pod: Object, unreachable: frozenset[str]) -> bool:
    if GONE in pod:
        return True
    leaving = "deletionTimestamp" in pod["metadata"] and pod.get("spec", {}).get("nodeName") in unreachable
    return leaving or _phase(pod) in _OVER


def _end(pod: Object, unreachable: frozenset[str]) -> PodEnd:
    status = pod.get("status") or {}
    ended = [
        one["state"]["terminated"]
        for one in status.get("containerStatuses") or ()
        if (one.get("state") or {}).get("terminated")
    ]
    code = next((int(one["exitCode"]) for one in ended if "exitCode" in one), None)
    where = pod.get("spec", {}).get("nodeName", "")
    if _phase(pod) not in _OVER and where in unreachable and GONE not in pod:
        return PodEnd(f"its node {where} does not answer", code, node_lost=True)
    if any(one.get("reason") == "OOMKilled" for one in ended):
        return PodEnd("its container went over its memory limit and was killed", code, oom=True)
    target = next((one for one in status.get("conditions") or () if one["type"] == "DisruptionTarget"), None)
    if target is not None and target.get("status") == "True":
        told = target.get("reason", "")
        why = _DISRUPTED.get(told, f"Kubernetes ended it: {told}")
        why += f": {target['message']}" if target.get("message") else ""
        return PodEnd(why, code, node_lost=told in _NODE_LOST)
    if status.get("reason") == "Evicted":
        return PodEnd(f"it was evicted: {status.get('message', '')}", code)
    if status.get("reason") in ("NodeLost", "NodeShutdown", "Terminated", "Shutdown"):
        return PodEnd(f"its node {where} was lost or shut down", code, node_lost=True)
    if status.get("reason") == "DeadlineExceeded":
        return PodEnd("it ran into the time limit of its Job", code)
    return PodEnd(code=code)


def _never_starts(pod: Object, why: str, now: float) -> bool:
    reason = why.partition(":")[0]
    made = datetime.fromisoformat(str(pod["metadata"]["creationTimestamp"]).replace("Z", "+00:00")).timestamp()
    return reason in _HOPELESS or (reason == "CreateContainerConfigError" and now > made + _NO_SECRET_S)


def _waiting_containers(pod: Object) -> list[str]:
    """`REASON: message` of each container that has not started."""
    found = []
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        waits = (one.get("state") or {}).get("waiting")
        if waits:
            found.append(f"{waits.get('reason', '')}: {waits.get('message', '')}".rstrip(": "))
    return found


_FREE = re.compile(r"(\d+) Insufficient ([\w/-]+(?:\.[\w/-]+)*)")


def _why_waiting(job: Object, pods: Sequence[Object]) -> Reason:
    facts: dict[str, object] = {"kubernetes_job": job["metadata"]["name"]}
    queue = (job["metadata"].get("labels") or {}).get("kueue.x-k8s.io/queue-name")
    if (job.get("spec") or {}).get("suspend"):
        where = f" of queue {queue}" if queue else ""
        return Reason("queue", f"Kubernetes: suspended: Kueue has not admitted it{where}", facts)
    for pod in pods:
        for one in (pod.get("status") or {}).get("conditions") or ():
            if one["type"] == "PodScheduled" and one.get("status") == "False":
                said = str(one.get("message", ""))
                lacking = ", ".join(sorted({name for _, name in _FREE.findall(said)}))
                words = f"not enough {lacking} is free" if lacking else "no node fits now"
                told = one.get("reason", "Unschedulable")
                return Reason(
                    "resources", f"Kubernetes: {told}: {words} ({said})", {**facts, "kubernetes": said}
                )  # fmt: skip
    for pod in pods:
        for why in _waiting_containers(pod):
            code = "image" if "Image" in why or "ErrImage" in why else "starting"
            return Reason(code, f"Kubernetes: {why}", facts)
    if not pods:
        return Reason("scheduling", "Kubernetes: it has not made its pods yet", facts)
    return Reason("scheduling", "Kubernetes: it has not looked at it yet", facts)
