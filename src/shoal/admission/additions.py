"""Starts and preemptions that others add to a decision: united with it where they agree with it and the cluster. Pure.

An addition is checked against what the decision leaves: a job that waits and may start, ranks that it asks for, free
devices, cores and memory of nodes for it, its tenant's quota. It takes nothing that is being freed for another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from shoal.admission.index import ClusterIndex
from shoal.admission.quota import Account
from shoal.admission.snapshot import Need, Snapshot, resolve
from shoal.admission.types import Decision, NodeState, Pending, Preemption, Running, Start
from shoal.contract.records import RankPlacement
from shoal.core import ANY, Share


@dataclass(frozen=True, slots=True)
class Additions:
    """What one source adds to a decision."""

    starts: Sequence[Start] = ()
    preemptions: Sequence[Preemption] = ()

    def __bool__(self) -> bool:
        return bool(self.starts or self.preemptions)


@dataclass(frozen=True, slots=True)
class Dropped:
    """An addition that was not taken over, whose it was, and why not."""

    source: str
    job_id: str
    why: str


def unite(
    snapshot: Snapshot, decision: Decision, added: Mapping[str, Additions], held: Mapping[str, Collection[str]]
) -> tuple[Decision, tuple[Dropped, ...]]:
    """The decision with what was added, by source in order, and what was dropped. `held` names, by waiting job, the
    sources that hold it: only one that alone holds a job may start it. `snapshot` is the one with all jobs."""
    dropped: list[Dropped] = []
    starts, preemptions = list(decision.starts), list(decision.preemptions)
    waits = dict(decision.waits)
    after: _After | None = None
    for source, additions in added.items():
        for preemption in additions.preemptions:
            why = _wrong_preemption(snapshot, preemption)
            if why:
                dropped.append(Dropped(source, preemption.job_id, why))
            elif all(other.job_id != preemption.job_id for other in preemptions):
                preemptions.append(preemption)
        for start in additions.starts:
            after = after or _After(snapshot, decision)
            others = [name for name in held.get(start.job_id, ()) if name != source]
            why = f"it is held by {' and '.join(others)}" if others else after.wrong(start)
            if why:
                dropped.append(Dropped(source, start.job_id, why))
                continue
            after.begin(start)
            starts.append(start)
            waits.pop(start.job_id, None)
    found = replace(decision, starts=tuple(starts), preemptions=tuple(preemptions), waits=waits)
    return found, tuple(dropped)


def _wrong_preemption(snapshot: Snapshot, preemption: Preemption) -> str:
    """Why this job cannot be asked to leave; empty if it can."""
    running = snapshot.running.get(preemption.job_id)
    if running is None:
        return "it does not run"
    return "it is being stopped already" if running.stopping else ""


class _After:
    """The cluster once the decision's starts have been carried out."""

    def __init__(self, snapshot: Snapshot, decision: Decision) -> None:
        self._index = ClusterIndex.resume(snapshot)
        self._claims = {name: claim.job_id for claim in decision.claims for name, _ in claim.ranks}
        self._now = snapshot.now
        for start in decision.starts:
            self.begin(start)

    def begin(self, start: Start) -> None:
        job = self._index.pending(start.job_id)
        if job is not None:
            self._index.start(
                Running(
                    job.job_id, job.tenant, job.priority_class, job.priority, job.resources, tuple(start.placement),
                    self._now, endless=job.endless, affinity=job.affinity,
                )
            )  # fmt: skip

    def wrong(self, start: Start) -> str:
        """Why this start cannot be carried out beside the others; empty if it can."""
        job = self._index.pending(start.job_id)
        if job is None:
            return "it does not wait"
        if job.not_before > self._now:
            return f"it is delayed by {job.not_before - self._now:.0f} s after a failure"
        ranks = [place.rank for place in start.placement]
        if not job.ranks <= len(ranks) <= job.most or ranks != list(range(len(ranks))):
            return f"it needs {job.ranks} to {job.most} ranks, numbered from 0"
        snapshot = self._index.snapshot(self._now)
        on: dict[str, list[RankPlacement]] = {}
        for place in start.placement:
            on.setdefault(place.node, []).append(place)
        need: Need | None = None
        for name, places in on.items():
            state = snapshot.nodes.get(name)
            if state is None or not state.schedulable:
                return f"node {name} is not there" if state is None else f"node {name} takes no new work"
            if not snapshot.nodes.layout.pooled and not job.affinity.allows(state.node.labels, state.node.taints):
                return f"it may not run on node {name}, by its labels and taints"
            if self._claims.get(name, job.job_id) != job.job_id:
                return f"node {name} is being freed for job {self._claims[name]}"
            kinds = snapshot.nodes.layout.type_of[snapshot.nodes.layout.position[name]]
            need = _need(job, places[0], kinds)
            why = _wrong_on(state, kinds, need, places)
            if why:
                return why
        over = Account(snapshot.tenants[job.tenant]).exceeded(need, len(ranks)) if need is not None else ()
        return f"the quota of {job.tenant} has no {over[0].name} left for it" if over else ""


def _need(job: Pending, place: RankPlacement, kinds: Mapping[str, str]) -> Need:
    """What a rank needs, `ANY` resolved by what it is given."""
    named = job.resources.accelerators
    given = (kinds[device] for device in place.devices if kinds.get(device, ANY) not in named and device in kinds)
    return resolve(job.resources, next(given, None) if ANY in named else None)


def _wrong_on(state: NodeState, kinds: Mapping[str, str], need: Need, places: Sequence[RankPlacement]) -> str:
    """Why the node does not hold these ranks; empty if it does."""
    name = state.node.name
    if any(Counter(kinds.get(device, "") for device in place.devices) != dict(need.kinds) for place in places):
        return f"the devices on node {name} are not those that it asks for"
    devices = [device for place in places for device in place.devices]
    if len(set(devices)) < len(devices):
        return f"a device of node {name} is given twice"
    if need.share is Share.EXCLUSIVE:
        free = {device for ids in state.free_devices.values() for device in ids}
        taken = [device for device in devices if device not in free]
    else:
        seats = {device: left for of_kind in state.free_seats.values() for device, left in of_kind.items()}
        taken = [each for each in devices if each not in seats or not need.of_device(seats[each]).within(seats[each])]
    if taken:
        return f"{taken[0]} of node {name} is not free"
    if need.cpu_milli * len(places) > max(0, state.free_cpu_milli):
        return f"node {name} has too few free cores"
    if need.memory_bytes * len(places) > max(0, state.free_memory_bytes):
        return f"node {name} has too little free memory"
    return ""
