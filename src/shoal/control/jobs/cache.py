"""The live jobs in memory: the projection of what was committed, and the admission index that follows it.

Every committed `Change` passes through `JobCache.applied`, and nothing else alters the index; so index, memory and
database cannot drift apart in one process. The reconciler checks it against the store all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.admission import ClusterIndex, Pending, Running
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest, parse_stored
from shoal.contract.records import AttemptRecord, Change, Ends, JobRecord, NewEvent, ReadPosition
from shoal.control.jobs.asked import Asked, asked_by
from shoal.control.jobs.held import HeldJobs
from shoal.core import NO_AFFINITY, Affinity, Node, NotFound, Reason, Tenant
from shoal.engine import Inventory


@dataclass(slots=True)
class Live:
    """One job that is not over: its rows, and what wakes the attempt runner that drives it."""

    job: JobRecord
    attempt: AttemptRecord | None = None
    wait: Reason | None = None
    wait_since: float = 0.0
    """Since when it waits for a cause of this kind."""
    queue: Reason | None = None
    """Why the cluster that it was handed over to has not started it, as it said last."""
    staging: Reason | None = None
    """What an extension brings to its nodes, before its launch."""
    unwritten: Change | None = None
    """What is written with its next step: that it was submitted, or a step that was put off."""
    writes: int = 0
    """The number of its changes that are on their way to the store."""
    _wake: asyncio.Event | None = None
    _manifest: JobManifest | None = None
    _asked: Asked | None = None

    @property
    def wake(self) -> asyncio.Event:
        """Set when something of it changed. Made when it is asked for: jobs that wait, which are many, need none."""
        if self._wake is None:
            self._wake = asyncio.Event()
        return self._wake

    def forget_manifest(self) -> None:
        """It is read again when it is asked for."""
        self._manifest = None

    @property
    def asked(self) -> Asked:
        """What deciding reads of its manifest."""
        if self._asked is None:
            self._asked = asked_by(self.job, self._manifest)
        return self._asked

    @property
    def manifest(self) -> JobManifest:
        if self._manifest is None:
            self._manifest = parse_stored(self.job.manifest, source=self.job.id)
        return self._manifest


_PARSED = 2000
"""While more jobs than this are not over, the manifest of one that comes to wait is kept as text alone: read, it takes
as much memory as all else of the job, and to read it again at its start takes a tenth of the time of a start."""


@dataclass(frozen=True, slots=True)
class Missing:
    """`text` says what is gone; `whole_node` when nothing on that node can be asked to stop."""

    text: str
    whole_node: bool


class JobCache:
    """`capacity_changed` is called when a job came to wait or what was taken became free: time to decide again.
    `offer` says what jobs may be given of a node, `ends` how far a stored job or array is. `followed` is told of each
    job whose committed change is in memory now; by that change it may be over. `counts_waiting`: decisions depend on
    how many equal jobs wait, so that each one more is a reason for one. `affinity` says on which nodes a job may be,
    whenever it comes to wait or to run."""

    def __init__(
        self,
        index: ClusterIndex,
        capacity_changed: Callable[[], None] = lambda: None,
        offer: Callable[[Node], Node] = lambda node: node,
        ends: Callable[[str], Ends | None] = lambda _: None,
        followed: Callable[[Live], None] = lambda _: None,
        counts_waiting: Callable[[], bool] = lambda: False,
        affinity: Callable[[Live], Affinity] = lambda live: live.asked.affinity,
    ) -> None:
        self.index = index
        self._affinity = affinity
        self._counts_waiting = counts_waiting
        self._followed = followed
        self._ends = ends
        self.held = HeldJobs(self._look)
        self._tasks: dict[str, int] = {}
        self._shared: dict[str, JobManifest] = {}
        self._capacity_changed = capacity_changed
        self._offer = offer
        self._loading = False
        self._live: dict[str, Live] = {}
        self._active: dict[str, Live] = {}
        self._queued: dict[str, int] = {}
        self._owned: dict[str, dict[str, Live]] = {}
        self.deadlines: set[str] = set()
        self.busy = asyncio.Event()
        """Set while jobs hold resources."""
        self.watched = asyncio.Event()
        """Set while jobs hold resources or have a deadline."""
        self.inventory = Inventory(())
        self.drained: dict[str, str] = {}
        """Why, by name: also of nodes that are not there now."""
        self._places: dict[str, frozenset[str]] = {}
        self._pools: frozenset[str] = frozenset()

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._live

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Live]:
        return iter(list(self._live.values()))

    def active(self) -> list[Live]:
        """The jobs that hold resources: few, however many wait."""
        return list(self._active.values())

    def owned(self, owner_id: str) -> list[Live]:
        """The jobs that belong to this and are not over."""
        return list(self._owned.get(owner_id, {}).values())

    def owners(self) -> set[str]:
        """The ids of what these belong to."""
        return set(self._owned)

    def get(self, job_id: str) -> Live | None:
        return self._live.get(job_id)

    def __getitem__(self, job_id: str) -> Live:
        live = self._live.get(job_id)
        if live is None:
            raise NotFound(f"no live job {job_id}", where=job_id)
        return live

    def queued(self, tenant: str) -> int:
        """How many of the tenant's jobs wait now."""
        return self._queued.get(tenant, 0)

    def load(
        self, jobs: Iterable[JobRecord], attempts: Mapping[str, AttemptRecord], tenants: Iterable[Tenant],
        inventory: Inventory,
    ) -> None:  # fmt: skip
        """Fill an empty cache from the store, as after a restart."""
        self._loading = True
        self.see_nodes(inventory)
        for tenant in tenants:
            self.index.set_tenant(tenant)
        known = [self._register(Live(job, attempts.get(job.id))) for job in jobs]
        for live in known:  # before those that wait: these count against limits of arrays
            if live.job.state.active:
                self._occupy(live)
        for live in known:
            if live.job.state is JobState.QUEUED:
                self._enqueue(live)
        self._loading = False

    def see_nodes(self, inventory: Inventory) -> None:
        """These are the nodes from now on."""
        self.inventory = inventory
        self._places = {node.name: frozenset(device.id for device in node.devices) for node in inventory.nodes}
        self._pools = frozenset(node.name for node in inventory.nodes if node.pooled)
        self._set_nodes()

    def drain(self, name: str, because: str | None) -> None:
        """No new work goes to this node from now on; None: it does again."""
        if because is None:
            self.drained.pop(name, None)
        else:
            self.drained[name] = because
        self._set_nodes()

    def _set_nodes(self) -> None:
        drained = {name: f"drained: {because}" if because else "drained" for name, because in self.drained.items()}
        self.index.set_nodes(map(self._offer, self.inventory.nodes), unschedulable={**self.inventory.closed, **drained})
        self._capacity_changed()

    def missing(self, live: Live) -> Missing | None:
        """What the present attempt of a job was given and is gone; None when all of it is there."""
        for rank in live.attempt.placement if live.attempt is not None else ():
            if rank.node in self._pools:
                continue  # which of its machines are gone, the engine knows
            there = self._places.get(rank.node)
            if there is None:
                return Missing(f"node {rank.node} is gone", whole_node=True)
            if not there.issuperset(rank.devices):
                gone = ", ".join(sorted(set(rank.devices) - there))
                return Missing(f"device {gone} of node {rank.node} is gone", whole_node=False)
        return None

    def added(
        self, job: JobRecord, attempt: AttemptRecord | None = None, manifest: JobManifest | None = None,
        submission: NewEvent | None = None,
    ) -> None:  # fmt: skip
        """A job that is stored now, or with a `submission` is stored by its first step."""
        # A copy of its columns takes half the memory of a record that was filled one column after the other.
        live = self._register(Live(job.evolve(), attempt, _manifest=manifest))
        if submission is not None:
            live.unwritten = Change(live.job, live.job, (submission,))
        self._followed(live)
        self._take_up(live)

    def _register(self, live: Live) -> Live:
        job = live.job
        self._live[job.id] = live
        if job.array_id is not None:
            self._tasks[job.array_id] = self._tasks.get(job.array_id, 0) + 1
            if job.array_id not in self._shared:
                self._shared[job.array_id] = live.manifest
            live._manifest = self._shared[job.array_id]  # all its tasks have the same: it is parsed once
        if job.deadline_at is not None:
            self.deadlines.add(job.id)
            self.watched.set()
        if job.owner_id is not None:
            self._owned.setdefault(job.owner_id, {})[job.id] = live
        return live

    def _take_up(self, live: Live) -> None:
        job = live.job
        if job.state is JobState.QUEUED:
            self._enqueue(live)
        elif job.state.active:
            self._occupy(live)

    def applied(self, change: Change, unwritten: Change | None = None) -> Live:
        """Follow a change that was committed, or that is `unwritten` together with those before it."""
        live = self._live.get(change.after.id)
        if live is None:
            live = self._live[change.after.id] = Live(change.before)
        old, new = live.job, change.after
        live.unwritten = unwritten
        # What a job reports is written apart from its steps: a step never takes an older report back.
        live.job = new
        if new.progress is not old.progress:
            live.job = new.evolve(progress=old.progress, read_position=old.read_position)
        if change.attempt is not None:
            live.attempt = change.attempt
        if old.state is not new.state:
            self._moved(live, old, new)
        elif new.state.active and change.attempt is not None and change.attempt.stop is not None:
            self.index.update_running(new.id, stopping=True)
            live.wake.set()
        self._followed(live)
        return live

    def handed_over(self, live: Live, reason: Reason) -> None:
        """The cluster has a job and has not started it: taking it back loses nothing."""
        if live.queue is None:
            self.index.update_running(live.job.id, queued=True)
        live.queue = reason

    def progressed(self, job_id: str, progress: Mapping[str, Any], position: ReadPosition | None, now: float) -> None:
        """Follow a report: what is at risk if the job is stopped now, and when it is likely to end."""
        live = self._live.get(job_id)
        if live is None:
            return
        live.job = live.job.evolve(progress=progress, read_position=position)
        if not live.job.state.active or live.attempt is None or live.attempt.running_at is None:
            return
        saved = progress.get("checkpoint_at")
        at, eta, finish = (progress.get(name) for name in ("reported_at", "eta_s", "finish"))
        end = at + eta if at is not None and eta is not None else None
        self.index.update_running(
            job_id,
            at_risk_s=None if saved is None else max(0.0, now - max(saved, live.attempt.running_at)),
            expected_end=end if finish is None else finish["median"],
            end_between=None if finish is None else (finish["low"], finish["high"]),
        )

    def _moved(self, live: Live, old: JobRecord, new: JobRecord) -> None:
        if old.state is JobState.QUEUED:
            self._queued[old.tenant] -= 1
            if not new.state.active and old.id not in self.held:
                self.index.remove_pending(old.id)
        if new.state is JobState.QUEUED:
            self._vacate(live, old, new)
            self._enqueue(live)
        elif new.state.active:
            if not old.state.active:
                self._occupy(live)
            elif live.queue is not None and live.attempt is not None:
                live.queue = None
                self.index.begin(new.id, live.attempt.running_at or new.updated_at)
        else:
            self._vacate(live, old, new)
            if new.state.terminal:
                self._live.pop(new.id, None)
                self.deadlines.discard(new.id)
                self._calm_down()
                self._disown(new)
                self._leave_array(new)
                self._release(self.held.ended(new))
            else:
                self._release(self.held.paused(new))
            live.wake.set()

    def _leave_array(self, job: JobRecord) -> None:
        if job.array_id not in self._tasks:
            return
        self._tasks[job.array_id] -= 1
        if not self._tasks[job.array_id]:
            del self._tasks[job.array_id], self._shared[job.array_id]

    def _look(self, ref: str) -> Ends | None:
        """How far a job or an array is that others wait for. What is live is known here, and its end comes here; of
        what is over the store knows."""
        if ref in self._live:
            return Ends(1, failed=False)
        found = self._ends(ref)
        return found if found is None or ref not in self._tasks else Ends(self._tasks[ref], found.failed)

    def _release(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            live = self._live[job_id]
            self._offer_to_admission(live, live.asked)
        if self.held.doomed:
            self._capacity_changed()

    def _disown(self, job: JobRecord) -> None:
        if job.owner_id is None:
            return
        left = self._owned.get(job.owner_id, {})
        left.pop(job.id, None)
        if not left:
            self._owned.pop(job.owner_id, None)

    def _vacate(self, live: Live, old: JobRecord, new: JobRecord) -> None:
        live.queue = None
        if old.state.active:
            self._active.pop(old.id, None)
            self._calm_down()
            # What runs without end is bounded by quotas; to charge weeks at its end would shut its tenant out.
            ran_s = None if live.asked.endless else new.ran_s - old.ran_s
            self.index.stop(
                new.id, ran_s=ran_s, completed=new.state is JobState.SUCCEEDED, held_s=_held_s(live.attempt, new)
            )
            self._capacity_changed()

    def _calm_down(self) -> None:
        if not self._active:
            self.busy.clear()
            if not self.deadlines:
                self.watched.clear()

    def _enqueue(self, live: Live) -> None:
        job = live.job
        live.wait = None
        self._queued[job.tenant] = self._queued.get(job.tenant, 0) + 1
        asked = live.asked
        if self.held.admits(job, asked):
            self._offer_to_admission(live, asked)
        else:
            live.wait = self.held.why(job.id)
            if self.held.doomed:
                self._capacity_changed()
        if job.array_id is None and len(self._live) > _PARSED:
            live.forget_manifest()

    def _offer_to_admission(self, live: Live, asked: Asked) -> None:
        waiting = pending_of(live.job, asked, self._affinity(live))
        if self.index.add_pending(waiting) or (not self._loading and self._counts_waiting()):
            self._capacity_changed()

    def _occupy(self, live: Live) -> None:
        job, attempt = live.job, live.attempt
        if attempt is None:
            raise NotFound(f"job {job.id} is {job.state} but has no attempt", where=job.id)
        self._active[job.id] = live
        self.busy.set()
        self.watched.set()
        asked = live.asked
        self.held.occupies(job, asked)
        began = attempt.running_at or attempt.created_at
        longest = asked.longest_s
        self.index.start(
            Running(
                job_id=job.id, tenant=job.tenant, priority_class=job.priority_class, priority=job.priority,
                resources=job.resources, placement=attempt.placement, started_at=began,
                at_risk_s=None, expected_end=began + job.expected_s if job.expected_s else None,
                stopping=attempt.stop is not None,
                latest_end=None if longest is None else began + longest - job.ran_s,
                endless=_endless(job, asked), affinity=self._affinity(live), kind=kind_of(job.name),
                declared_s=job.expected_s,
            )
        )  # fmt: skip


def pending_of(job: JobRecord, asked: Asked | None = None, affinity: Affinity | None = None) -> Pending:
    """A waiting job as admission sees it. Its manifest is read if what is asked is not given; it says on which nodes
    the job may be if nothing else does."""
    asked = asked or asked_by(job)
    return Pending(
        job_id=job.id, tenant=job.tenant, priority_class=job.priority_class, priority=job.priority,
        resources=job.resources, ranks=job.min_ranks, queued_at=job.submitted_at,
        placement=asked.placement, expected_s=job.expected_s,
        not_before=job.not_before, deadline_at=job.deadline_at, max_ranks=job.ranks,
        per_node=asked.per_node, endless=_endless(job, asked),
        affinity=asked.affinity if affinity is None else affinity, kind=kind_of(job.name),
        longest_s=None if asked.longest_s is None else max(0.0, asked.longest_s - job.ran_s),
    )  # fmt: skip


def kind_of(name: str) -> str:
    """A job's name without its number: jobs that differ in it alone are likely to run equally long."""
    return name.rstrip("0123456789")


def _held_s(attempt: AttemptRecord | None, job: JobRecord) -> float | None:
    """For how long an attempt that is over held its capacity; None for one that was stopped to run on later."""
    if attempt is None or attempt.ended_at is None or (attempt.stop is not None and not job.state.terminal):
        return None
    return attempt.ended_at - attempt.created_at


def affinity_of(job: JobRecord) -> Affinity:
    """What the job's manifest says of nodes."""
    if '"nodes"' not in job.manifest:  # most do not, and need not be read
        return NO_AFFINITY
    return parse_stored(job.manifest, source=job.id).affinity


def _endless(job: JobRecord, asked: Asked) -> str:
    """How a job that runs until somebody stops it is called; empty for one that ends by itself."""
    if not asked.endless:
        return ""
    labels = parse_stored(job.manifest, source=job.id).labels if job.owner_id is not None else {}
    service = labels.get("service")
    return f"job {job.id}" if service is None else f"service {service}"
