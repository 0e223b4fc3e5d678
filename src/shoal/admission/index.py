"""The control plane's mutable picture of the cluster, kept up to date change by change.

`snapshot(now)` hands out a frozen picture at a cost that depends on what changed since the last one. Order of use::

    decision = decide(index.snapshot(now))
    index.settle(decision)
    for start in carried_out:
        index.start(Running(...))  # leaves the queue, takes its devices
    index.refund(not_carried_out)
    for preemption in decision.preemptions:
        index.update_running(preemption.job_id, stopping=True)
    ...
    index.stop(job_id, ran_s=...)  # when the attempt is over

It belongs to one thread, at first to the one that made it: a snapshot may go to another thread, the index itself
refuses. Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf, sqrt
from threading import get_ident
from weakref import WeakValueDictionary

from shoal.admission.nodes import NodeBook
from shoal.admission.past import PastBook
from shoal.admission.persistent import CowMap, Runs
from shoal.admission.snapshot import (
    Group,
    GroupKey,
    Held,
    Layout,
    Need,
    PendingJobs,
    Shape,
    Snapshot,
    TenantQueue,
    expected_runtime_s,
    group_key,
    resolve,
    slots,
)
from shoal.admission.types import Claim, Decision, Pending, Policy, Running, Spread, Start, TenantState
from shoal.core import ANY, Affinity, Node, PriorityClass, Resources, Tenant

_MEAN_OVER = 32
"""The mean run time of a tenant follows about this many of its last jobs."""


_Asked = tuple[Resources, int, Spread | None, int, Affinity]
"""The fields of a `Shape`."""


@dataclass(slots=True)
class _Queue:
    """The mutable side of a `Group`."""

    key: GroupKey
    shape: Shape
    ready: Runs[Pending]
    delayed: Runs[Pending]

    def freeze(self) -> Group:
        return Group(self.key, self.shape, self.ready.freeze(), self.delayed.freeze())


@dataclass(slots=True)
class _Account:
    """The mutable side of a `TenantState`."""

    tenant: Tenant
    kinds: dict[str, int]
    cpu_milli: int
    memory_bytes: int
    running_jobs: int
    deficit: float
    mean_runtime_s: float | None
    runtime_var: float
    runs: int

    @classmethod
    def thaw(cls, state: TenantState) -> _Account:
        used = state.used
        return cls(
            state.tenant,
            dict(used.accelerators),
            used.cpu_milli,
            used.memory_bytes,
            state.running_jobs,
            state.deficit,
            state.mean_runtime_s,
            state.runtime_std_s**2,
            state.runs,
        )

    def freeze(self) -> TenantState:
        used = Resources(self.kinds, self.cpu_milli, self.memory_bytes)
        return TenantState(
            self.tenant, used, self.running_jobs, self.deficit, self.mean_runtime_s, sqrt(self.runtime_var), self.runs
        )

    def learn(self, ran_s: float) -> None:
        """A run completed."""
        self.runs = min(self.runs + 1, _MEAN_OVER)
        mean = self.mean_runtime_s if self.mean_runtime_s is not None else ran_s
        self.mean_runtime_s = mean + (ran_s - mean) / self.runs
        spread = (ran_s - mean) * (ran_s - self.mean_runtime_s)
        self.runtime_var = max(0.0, self.runtime_var + (spread - self.runtime_var) / self.runs)

    def add(self, need: Need, ranks: int) -> None:
        """Count what these ranks hold; a negative number gives it back."""
        for kind, count in ((need.pool, need.count), *need.others):
            self.kinds[kind] = self.kinds.get(kind, 0) + count * ranks
        self.cpu_milli += need.cpu_milli * ranks
        self.memory_bytes += need.memory_bytes * ranks
        self.running_jobs += 1 if ranks > 0 else -1


class ClusterIndex:
    """See the module's docstring. `policy` may be assigned at any time; it applies from the next snapshot on."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self._thread = get_ident()
        self._nodes = NodeBook()
        self._tenants: CowMap[TenantState] = CowMap()
        self._accounts: dict[str, _Account] = {}
        self._dirty_accounts: set[str] = set()
        self._pending: CowMap[Pending] = CowMap()
        self._queues: dict[str, dict[GroupKey, _Queue]] = {}
        self._shapes: WeakValueDictionary[_Asked, Shape] = WeakValueDictionary()
        self._delayed: set[str] = set()
        self._due: list[tuple[float, str]] = []
        self._frozen_queues: CowMap[TenantQueue] = CowMap()
        self._dirty_queues: set[str] = set()
        self._running: CowMap[Running] = CowMap()
        self._held: CowMap[Held] = CowMap()
        self._ends: Runs[Running] = Runs()
        self._reports: Runs[None] = Runs()
        self._preemptible = 0
        self._turn: str | None = None
        self._claims: tuple[Claim, ...] = ()
        self._past = PastBook()

    # --- nodes and tenants

    def set_nodes(self, nodes: Iterable[Node], *, unschedulable: Collection[str] | Mapping[str, str] = ()) -> None:
        """Replace the set of nodes. Running jobs keep what they hold; a job on a node that vanished stays running (and
        counted against its tenant) until `stop`, and holds its devices again if the node returns. `unschedulable`
        nodes take no new jobs; a mapping says why."""
        self._check_thread()
        closed = unschedulable if isinstance(unschedulable, Mapping) else dict.fromkeys(unschedulable, "")
        held = [self._running[job_id] for job_id in sorted(self._held)]
        self._nodes = NodeBook.of(nodes, closed, held, self.policy.together)

    @property
    def layout(self) -> Layout:
        """What of the nodes does not depend on what runs."""
        return self._nodes.layout

    def set_tenant(self, tenant: Tenant, *, mean_runtime_s: float | None = None) -> None:
        """Add or change a tenant; what it holds and its account are kept. `mean_runtime_s` restores what was learned
        in an earlier life of the server."""
        self._check_thread()
        account = self._account(tenant.name)
        account.tenant = tenant
        if mean_runtime_s is not None:
            account.mean_runtime_s = mean_runtime_s

    # --- waiting jobs

    def add_pending(self, job: Pending) -> bool:
        """Queue a job; one of the same id is replaced. An unknown tenant is added with weight 1 and no quota.

        False where this changes no decision of admission: an equal job waits before it, and the decision that is to be
        made of that one, or was, holds for it as well. One that others were preempted for has a place to come."""
        if self.pending(job.job_id) is not None:
            self.remove_pending(job.job_id)
        self._check_thread()
        self._account(job.tenant)
        self._pending[job.job_id] = job
        self._past.came(job)
        queue = self._queue(job)
        if job.not_before > 0:
            queue.delayed.add((job.not_before, job.job_id), job)
            self._delayed.add(job.job_id)
            heappush(self._due, (job.not_before, job.job_id))
            return True
        ahead = queue.ready.add((job.queued_at, job.job_id), job)
        return ahead is None or any(claim.job_id == ahead.job_id for claim in self._claims)

    def remove_pending(self, job_id: str) -> Pending | None:
        """Take a job out of the queue and return it; None if it is not there."""
        self._check_thread()
        job = self._pending.pop(job_id)
        if job is None:
            return None
        queue = self._queue(job)
        if job_id in self._delayed:
            self._delayed.discard(job_id)
            queue.delayed.remove((job.not_before, job_id))
        else:
            queue.ready.remove((job.queued_at, job_id))
        if not queue.ready and not queue.delayed:
            groups = self._groups(job.tenant)
            del groups[queue.key]
            if not groups:
                del self._queues[job.tenant]
        return job

    def pending(self, job_id: str) -> Pending | None:
        return self._pending.get(job_id)

    def running(self, job_id: str) -> Running | None:
        return self._running.get(job_id)

    # --- running jobs

    def start(self, running: Running) -> None:
        """The job holds its placement from now on, and leaves the queue. Also used after a restart for jobs that ran
        already; these carry no charge. A job of the same id that ran is replaced."""
        self._check_thread()
        if running.job_id in self._held:
            self.stop(running.job_id)
        account = self._account(running.tenant)
        waiting = self.remove_pending(running.job_id)
        ranks = len(running.placement)
        share = slots(running.resources, ranks)
        charge = share * expected_runtime_s(waiting, account.mean_runtime_s, self.policy) if waiting else 0.0
        need = self._need(running)
        account.add(need, ranks)
        self._remember(running, need, charge, share)
        self._nodes.take(running)

    def update_running(
        self,
        job_id: str,
        *,
        at_risk_s: float | None = None,
        expected_end: float | None = None,
        end_between: tuple[float, float] | None = None,
        stopping: bool | None = None,
        queued: bool | None = None,
    ) -> None:
        """Change what is known of a running job; None leaves a value as it is. Unknown jobs are ignored."""
        self._check_thread()
        running = self._running.get(job_id)
        if running is None:
            return
        held = self._forget(job_id)
        changed = replace(
            running,
            at_risk_s=running.at_risk_s if at_risk_s is None else at_risk_s,
            expected_end=running.expected_end if expected_end is None else expected_end,
            end_between=running.end_between if end_between is None else end_between,
            stopping=running.stopping if stopping is None else stopping,
            queued=running.queued if queued is None else queued,
        )
        self._remember(changed, held.need, held.charge, held.slots)

    def begin(self, job_id: str, at: float) -> None:
        """A running job that waited in a queue of the cluster until then begins now: its times count from there."""
        self._check_thread()
        running = self._running.get(job_id)
        if running is None:
            return
        held, later = self._forget(job_id), max(0.0, at - running.started_at)
        end, latest = running.expected_end, running.latest_end
        changed = replace(
            running, started_at=running.started_at + later, queued=False,
            expected_end=None if end is None else end + later, latest_end=None if latest is None else latest + later,
        )  # fmt: skip
        self._remember(changed, held.need, held.charge, held.slots)

    def stop(
        self, job_id: str, *, ran_s: float | None = None, completed: bool = True, held_s: float | None = None
    ) -> Running | None:
        """The job's processes are gone: free what it held and settle its charge against the seconds it really ran
        (None: keep the charge). A `completed` run teaches the tenant's mean run time; a preempted one does not.
        `held_s` is for how long one that was not preempted held its capacity. Returns what ran, if the job did."""
        self._check_thread()
        running = self._running.get(job_id)
        if running is None:
            return None
        held = self._forget(job_id)
        self._running.pop(job_id)
        account = self._account(running.tenant)
        account.add(held.need, -held.ranks)
        if ran_s is not None and held.charge:
            account.deficit += held.charge - held.slots * ran_s
        if ran_s is not None and completed:
            account.learn(ran_s)
            held_s = ran_s if held_s is None else held_s
        self._past.ended(running, held_s)
        self._nodes.give_back(running, self._running)
        return running

    def settle(self, decision: Decision) -> None:
        """Take over what a decision hands to the next one, at once after it was made."""
        self._check_thread()
        for name, deficit in decision.deficits.items():
            if name in self._accounts or name in self._tenants:
                self._account(name).deficit = deficit
        self._turn = decision.turn
        self._claims = decision.claims

    def refund(self, starts: Iterable[Start]) -> None:
        """Give back the charge of starts that were not carried out, for jobs that still wait."""
        self._check_thread()
        for start in starts:
            job = self._pending.get(start.job_id)
            if job is not None:
                self._account(job.tenant).deficit += start.charge

    # --- the frozen picture

    def snapshot(self, now: float) -> Snapshot:
        """A picture that later changes of the index do not touch."""
        self._check_thread()
        self._release_due(now)
        for tenant in self._dirty_queues:
            groups = self._queues.get(tenant)
            if groups:
                self._frozen_queues[tenant] = _freeze_queue(groups)
            else:
                self._frozen_queues.pop(tenant)
        self._dirty_queues.clear()
        for tenant in self._dirty_accounts:
            self._tenants[tenant] = self._accounts[tenant].freeze()
        self._dirty_accounts.clear()
        while self._due and not self._still_delayed(*self._due[0]):
            heappop(self._due)
        nodes, pools, jobs_on = self._nodes.freeze()
        return Snapshot(
            now=now,
            nodes=nodes,
            tenants=self._tenants.freeze(),
            pending=PendingJobs(
                self._pending.freeze(), self._frozen_queues.freeze(), self._due[0][0] if self._due else None
            ),
            running=self._running.freeze(),
            turn=self._turn,
            policy=self.policy,
            pools=pools,
            jobs_on=jobs_on,
            ends=self._ends.freeze(),
            held=self._held.freeze(),
            reports=self._reports.freeze(),
            preemptible=self._preemptible,
            claims=tuple(claim for claim in self._claims if claim.job_id in self._pending),
            past=self._past.freeze(now),
        )

    @classmethod
    def resume(cls, snapshot: Snapshot) -> ClusterIndex:
        """A new index that starts from a snapshot and shares its content until it changes: for what-if questions. It
        costs next to nothing, however many jobs wait and run."""
        made = cls(snapshot.policy)
        made._nodes = NodeBook.thaw(snapshot)
        made._tenants = CowMap.thaw(snapshot.tenants)
        made._pending = CowMap.thaw(snapshot.pending.by_id)
        made._frozen_queues = CowMap.thaw(snapshot.pending.by_tenant)
        if snapshot.pending.next_due is not None:
            for queue in snapshot.pending.by_tenant.values():
                for job in (job for group in queue for job in group.delayed):
                    made._delayed.add(job.job_id)
                    heappush(made._due, (job.not_before, job.job_id))
        made._running = CowMap.thaw(snapshot.running)
        made._ends = Runs.thaw(snapshot.ends)
        made._held = CowMap.thaw(snapshot.held)
        made._reports = Runs.thaw(snapshot.reports)
        made._preemptible = snapshot.preemptible
        made._turn = snapshot.turn
        made._claims = snapshot.claims
        made._past = PastBook.thaw(snapshot.past)
        return made

    def take_over(self) -> None:
        """From now on it belongs to the thread that calls this; the one before uses it no more."""
        self._thread = get_ident()

    # --- inside

    def _check_thread(self) -> None:
        if get_ident() != self._thread:
            raise RuntimeError("a cluster index belongs to one thread: give other threads a snapshot")

    def _account(self, name: str) -> _Account:
        """The account of a tenant, to be changed."""
        self._dirty_accounts.add(name)
        account = self._accounts.get(name)
        if account is None:
            state = self._tenants.get(name)
            account = self._accounts[name] = _Account.thaw(TenantState(Tenant(name)) if state is None else state)
        return account

    def _groups(self, tenant: str) -> dict[GroupKey, _Queue]:
        """The waiting jobs of a tenant, to be changed. After `resume` they are thawed when first asked for."""
        groups = self._queues.get(tenant)
        if groups is None:
            # A tenant that has no queue any more may still have one in what was frozen before.
            frozen = None if tenant in self._dirty_queues else self._frozen_queues.get(tenant)
            groups = self._queues[tenant] = {}
            for group in frozen or ():
                groups[group.key] = _Queue(group.key, group.shape, Runs.thaw(group.ready), Runs.thaw(group.delayed))
                key = group.key
                self._shapes[key.resources, key.ranks, key.placement, key.per_node, key.affinity] = group.shape
        self._dirty_queues.add(tenant)
        return groups

    def _queue(self, job: Pending) -> _Queue:
        key = group_key(job)
        groups = self._groups(job.tenant)
        queue = groups.get(key)
        if queue is None:
            asked = (key.resources, key.ranks, key.placement, key.per_node, key.affinity)
            shape = self._shapes.get(asked)
            if shape is None:
                shape = self._shapes[asked] = Shape(*asked)
            queue = groups[key] = _Queue(key, shape, Runs(), Runs())
        return queue

    def _still_delayed(self, due: float, job_id: str) -> bool:
        return job_id in self._delayed and self._pending[job_id].not_before == due

    def _release_due(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            due, job_id = heappop(self._due)
            if not self._still_delayed(due, job_id):
                continue
            job = self._pending[job_id]
            queue = self._queue(job)
            self._delayed.discard(job_id)
            queue.delayed.remove((due, job_id))
            queue.ready.add((job.queued_at, job_id), job)

    def _need(self, running: Running) -> Need:
        """What a rank holds, `ANY` resolved by the devices it was given."""
        resources = running.resources
        if ANY not in resources.accelerators:
            return resolve(resources, None)
        for rank in running.placement:
            at = self._nodes.layout.position.get(rank.node)
            if at is not None:
                kinds = {self._nodes.layout.type_of[at].get(device, ANY) for device in rank.devices}
                # Beside devices of a type asked for by name, the ones of another type are those for `any`.
                return resolve(resources, min(kinds - resources.accelerators.keys() or kinds, default=None))
        return resolve(resources, None)

    def _end_key(self, running: Running) -> tuple[float, str]:
        if running.stopping:
            return 0.0, running.job_id
        end = running.expected_end
        if running.endless:
            end = inf if running.latest_end is None else running.latest_end
        elif end is None:
            # The same guess as the one by which a job was let past a reservation: otherwise the two would drift apart.
            mean = self._account(running.tenant).mean_runtime_s
            end = running.started_at + (self.policy.default_runtime_s if mean is None else mean)
        # An end must sort after every stopping job's, also on a clock that starts at zero.
        return max(end, 1e-9), running.job_id

    def _remember(self, running: Running, need: Need, charge: float, share: float) -> None:
        end_key = self._end_key(running)
        self._running[running.job_id] = running
        self._held[running.job_id] = Held(need, len(running.placement), charge, share, end_key)
        self._ends.add(end_key, running)
        self._preemptible += _may_be_evicted(running)
        if _reports(running):
            self._reports.add((running.at_risk_s or 0.0, running.job_id), None)

    def _forget(self, job_id: str) -> Held:
        running, held = self._running[job_id], self._held[job_id]
        self._held.pop(job_id)
        self._preemptible -= _may_be_evicted(running)
        self._ends.remove(held.end_key)
        if _reports(running):
            self._reports.remove((running.at_risk_s or 0.0, job_id))
        return held


def _reports(running: Running) -> bool:
    return running.at_risk_s is not None and running.priority_class is PriorityClass.BEST_EFFORT


def _may_be_evicted(running: Running) -> bool:
    return running.priority_class is PriorityClass.BEST_EFFORT and not running.stopping


def _freeze_queue(groups: dict[GroupKey, _Queue]) -> TenantQueue:
    by_class: dict[PriorityClass, list[Group]] = {PriorityClass.GUARANTEED: [], PriorityClass.BEST_EFFORT: []}
    for key, queue in groups.items():
        by_class[key.priority_class].append(queue.freeze())
    for frozen in by_class.values():
        frozen.sort(key=lambda group: -group.key.priority)
    return TenantQueue(tuple(by_class[PriorityClass.GUARANTEED]), tuple(by_class[PriorityClass.BEST_EFFORT]))
