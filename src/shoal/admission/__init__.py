"""Admission and placement: which waiting job starts now, where, and why the others wait.

Senses nothing itself: `ClusterIndex` keeps the control plane's picture of nodes, tenants, waiting and running jobs and
hands out a frozen `Snapshot` of it. `decide` is the policy, a pure function from a snapshot to a `Decision`. Every
start, preemption and wait in it carries its reason. `explain` tells for one job why it waits, what would have to
change, and when it may start. Carrying a decision out is the control plane's part.

Another part may put some of the jobs in order: it hands `decide` an `Order`, and `reasons` has the words.
"""

from shoal.admission import reasons
from shoal.admission.additions import Additions, Dropped, unite
from shoal.admission.amounts import held_by_all
from shoal.admission.decide import decide
from shoal.admission.explain import explain, obstacles, quota_cause, with_interval
from shoal.admission.index import ClusterIndex
from shoal.admission.order import Order, Prefers, Turn
from shoal.admission.outlook import Outlook
from shoal.admission.reservation import Reservation
from shoal.admission.snapshot import Group, GroupKey, Layout, Need, Snapshot, expected_runtime_s, resolve
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
from shoal.admission.without import kept_off, without

__all__ = [
    "Additions",
    "Blocker",
    "ClusterIndex",
    "Decision",
    "Dropped",
    "Explanation",
    "Group",
    "GroupKey",
    "Layout",
    "Need",
    "NodeState",
    "Order",
    "Outlook",
    "Pending",
    "Policy",
    "Preemption",
    "Prefers",
    "Reservation",
    "Running",
    "Snapshot",
    "Spread",
    "Start",
    "TenantState",
    "Turn",
    "decide",
    "expected_runtime_s",
    "explain",
    "held_by_all",
    "kept_off",
    "obstacles",
    "quota_cause",
    "reasons",
    "resolve",
    "unite",
    "with_interval",
    "without",
]  # fmt: skip
