"""Builders of small clusters, a strategy for random ones, and an independent oracle for placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import product

from hypothesis import strategies as st

from shoal.admission import (
    ClusterIndex,
    Decision,
    Explanation,
    Pending,
    Policy,
    Running,
    Snapshot,
    Spread,
    decide,
)
from shoal.admission.explain import raised
from shoal.contract.records import RankPlacement
from shoal.core import ANY, NO_AFFINITY, Affinity, Device, Node, PriorityClass, Quota, Resources, Taint, Tenant

G, B = PriorityClass.GUARANTEED, PriorityClass.BEST_EFFORT
NOW = 1_000.0
GIB = 2**30


def node(
    name: str, accelerators: Mapping[str, int] | None = None, *, cores: int = 64, memory_gib: int = 512, rack: str = "",
    taints: Iterable[Taint] = (), **labels: str,
) -> Node:  # fmt: skip
    devices = [Device(f"{kind}:{at}", kind, at) for kind, count in (accelerators or {}).items() for at in range(count)]
    labels |= {"rack": rack} if rack else {}
    return Node(name, tuple(devices), cores * 1000, memory_gib * GIB, labels, taints=tuple(taints))


def nodes(count: int, per_node: int = 8, kind: str = "a100", **more: int) -> list[Node]:
    return [node(f"n{at:04d}", {kind: per_node}, **more) for at in range(count)]


def need(count: int = 0, kind: str = "a100", *, cores: float = 0, memory_gib: int = 0) -> Resources:
    return Resources({kind: count}, int(cores * 1000), memory_gib * GIB)


def job(
    job_id: str,
    tenant: str = "a",
    resources: Resources | int = 1,
    *,
    ranks: int = 1,
    at: float = 0.0,
    cls: PriorityClass = B,
    priority: int = 0,
    expected_s: float | None = None,
    placement: Spread | None = None,
    not_before: float = 0.0,
    most: int = 0,
    per_node: int = 0,
    affinity: Affinity = NO_AFFINITY,
) -> Pending:
    wanted = need(resources) if isinstance(resources, int) else resources
    return Pending(
        job_id, tenant, cls, priority, wanted, ranks, at, placement, expected_s=expected_s, not_before=not_before,
        max_ranks=most, per_node=per_node, affinity=affinity,
    )  # fmt: skip


def running(
    job_id: str,
    where: Mapping[str, Iterable[str]] | Iterable[tuple[str, Iterable[str]]],
    tenant: str = "a",
    *,
    cls: PriorityClass = B,
    kind: str = "a100",
    cores: float = 0,
    started: float = 0.0,
    end: float | None = None,
    at_risk_s: float | None = None,
    stopping: bool = False,
) -> Running:
    """A running job with one rank per (node, device ids)."""
    ranks = list(where.items()) if isinstance(where, Mapping) else list(where)
    placed = tuple(RankPlacement(rank, name, tuple(ids)) for rank, (name, ids) in enumerate(ranks))
    resources = need(len(placed[0].devices), kind, cores=cores)
    return Running(job_id, tenant, cls, 0, resources, placed, started, at_risk_s, end, stopping)


def devices(*indices: int, kind: str = "a100") -> list[str]:
    return [f"{kind}:{index}" for index in indices]


def index_of(
    nodes: Iterable[Node],
    pending: Iterable[Pending] = (),
    running: Iterable[Running] = (),
    tenants: Iterable[Tenant] = (),
    policy: Policy | None = None,
    unschedulable: Iterable[str] = (),
) -> ClusterIndex:
    index = ClusterIndex(policy)
    index.set_nodes(nodes, unschedulable=tuple(unschedulable))
    for tenant in tenants:
        index.set_tenant(tenant)
    for held in running:
        index.start(held)
    for waiting in pending:
        index.add_pending(waiting)
    return index


def decide_on(*args: object, now: float = NOW, **more: object) -> Decision:
    return decide(index_of(*args, **more).snapshot(now))  # type: ignore[arg-type]


def carry_out(index: ClusterIndex, snapshot: Snapshot, decision: Decision) -> list[Running]:
    """Do what a decision says, the way the control plane does."""
    index.settle(decision)
    started = []
    for start in decision.starts:
        waiting = snapshot.pending.by_id[start.job_id]
        end = None if waiting.expected_s is None else snapshot.now + waiting.expected_s
        held = Running(
            waiting.job_id, waiting.tenant, waiting.priority_class, waiting.priority, waiting.resources,
            start.placement, snapshot.now, expected_end=end, affinity=waiting.affinity,
        )  # fmt: skip
        index.start(held)
        started.append(held)
    for preemption in decision.preemptions:
        index.update_running(preemption.job_id, stopping=True)
    return started


# --- is an explanation true?


def granted(snapshot: Snapshot, told: Explanation) -> Snapshot:
    """The cluster in which everything that the explanation asks for is so."""
    index = ClusterIndex.resume(snapshot)
    waiting = snapshot.pending.by_id[told.job_id]
    for cause in told.causes:
        change = cause.reason.facts.get("to_start", {}) if cause.blocking else {}
        for job_id in change.get("end", ()):
            index.stop(job_id)
        if "open" in change:
            shut = {name for name, state in snapshot.nodes.items() if not state.schedulable}
            index.set_nodes([s.node for s in snapshot.nodes.values()], unschedulable=shut - set(change["open"]))
        if "quota" in change:
            tenant = snapshot.tenants[waiting.tenant].tenant
            index.set_tenant(replace(tenant, quota=raised(tenant.quota, change["quota"])))
        if "priority" in change:
            cls = PriorityClass(change["priority_class"])
            waiting = waiting._replace(priority=change["priority"], priority_class=cls)
        waiting = waiting._replace(not_before=change.get("not_before", waiting.not_before))
    index.add_pending(waiting)
    return index.snapshot(snapshot.now)


def check_explanation(snapshot: Snapshot, told: Explanation, starting: Collection[str]) -> None:
    """A job that starts now (`starting`) is not blocked; any other is, and starts once it has all that it is said to
    lack, unless other tenants go first or it can never start."""
    blocking = {cause.cause for cause in told.causes if cause.blocking}
    if told.job_id in starting:
        assert not blocking
        assert told.estimated_start == snapshot.now
        return
    assert blocking
    assert told.summary.startswith("waits")
    if not blocking & {"share", "impossible"}:
        assert told.job_id in {start.job_id for start in decide(granted(snapshot, told)).starts}


# --- random clusters


@st.composite
def clusters(
    draw: st.DrawFn, *, known_ends: bool = False, taints: Iterable[tuple[Taint, ...]] = ((),), zones: str = "a",
    affinities: Iterable[Affinity] = (NO_AFFINITY,),
) -> ClusterIndex:  # fmt: skip
    """Up to three nodes of up to two types, three tenants with quotas, some running jobs and up to a dozen waiting. A
    node has one of these sets of taints, and of these zones; a job one of the affinities."""
    made = [
        node(
            f"n{at}",
            {"a100": draw(st.sampled_from([2, 4, 4])), "h100": draw(st.sampled_from([0, 0, 2]))},
            cores=draw(st.sampled_from([2, 4, 8])),
            memory_gib=8,
            rack=draw(st.sampled_from(["", "r1", "r2"])),
            taints=draw(st.sampled_from(list(taints))),
            zone=draw(st.sampled_from(zones)),
        )
        for at in range(draw(st.integers(1, 3)))
    ]
    limit = st.sampled_from([None, None, None, 1, 4, 8])
    tenants = [
        Tenant(
            name,
            draw(st.sampled_from([0.5, 1.0, 3.0])),
            Quota(accelerators=draw(limit), by_type=draw(st.sampled_from([(), (), (), (("a100", 2),)])),
                  cpu_milli=draw(st.sampled_from([None, None, None, 3000])), running_jobs=draw(limit)),
        )
        for name in ("a", "b", "c")
    ]  # fmt: skip
    expected = st.sampled_from([5.0, 50.0, 500.0]) if known_ends else st.sampled_from([None, 5.0, 500.0])
    waiting = st.builds(
        job,
        st.just(""),
        st.sampled_from(["a", "b", "c"]),
        st.builds(
            lambda count, kind, cores: need(count, kind, cores=cores),
            st.sampled_from([0, 1, 1, 2, 2, 3, 4]), st.sampled_from(["a100", "a100", "a100", "h100", ANY]),
            st.sampled_from([0, 0, 0.5, 1, 2]),
        ),
        ranks=st.sampled_from([1, 1, 1, 2, 3]),
        at=st.integers(900, 1000).map(float),
        cls=st.sampled_from([G, B]),
        priority=st.integers(0, 2),
        expected_s=expected,
        placement=st.sampled_from([None, Spread.PACK, Spread.SPREAD]),
        not_before=st.sampled_from([0.0] * 9 + [NOW + 60]),
        most=st.sampled_from([0, 0, 0, 2, 4]),
        affinity=st.sampled_from(list(affinities)),
    )  # fmt: skip
    # What runs was once admitted by the same policy, with everything that was to be preempted gone.
    first = draw(st.lists(waiting, min_size=2, max_size=10))
    index = index_of(made, [_named(w, f"r{at}") for at, w in enumerate(first)], tenants=tenants)
    snapshot = index.snapshot(NOW - 100)
    for held in carry_out(index, snapshot, decide(snapshot)):
        risk = draw(st.none() | st.integers(0, 100).map(float))
        index.update_running(held.job_id, at_risk_s=risk, stopping=draw(st.sampled_from([False, False, False, True])))
    for at in range(len(first)):
        index.remove_pending(f"r{at}")
    for tenant in tenants:  # what ended since then moved the mean run time
        index.set_tenant(tenant, mean_runtime_s=draw(st.sampled_from([None, 1.0, 30.0, 200.0])))
    for at, each in enumerate(draw(st.lists(waiting, min_size=1, max_size=12))):
        index.add_pending(_named(each, f"j{at:02d}"))
    shut = draw(st.sampled_from([(), (), ("n0",), ("n0", "n1")]))
    index.set_nodes(made, unschedulable=shut)
    return index


def _named(waiting: Pending, job_id: str) -> Pending:
    return waiting._replace(job_id=job_id)


# --- the oracle: no code shared with the policy

Free = dict[str, tuple[dict[str, int], int, int]]
"""By node: free devices by type, cpus, memory."""


def free_of(snapshot: Snapshot, starts: Iterable[tuple[Resources, Iterable[RankPlacement]]] = ()) -> Free:
    """What is left on each node that takes jobs, counted from the nodes' capacity down."""
    held = [(run.resources, run.placement) for run in snapshot.running.values()] + [(r, tuple(p)) for r, p in starts]
    free: Free = {}
    for state in snapshot.nodes.values():
        if not state.schedulable:
            continue
        type_of = {device.id: device.type for device in state.node.devices}
        kinds = dict(state.node.capacity().accelerators)
        cpu_milli, memory_bytes = state.node.cpu_milli, state.node.memory_bytes
        for resources, placement in held:
            for rank in placement:
                if rank.node == state.node.name:
                    for device in rank.devices:
                        kinds[type_of[device]] -= 1
                    cpu_milli -= resources.cpu_milli
                    memory_bytes -= resources.memory_bytes
        free[state.node.name] = (kinds, cpu_milli, memory_bytes)
    return free


