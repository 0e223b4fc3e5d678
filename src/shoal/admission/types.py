"""Inputs and results of a decision. All values are frozen; a policy reads no clock, file or network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from shoal.contract.records import RankPlacement
from shoal.core import NO_AFFINITY, Affinity, Node, PriorityClass, Reason, Resources, Tenant


class Spread(StrEnum):
    """PACK fills the fullest node that fits (keeps whole nodes free for gangs); SPREAD the emptiest."""

    PACK = "pack"
    SPREAD = "spread"


class Pending(NamedTuple):
    """A job that waits. `resources` is per rank. `ranks` is what it needs to start; a job that may have more has the
    most in `max_ranks`; `per_node`, where not 0, is how many of them each of its nodes gets. `expected_s` is its
    expected runtime, None when nothing is known. `not_before` (Unix seconds) delays it after a failure. `endless` is
    what runs until somebody stops it, by name (`service mlp`); empty for a job that ends by itself. `affinity` says on
    which nodes it may run. Jobs of one `kind` are likely to run equally long. `longest_s` is after how long it is
    stopped, None for never."""

    job_id: str
    tenant: str
    priority_class: PriorityClass
    priority: int
    resources: Resources
    ranks: int
    queued_at: float
    placement: Spread | None = None
    expected_s: float | None = None
    not_before: float = 0.0
    deadline_at: float | None = None
    max_ranks: int = 0
    per_node: int = 0
    endless: str = ""
    affinity: Affinity = NO_AFFINITY
    kind: str = ""
    longest_s: float | None = None

    @property
    def most(self) -> int:
        """The most ranks that it may have."""
        return max(self.ranks, self.max_ranks)


@dataclass(frozen=True, slots=True)
class Running:
    """A job that holds resources; `resources` is per rank. `at_risk_s` is the run time that would be lost if it ended
    now (since its last checkpoint), None when it never reported one. `stopping` once it was asked to end.
    `expected_end` in Unix seconds, None when nothing is known; at `latest_end` it is stopped, None for never. `queued`
    while a cluster that it was handed over to has not started it: it loses nothing. `end_between` holds its end in
    nine of ten cases, where that is reported. `declared_s` is how long it was declared to run. `endless`, `affinity`
    and `kind` as for `Pending`."""

    job_id: str
    tenant: str
    priority_class: PriorityClass
    priority: int
    resources: Resources
    placement: tuple[RankPlacement, ...]
    started_at: float
    at_risk_s: float | None = None
    expected_end: float | None = None
    stopping: bool = False
    latest_end: float | None = None
    queued: bool = False
    endless: str = ""
    affinity: Affinity = NO_AFFINITY
    kind: str = ""
    declared_s: float | None = None
    end_between: tuple[float, float] | None = None


class Seats(NamedTuple):
    """What a device that can be shared offers, or some of it: the place of the guaranteed job, places for best-effort
    ones, and its memory in bytes."""

    guaranteed: int
    best_effort: int
    memory: int

    def plus(self, other: Seats) -> Seats:
        return Seats(self[0] + other[0], self[1] + other[1], self[2] + other[2])

    def minus(self, other: Seats) -> Seats:
        return Seats(self[0] - other[0], self[1] - other[1], self[2] - other[2])

    def within(self, other: Seats) -> bool:
        return self[0] <= other[0] and self[1] <= other[1] and self[2] <= other[2]

    def least(self, other: Seats) -> Seats:
        return Seats(min(self[0], other[0]), min(self[1], other[1]), min(self[2], other[2]))


NO_SEATS = Seats(0, 0, 0)
ANY_MEMORY = 1 << 62
"""The memory of a device that does not say how much it has: it is not counted."""


Shared = Mapping[str, Mapping[str, Seats]]
"""What each device that can be shared offers, by type and id."""


@dataclass(frozen=True, slots=True)
class NodeKind:
    """A node's capacity: accelerators by type, cpus, memory, and what its devices offer that can be shared."""

    capacity: Resources
    seats: tuple[tuple[str, tuple[Seats, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node and what is free on it now: devices that are free whole, as ids by type, what is free of each device that
    can be shared, cpus and memory. `closed` says why one that is not `schedulable` takes no new jobs."""

    node: Node
    free_devices: Mapping[str, tuple[str, ...]]
    free_cpu_milli: int
    free_memory_bytes: int
    schedulable: bool = True
    closed: str = ""
    free_seats: Shared = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TenantState:
    """A tenant, what it holds now, and its fair-share account.

    `deficit` is deficit round robin's counter in accelerator-seconds (a job without accelerators counts its cores):
    what the tenant may still start before its turn ends. `mean_runtime_s` and `runtime_std_s` (mean and spread) are of
    its last `runs` jobs that completed.
    """

    tenant: Tenant
    used: Resources = field(default_factory=Resources)
    running_jobs: int = 0
    deficit: float = 0.0
    mean_runtime_s: float | None = None
    runtime_std_s: float = 0.0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of the default policy.

    A job may overtake a blocked one only if it ends before the blocked one's reservation. A job of unknown run time
    may do so while the blocked one has waited less than `backfill_s`, so overtaking is bounded. A job that is too big
    for its tenant's quota may be overtaken by smaller ones of the tenant for the same time. `quantum_s` is what a
    tenant of weight 1 earns each round, in accelerator-seconds. `default_runtime_s` is taken for jobs of which
    nothing is known. `together` are labels of nodes, from the innermost: a gang that needs several nodes is packed onto
    some that have one value of such a label, if they hold it. A decision starts at most `most_starts` jobs; after
    one that starts this number, the next decision is due at once.
    """

    placement: Spread = Spread.PACK
    preemption: bool = True
    backfill_s: float = 60.0
    quantum_s: float = 60.0
    default_runtime_s: float = 60.0
    together: tuple[str, ...] = ("switch", "rack", "zone")
    most_starts: int = 1 << 31


@dataclass(frozen=True, slots=True)
class Start:
    """Run this job here. `reason` says why now. `charge` is what its tenant was charged, in accelerator-seconds."""

    job_id: str
    placement: tuple[RankPlacement, ...]
    reason: Reason
    charge: float = 0.0


@dataclass(frozen=True, slots=True)
class Preemption:
    """Ask this running job to checkpoint and leave, for the sake of `for_job`."""

    job_id: str
    for_job: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Claim:
    """Capacity that is being made for a job: how many ranks on which node, on devices of type `pool` ("": none). Until
    it starts, the job is looked at before all others, and no other may use the capacity: no job leaves in vain."""

    job_id: str
    pool: str
    ranks: tuple[tuple[str, int], ...]
    victims: int


@dataclass(frozen=True, slots=True)
class Decision:
    """`waits` gives a reason for the head of each group of equal waiting jobs (those behind it wait for the same
    reason, after it). `deficits` and `turn` are the fair-share state and `claims` the capacity being freed, to hand to
    the next decision. `wake_at` is when to decide again even if nothing changes (a back-off ends, a reservation comes
    due)."""

    starts: tuple[Start, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    waits: Mapping[str, Reason] = field(default_factory=dict)
    deficits: Mapping[str, float] = field(default_factory=dict)
    turn: str | None = None
    claims: tuple[Claim, ...] = ()
    wake_at: float | None = None


@dataclass(frozen=True, slots=True)
class Blocker:
    """One cause of a wait, in the order that admission asks: quota, share, shape, priority. `change` says what would
    have to be different for this cause to vanish."""

    cause: str
    blocking: bool
    reason: Reason
    change: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits: every cause in order, the jobs ahead of it, and when it may start (None: cannot be said);
    `estimate` says what that rests on, or what is missing. `start_between` holds the start in nine of ten cases (None:
    cannot be said); where nothing bounds it from above, its second part is None.

    `ahead` counts the jobs of its own tenant that go first and, for best-effort work, other tenants' guaranteed jobs.
    """

    job_id: str
    causes: Sequence[Blocker]
    ahead: int
    estimated_start: float | None
    summary: str
    estimate: str = ""
    start_between: tuple[float, float | None] | None = None
