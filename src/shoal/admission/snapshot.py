"""The frozen picture that a decision is made from. `ClusterIndex.snapshot` makes it; nothing ever changes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import frexp
from typing import NamedTuple

from shoal.admission.past import Past
from shoal.admission.persistent import FrozenMap, FrozenRuns
from shoal.admission.sites import Sites, sites_of
from shoal.admission.together import Level
from shoal.admission.types import (
    Claim,
    NodeKind,
    NodeState,
    Pending,
    Policy,
    Running,
    Seats,
    Shared,
    Spread,
    TenantState,
)
from shoal.core import ANY, NO_AFFINITY, Affinity, Node, PriorityClass, Resources, Share

BucketKey = tuple[int, int]
"""What the nodes of a bucket have free: (all accelerators, whole cores); in the pool of a type (devices of it, 0)."""

_MOST_SITES = 512
"""The most affinities whose nodes are remembered: what manifests ask for may be different in each."""

CPU_POOL = ""
"""The pool of all nodes, for jobs that ask for no accelerator."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one rank takes on one node, with `ANY` resolved: `count` devices of type `pool`, maybe some of other types,
    all of them in one way (`share`), with `device_memory` bytes of each where others use it too. `per_node`, where not
    0, is how many ranks of a gang each of its nodes gets. `only` are the nodes where it may be; None: all.

    `pool` is `CPU_POOL` when no accelerator is asked for.
    """

    pool: str
    count: int
    others: tuple[tuple[str, int], ...]
    cpu_milli: int
    memory_bytes: int
    share: Share = Share.EXCLUSIVE
    device_memory: int = 0
    per_node: int = 0
    only: Sites | None = None

    def may_be_on(self, at: int) -> bool:
        """Whether the node at this position is one for it."""
        return self.only is None or at in self.only.at

    def at_most(self, ranks: int) -> int:
        """How many of `ranks` ranks one node may get."""
        if not self.per_node:
            return ranks
        return self.per_node if ranks >= self.per_node else 0

    @property
    def kinds(self) -> tuple[tuple[str, int], ...]:
        """How many devices of which types, without none."""
        return ((self.pool, self.count), *self.others) if self.count else self.others

    @property
    def pool_name(self) -> str:
        """The pool of the nodes where it may fit."""
        return self.pool if self.share is Share.EXCLUSIVE else shared_pool(self.pool, self.share)

    def of_device(self, whole: Seats) -> Seats:
        """What it takes of one device that can be shared."""
        if self.share is Share.EXCLUSIVE:
            return whole
        guaranteed = self.share is Share.GUARANTEED
        return Seats(int(guaranteed), int(not guaranteed), self.device_memory)


def shared_pool(kind: str, share: Share) -> str:
    """The pool of the nodes that have a device of this type open to such jobs. No type of device has a `+`."""
    return f"{kind}+{share.value}"


@lru_cache(maxsize=4096)
def resolve(resources: Resources, any_type: str | None) -> Need:
    """The `Need` of a per-rank request; `any_type` is the type chosen for `ANY`."""
    counts: dict[str, int] = {}
    for kind, count in resources.accelerators.items():
        named = (any_type or ANY) if kind == ANY else kind
        counts[named] = counts.get(named, 0) + count
    if not counts:
        return Need(CPU_POOL, 0, (), resources.cpu_milli, resources.memory_bytes)
    pool = max(counts, key=lambda kind: (counts[kind], kind))
    others = tuple((kind, count) for kind, count in counts.items() if kind != pool)
    beside = (resources.share, resources.device_memory_bytes)
    return Need(pool, counts[pool], others, resources.cpu_milli, resources.memory_bytes, *beside)


class GroupKey(NamedTuple):
    """Jobs alike in this are interchangeable to admission: when one cannot start, neither can those behind it.

    `runtime_class` is the power of two of the expected run time (0: unknown), so that short jobs may backfill past
    long ones of the same shape.
    """

    tenant: str
    priority_class: PriorityClass
    priority: int
    resources: Resources
    ranks: int
    placement: Spread | None
    per_node: int
    affinity: Affinity
    runtime_class: int


def group_key(job: Pending) -> GroupKey:
    runtime_class = frexp(max(job.expected_s, 1.0))[1] if job.expected_s is not None else 0
    shape = (job.resources, job.ranks, job.placement, job.per_node, job.affinity)
    return GroupKey(job.tenant, job.priority_class, job.priority, *shape, runtime_class)


@dataclass(frozen=True, eq=False)
class Shape:
    """What jobs of a group ask for. Groups that ask for the same share one, so it is compared by identity."""

    resources: Resources
    ranks: int
    placement: Spread | None
    per_node: int
    affinity: Affinity = NO_AFFINITY


@dataclass(frozen=True, slots=True)
class Group:
    """Equal waiting jobs: `ready` in order of arrival, `delayed` in the order their back-off ends."""

    key: GroupKey
    shape: Shape
    ready: FrozenRuns[Pending]
    delayed: FrozenRuns[Pending]


@dataclass(frozen=True, slots=True)
class TenantQueue:
    """A tenant's waiting jobs by class, each class sorted by falling priority."""

    guaranteed: tuple[Group, ...] = ()
    best_effort: tuple[Group, ...] = ()

    def of(self, priority_class: PriorityClass) -> tuple[Group, ...]:
        return self.guaranteed if priority_class is PriorityClass.GUARANTEED else self.best_effort

    def __iter__(self) -> Iterator[Group]:
        yield from self.guaranteed
        yield from self.best_effort


@dataclass(frozen=True, slots=True)
class PendingJobs:
    """All waiting jobs: by id, and by tenant in groups. `next_due` is when the next back-off ends."""

    by_id: FrozenMap[Pending] = field(default_factory=FrozenMap)
    by_tenant: FrozenMap[TenantQueue] = field(default_factory=FrozenMap)
    next_due: float | None = None

    def __len__(self) -> int:
        return len(self.by_id)