def fits(free: Free, resources: Resources, ranks: int, types: Iterable[str] = ("a100", "h100")) -> bool:
    """Brute force: does some assignment of ranks to nodes, all of one type for `any`, leave no node below zero?"""
    kinds = list(types) if ANY in resources.accelerators else [None]
    for kind in kinds:
        wanted = {(kind or k) if k == ANY else k: n for k, n in resources.accelerators.items()}
        for choice in product(free, repeat=ranks):
            if all(
                all(choice.count(name) * n <= have.get(k, 0) for k, n in wanted.items())
                and choice.count(name) * resources.cpu_milli <= max(cpu, 0)
                and choice.count(name) * resources.memory_bytes <= max(memory, 0)
                for name, (have, cpu, memory) in free.items()
            ):
                return True
    return False


# --- a little world in which jobs end


class World:
    """Decides, carries out, and moves time to the next end. `runtime_of` says how long a job really runs."""

    def __init__(self, index: ClusterIndex, runtime_of: Callable[[Pending], float], *, now: float = NOW) -> None:
        self.index = index
        self.now = now
        self.started: list[tuple[float, Pending]] = []
        self.slot_seconds: Counter[str] = Counter()
        self._runtime_of = runtime_of
        self._ends: list[tuple[float, str, float, str]] = []

    def runs_on(self, held: Running, end: float) -> None:
        """A job that was running already ends then."""
        heappush(self._ends, (end, held.job_id, 0.0, held.tenant))

    def decide(self) -> Decision:
        snapshot = self.index.snapshot(self.now)
        decision = decide(snapshot)
        for held in carry_out(self.index, snapshot, decision):
            waiting = snapshot.pending.by_id[held.job_id]
            runtime = self._runtime_of(waiting)
            self.started.append((self.now, waiting))
            slots = waiting.resources.accelerator_count * waiting.ranks
            heappush(self._ends, (self.now + runtime, held.job_id, runtime * slots, waiting.tenant))
        for preemption in decision.preemptions:
            self._ends = [end for end in self._ends if end[1] != preemption.job_id]
            self._ends.append((self.now, preemption.job_id, 0.0, ""))
            heapify(self._ends)
        return decision

    def step(self) -> bool:
        """Move to the next end (or wake-up); False when nothing is left to happen."""
        wake_at = self.decide().wake_at
        times = [self._ends[0][0]] if self._ends else []
        times += [wake_at] if wake_at is not None and wake_at > self.now else []
        if not times:
            return False
        self.now = min(times)
        while self._ends and self._ends[0][0] <= self.now:
            _, job_id, slot_seconds, tenant = heappop(self._ends)
            held = self.index.running(job_id)
            if held is not None:
                self.index.stop(job_id, ran_s=self.now - held.started_at)
                self.slot_seconds[tenant or held.tenant] += slot_seconds
        return True
