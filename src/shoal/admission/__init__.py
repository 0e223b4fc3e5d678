"""Admission and placement: which waiting job starts now, where, and why the others wait.

Senses nothing itself: `ClusterIndex` keeps the control plane's picture of nodes, tenants, waiting and running jobs and
hands out a frozen `Snapshot` of it. `decide` is the policy, a pure function from a snapshot to a `Decision` in which
every start, preemption and wait carries its reason; `explain` answers for one job why it waits, what would have to
change, and when it may start. Carrying a decision out is the control plane's part.

Another policy for some of the jobs needs the parts as well: `Capacity` finds nodes for a rank's `Need`, `Account` knows
a tenant's quota, `reserve` keeps nodes for a job that is too big for now, and `reasons` has the words.
"""

from shoal.admission import reasons
from shoal.admission.capacity import Capacity, Plan, held_by_all
from shoal.admission.decide import decide
from shoal.admission.explain import explain, obstacles
from shoal.admission.index import ClusterIndex
from shoal.admission.outlook import Outlook
from shoal.admission.persistent import CowMap
from shoal.admission.quota import Account, Limit
from shoal.admission.reservation import Reservation, reserve
from shoal.admission.snapshot import (
    Group,
    Layout,
    Need,
    PendingJobs,
    Snapshot,
    TenantQueue,
    expected_runtime_s,
    resolve,
    slots,
)
from shoal.admission.types import (
    Blocker,
    Decision,
    Explanation,
    NodeState,
    Pending,
    Policy,
    Preemption,
    Running,
    Spread,
    Start,
    TenantState,
)
from shoal.admission.without import without

__all__ = [
    "Account", "Blocker", "Capacity", "ClusterIndex", "CowMap", "Decision", "Explanation", "Group", "Layout", "Limit",
    "Need", "NodeState", "Outlook", "Pending", "PendingJobs", "Plan", "Policy", "Preemption", "Reservation", "Running",
    "Snapshot", "Spread", "Start", "TenantQueue", "TenantState", "decide", "expected_runtime_s", "explain",
    "held_by_all", "obstacles", "reasons", "reserve", "resolve", "slots", "without",
]  # fmt: skip