@dataclass(frozen=True, slots=True)
class Pool:
    """The schedulable nodes that have an accelerator type, as positions, in buckets by what is free."""

    keys: tuple[BucketKey, ...]
    buckets: Mapping[BucketKey, tuple[int, ...]]
    free: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The part of the nodes that does not change from cycle to cycle. `index_of` gives a device's index on its node by
    id. `kinds` gives the number of nodes of each distinct capacity. `shared` gives what each shareable device offers,
    by type and id; on one node all devices of a type are shareable, or none. `pooled`: a cluster picks the machines.
    `levels` say which nodes are close to each other. `nodes` and `kind_of` are by position; `tainted` are the positions
    of nodes that only jobs which tolerate it may use."""

    names: tuple[str, ...] = ()
    position: Mapping[str, int] = field(default_factory=dict)
    index_of: tuple[Mapping[str, int], ...] = ()
    type_of: tuple[Mapping[str, str], ...] = ()
    kinds: tuple[tuple[NodeKind, int], ...] = ()
    types: tuple[str, ...] = ()
    shared: tuple[Shared, ...] = ()
    pooled: bool = False
    levels: tuple[Level, ...] = ()
    nodes: tuple[Node, ...] = ()
    kind_of: tuple[NodeKind, ...] = ()
    tainted: frozenset[int] = frozenset()
    marked: bool = False
    """Some node has a taint of any effect."""
    _sites: dict[Affinity, Sites | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def everywhere(self) -> Sites:
        """All nodes."""
        return Sites(frozenset(range(len(self.names))), dict(self.kinds), {})

    def on_nodes(self, need: Need, per_node: int, affinity: Affinity) -> Need:
        """The need of a job that says on which nodes it may be, and how many ranks each gets (0: any number). On a
        pool, both are for the cluster to see to."""
        if self.pooled:
            return need
        only = self.sites(affinity)
        return replace(need, per_node=per_node, only=only) if per_node or only is not None else need

    def sites(self, affinity: Affinity) -> Sites | None:
        """Where jobs of this affinity may run; None: anywhere."""
        if self.pooled or (not affinity and not self.marked):
            return None
        try:
            return self._sites[affinity]
        except KeyError:
            if len(self._sites) >= _MOST_SITES:
                self._sites.clear()
            # Another thread may work out the same: the first one counts.
            return self._sites.setdefault(affinity, sites_of(self.nodes, self.kind_of, affinity))


class NodeTable(Mapping[str, NodeState]):
    """The state of every node, by name and by position."""

    __slots__ = ("layout", "states")

    def __init__(self, layout: Layout, states: tuple[NodeState, ...]) -> None:
        self.layout = layout
        self.states = states

    def __getitem__(self, name: str) -> NodeState:
        return self.states[self.layout.position[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.names)

    def __len__(self) -> int:
        return len(self.states)


@dataclass(frozen=True, slots=True)
class Held:
    """What is remembered of a running job beside `Running`, as of when it started: what it holds, its charge, and its
    key in `Snapshot.ends`. They cannot be worked out again later: a tenant's mean run time moves, and nodes go."""

    need: Need
    ranks: int
    charge: float
    slots: float
    end_key: tuple[float, str]


@dataclass(frozen=True)
class Snapshot:
    """Everything a decision may know.

    `pools` and `jobs_on` (ids of running jobs by node position) are indexes of `nodes` and `running`; `ends` sorts the
    running jobs by when they are expected to end; `held` has what else is remembered of them. `reports` sorts the best-
    effort jobs that report what they have at risk by that time; `preemptible` counts the best-effort jobs that were not
    asked to end yet. `claims` are those of the last decision whose jobs still wait. `past` is by tenant.
    """

    now: float
    nodes: NodeTable
    tenants: FrozenMap[TenantState]
    pending: PendingJobs
    running: FrozenMap[Running]
    turn: str | None
    policy: Policy
    pools: Mapping[str, Pool]
    jobs_on: tuple[tuple[str, ...], ...]
    ends: FrozenRuns[Running]
    held: FrozenMap[Held]
    reports: FrozenRuns[None] = field(default_factory=FrozenRuns)
    preemptible: int = 0
    claims: tuple[Claim, ...] = ()
    past: FrozenMap[Past] = field(default_factory=FrozenMap)

    @cached_property
    def median_at_risk_s(self) -> float | None:
        """Of the best-effort jobs that report theirs; None if there is none."""
        return self.reports.at(len(self.reports) // 2)[0][0] if self.reports else None

    @cached_property
    def stopping(self) -> tuple[Running, ...]:
        """Running jobs that were asked to end; they sort first in `ends`."""
        found: list[Running] = []
        for (end, _), running in self.ends.items():
            if end > 0:
                break
            found.append(running)
        return tuple(found)

    def tenant(self, name: str) -> TenantState:
        return self.tenants[name]


def expected_runtime_s(job: Pending, tenant_mean_s: float | None, policy: Policy) -> float:
    """The job's own expectation, else its tenant's mean, else the policy's default."""
    if job.expected_s is not None:
        return job.expected_s
    return tenant_mean_s if tenant_mean_s is not None else policy.default_runtime_s


def slots(resources: Resources, ranks: int) -> float:
    """What a job is charged for per second: its accelerators, or its cores if it asks for none (one at least). What is
    left of a device's time beside guaranteed work is not charged: a best-effort share counts by its cores."""
    count = resources.accelerator_count * ranks if resources.share is not Share.BEST_EFFORT else 0
    return float(count) if count else max(1.0, resources.cpu_milli * ranks / 1000)
